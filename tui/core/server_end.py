"""What supervises a server (systemd, docker or podman, Kubernetes), and what it says of the server's ends."""

import time
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from tui.core.logs.load_state import Failure, LoadState, Phase
from tui.core.presentation import name_of
from tui.core.text import clean

SIGNALS = {6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


class Supervisor(Struct, frozen=True):
    """`by` is "systemd", "docker", "podman" or "kubernetes"; what it doesn't tell is None.

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
        """Return how the server ended last, in words, or None if it has not, or ended well."""
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
        """Return everything in one line."""
        parts = [f"{self.by} {self.name}"]
        if self.restarts:
            parts.append(f"restarted {self.restarts} {'time' if self.restarts == 1 else 'times'}")
        if self.last_end:
            parts.append(f"last end: {self.last_end}")
        if self.before is not None:
            parts.append(f"because: {self.before.cause}")
        return ", ".join(parts)


def supervisor_from_frame(frame: Mapping[str, Any], before: Failure | None = None) -> Supervisor:
    """Decode a frame "supervisor" of the probe's follower; a field that makes no sense becomes None."""
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


class LastServer(Struct, frozen=True):
    """A server's process as it was last seen. `seen_at` is this machine's wall clock; `boot` the id of the host's boot then.

    `host`, `port`, `uds` and `tls` are where its API was, as seen from the host.
    """

    pid: int
    seen_at: float
    source: str | None = None
    """Its log in the words of `log = …`; None for one that can't be read once the process is gone."""
    boot: str | None = None
    host: str | None = None
    port: int | None = None
    uds: str | None = None
    tls: bool = False
    started_at: float | None = None
    """When its process started, by the host's wall clock."""
    beside: tuple[int, ...] = ()
    """The pids of the servers that ran there at the same time."""

    @property
    def words(self) -> str:
        """Return which server it is, in a few words."""
        seen = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.seen_at))
        return f"the last server seen here, pid {self.pid}, {seen}"

    def of(self, boot: str | None) -> str:
        """Return whose log is read, on a host whose boot is `boot` now, or None if that is not known."""
        anew = self.boot is not None and boot is not None and boot != self.boot
        return f"of {self.words}" + ("; the host was restarted or replaced since" if anew else "")

    def unread(self, why: str | None) -> str:
        """Return why nothing of its log can be read now. `why` is the reader's own word, or None if there is none to read."""
        if self.source is None:
            return f"{self.words}, wrote to something that can no longer be read"
        path = self.source.removeprefix("file:")
        if why is None or "no such file" in why:
            return f"{path}, the log of {self.words}, no longer exists"
        return f"the log of {self.words}, can't be read: {path}: {why}"


def how_it_ended(load: LoadState) -> str:
    """Return what the log of a server whose process is gone says of its end."""
    if load.failure is not None:
        return f"it failed: {load.failure.cause}"
    if load.phase is Phase.STOPPED:
        return "it was stopped cleanly"
    if not load.recognised:
        return "nothing of a server stands in it" if load.lines else "it is empty"
    return f"it ends at {name_of(load.phase)}, and does not say why"
