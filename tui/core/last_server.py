"""The server that was last seen on a host: where its log is, and since when its process may be gone."""

import time

from msgspec import Struct

from tui.core.logs.phase_names import name_of
from tui.core.logs.state import LoadState, Phase


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

    @property
    def words(self) -> str:
        """Which server it is, in a few words."""
        seen = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.seen_at))
        return f"the last server seen here, pid {self.pid}, {seen}"

    def of(self, boot: str | None) -> str:
        """Whose log it is that is read, on a host whose boot is `boot` now (None where that is not known)."""
        anew = self.boot is not None and boot is not None and boot != self.boot
        return f"of {self.words}" + ("; the host was restarted or replaced since" if anew else "")

    def unread(self, why: str | None) -> str:
        """Why nothing of it can be read now. `why` is what the reader of its log says, None where there is none to read."""
        if self.source is None:
            return f"{self.words}, wrote where nothing can be read any more"
        path = self.source.removeprefix("file:")
        if why is None or "no such file" in why:
            return f"{path}, the log of {self.words}, is there no more"
        return f"the log of {self.words}, can't be read: {path}: {why}"


def how_it_ended(load: LoadState) -> str:
    """What the log of a server whose process is gone says of its end."""
    if load.failure is not None:
        return f"it failed: {load.failure.cause}"
    if load.phase is Phase.STOPPED:
        return "it was stopped in order"
    if not load.lines:
        return "nothing stands in it"
    return f"it ends at {name_of(load.phase)}, and does not say why"
