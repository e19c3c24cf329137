"""The server that was last seen on a host, kept in the record: once its process is gone, its log still tells how it ended."""

import asyncio
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tui.core.server_end import LastServer
from tui.record.store import RecordError
from tui.services.server_search import Server

if TYPE_CHECKING:
    from tui.services.deployment_watch import Session

KEEP_EVERY_S = 60.0
"""How often it is kept when it was last seen, while it runs."""
OF_A_PROCESS = "file:/proc/"
"""A log that was deleted, or lies in a container's own files: its path goes with the process, and its pid comes again."""


class LastSeen:
    """Only where the log is `auto`: one that the configuration names is read anyway."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._applies = session.deployment.engines[0].log == "auto"
        self._kept: LastServer | None = None
        self._not_before = 0.0
        self.server: LastServer | None = None
        self.boot: str | None = None
        """The id of the host's boot; None where it is not known."""

    async def read(self) -> None:
        """What earlier runs have seen. Raises RecordError."""
        session = self._session
        if session.record is not None and self._applies:
            kept = await asyncio.to_thread(session.record.last_server, session.name, session.target, session.port)
            self.server = self._kept = kept

    def see(self, server: Server) -> None:
        """It runs now."""
        if self._applies:
            before, source = self.server, server.source
            if source is None and before is not None and before.pid == server.pid:
                source = before.source  # a process that is ending has closed its output already
            elif source is not None and source.startswith(OF_A_PROCESS):
                source = None
            self.server = LastServer(server.pid, time.time(), source, self.boot, server.host, server.port, server.uds, server.tls)

    async def keep(self, *, leaving: bool = False) -> None:
        """Has it in the record, when that is due. A record that can't be written is tried again: nobody waits for this."""
        last, record = self.server, self._session.record
        if last is None or record is None or last == self._kept or not (leaving or self._due(last)):
            return
        try:
            await asyncio.to_thread(record.save_last_server, self._session.name, self._session.target, self._session.port, last)
        except RecordError:
            self._not_before = time.monotonic() + KEEP_EVERY_S
        else:
            self._kept = last

    def _due(self, last: LastServer) -> bool:
        if time.monotonic() < self._not_before:
            return False
        kept = self._kept
        return kept is None or replace(kept, seen_at=last.seen_at) != last or abs(last.seen_at - kept.seen_at) > KEEP_EVERY_S


def as_server(last: LastServer) -> Server:
    """It as a server that the API client can be sent to."""
    return Server(last.pid, "", host=last.host, port=last.port, uds=last.uds, tls=last.tls)
