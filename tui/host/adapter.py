"""What every host adapter shares: the state of its connection, what runs over a shell there, and HTTP from there."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self, TypeVar

from anyio.abc import ByteStream
from msgspec.structs import replace

from tui.core.connection import ConnectionState, LinkState
from tui.host.base import Completed, HostError, NotPermitted, ProbeFailed, Refused, Unreachable
from tui.host.relay_streams import RelayClient
from tui.host.shell import HostProcess, run_command
from tui.host.shipped import LeashedCommand, ShippedProbe

if TYPE_CHECKING:
    import httpx  # 150 ms that the first paint must not wait for


S = TypeVar("S", ShippedProbe, LeashedCommand)


class HostAdapter(ABC):
    """Implement `tui.host.base.Host` over a way to start a shell.

    A subclass opens and forgets its connection (`_open`, `_detach`), starts a shell on it (`_shell`) and, if it has a better way
    than the probe's relay, opens byte streams from the host (`open_stream`).
    """

    standing_limit: int | None = None
    """Most probes and commands at once; None for as many as are wanted."""

    def __init__(self, name: str, where: str = "") -> None:
        """Set up a disconnected host; `where` is what messages call it, its name by default."""
        self.name = name
        self._where = where or name
        self._state = ConnectionState(host=name)
        self._lost: asyncio.Future[HostError] | None = None
        self._standing: set[ShippedProbe | LeashedCommand] = set()
        self._relay = RelayClient(lambda: self.start_probe("relay", {}), name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # -- what a subclass brings --------------------------------------------------------------------------------------------------

    @abstractmethod
    async def _open(self) -> str | None:
        """Open the connection; return advice for whoever uses it, if there is any. Raises Unreachable or Refused."""

    def _detach(self, closing: AsyncExitStack) -> None:  # noqa: B027
        """Forget the present connection, and leave to `closing` what ends it."""

    @abstractmethod
    async def _shell(self) -> HostProcess:
        """Start a `/bin/sh` on the host. Raises Unreachable, Refused or NotPermitted."""

    # -- the connection ----------------------------------------------------------------------------------------------------------

    @property
    def connection(self) -> ConnectionState:
        return self._state

    def _set(self, link: LinkState, *, cause: str | None = None, advice: str | None = None, attempt: int | None = None) -> None:
        self._state = ConnectionState(
            link=link,
            host=self.name,
            since=time.monotonic(),
            cause=cause,
            advice=advice or None,
            attempt=self._state.attempt if attempt is None else attempt,
        )

    def _set_round_trip(self, milliseconds: float) -> None:
        if self._state.link is LinkState.ONLINE:
            self._state = replace(self._state, round_trip_ms=milliseconds)

    async def connect(self) -> None:
        await self._drop()
        self._set(LinkState.CONNECTING, attempt=self._state.attempt + 1)
        lost = self._lost = asyncio.get_running_loop().create_future()
        try:
            advice = await self._open()
        except HostError as error:
            await self._drop()
            link = LinkState.REFUSED if isinstance(error, Refused) else LinkState.UNREACHABLE
            self._set(link, cause=error.cause, advice=error.advice)
            if not lost.done():
                lost.set_result(error)
            raise
        except BaseException:
            await self._drop()
            self._set(LinkState.IDLE)
            self._lost = None
            raise
        self._set(LinkState.ONLINE, attempt=0, advice=advice)

    def _lose(self, error: HostError) -> None:
        """Say that the connection is gone, to whoever looks at it and whoever waits for it."""
        if self._lost is None or self._lost.done():
            return
        self._set(LinkState.LOST, cause=error.cause, advice=error.advice)
        self._lost.set_result(error)

    @property
    def _loss(self) -> HostError | None:
        """Return why the connection is gone; None while it stands and before there was one."""
        return self._lost.result() if self._lost is not None and self._lost.done() else None

    async def wait_lost(self) -> HostError:
        if self._lost is None:
            return Unreachable(f"{self.name} isn't connected")
        return await asyncio.shield(self._lost)

    async def _drop(self) -> None:
        """Close what belongs to the present connection."""
        async with AsyncExitStack() as closing:  # the last comes first; one that fails leaves none of the others open
            self._detach(closing)
            closing.callback(self._relay.reset)
            for shipped in self._standing:
                closing.push_async_callback(shipped.close)

    async def close(self) -> None:
        try:
            await self._drop()
        finally:
            if self._lost is not None and not self._lost.done():
                self._lost.set_result(Unreachable(f"{self.name} was disconnected"))
            self._set(LinkState.IDLE, attempt=0)

    # -- commands and probes -----------------------------------------------------------------------------------------------------

    async def run(self, argv: Sequence[str], *, input: bytes = b"", timeout: float = 10.0) -> Completed:
        return await run_command(await self._shell(), argv, input=input, timeout=timeout, where=self._where)

    async def start_probe(self, role: str, arguments: Mapping[str, Any]) -> ShippedProbe:
        try:
            self._make_room()
            probe = await ShippedProbe.start(self._shell, role, arguments, self._where)
        except NotPermitted as error:
            raise ProbeFailed(error.cause, error.advice) from error
        return self._keep(probe)

    async def stream(self, argv: Sequence[str]) -> LeashedCommand:
        self._make_room()
        return self._keep(await LeashedCommand.start(self._shell, argv, self._where))

    def _make_room(self) -> None:
        """Raise NotPermitted if no more may run at once."""
        if self.standing_limit is not None and len(self._standing) >= self.standing_limit:
            roles = ", ".join(sorted(shipped.role for shipped in self._standing))
            raise NotPermitted(
                f"{self.name} runs {self.standing_limit} probes already ({roles})", "close one: sshd allows 10 sessions at most"
            )

    def _keep(self, shipped: S) -> S:
        self._standing.add(shipped)
        shipped.on_close = lambda: self._standing.discard(shipped)
        return shipped

    # -- HTTP --------------------------------------------------------------------------------------------------------------------

    def transport(self, *, verify: Any = True, uds: str | None = None) -> "httpx.AsyncBaseTransport":
        from tui.host.http_transport import HostTransport

        return HostTransport(self.open_stream, verify=verify, uds=uds)

    async def open_stream(self, host: str, port: int, path: str | None = None) -> ByteStream:
        """Open a byte stream to a port of the host, or of a machine that it reaches, or to a Unix socket, through the probe.

        Raises PortClosed, NotPermitted, Unreachable or ProbeFailed.
        """
        return await self._relay.open(host, port, path)
