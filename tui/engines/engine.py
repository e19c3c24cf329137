"""What an engine's package registers: the values, without the grammar of its log, which is loaded when a log is read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tui.core.logs.grammar import Grammar


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """How a server's process is recognised on its host, and what its command line says. Plain data: the probe is sent it."""

    patterns: tuple[str, ...]
    """Regular expressions of a command line's words, joined by line feeds and matched from their start. An interpreter and its
    options are left out before: `-m`, module, next word; or script, next word; or program, next word."""
    port: int
    """The port that it listens on unless told otherwise."""
    mentions: tuple[str, ...]
    """Basic regular expressions of which any command line of it holds one, for a quick search with `grep`."""
    options: Mapping[str, tuple[str, ...]]
    """What is asked of a command line (host, port, model, served_name, tensor_parallel, batched_tokens, key, tls, uds) -> the
    options that say it, long or short, the most telling first."""
    model_after: str = ""
    """The word after which the model may stand without an option."""
    titles: tuple[str, ...] = ()
    """Beginnings of the titles that its processes set."""
    orphans: tuple[str, ...] = ()
    """Those of processes that a server starts: without a server above them they are what is left of a dead one."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What is asked of the environment (key, ready_timeout_s) -> the variable's name."""
    host: str = "0.0.0.0"
    """The address that it listens on unless told otherwise."""

    def as_data(self, name: str) -> dict[str, Any]:
        """Return it as JSON data for the probe."""
        return {
            "name": name,
            "patterns": list(self.patterns),
            "port": self.port,
            "host": self.host,
            "options": {asked: list(options) for asked, options in self.options.items()},
            "model_after": self.model_after,
            "titles": list(self.titles),
            "orphans": list(self.orphans),
            "variables": dict(self.variables),
        }


@dataclass(frozen=True, slots=True)
class MetricNames:
    """The families of an engine's /metrics, without its prefix and without `_total`; of several names of one figure the newest
    first."""

    prefix: str
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    kv_cache: tuple[str, ...] = ()
    """A share of 0 to 1."""
    prompt_tokens: tuple[str, ...] = ()
    generation_tokens: tuple[str, ...] = ()
    preemptions: tuple[str, ...] = ()
    finished: tuple[str, ...] = ()
    prefix_queries: tuple[str, ...] = ()
    prefix_hits: tuple[str, ...] = ()
    prefix_rate: tuple[str, ...] = ()
    ttft: tuple[str, ...] = ()
    """A histogram of seconds."""


@dataclass(frozen=True, slots=True)
class ReadyTimeout:
    """After how long the API server gives up waiting for its engine, and which variable of the environment sets it."""

    variable: str
    default_s: float
    since: tuple[int, int]
    """The first release that gives up."""


@dataclass(frozen=True, slots=True)
class Engine:
    """All that readyroom knows of one engine. `name` is the word of documents, `title` that of the screen."""

    name: str
    title: str
    command: ServerCommand
    metrics: MetricNames
    grammar: "Callable[[], Grammar]"
    start_markers: tuple[str, ...]
    """Regular expressions of lines that begin a start. They are searched for in bytes as well as in text, so they name no character
    beyond ASCII."""
    start_texts: tuple[str, ...]
    """The same as plain text, if the line can be told so."""
    important: tuple[str, ...] = ()
    """Regular expressions of lines that its state is made of, beside the common ones."""
    noise: tuple[str, ...] = ()
    """Plain text of lines that never matter."""
    ready_timeout: ReadyTimeout | None = None
