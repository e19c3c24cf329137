"""A host over SSH: commands, the probe and HTTP connections through one asyncssh connection."""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import asyncssh
from anyio.abc import ByteStream

from tui.aio import ended, opened, together
from tui.host import ssh_errors
from tui.host.adapter import HostAdapter
from tui.host.base import Asker, HostError, NotPermitted, PortClosed, ProbeFailed, Refused, Unreachable
from tui.host.shell import SHELL, ErrorTail, after_mark, check_script, new_mark
from tui.host.ssh_channels import ChannelStream, SshProcess
from tui.host.ssh_config import Login
from tui.host.ssh_dial import Dialer, Route
from tui.host.target import SshTarget, parse_ssh

if TYPE_CHECKING:
    pass

ROUND_TRIP_S = 5.0
"""Seconds between measurements of the round trip, once there are ROUND_TRIPS of them."""
FIRST_TRIPS_S = 0.2
ROUND_TRIPS = 5
STANDING_LIMIT = 6
"""Probes at once: sshd allows 10 sessions a connection by default, and short commands need room beside them."""
SPARE_S = 3.0
"""Seconds for which the shells of the first check are kept for whoever needs one."""

BROKEN = (asyncssh.Error, OSError, AssertionError)
"""What asyncssh raises on a connection that is lost. It asserts that a channel has one, and meets a loss between two steps so."""

# asyncssh's log would otherwise end up on the terminal, over the screen.
logging.getLogger("asyncssh").addHandler(logging.NullHandler())


class SshHost(HostAdapter):
    """A host over one asyncssh connection.

    The person is asked at the first login, and again after a refusal (which nobody repeats unasked). When a connection for which a
    person was asked is lost, `connect` tries keys and the agent only, and raises Refused where those are not enough.
    """

    standing_limit = STANDING_LIMIT

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
        super().__init__(name or str(ssh_target))
        self._asker = asker
        self._dialer = Dialer(ssh_target, accept_new=accept_new, config_files=config_files)
        self._dialer.on_change = self._set
        self._route: Route | None = None
        self._pulse: asyncio.Task[None] | None = None
        self._spare: list[SshProcess] = []
        self._executed = False
        self._first_exec = asyncio.Lock()
        self._forbidden: dict[tuple[str, int, str | None], NotPermitted] = {}

    @property
    def banner(self) -> str:
        """Return what the host says to whoever logs in, cleaned; lines kept."""
        return self._route.client.banner if self._route is not None and self._route.client is not None else ""

    # -- connecting --------------------------------------------------------------------------------------------------------------

    async def _open(self) -> str | None:
        unattended = self._dialer.asked
        try:
            route = self._route = await self._dialer.dial(None if unattended else self._asker, unattended=unattended)
        except Refused:
            self._dialer.asked = False  # nobody tries again before the person says so, and then they may be asked
            raise
        assert route.client is not None
        self._executed = False
        self._forbidden = {}
        route.client.lost.add_done_callback(lambda ended: self._on_lost(route, ended))
        await self._check_shells(route)
        self._pulse = asyncio.create_task(self._measure(route.connections[-1]))
        return self._dialer.note

    def _detach(self, closing: AsyncExitStack) -> None:
        route, self._route = self._route, None
        self._let_go(tuple(self._spare))
        if self._pulse is not None:
            self._pulse.cancel()
            self._pulse = None
        if route is not None:
            closing.push_async_callback(route.close)

    # -- connected ---------------------------------------------------------------------------------------------------------------

    def _on_lost(self, route: Route, ended: "asyncio.Future[Exception | None]") -> None:
        if route is self._route:
            self._lose(ssh_errors.lost(ended.result(), route.login))

    async def _measure(self, connection: asyncssh.SSHClientConnection) -> None:
        """Keep the round trip up to date, with a request that sshd answers at once, as OpenSSH's own keepalive.

        The smallest of the last few counts: the others waited for this process or for bytes before them.
        """
        trips: deque[float] = deque(maxlen=ROUND_TRIPS)
        while True:
            started = time.monotonic()
            await connection._make_global_request(b"keepalive@openssh.com")
            trips.append((time.monotonic() - started) * 1000)
            self._set_round_trip(min(trips))
            await asyncio.sleep(ROUND_TRIP_S if len(trips) == ROUND_TRIPS else FIRST_TRIPS_S)

    def _reason(self, error: Exception | None) -> HostError | None:
        """Return why a read or write failed; None if a clean end is just that."""
        if self._loss is not None or error is None or self._route is None:
            return self._loss
        return ssh_errors.lost(error, self._route.login)

    def _live(self) -> tuple[asyncssh.SSHClientConnection, Login]:
        """Return the connection and its login. Raises Unreachable if there is none."""
        if self._route is None or not self._route.connections or self._lost is None or self._loss is not None:
            raise self._loss or Unreachable(f"{self.name} isn't connected")
        return self._route.connections[-1], self._route.login

    async def _check_shells(self, route: Route) -> None:
        """See that the account is given shells, and sessions for a probe and the log. Raises Refused, saying what it is given.

        The shells are kept for whoever needs the first ones.
        """
        login = route.login
        shells = await asyncio.gather(*(self._start_shell(route.connections[-1], login) for _ in range(2)), return_exceptions=True)
        started = [shell for shell in shells if isinstance(shell, SshProcess)]
        try:
            for failure in shells:
                if isinstance(failure, NotPermitted):
                    raise Refused(failure.cause, failure.advice) from failure
                if isinstance(failure, BaseException):
                    raise failure
            await together(*(self._check_shell(shell) for shell in started))
        except BaseException:
            for shell in started:
                shell.abandon()
            raise
        self._spare = started
        asyncio.get_running_loop().call_later(SPARE_S, self._let_go, started)

    async def _check_shell(self, shell: SshProcess) -> None:
        errors = ErrorTail(shell)
        try:
            mark = new_mark()
            await shell.write(check_script(mark))
            await after_mark(shell, mark, self.name)
        except NotPermitted as error:
            said = await errors.last_line()
            cause = error.cause + (f": {said}" if said else "")
            expired = "expired" in cause or "change required" in cause
            raise Refused(cause, "log in with ssh once and change the password" if expired else error.advice) from None
        finally:
            await ended(errors.task)

    def _let_go(self, shells: Sequence[SshProcess]) -> None:
        """End those of the shells that nobody has needed: on a link that freezes nothing else would."""
        for shell in shells:
            if shell in self._spare:
                self._spare.remove(shell)
                shell.abandon()

    async def _shell(self) -> SshProcess:
        connection, login = self._live()
        if self._spare:
            return self._spare.pop(0)
        return await self._start_shell(connection, login)

    async def _start_shell(self, connection: asyncssh.SSHClientConnection, login: Login) -> SshProcess:
        try:
            opening = connection.create_process(SHELL, encoding=None, stderr=asyncssh.PIPE)
            process = await opened(opening, lambda made: made.close())
        except asyncssh.ChannelOpenError as error:
            raise (self._reason(None) or ssh_errors.no_session(error, login)) from error
        except BROKEN as error:
            raise (self._reason(error) or Unreachable(str(error))) from error
        self._executed = True
        return SshProcess(process, self._reason)

    # -- HTTP --------------------------------------------------------------------------------------------------------------------

    async def open_stream(self, host: str, port: int, path: str | None = None) -> ByteStream:
        """Open a byte stream to a port of the host, or of a machine that it reaches, or to a Unix socket.

        Goes through the probe's relay if sshd forbids forwarding. Raises PortClosed, NotPermitted or Unreachable.
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
        """Run something before the first forward.

        Until a session has run a command, sshd leaves Nagle's algorithm on, and each small reply waits for an acknowledgement.
        """
        async with self._first_exec:
            if not self._executed:
                self._executed = True
                with contextlib.suppress(HostError, TimeoutError):
                    await self.run(["true"])
