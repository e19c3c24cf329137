"""A host over SSH: commands, the probe and HTTP connections through one asyncssh connection."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import asyncssh
from anyio.abc import ByteStream
from asyncssh.public_key import get_default_certificate_algs, get_default_public_key_algs

from tui.core.connection import ConnectionState, Link
from tui.host import known_hosts, ssh_errors
from tui.host.base import Asker, Completed, HostError, NotPermitted, ProbeFailed, Refused, Unreachable
from tui.host.known_hosts import Known
from tui.host.probe import ShippedProbe
from tui.host.relay import Relay
from tui.host.shell import SHELL, run_command
from tui.host.ssh_channels import ChannelStream, SshProcess
from tui.host.ssh_config import Login, resolve
from tui.host.ssh_keys import KeyRing
from tui.host.ssh_login import LoginClient, Person
from tui.host.target import SshTarget, parse_ssh

if TYPE_CHECKING:
    import httpx

CONNECT_S = 15.0
"""Seconds for a connection and its login, without the time that a person takes to answer."""
KEEPALIVE_S = 3.0
KEEPALIVE_MISSED = 2
"""asyncssh gives up at the keepalive after this many unanswered ones: 3 × 3 s without a byte."""
ROUND_TRIP_S = 5.0
STANDING_LIMIT = 6
"""Probes at once: sshd allows 10 sessions a connection by default, and short commands need room beside them."""
JUMP_LIMIT = 8

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
        self._target = parse_ssh(target) if isinstance(target, str) else target
        self.name = name or str(self._target)
        self._asker = asker
        self._accept_new = accept_new
        self._config_files = config_files
        self._keys = KeyRing()
        self._accepted: dict[str, asyncssh.SSHKey] = {}
        self._asked = False
        self._state = ConnectionState(host=self.name)
        self._login: Login | None = None
        self._connection: asyncssh.SSHClientConnection | None = None
        self._client: LoginClient | None = None
        self._jumps: list[asyncssh.SSHClientConnection] = []
        self._lost: asyncio.Future[HostError] | None = None
        self._pulse: asyncio.Task[None] | None = None
        self._probes: set[ShippedProbe] = set()
        self._executed = False
        self._first_exec = asyncio.Lock()
        self._relay = Relay(lambda: self.start_probe("relay", {}), self.name)
        self._forbidden: NotPermitted | None = None

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
        return self._client.banner if self._client else ""

    # -- connecting --------------------------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        await self._drop()
        self._set(Link.CONNECTING, attempt=self._state.attempt + 1)
        unattended = self._asked
        try:
            await self._connect(None if unattended else self._asker, unattended)
        except HostError as error:
            await self._drop()
            refused = isinstance(error, Refused)
            if refused:
                self._asked = False  # nobody tries again before the person says so, and then they may be asked
            self._set(Link.REFUSED if refused else Link.UNREACHABLE, cause=error.cause, advice=error.advice or None)
            raise
        except BaseException:
            await self._drop()
            self._set(Link.IDLE)
            raise
        self._set(Link.ONLINE, attempt=0)

    async def _connect(self, asker: Asker | None, unattended: bool) -> None:
        login = await self._resolve(self._target)
        connection, client = await self._dial(login, asker, unattended, depth=0)
        self._login, self._connection, self._client = login, connection, client
        self._executed = False
        self._forbidden = None
        self._lost = asyncio.get_running_loop().create_future()
        client.lost.add_done_callback(lambda ended: self._on_lost(connection, ended))
        self._pulse = asyncio.create_task(self._measure(connection))

    async def _resolve(self, target: SshTarget) -> Login:
        return await asyncio.to_thread(resolve, target.host, target.user, target.port, self._config_files)

    async def _dial(
        self,
        login: Login,
        asker: Asker | None,
        unattended: bool,
        *,
        depth: int,
        tunnel: asyncssh.SSHClientConnection | None = None,
    ) -> tuple[asyncssh.SSHClientConnection, LoginClient]:
        """Connects to one host, through its jumps, and settles its host key; raises HostError."""
        if depth > JUMP_LIMIT:
            raise Refused(f"ProxyJump of {login.alias} leads in a circle", "correct ProxyJump in ~/.ssh/config")
        if tunnel is None:
            for hop in login.jumps:
                try:
                    step = await self._resolve(parse_ssh(hop))
                except ValueError as error:
                    raise Refused(f"ProxyJump of {login.alias} can't be read: {error}", "correct it in ~/.ssh/config") from error
                tunnel, _ = await self._dial(step, asker, unattended, depth=depth + 1, tunnel=tunnel)
                self._jumps.append(tunnel)
        known = await asyncio.to_thread(self._known, login)
        try:
            return await self._try(login, known, asker, unattended, tunnel)
        except _UnknownKey as unknown:
            await self._settle(login, known, unknown, asker)
        known = await asyncio.to_thread(self._known, login)
        try:
            return await self._try(login, known, asker, unattended, tunnel)
        except _UnknownKey as unknown:
            raise ssh_errors.untrusted_key(login, unknown.client, known) from None

    def _known(self, login: Login) -> Known:
        entries = known_hosts.read((*login.known_hosts, *login.global_known_hosts))
        if (key := self._accepted.get(login.name)) is not None:
            # Where the file can't hold it (UserKnownHostsFile /dev/null, a read-only home) it counts for this session.
            entries += (known_hosts.Entry(Path("this session"), 1, "", login.name, key),)
        return known_hosts.matching(entries, login.name, login.plain_name)

    async def _settle(self, login: Login, known: Known, unknown: "_UnknownKey", asker: Asker | None) -> None:
        """Returns when the user accepts the unknown key; raises Refused otherwise."""
        key = unknown.client.offered_key
        refusal = ssh_errors.untrusted_key(login, unknown.client, known)
        if key is None or unknown.client.offered_authority is not None or known_hosts.changed(known, login.name):
            raise refusal
        if not (self._accept_new or login.accept_new):
            if login.never_ask or asker is None:
                raise refusal
            self._set(Link.ASKING)
            accepted = await asker.trust_host_key(login.name, ssh_errors.kind(key), key.get_fingerprint())
            self._set(Link.CONNECTING)
            if not accepted:
                raise refusal
        self._accepted[login.name] = key
        line = known_hosts.line_for(login.name, key, hashed=login.hash_known_hosts)
        with contextlib.suppress(OSError):
            await asyncio.to_thread(known_hosts.append, login.known_hosts[0], line)

    async def _try(
        self,
        login: Login,
        known: Known,
        asker: Asker | None,
        unattended: bool,
        tunnel: asyncssh.SSHClientConnection | None,
    ) -> tuple[asyncssh.SSHClientConnection, LoginClient]:
        seconds = login.connect_timeout or CONNECT_S
        clients: list[LoginClient] = []
        person: Person | None = None
        try:
            async with asyncio.timeout(seconds) as deadline:
                person = Person(asker, deadline, seconds)
                person.on_asking = lambda asking: self._set(Link.ASKING if asking else Link.CONNECTING)

                def make(person: Person = person) -> LoginClient:
                    clients.append(LoginClient(login, person, self._keys))
                    return clients[-1]

                connection = await asyncssh.connect(login.alias, **self._options(login, known, make, tunnel))
            return connection, clients[-1]
        except asyncssh.HostKeyNotVerifiable as error:
            client = clients[-1]
            if client.offered_key is None and client.offered_authority is None:
                raise _unusable_key(login, known, str(error)) from error
            raise _UnknownKey(client) from error
        except asyncssh.PermissionDenied as error:
            assert person is not None
            raise ssh_errors.refused_login(login, clients[-1], person, unattended=unattended) from error
        except (asyncssh.Error, OSError, ValueError, TimeoutError) as error:
            raise ssh_errors.explain(error, login, clients[-1] if clients else None, seconds) from error
        finally:
            self._asked = self._asked or (person is not None and person.asked)

    def _options(
        self, login: Login, known: Known, make: Callable[[], LoginClient], tunnel: asyncssh.SSHClientConnection | None
    ) -> dict[str, Any]:
        keys = [[entry.key for entry in entries] for entries in (known.keys, known.authorities, known.revoked)]
        options: dict[str, Any] = {
            "config": [str(file) for file in login.files],
            "port": login.port,
            "username": login.user,
            "client_factory": make,
            "known_hosts": lambda host, address, port: keys,
            "host_key_alias": login.key_alias or (),
            "tunnel": tunnel,
            "proxy_command": None if tunnel is not None else (),
            "client_keys": None,
            "host_based_auth": False,
            "x509_trusted_certs": None,
            "agent_forwarding": False,
            "x11_forwarding": False,
            "request_pty": False,
            "command": None,
            "connect_timeout": None,
            "login_timeout": 0,
            "keepalive_interval": KEEPALIVE_S,
            "keepalive_count_max": KEEPALIVE_MISSED,
            "encoding": None,
        }
        if not login.host_key_algorithms and not login.canonicalize:
            # First the kinds of key that the files know, then all others: a host that lost its known key is seen to have changed.
            certified = [name.decode("ascii") for name in get_default_certificate_algs()] if known.authorities else []
            plain = [name.decode("ascii") for name in get_default_public_key_algs()]
            options["server_host_key_algs"] = list(dict.fromkeys([*certified, *known.algorithms(), *plain]))
        return options

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

    def _on_lost(self, connection: asyncssh.SSHClientConnection, ended: "asyncio.Future[Exception | None]") -> None:
        if connection is not self._connection or self._lost is None or self._lost.done():
            return
        assert self._login is not None
        reason = ended.result()
        error = ssh_errors.lost(reason, self._login)
        self._set(Link.LOST, cause=error.cause, advice=error.advice or None)
        self._lost.set_result(error)

    async def _measure(self, connection: asyncssh.SSHClientConnection) -> None:
        """Keeps the round trip up to date: a request that sshd answers at once, as OpenSSH's own keepalive."""
        while True:
            started = time.monotonic()
            await connection._make_global_request(b"keepalive@openssh.com")
            if self._state.link is Link.ONLINE:
                self._state = replace(self._state, round_trip_ms=(time.monotonic() - started) * 1000)
            await asyncio.sleep(ROUND_TRIP_S)

    async def wait_lost(self) -> HostError:
        if self._lost is None:
            return Unreachable(f"{self.name} isn't connected")
        return await asyncio.shield(self._lost)

    def _reason(self, error: Exception | None) -> HostError | None:
        """Why a read or write failed; None where a clean end is just that."""
        if self._lost is not None and self._lost.done():
            return self._lost.result()
        if error is None:
            return None
        assert self._login is not None
        return ssh_errors.lost(error, self._login)

    def _live(self) -> asyncssh.SSHClientConnection:
        if self._connection is None or self._lost is None or self._lost.done():
            raise (
                self._lost.result() if self._lost is not None and self._lost.done() else Unreachable(f"{self.name} isn't connected")
            )
        return self._connection

    async def _shell(self) -> SshProcess:
        connection = self._live()
        assert self._login is not None
        try:
            process = await connection.create_process(SHELL, encoding=None, stderr=asyncssh.PIPE)
        except asyncssh.ChannelOpenError as error:
            raise (self._reason(None) or ssh_errors.no_session(error, self._login)) from error
        except (asyncssh.Error, OSError) as error:
            raise (self._reason(error) or Unreachable(str(error))) from error
        self._executed = True
        return SshProcess(process, self._reason, lambda: None)

    async def run(self, argv: Sequence[str], *, input: bytes = b"", timeout: float = 10.0) -> Completed:
        return await run_command(await self._shell(), argv, input=input, timeout=timeout, where=self.name)

    async def start_probe(self, role: str, arguments: Mapping[str, Any]) -> ShippedProbe:
        if len(self._probes) >= STANDING_LIMIT:
            roles = ", ".join(sorted(probe.role for probe in self._probes))
            raise ProbeFailed(
                f"{self.name} runs {STANDING_LIMIT} probes already ({roles})", "close one: sshd allows 10 sessions at most"
            )
        try:
            probe = await ShippedProbe.start(self._shell, role, arguments, self.name)
        except NotPermitted as error:
            raise ProbeFailed(error.cause, error.advice) from error
        self._probes.add(probe)
        probe.on_close = lambda: self._probes.discard(probe)
        return probe

    # -- HTTP --------------------------------------------------------------------------------------------------------------------

    def transport(self, *, verify: Any = True, uds: str | None = None) -> "httpx.AsyncBaseTransport":
        from tui.host.tunnel import HostTransport

        return HostTransport(self.open_stream, verify=verify, uds=uds)

    async def open_stream(self, host: str, port: int, path: str | None = None) -> ByteStream:
        """A byte stream to a port of the host, or of a machine that it reaches, or to a Unix socket.

        Through the probe's relay where sshd forbids forwarding. Raises PortClosed, NotPermitted or Unreachable.
        """
        if self._forbidden is not None:
            return await self._relayed(host, port, path)
        connection = self._live()
        assert self._login is not None
        await self._ensure_executed()
        try:
            stream: object
            if path is not None:
                _, stream = await connection.create_unix_connection(ChannelStream, path)  # type: ignore[arg-type]
            else:
                _, stream = await connection.create_connection(ChannelStream, host, port)
        except asyncssh.ChannelOpenError as error:
            reason = self._reason(None) or ssh_errors.no_stream(error, self._login, path or f"{host}:{port}")
            if not isinstance(reason, NotPermitted):
                raise reason from error
            self._forbidden = reason
            return await self._relayed(host, port, path)
        except (asyncssh.Error, OSError) as error:
            raise (self._reason(error) or Unreachable(str(error))) from error
        assert isinstance(stream, ChannelStream)
        return stream

    async def _relayed(self, host: str, port: int, path: str | None) -> ByteStream:
        assert self._forbidden is not None
        try:
            return await self._relay.open(host, port, path)
        except ProbeFailed as error:
            raise NotPermitted(
                f"{self._forbidden.cause}; and the relay did not start: {error.cause}", self._forbidden.advice
            ) from error

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
        """Closes what belongs to the present connection, jumps last."""
        connection, jumps = self._connection, self._jumps
        self._connection, self._client, self._jumps = None, None, []
        if self._pulse is not None:
            self._pulse.cancel()
            self._pulse = None
        for probe in tuple(self._probes):
            await probe.close()
        self._relay.reset()
        for one in [connection, *reversed(jumps)]:
            if one is not None:
                one.close()
        for one in [connection, *reversed(jumps)]:
            if one is not None:
                try:
                    async with asyncio.timeout(1.0):
                        await one.wait_closed()
                except TimeoutError:
                    one.abort()

    async def close(self) -> None:
        await self._drop()
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(Unreachable(f"{self.name} was disconnected"))
        self._set(Link.IDLE, attempt=0)


class _UnknownKey(Exception):
    def __init__(self, client: LoginClient) -> None:
        super().__init__()
        self.client = client


def _unusable_key(login: Login, known: Known, words: str) -> Refused:
    """A key that is refused whoever would accept it: revoked, or a certificate that doesn't hold."""
    if "revoked" in words:
        places = ", ".join(entry.place for entry in known.revoked)
        return Refused(
            f"WARNING: the host key of {login.name} is revoked ({places})",
            "don't log in there; ask the host's administrator for its new key",
        )
    return Refused(f"the host certificate of {login.name} doesn't hold: {words}", "ask the host's administrator")
