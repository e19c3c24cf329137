"""Which of a host's servers is meant where the configuration does not say, and attaching a session to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tui.services.server_search import Server, best_server
from tui.settings import Deployment
from tui.wire.urls import socket_of

if TYPE_CHECKING:
    from tui.services.deployment_watch import Session

DEFAULT_API = Deployment().api


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is known of the server that is meant. `port` was asked for, `api` and `log` stand in the configuration (or are its
    defaults), `configured` says which; `pid` was chosen among several."""

    api: str = DEFAULT_API
    log: str = "auto"
    configured: bool = False
    port: int | None = None
    pid: int | None = None

    @property
    def free(self) -> bool:
        """Whether nobody said which server is meant: any may be, at any address."""
        return self.port is None and self.pid is None and not self.configured and self.api == DEFAULT_API and self.log == "auto"

    @property
    def moves(self) -> bool:
        """Whether the API is where the found server listens, since nobody said where it is."""
        return self.api == DEFAULT_API or self.port is not None or self.pid is not None


def at_port(api: str, port: int) -> str:
    """The same address on another port: where a server that was named by its port is asked until it is found, or can't be seen."""
    if socket_of(api) is not None:
        return f"http://127.0.0.1:{port}"
    parts = urlsplit(api)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or "127.0.0.1"
    return parts._replace(netloc=f"{host}:{port}").geturl()


def alive(servers: Sequence[Server]) -> tuple[Server, ...]:
    """Those that serve, youngest last; what is left of dead ones is none."""
    return tuple(sorted((one for one in servers if not one.orphan), key=lambda one: (one.started_at or 0.0, one.pid)))


def meant(servers: Sequence[Server], wanted: Wanted, current: Server | None = None) -> Server | None:
    """The server that is meant, if it runs. `current` is the one so far: a server that starts beside it does not take its place."""
    running = alive(servers)
    if wanted.pid is not None:
        chosen = [one for one in running if one.pid == wanted.pid]
        if not chosen and current is not None:
            # It was started again: by the same port it is the same server.
            chosen = [one for one in running if one.where == current.where]
        return chosen[-1] if chosen else None
    if wanted.port is not None:
        chosen = [one for one in running if one.port == wanted.port]
        return chosen[-1] if chosen else None
    if wanted.free and current is not None:
        for one in running:
            if one.pid == current.pid:
                return one
    return best_server(running, socket_of(wanted.api) or urlsplit(wanted.api).port, wanted.log)


def undecided(servers: Sequence[Server], wanted: Wanted) -> tuple[Server, ...]:
    """The servers among which somebody must choose; empty where it is clear."""
    running = alive(servers)
    return running if wanted.free and len(running) > 1 else ()


def choice_text(target: str, servers: Sequence[Server]) -> str:
    """What to say where several servers run and none was named."""
    lines = [f"{len(servers)} servers run on {target}; name one, or keep one in the configuration with readyroom init {target}:"]
    lines += [f"  --port {one.port}  {one.words}" if one.port is not None else f"  {one.words}" for one in servers]
    return "\n".join(lines)


class Undecided(Exception):
    """Several servers run, and nobody said which one is meant; the message lists them."""


async def attach(session: "Session") -> Server | None:
    """Looks once which server is meant, on a host that is connected, and has the session's API ask that one.

    None where none is found or nothing needs to be found. Raises Undecided and HostError; TimeoutError when the search takes too
    long.
    """
    from tui.services.server_search import find_servers

    wanted = session.wanted
    if not wanted.moves or session.deployment.direct:
        return None
    servers = await find_servers(session.host, session.become)
    if choice := undecided(servers, wanted):
        raise Undecided(choice_text(session.target, choice))
    server = meant(servers, wanted)
    if server is not None:
        session.ask(server)
    return server
