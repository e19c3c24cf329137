"""What the log of an engine says: its messages, its words for failures, its advice.

Each engine's package makes one `Grammar` and registers the handlers of its messages with it. Messages are found by their first word
and then by a pattern, so that a line of a serving log costs one look-up. File names and line numbers move between releases and are
not looked at.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tui.core.logs.load_state import Phase
from tui.core.logs.log_records import Line
from tui.core.logs.start_parser import StartParser


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern for a message and what to do with a match. `begins` marks the first message of a start."""

    pattern: re.Pattern[str]
    handler: "Handler"
    begins: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """The chosen cause of a failure, before advice is written. `text` is all that was said of it, `cause` one line of it."""

    kind: str
    cause: str
    process: str | None
    line: int | None
    phase: Phase
    text: str = ""
    context: tuple[str, ...] = ()
    """What else was said about it, first things first."""


Handler = Callable[[StartParser, "re.Match[str]", Line], None]
Writer = Callable[[str, StartParser, Finding], str]
"""Write advice from the text of a failure, the state of the start and the chosen cause; "" leaves it to the common advice."""


@dataclass(slots=True)
class FailureWords:
    """An engine's own words for failures, as alternatives of regular expressions that join the common ones."""

    kinds: Mapping[str, str] = field(default_factory=dict)
    """Kind of failure -> what tells of it."""
    wrappers: str = ""
    """What only says that something else went wrong."""
    consequences: str = ""
    """What follows from another process's failure."""
    plain: str = ""
    """Lines without an exception that may be a cause."""
    hints: str = ""
    """Warnings that may explain a later exception."""
    fatal: str = ""
    """Messages after which nothing comes up or goes on."""
    shell: str = ""
    """What the shell says if the server's command cannot be run."""
    fatal_at_any_level: str = ""
    """Those of them that are written as a warning or for information only."""
    announcements: str = ""
    """Messages that a traceback follows."""
    introductions: tuple[str, ...] = ()
    """Beginnings of messages that say which process a traceback is of."""
    quoting: str = ""
    """Wrappers that quote the cause."""
    extension_hints: str = ""
    """Hints that say why a compiled extension is missing, of which only an AttributeError tells later."""
    engine_ended: tuple[str, str] = ("", "")
    """The name of the engine's main process, and what tells that it ended without a word."""
    worker_ended: str = ""
    """What tells that one of its workers ended without a word."""


@dataclass(slots=True)
class Grammar:
    """What one engine's log says. `engine` is the engine's name."""

    engine: str
    record: str = ""
    """The record format (`log_records`) that only this engine writes; "" if it writes the common one."""
    record_is_proof: bool = False
    """A single record of that format proves the engine."""
    startup_is_ready: bool = True
    """"Application startup complete." means ready. If not, neither does an answered request."""
    source: str = ""
    """A part of the paths of its source files, as tracebacks show them."""
    requests: tuple[str, ...] = ()
    """Beginnings of messages that quote requests, and so somebody else's words."""
    failures: FailureWords = field(default_factory=FailureWords)
    advice: Mapping[str, Writer] = field(default_factory=dict)
    """Kind of failure -> what writes the advice."""
    more_detail: str = ""
    """What makes it log more at the next start."""
    by_word: dict[str, list[Rule]] = field(default_factory=dict)
    by_literal: list[tuple[str, Rule]] = field(default_factory=list)

    def says(self, pattern: str, *words: str, begins: bool = False) -> Callable[[Handler], Handler]:
        """Register a handler for messages that match from their start and begin with one of the words.

        Without words, the pattern's own first word is taken.
        """

        def register(handler: Handler) -> Handler:
            rule = Rule(re.compile(pattern), handler, begins)
            for word in words or (pattern.split(" ", 1)[0].replace("\\", ""),):
                self.by_word.setdefault(word, []).append(rule)
            return handler

        return register

    def contains(self, literal: str, pattern: str, *, begins: bool = False) -> Callable[[Handler], Handler]:
        """Register a handler for messages that hold the literal and match the pattern anywhere."""

        def register(handler: Handler) -> Handler:
            self.by_literal.append((literal, Rule(re.compile(pattern), handler, begins)))
            return handler

        return register

    def rule_for(self, message: str) -> tuple[Rule, re.Match[str]] | None:
        """Return the first rule that a message matches, and the match; None if there is none."""
        for rule in self.by_word.get(first_word(message), ()):
            match = rule.pattern.match(message)
            if match is not None:
                return rule, match
        for literal, rule in self.by_literal:
            if literal in message:
                match = rule.pattern.search(message)
                if match is not None:
                    return rule, match
        return None


def first_word(message: str) -> str:
    """Return what stands before the first space."""
    space = message.find(" ")
    return message[:space] if space > 0 else message


def number(text: str) -> int:
    """Return 1,234,567 as an integer."""
    return int(text.replace(",", ""))


GIB = r"([\d.]+) ?Gi?B"


def find(pattern: str, text: str) -> re.Match[str] | None:
    """Return the first match, over line ends too."""
    return re.search(pattern, text, re.DOTALL)


def thousands(digits: str | int) -> str:
    """Return 43936 as `43,936`."""
    return f"{int(digits):,}"
