"""A log's source in the words of `log = …`, and what the role "follow" is asked for it."""

from collections.abc import Mapping, Sequence
from typing import Any

from tui.core.important import IMPORTANT, NOISE
from tui.core.logs.report import START_MARKERS

LOG_KINDS = ("file", "journal", "docker", "compose", "kubectl", "tmux", "command")
TAIL_LINES = 400


def kind_and_name(source: str) -> tuple[str, str]:
    """`docker:vllm` as ("docker", "vllm"); what has no kind before it is a file's path."""
    kind, _, name = source.partition(":")
    return (kind, name) if kind in LOG_KINDS else ("file", source)


def follow_arguments(source: str, *, resume: Mapping[str, Any] | None = None, become: Sequence[str] = ()) -> dict[str, Any]:
    """Arguments of the role "follow". `resume` is the place that an earlier run gave; `become` are words before a command that may
    read more."""
    kind, name = kind_and_name(source)
    return {
        "source": kind,
        "path" if kind == "file" else "name": name,
        "from": resume,
        "start_markers": list(START_MARKERS),
        "important": list(IMPORTANT),
        "noise": list(NOISE),
        "tail": TAIL_LINES,
        "become": list(become),
    }
