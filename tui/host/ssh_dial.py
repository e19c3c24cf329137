"""Opens SSH connections: through jumps and proxies, with the host key settled and the login done."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh
from asyncssh.public_key import get_default_certificate_algs, get_default_public_key_algs

from tui.aio import in_thread
from tui.core.connection import LinkState
from tui.host import known_hosts, ssh_errors
from tui.host.base import Asker, Refused, Unreachable
from tui.host.known_hosts import Known
from tui.host.shell import ERROR_TAIL, last_line
from tui.host.ssh_config import Login, resolve
from tui.host.ssh_login import KeyRing, LoginClient, Person
from tui.host.target import SshTarget, parse_ssh

TOKENS = "%hnpr"


class ProxyCommand:
    """The running command; `socket` is the connection to the host."""

    def __init__(self, process: asyncio.subprocess.Process, near: socket.socket) -> None:
        self.socket = near
        self._process = process
        self._said = b""
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, command: str) -> "ProxyCommand":
        """Start the command. Raises OSError if no shell can be started."""
        near, far = socket.socketpair()
        with far:
            try:
                near.setblocking(False)
                process = await asyncio.create_subprocess_exec(
                    "/bin/sh",
                    "-c",
                    f"exec {command}",
                    stdin=far.fileno(),
                    stdout=far.fileno(),
                    stderr=asyncio.subprocess.PIPE,
                    start_new_session=True,
                )
            except BaseException:
                near.close()
                raise
        return cls(process, near)

    async def _read(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(4096):
            self._said = (self._said + data)[-ERROR_TAIL:]

    async def said(self) -> str:
        """Return the last line of its stderr, cleaned."""
        await asyncio.wait([self._reading], timeout=0.5)
        return last_line(self._said)

    async def close(self) -> None:
        """End the command and what it started. May be called twice."""
        self.socket.close()
        self._reading.cancel()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(1.0):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:  # cancelled meanwhile, too
            if self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                await self._process.wait()
            self._process._transport.close()  # type: ignore[attr-defined]


FILES_S = 10.0
"""Seconds for the configuration, with its commands, and for known_hosts."""
CONNECT_S = 15.0
"""Seconds for a connection and its login, without the time that a person takes to answer."""
KEEPALIVE_S = 3.0
KEEPALIVE_MISSED = 2
"""asyncssh gives up at the keepalive after this many unanswered ones: 3 × 3 s without a byte."""
JUMP_LIMIT = 8
CHEAP_CIPHERS = "^aes256-gcm@openssh.com,aes128-gcm@openssh.com"
"""First of those that asyncssh offers: a packet takes it 8 µs with them, 54 µs with its own first choice, ChaCha20."""


@dataclass(slots=True)
class Route:
    """The connections to one host: those to its jumps, in order, and the one to itself."""

    login: Login
    connections: list[asyncssh.SSHClientConnection] = field(default_factory=list)
    proxies: list[ProxyCommand] = field(default_factory=list)
    client: LoginClient | None = None
    """Of the last connection."""

    async def close(self) -> None:
        async with AsyncExitStack() as closing:  # the last comes first; one that fails leaves none of the others open
            for proxy in self.proxies:
                closing.push_async_callback(proxy.close)
            for connection in self.connections:
                closing.push_async_callback(_closed, connection)
            for connection in reversed(self.connections):
                connection.close()
            self.connections, self.proxies = [], []


async def _closed(connection: asyncssh.SSHClientConnection) -> None:
    """Wait a second for the end of a connection that is being closed."""
    try:
        async with asyncio.timeout(1.0):
            await connection.wait_closed()
    except TimeoutError:
        pass
    finally:
        connection.abort()


class UnknownKey(Exception):
    """The host showed a key that nothing vouches for."""

    def __init__(self, client: LoginClient) -> None:
        super().__init__()
        self.client = client


class Dialer:
    """Connects one target again and again; remembers accepted host keys and unlocked keys between the attempts."""

    def __init__(self, target: SshTarget, *, accept_new: bool, config_files: Sequence[Path] | None) -> None:
        self._target = target
        self._accept_new = accept_new
        self._config_files = config_files
        self._keys = KeyRing()
        self._accepted: dict[str, asyncssh.SSHKey] = {}
        self.asked = False
        """A person gave a secret since this was last set to False."""
        self.note: str | None = None
        """What went wrong without keeping the connection from being made."""
        self.on_change: Callable[[LinkState], None] = lambda link: None
        """Told when a person is being asked (ASKING), and no longer (CONNECTING)."""

    async def dial(self, asker: Asker | None, *, unattended: bool) -> Route:
        """Connect; `unattended` says so in the refusal when a person would be needed. Raises Refused or Unreachable."""
        self.note = None
        route = Route(await self._resolve(self._target))
        try:
            await self._extend(route, route.login, asker, unattended, 0)
        except BaseException:
            await route.close()
            raise
        return route

    async def _resolve(self, target: SshTarget) -> Login:
        try:
            async with asyncio.timeout(FILES_S):
                login = await in_thread(resolve, target.host, target.user, target.port, self._config_files)
        except TimeoutError:
            raise Unreachable(
                f"reading the ssh configuration takes longer than {FILES_S:.0f} s", "does its file system, or a Match exec, hang?"
            ) from None
        self.note = self.note or next(iter(login.notes), None)
        return login

    async def _extend(self, route: Route, login: Login, asker: Asker | None, unattended: bool, depth: int) -> None:
        """Add the connection to `login` to the route, after those to its jumps."""
        if depth > JUMP_LIMIT:
            raise Refused(f"ProxyJump of {login.alias} leads in a circle", "correct ProxyJump in ~/.ssh/config")
        if not route.connections:
            for number, hop in enumerate(login.jumps):
                try:
                    step = await self._resolve(parse_ssh(hop))
                except ValueError as error:
                    raise Refused(f"ProxyJump of {login.alias} can't be read: {error}", "correct it in ~/.ssh/config") from error
                # As with `ssh -J a,b`: only the first jump's own ProxyJump counts.
                await self._extend(route, step, asker, unattended, depth + 1 if number == 0 else depth)
        known = await self._read_known(login)
        try:
            return await self._try(route, login, known, asker, unattended)
        except UnknownKey as unknown:
            await self._settle(login, known, unknown, asker)
        known = await self._read_known(login)
        try:
            await self._try(route, login, known, asker, unattended)
        except UnknownKey as unknown:
            raise ssh_errors.untrusted_key(login, unknown.client, known) from None

    async def _read_known(self, login: Login) -> Known:
        try:
            async with asyncio.timeout(FILES_S):
                return await in_thread(self._known, login)
        except TimeoutError:
            files = ", ".join(str(file) for file in login.known_hosts)
            raise Unreachable(f"reading {files} takes longer than {FILES_S:.0f} s", "does its file system hang?") from None

    def _known(self, login: Login) -> Known:
        entries = known_hosts.read((*login.known_hosts, *login.global_known_hosts))
        if (key := self._accepted.get(login.name)) is not None:
            # Where the file can't hold it (UserKnownHostsFile /dev/null, a read-only home) it counts for this session.
            entries += (known_hosts.Entry(Path("this session"), 1, "", login.name, key),)
        return known_hosts.matching(entries, login.name, login.plain_name)

    async def _settle(self, login: Login, known: Known, unknown: UnknownKey, asker: Asker | None) -> None:
        """Have the unknown key accepted by the user or the configuration. Raises Refused otherwise."""
        key = unknown.client.offered_key
        refusal = ssh_errors.untrusted_key(login, unknown.client, known)
        if key is None or unknown.client.offered_authority is not None or known_hosts.changed(known, login.name):
            raise refusal
        if not (self._accept_new or login.accept_new):
            if login.never_ask or asker is None:
                raise refusal
            self.on_change(LinkState.ASKING)
            accepted = await asker.trust_host_key(login.name, ssh_errors.kind(key), key.get_fingerprint())
            self.on_change(LinkState.CONNECTING)
            if not accepted:
                raise refusal
        self._accepted[login.name] = key
        line = known_hosts.line_for(login.name, key, hashed=login.hash_known_hosts)
        try:
            await in_thread(known_hosts.append, login.known_hosts[0], line)
        except OSError as error:
            self.note = f"the key of {login.name} could not be saved in {login.known_hosts[0]}: {error.strerror}"

    async def _try(self, route: Route, login: Login, known: Known, asker: Asker | None, unattended: bool) -> None:
        """Try once to connect. Raises UnknownKey, Refused or Unreachable."""
        seconds = login.connect_timeout or CONNECT_S
        clients: list[LoginClient] = []
        person: Person | None = None
        proxy: ProxyCommand | None = None
        try:
            async with asyncio.timeout(seconds) as deadline:
                person = Person(asker, deadline, seconds)
                person.on_asking = lambda asking: self.on_change(LinkState.ASKING if asking else LinkState.CONNECTING)

                def make(person: Person = person) -> LoginClient:
                    clients.append(LoginClient(login, person, self._keys))
                    return clients[-1]

                options = _options(login, known, make)
                if route.connections:
                    options["tunnel"] = route.connections[-1]
                elif login.proxy_command:
                    proxy = await ProxyCommand.start(login.proxy_command)
                    options["sock"] = proxy.socket
                connection = await asyncssh.connect(login.host, **options)
        except asyncssh.HostKeyNotVerifiable as error:
            client = clients[-1]
            if client.offered_key is None and client.offered_authority is None:
                raise ssh_errors.unusable_key(login, known, str(error)) from error
            raise UnknownKey(client) from error
        except asyncssh.PermissionDenied as error:
            assert person is not None
            raise ssh_errors.refused_login(login, clients[-1], person, unattended=unattended) from error
        except (asyncssh.Error, OSError, ValueError, TimeoutError) as error:
            client_or_none = clients[-1] if clients else None
            if proxy is not None and not (client_or_none and client_or_none.greeted):
                raise await _proxy_failed(login, proxy, isinstance(error, TimeoutError)) from error
            raise ssh_errors.explain(error, login, client_or_none, seconds) from error
        else:
            route.connections.append(connection)
            route.client = clients[-1]
            if proxy is not None:
                route.proxies.append(proxy)
                proxy = None
        finally:
            if person is not None:
                person.on_asking = lambda asking: None  # a question may still be on its way out
                self.asked = self.asked or person.asked
            for client in clients:
                await client.finish()
            if proxy is not None:
                await proxy.close()


async def _proxy_failed(login: Login, proxy: ProxyCommand, silent: bool) -> Unreachable:
    said = await proxy.said()
    how = "gave no answer in time" if silent else "ended before the host answered"
    return Unreachable(
        f"ProxyCommand of {login.alias} {how}" + (f": {said}" if said else ""),
        "try that command by hand; it stands in ~/.ssh/config",
    )


def _options(login: Login, known: Known, make: Callable[[], LoginClient]) -> dict[str, Any]:
    """Return all that asyncssh.connect is told; it reads no configuration of its own."""
    keys = [[entry.key for entry in entries] for entries in (known.keys, known.authorities, known.revoked)]
    # First the kinds of key that the files know, then all others: a host that lost its known key is seen to have changed.
    certified = [name.decode("ascii") for name in get_default_certificate_algs()] if known.authorities else []
    plain = [name.decode("ascii") for name in get_default_public_key_algs()]
    return {
        "server_host_key_algs": list(dict.fromkeys([*certified, *known.algorithms(), *plain])),
        "encryption_algs": CHEAP_CIPHERS,
        **login.options,
        "config": None,
        "port": login.port,
        "username": login.user,
        "client_factory": make,
        "known_hosts": lambda host, address, port: keys,
        "host_key_alias": login.key_alias or (),
        "tunnel": None,
        "proxy_command": None,
        "client_keys": None,  # LoginClient offers them, so that a passphrase can be asked for
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
