"""What supervises a server (systemd, docker or podman, Kubernetes), and what it says of the server's ends."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from tui.core.logs.state import Failure
from tui.core.text import clean

SIGNALS = {6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


class Supervisor(Struct, frozen=True):
    """`by` is "systemd", "docker" or "kubernetes"; what it doesn't tell is None.

    The exit status, the signal and the reason are those of the last end.
    """

    by: str
    name: str
    running: bool | None = None
    restarts: int | None = None
    """How often it started the server again by itself."""
    exit_code: int | None = None
    signal: int | None = None
    oom_killed: bool | None = None
    reason: str | None = None
    """In its own word: systemd's Result, Kubernetes' reason."""
    before: Failure | None = None
    """Why the start before the present one ended, as its log says."""

    @property
    def last_end(self) -> str | None:
        """How the server ended last, in words; None where it hasn't, or ended well."""
        if self.oom_killed:
            return "killed by the kernel: out of memory (OOMKilled)"
        number = self.signal or (self.exit_code - 128 if self.exit_code is not None and self.exit_code > 128 else None)
        if number:
            return f"killed by {SIGNALS.get(number, f'signal {number}')}"
        if self.exit_code:
            return f"ended with status {self.exit_code}"
        return self.reason if self.reason not in (None, "success", "Completed") else None

    @property
    def says(self) -> str:
        """All of it in a line."""
        parts = [f"{self.by} {self.name}"]
        if self.restarts:
            parts.append(f"restarted {self.restarts} {'time' if self.restarts == 1 else 'times'}")
        if self.last_end:
            parts.append(f"last end: {self.last_end}")
        if self.before is not None:
            parts.append(f"because: {self.before.cause}")
        return ", ".join(parts)


def supervisor_from_frame(frame: Mapping[str, Any], before: Failure | None = None) -> Supervisor:
    """A frame "supervisor" of the probe's follower as a typed value; what makes no sense is None."""
    return Supervisor(
        by=clean(str(frame.get("by") or "")),
        name=clean(str(frame.get("name") or "")),
        running=_flag(frame.get("running")),
        restarts=_whole(frame.get("restarts")),
        exit_code=_whole(frame.get("exit_code")),
        signal=_whole(frame.get("signal")),
        oom_killed=_flag(frame.get("oom_killed")),
        reason=clean(str(frame["reason"])) if frame.get("reason") else None,
        before=before,
    )


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
