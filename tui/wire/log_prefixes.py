"""The kinds of log sources, `PREFIX:NAME` in the words of `log = …`: the one table that both sides of a link read.

Each prefix has a class in `tui.probe.log_sources` that recognises, reads and resumes such a source.

Python 3.8: this runs on the GPU host.
"""

from typing import Tuple

AUTO = "auto"
"""The log of whichever server is found on the host."""
NO_LOG = "none"
"""No log is read; a file of that name is `file:none`."""

FILE = "file"
LOG_PREFIXES = {
    FILE: "PATH",
    "journal": "UNIT",
    "docker": "NAME",
    "podman": "NAME",
    "compose": "SERVICE",
    "kubectl": "NS/POD",
    "tmux": "TARGET",
    "command": "…",
}
"""Prefix -> what follows it, as documentation writes it."""


def split_source(source: str) -> Tuple[str, str]:
    """Split `docker:vllm` into ("docker", "vllm"). Raise ValueError for a source without a name or a known prefix."""
    prefix, colon, name = source.partition(":")
    if colon and name and prefix in LOG_PREFIXES:
        return prefix, name
    raise ValueError("must be %s, %s or one of %s, not %r" % (AUTO, NO_LOG, " ".join(p + ":…" for p in LOG_PREFIXES), source))
