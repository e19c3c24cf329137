"""The engines that readyroom knows, and what is asked of all of them together."""

from functools import cache
from typing import TYPE_CHECKING, Any

from tui.engines.engine import Engine
from tui.engines.llama_cpp import ENGINE as _LLAMA_CPP
from tui.engines.sglang import ENGINE as _SGLANG
from tui.engines.vllm import ENGINE as _VLLM

if TYPE_CHECKING:
    from tui.core.logs.grammar import Grammar

ENGINES: tuple[Engine, ...] = (_VLLM, _SGLANG, _LLAMA_CPP)

TITLES: tuple[str, ...] = tuple(title for engine in ENGINES for title in engine.command.titles)
"""Beginnings of the titles that an engine's processes set."""

START_MARKERS: tuple[str, ...] = tuple(marker for engine in ENGINES for marker in engine.start_markers)
"""Regular expressions of lines that begin a server's start: a follower looks for the last of them to attach fast."""

START_TEXTS: tuple[str, ...] = tuple(text for engine in ENGINES for text in engine.start_texts)


def engine_named(name: str | None) -> Engine | None:
    """Return the engine of that name, None if it is not known."""
    return next((engine for engine in ENGINES if engine.name == name), None)


def title_of(name: str) -> str:
    """Return an engine's name as the screen writes it; an unknown one unchanged."""
    engine = engine_named(name)
    return engine.title if engine is not None else name


def titles(joined: str = " or ") -> str:
    """Return the names of all engines, as `vLLM, SGLang or llama.cpp`."""
    names = [engine.title for engine in ENGINES]
    return joined.join([", ".join(names[:-1]), names[-1]])


def commands() -> list[dict[str, Any]]:
    """Return how the engines' processes are recognised, as JSON data for the probe's role "find"."""
    return [engine.command.as_data(engine.name) for engine in ENGINES]


def metric_names(figure: str, *, prefixed: bool = True) -> tuple[str, ...]:
    """Return the families of a figure (a field of `MetricNames`) of all engines."""
    names: list[str] = []
    for metrics in (engine.metrics for engine in ENGINES):
        names += [(metrics.prefix if prefixed else "") + name for name in getattr(metrics, figure)]
    return tuple(names)


@cache
def grammars() -> tuple["Grammar", ...]:
    """Return the grammars of the engines' logs."""
    return tuple(engine.grammar() for engine in ENGINES)
