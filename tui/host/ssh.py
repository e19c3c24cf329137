"""A host over SSH: commands, the probe and HTTP connections through one asyncssh connection."""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import asyncssh
from anyio.abc import ByteStream
from msgspec.structs import replace

from tui.aio import opened
from tui.core.connection import ConnectionState, Link
from tui.host import ssh_errors
from tui.host.base import Asker, Completed, HostError, NotPermitted, PortClosed, ProbeFailed, Refused, Unreachable
from tui.host.relay_streams import RelayClient
from tui.host.shell import SHELL, run_command
from tui.host.shipped import LeashedCommand, ShippedProbe
from tui.host.ssh_channels import ChannelStream, SshProcess
from tui.host.ssh_config import Login
from tui.host.ssh_dial import Dialer, Route
from tui.host.target import SshTarget, parse_ssh

if TYPE_CHECKING:
    import httpx

ROUND_TRIP_S = 5.0
"""Seconds between measurements of the round trip, once there are ROUND_TRIPS of them."""
FIRST_TRIPS_S = 0.2
ROUND_TRIPS = 5
STANDING_LIMIT = 6
"""Probes at once: sshd allows 10 sessions a connection by default, and short commands need room beside them."""

BROKEN = (asyncssh.Error, OSError, AssertionError)
"""What asyncssh raises on a connection that is lost. It asserts that a channel has one, and meets a loss between two steps so."""

# asyncssh's log would otherwise end up on the terminal, over the screen.
logging.getLogger("asyncssh").addHandler(logging.NullHandler())


class SshHost:
    """See `tui.host.base.Host`.

    The person is asked at the first login, and again after a refusal (which nobody repeats unasked). When a connection for which a
    person was asked is lost, `connect` tries keys and the agent only, and raises Refused where those are not enough.
    """

    def __init__(
        self,
        target: SshTarget | str,
        *,
        name: str = "",
        asker: Asker | None = None,
        accept_new: bool = False,
        config_files: Sequence[Path] | None = None,
    ) -> None:
        ssh_target = parse_ssh(target) if isinstance(target, str) else target
        self.name = name or str(ssh_target)
        self._asker = asker
        self._dialer = Dialer(ssh_target, accept_new=accept_new, config_files=config_files)
        self._dialer.on_change = self._set
        self._state = ConnectionState(host=self.name)
        self._route: Route | None = None
        self._lost: asyncio.Future[HostError] | None = None
        self._pulse: asyncio.Task[None] | None = None
        self._probes: set[ShippedProbe | LeashedCommand] = set()
        self._executed = False
        self._first_exec = asyncio.Lock()
        self._relay = RelayClient(lambda: self.start_probe("relay", {}), self.name)
        self._forbidden: dict[tuple[str, int, str | None], NotPermitted] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def connection(self) -> ConnectionState:
        return self._state

    @property
    def banner(self) -> str:
        """What the host says to whoever logs in, cleaned; lines kept."""
        return self._route.client.banner if self._route is not None and self._route.client is not None else ""

    # -- connecting --------------------------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        await self._drop()
        self._set(Link.CONNECTING, attempt=self._state.attempt + 1)
        unattended = self._dialer.asked
        try:
            await self._connect(None if unattended else self._asker, unattended)
        except HostError as error:
            await self._drop()
            refused = isinstance(error, Refused)
            if refused:
                self._dialer.asked = False  # nobody tries again before the person says so, and then they may be asked
            self._set(Link.REFUSED if refused else Link.UNREACHABLE, cause=error.cause, advice=error.advice or None)
            raise
        except BaseException:
            await self._drop()
            self._set(Link.IDLE)
            raise
        self._set(Link.ONLINE, attempt=0, advice=self._dialer.note)

    async def _connect(self, asker: Asker | None, unattended: bool) -> None:
        route = self._route = await self._dialer.dial(asker, unattended=unattended)
        assert route.client is not None
        self._executed = False
        self._forbidden = {}
        self._lost = asyncio.get_running_loop().create_future()
        route.client.lost.add_done_callback(lambda ended: self._on_lost(route, ended))
        self._pulse = asyncio.create_task(self._measure(route.connections[-1]))

    # -- connected ---------------------------------------------------------------------------------------------------------------

    def _set(self, link: Link, *, cause: str | None = None, advice: str | None = None, attempt: int | None = None) -> None:
        self._state = ConnectionState(
            link=link,
            host=self.name,
            since=time.monotonic(),
            cause=cause,
            advice=advice,
            attempt=self._state.attempt if attempt is None else attempt,
        )

    def _on_lost(self, route: Route, ended: "asyncio.Future[Exception | None]") -> None:
        if route is not self._route or self._lost is None or self._lost.done():
            return
        error = ssh_errors.lost(ended.result(), route.login)
        self._set(Link.LOST, cause=error.cause, advice=error.advice or None)
        self._lost.set_result(error)

    async def _measure(self, connection: asyncssh.SSHClientConnection) -> None:
        """Keeps the round trip up to date, with a request that sshd answers at once, as OpenSSH's own keepalive.

        The smallest of the last few counts: the others waited for this process or for bytes before them.
        """
        trips: deque[float] = deque(maxlen=ROUND_TRIPS)
        while True:
            started = time.monotonic()
            await connection._make_global_request(b"keepalive@openssh.com")
            trips.append((time.monotonic() - started) * 1000)
            if self._state.link is Link.ONLINE:
                self._state = replace(self._state, round_trip_ms=min(trips))
            await asyncio.sleep(ROUND_TRIP_S if len(trips) == ROUND_TRIPS else FIRST_TRIPS_S)

    async def wait_lost(self) -> HostError:
        if self._lost is None:
            return Unreachable(f"{self.name} isn't connected")
        return await asyncio.shield(self._lost)

    def _reason(self, error: Exception | None) -> HostError | None:
        """Why a read or write failed; None where a clean end is just that."""
        if self._lost is not None and self._lost.done():
            return self._lost.result()
        if error is None or self._route is None:
            return None
        return ssh_errors.lost(error, self._route.login)

    def _live(self) -> tuple[asyncssh.SSHClientConnection, Login]:
        if self._route is None or not self._route.connections or self._lost is None or self._lost.done():
            raise (
                self._lost.result() if self._lost is not None and self._lost.done() else Unreachable(f"{self.name} isn't connected")
            )
        return self._route.connections[-1], self._route.login

    async def _shell(self) -> SshProcess:
        connection, login = self._live()
        try:
            opening = connection.create_process(SHELL, encoding=None, stderr=asyncssh.PIPE)
            process = await opened(opening, lambda made: made.close())
        except asyncssh.ChannelOpenError as error:
            raise (self._reason(None) or ssh_errors.no_session(error, login)) from error
        except BROKEN as error:
            raise (self._reason(error) or Unreachable(str(error))) from error
        self._executed = True
        return SshProcess(process, self._reason)

    async def run(self, argv: Sequence[str], *, input: bytes = b"", timeout: float = 10.0) -> Completed:
        return await run_command(await self._shell(), argv, input=input, timeout=timeout, where=self.name)

    def _crowded(self) -> tuple[str, str] | None:
        """Cause and advice where no more may stand."""
        if len(self._probes) < STANDING_LIMIT:
            return None
        roles = ", ".join(sorted(probe.role for probe in self._probes))
        return f"{self.name} runs {STANDING_LIMIT} probes already ({roles})", "close one: sshd allows 10 sessions at most"

    async def start_probe(self, role: str, arguments: Mapping[str, Any]) -> ShippedProbe:
        if (crowded := self._crowded()) is not None:
            raise ProbeFailed(*crowded)
        try:
            probe = await ShippedProbe.start(self._shell, role, arguments, self.name)
        except NotPermitted as error:
            raise ProbeFailed(error.cause, error.advice) from error
        self._probes.add(probe)
        probe.on_close = lambda: self._probes.discard(probe)
        return probe

    async def stream(self, argv: Sequence[str]) -> LeashedCommand:
        if (crowded := self._crowded()) is not None:
            raise NotPermitted(*crowded)
        command = await LeashedCommand.start(self._shell, argv, self.name)
        self._probes.add(command)
        command.on_close = lambda: self._probes.discard(command)
        return command

    # -- HTTP --------------------------------------------------------------------------------------------------------------------

    def transport(self, *, verify: Any = True, uds: str | None = None) -> "httpx.AsyncBaseTransport":
        from tui.host.http_transport import HostTransport

        return HostTransport(self.open_stream, verify=verify, uds=uds)

    async def open_stream(self, host: str, port: int, path: str | None = None) -> ByteStream:
        """A byte stream to a port of the host, or of a machine that it reaches, or to a Unix socket.

        Through the probe's relay where sshd forbids forwarding. Raises PortClosed, NotPermitted or Unreachable.
        """
        to = (host, port, path)
        if to in self._forbidden:
            return await self._relayed(to, self._forbidden[to])
        connection, login = self._live()
        await self._ensure_executed()
        try:
            opening = (
                connection.create_unix_connection(ChannelStream, path)  # type: ignore[arg-type]
                if path is not None
                else connection.create_connection(ChannelStream, host, port)
            )
            _, stream = await opened(opening, lambda made: made[0].abort())
        except asyncssh.ChannelOpenError as error:
            reason = self._reason(None) or ssh_errors.no_stream(error, login, path or f"{host}:{port}")
            if isinstance(reason, NotPermitted):
                self._forbidden[to] = reason
            elif path is None or not isinstance(reason, PortClosed):
                raise reason from error
            # Of a Unix socket sshd says the same whether it forbids it or nobody listens: the relay knows.
            return await self._relayed(to, reason)
        except BROKEN as error:
            raise (self._reason(error) or Unreachable(str(error))) from error
        assert isinstance(stream, ChannelStream)
        return stream

    async def _relayed(self, to: tuple[str, int, str | None], reason: HostError) -> ByteStream:
        try:
            return await self._relay.open(*to)
        except ProbeFailed as error:
            raise NotPermitted(f"{reason.cause}; and the relay did not start: {error.cause}", reason.advice) from error

    async def _ensure_executed(self) -> None:
        """Runs something before the first forward.

        Until a session has run a command, sshd leaves Nagle's algorithm on, and each small reply waits for an acknowledgement.
        """
        async with self._first_exec:
            if not self._executed:
                self._executed = True
                with contextlib.suppress(HostError, TimeoutError):
                    await self.run(["true"])

    # -- ending ------------------------------------------------------------------------------------------------------------------

    async def _drop(self) -> None:
        """Closes what belongs to the present connection."""
        route, self._route = self._route, None
        if self._pulse is not None:
            self._pulse.cancel()
            self._pulse = None
        async with AsyncExitStack() as closing:  # the last comes first; one that fails leaves none of the others open
            if route is not None:
                closing.push_async_callback(route.close)
            closing.callback(self._relay.reset)
            for probe in self._probes:
                closing.push_async_callback(probe.close)

    async def close(self) -> None:
        try:
            await self._drop()
        finally:
            if self._lost is not None and not self._lost.done():
                self._lost.set_result(Unreachable(f"{self.name} was disconnected"))
            self._set(Link.IDLE, attempt=0)
