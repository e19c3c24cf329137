"""Which of a host's servers is meant: by what was asked for, what runs there, and what was last seen there."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_changes
from typing import Protocol
from urllib.parse import urlsplit

from msgspec.structs import replace

from tui.core.server_end import LastServer
from tui.record.store import RecordError
from tui.services.server_search import FoundServer
from tui.settings import Deployment
from tui.wire.log_prefixes import AUTO, FILE
from tui.wire.urls import socket_of

KEEP_EVERY_S = 60.0
"""How often the record is told when the server was last seen, while it runs."""
SAME_START_S = 1.5
"""Starts of one process that were read from the host's clock at different times differ by less."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
FILE_SOURCE = f"{FILE}:"
OF_A_PROCESS = "file:/proc/"
"""Begins a log that was deleted, or lies in a container's own files: its path goes with the process, and pids come again."""


DEFAULT_API = Deployment().api


@dataclass(frozen=True, slots=True)
class Wanted:
    """What says which server is meant.

    `port` was asked for; `api` and `log` stand in the configuration, or are its defaults unless `configured`; `pid` was chosen
    among several. `direct`: `api` is reached from this machine, and need not be a server of the host.
    """

    api: str = DEFAULT_API
    log: str = "auto"
    configured: bool = False
    port: int | None = None
    pid: int | None = None
    direct: bool = False
    host_named: bool = False
    """Whether the configuration names a host for the engine, other than this machine."""

    @property
    def free(self) -> bool:
        """Return whether nobody said which server is meant: it may be any, at any address."""
        return (
            self.port is None
            and self.pid is None
            and not self.configured
            and not self.direct
            and self.api == DEFAULT_API
            and self.log == "auto"
        )

    @property
    def moves(self) -> bool:
        """Whether the API moves to where the found server listens, since nobody said where it is."""
        return self.api == DEFAULT_API or self.port is not None or self.pid is not None

    @property
    def where(self) -> str | int | None:
        """Return the port or the Unix socket that names the server; None if none does."""
        return self.port or socket_of(self.api) or urlsplit(self.api).port


def at_port(api: str, port: int) -> str:
    """Return the same address on another port: the one to ask until the server named by its port is found."""
    if socket_of(api) is not None:
        return f"http://127.0.0.1:{port}"
    parts = urlsplit(api)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or "127.0.0.1"
    return parts._replace(netloc=f"{host}:{port}").geturl()


def alive(servers: Sequence[FoundServer]) -> tuple[FoundServer, ...]:
    """Return the servers that serve, youngest last; what is left of dead ones is left out."""
    return tuple(
        sorted((server for server in servers if not server.orphan), key=lambda server: (server.started_at or 0.0, server.pid))
    )


def tied(servers: Sequence[FoundServer], wanted: Wanted) -> list[FoundServer]:
    """Return the running servers that can be meant: by port or socket, by the configured log, or any if nobody said more."""
    running = alive(servers)
    here = not wanted.direct or wanted.host_named or urlsplit(wanted.api).hostname in LOOPBACK
    listening = [server for server in running if here and wanted.where is not None and server.where == wanted.where]
    if listening or wanted.port is not None:
        return listening
    if wanted.log != AUTO:
        return [server for server in running if server.source in (wanted.log, FILE_SOURCE + wanted.log)]
    if wanted.direct:
        # A gateway's address has no port of its own; then the host that is named for the engine says which server it is.
        return list(running) if wanted.host_named and urlsplit(wanted.api).port is None else []
    if wanted.moves:
        return list(running)
    # A published port leads to another one in the container's own network.
    return [server for server in running if server.own_network]


def successor(servers: Sequence[FoundServer], of: FoundServer, wanted: Wanted) -> FoundServer | None:
    """Return the server `of` if it runs, else the one that was started in its place: on the same port, or into the same log.

    A server that ran beside it is another one, unless its port was asked for.
    """
    for server in alive(servers):
        if server.pid == of.pid and not _later(server, of):
            return server
    named = wanted.port is not None or not wanted.moves
    later = [server for server in alive(servers) if named or not _later(of, server)]
    again = [server for server in later if of.where is not None and server.where == of.where]
    same_log = of.source is not None and not of.source.startswith(OF_A_PROCESS)
    again = again or [server for server in later if same_log and server.source == of.source]
    return again[-1] if again else None


def _later(server: FoundServer, other: FoundServer) -> bool:
    """Return whether a server was started after another one, as far as that is known."""
    if server.started_at is None or other.started_at is None:
        return False
    return server.started_at - other.started_at > SAME_START_S


def meant(
    servers: Sequence[FoundServer], wanted: Wanted, current: FoundServer | None = None, last: "LastSeen | None" = None
) -> FoundServer | None:
    """Return the server that is meant, if it runs.

    `current` is the one meant so far: no other takes its place, when it has ended either. Without it `last` is the one that an
    earlier run has seen: what ran beside that one is another.
    """
    if wanted.pid is not None and (current is None or current.pid != wanted.pid):
        for server in alive(servers):
            if server.pid == wanted.pid:
                return server
    if current is not None:
        return successor(servers, current, wanted)
    candidates = tied(servers, wanted)
    if last is not None and wanted.port is None and len(candidates) == 1 and last.ran_beside(candidates[0]):
        return None
    listening = [server for server in candidates if server.where == wanted.where]
    chosen = listening or candidates
    return chosen[-1] if chosen else None


def undecided(servers: Sequence[FoundServer], wanted: Wanted) -> tuple[FoundServer, ...]:
    """Return the servers among which somebody must choose; none if it is clear."""
    running = alive(servers)
    return running if wanted.free and len(running) > 1 else ()


def choice_text(target: str, servers: Sequence[FoundServer]) -> str:
    """Say that several servers run, and how to name one of them."""
    lines = [f"{len(servers)} servers run on {target}; name one, or keep one in the configuration with readyroom init {target}:"]
    lines += [f"  --port {found.port}  {found.words}" if found.port is not None else f"  {found.words}" for found in servers]
    return "\n".join(lines)


class Undecided(Exception):
    """Several servers run, and nobody said which one is meant; the message lists them."""


class ServerRecord(Protocol):
    """The part of the record that keeps the server that was last seen."""

    def save_last_server(self, deployment: str, target: str, port: int | None, last: LastServer, /) -> None: ...

    def last_server(self, deployment: str, target: str, port: int | None, /) -> LastServer | None: ...


class LastSeen:
    """The server that was last seen on a host, kept in the record: once its process is gone, its log still tells how it ended.

    Only for the log `auto`: one that the configuration names is read anyway.
    """

    def __init__(self, name: str, target: str, wanted: Wanted, record: ServerRecord | None) -> None:
        self._key = (name, target, wanted.port)
        self._record = record
        self._applies = wanted.log == AUTO
        self._kept: LastServer | None = None
        self._not_before = 0.0
        self.server: LastServer | None = None
        self.boot: str | None = None
        """The id of the host's boot; None if it is not known."""

    async def read(self) -> None:
        """Read what earlier runs have seen. Raise RecordError."""
        if self._record is not None and self._applies:
            self.server = self._kept = await asyncio.to_thread(self._record.last_server, *self._key)

    def ran_beside(self, server: FoundServer) -> bool:
        """Return whether this server is known to have run beside the one last seen, so that it is not its next start."""
        last = self.server
        if last is None or self.boot is None or self.boot != last.boot or server.pid == last.pid:
            return False
        return server.pid in last.beside and server.where != (last.uds or last.port)

    def see(self, server: FoundServer, beside: Sequence[FoundServer] = ()) -> None:
        """Take note of a server that runs now, and of those `beside` it."""
        if self._applies:
            before, source = self.server, server.source
            if source is None and before is not None and before.pid == server.pid:
                source = before.source  # a process that is ending has closed its output already
            elif source is not None and source.startswith(OF_A_PROCESS):
                source = None
            others = tuple(other.pid for other in beside if other.pid != server.pid)
            where = (server.host, server.port, server.uds, server.tls)
            self.server = LastServer(server.pid, time.time(), source, self.boot, *where, server.started_at, others)

    async def keep(self, *, leaving: bool = False) -> None:
        """Write it to the record if that is due. A record that can't be written is tried again later: nobody waits for this."""
        last, record = self.server, self._record
        if last is None or record is None or last == self._kept or not (leaving or self._due(last)):
            return
        try:
            await asyncio.to_thread(record.save_last_server, *self._key, last)
        except RecordError:
            self._not_before = time.monotonic() + KEEP_EVERY_S
        else:
            self._kept = last

    def _due(self, last: LastServer) -> bool:
        if time.monotonic() < self._not_before:
            return False
        kept = self._kept
        return kept is None or replace(kept, seen_at=last.seen_at) != last or abs(last.seen_at - kept.seen_at) > KEEP_EVERY_S


def as_server(last: LastServer) -> FoundServer:
    """Return it as a server that the API client can be sent to."""
    return FoundServer(last.pid, "", host=last.host, port=last.port, uds=last.uds, tls=last.tls)


class ServerChoice:
    """Which server is meant, as the host is looked at again and again; listeners are told after each look."""

    def __init__(self, name: str, target: str, wanted: Wanted, record: ServerRecord | None = None) -> None:
        self.wanted = wanted
        self.last = LastSeen(name, target, wanted, record)
        self.server: FoundServer | None = None
        """The one that is meant, while it runs."""
        self.watched: FoundServer | None = None
        """The one that is meant, also once it has ended: it is replaced by its own next start, or by choice."""
        self.log_abandoned = False
        """Whether the configured log has no writer left, so that the server is known to be gone though none was seen."""
        self._seen = False
        self.running: tuple[FoundServer, ...] = ()
        """The servers that run on the host, youngest last."""
        self.orphans: tuple[int, ...] = ()
        """Processes that are left of dead servers."""
        self.undecided = False
        """Whether somebody must choose."""
        self.alive: bool | None = None
        """Whether the server lives; None if it was never seen: it may run in another container's list of processes."""
        self.looked = False
        """Whether the host's processes have been looked at, or can't be."""
        self._up_to_date = False
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each look at the host, and after each choice."""
        self._listeners.append(listener)

    def choose(self, pid: int) -> None:
        """Mean this one of the servers that run."""
        self.wanted = with_changes(self.wanted, pid=pid)
        self._decide()

    def see(self, servers: Sequence[FoundServer], boot: str | None = None) -> None:
        """Take what was found on the host, whose boot has the id `boot`."""
        self.last.boot = boot if boot is not None else self.last.boot
        self.running = alive(servers)
        self.orphans = tuple(server.pid for server in servers if server.orphan)
        self._decide()
        self.looked = self._up_to_date = True

    def see_nothing(self) -> None:
        """Take note that the host's processes can't be looked at."""
        self.alive = None
        self.looked = True

    def see_log_abandoned(self, gone: bool) -> None:
        """Take note that the log that is followed has no writer left, or has one again."""
        self.log_abandoned = gone
        if self.looked:
            self._decide()

    def forget(self) -> None:
        """Take note that the link was lost: what ran may have ended since."""
        self.alive = None
        self._up_to_date = False

    @property
    def target(self) -> FoundServer | None:
        """The server that the API client should ask: the chosen one, or the last one seen if none was seen yet."""
        if self.server is not None or self._seen or self.last.server is None:
            return self.server
        return as_server(self.last.server)

    async def keep(self) -> None:
        """Keep in the record when the server was last seen; called every second while the host is online."""
        if self.server is not None and self._up_to_date and not self.undecided:
            self.last.see(self.server, self.running)
        await self.last.keep()

    def _decide(self) -> None:
        self._seen = self.alive is not None
        before = self.watched
        self.server = meant(self.running, self.wanted, before, self.last)
        self.watched = self.server or before
        # A server that starts beside the one that is watched makes nothing unclear.
        self.undecided = bool(undecided(self.running, self.wanted)) and (self.undecided or before is None)
        if self.server is not None:
            self.alive = True
            if not self.undecided:  # a guess is not remembered
                self.last.see(self.server, self.running)
        elif self.watched is not None or self.last.server is not None or self.log_abandoned:
            self.alive = False
        else:
            self.alive = None
        for listener in self._listeners:
            listener()
