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
from tui.services.server_search import FoundServer, best_server
from tui.settings import Deployment
from tui.wire.log_prefixes import AUTO
from tui.wire.urls import socket_of

KEEP_EVERY_S = 60.0
"""How often the record is told when the server was last seen, while it runs."""
OF_A_PROCESS = "file:/proc/"
"""Begins a log that was deleted, or lies in a container's own files: its path goes with the process, and pids come again."""


DEFAULT_API = Deployment().api


@dataclass(frozen=True, slots=True)
class Wanted:
    """What says which server is meant.

    `port` was asked for; `api` and `log` stand in the configuration, or are its defaults unless `configured`; `pid` was chosen
    among several.
    """

    api: str = DEFAULT_API
    log: str = "auto"
    configured: bool = False
    port: int | None = None
    pid: int | None = None

    @property
    def free(self) -> bool:
        """Return whether nobody said which server is meant: it may be any, at any address."""
        return self.port is None and self.pid is None and not self.configured and self.api == DEFAULT_API and self.log == "auto"

    @property
    def moves(self) -> bool:
        """Whether the API moves to where the found server listens, since nobody said where it is."""
        return self.api == DEFAULT_API or self.port is not None or self.pid is not None


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


def meant(servers: Sequence[FoundServer], wanted: Wanted, current: FoundServer | None = None) -> FoundServer | None:
    """Return the server that is meant, if it runs.

    `current` is the one meant so far: a server that starts beside it does not take its place.
    """
    running = alive(servers)
    if wanted.pid is not None:
        chosen = [server for server in running if server.pid == wanted.pid]
        if not chosen and current is not None:
            # It was started again: by the same port it is the same server.
            chosen = [server for server in running if server.where == current.where]
        return chosen[-1] if chosen else None
    if wanted.port is not None:
        chosen = [server for server in running if server.port == wanted.port]
        return chosen[-1] if chosen else None
    if wanted.free and current is not None:
        for server in running:
            if server.pid == current.pid:
                return server
    return best_server(running, socket_of(wanted.api) or urlsplit(wanted.api).port, wanted.log)


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

    def see(self, server: FoundServer) -> None:
        """Take note of a server that runs now."""
        if self._applies:
            before, source = self.server, server.source
            if source is None and before is not None and before.pid == server.pid:
                source = before.source  # a process that is ending has closed its output already
            elif source is not None and source.startswith(OF_A_PROCESS):
                source = None
            self.server = LastServer(
                server.pid, time.time(), source, self.boot, server.host, server.port, server.uds, server.tls, server.started_at
            )

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
            self.last.see(self.server)
        await self.last.keep()

    _seen = False

    def _decide(self) -> None:
        self._seen = self.alive is not None
        before, self.server = self.server, meant(self.running, self.wanted, self.server)
        kept = before is not None and self.server is not None and before.pid == self.server.pid
        # A server that starts beside the one that is watched makes nothing unclear.
        self.undecided = bool(undecided(self.running, self.wanted)) and (self.undecided or not kept)
        if self.server is not None:
            self.alive = True
            if not self.undecided:  # a guess is not remembered
                self.last.see(self.server)
        elif self._seen or self.last.server is not None:
            self.alive = False
        for listener in self._listeners:
            listener()
