"""The SSH server of the simulated host, and the link in front of it, which can be slow, frozen or cut."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import asyncssh

MAX_SESSIONS = 10
_GRACE_S = 10.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1", "")
_PART = 65_536


class Shell:
    """Runs the commands of all sessions; `environment` is a login's, `prefix` goes before /bin/sh."""

    def __init__(self, home: Path, environment: Mapping[str, str], prefix: tuple[str, ...] = ()) -> None:
        self._home = home
        self._environment = dict(environment)
        self._prefix = prefix
        self._processes: set[asyncio.subprocess.Process] = set()

    async def session(
        self, stdin: "asyncssh.SSHReader[bytes]", stdout: "asyncssh.SSHWriter[bytes]", stderr: "asyncssh.SSHWriter[bytes]"
    ) -> None:
        channel = stdout.channel
        assert isinstance(channel, asyncssh.SSHServerChannel)
        command = channel.get_command()
        shell = ("/bin/sh", "-c", command) if command is not None else ("/bin/sh", "-l")
        try:
            process = await asyncio.create_subprocess_exec(
                *self._prefix,
                *shell,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=self._home,
                env=self._environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            stderr.write(f"sh: {error}\n".encode())
            channel.exit(126)
            return
        self._processes.add(process)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        feeding = asyncio.ensure_future(_feed(stdin, process))
        pumping = [asyncio.ensure_future(_pump(process.stdout, stdout)), asyncio.ensure_future(_pump(process.stderr, stderr))]
        closed = asyncio.ensure_future(channel.wait_closed())
        reading = asyncio.ensure_future(asyncio.wait(pumping))
        try:
            waits: set[asyncio.Future[Any]] = {reading, closed}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if closed.done():
                await self._left(process)
                return
            status = await process.wait()
            if status < 0:
                channel.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))
            else:
                channel.exit(status)
        finally:
            for task in (feeding, closed, reading, *pumping):
                task.cancel()
            if process.returncode is None:
                self._kill(process.pid)
                await process.wait()  # cancelled, too: else it ends after the event loop that is told of it
            self._processes.discard(process)

    async def _left(self, process: asyncio.subprocess.Process) -> None:
        """Close the pipes, since the client is gone, and give the process some time to notice."""
        transport = process._transport  # type: ignore[attr-defined]  # the only way to close the reading ends too
        for descriptor in (0, 1, 2):
            pipe = transport.get_pipe_transport(descriptor)
            if pipe is not None:
                pipe.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):  # wait_for may swallow a cancellation (Python 3.11)
                await process.wait()

    async def end(self) -> None:
        """Kill what still runs."""
        left = tuple(self._processes)
        for process in left:
            self._kill(process.pid)
        for process in left:
            await process.wait()

    def _kill(self, group: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


async def _feed(source: "asyncssh.SSHReader[bytes]", process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    while True:
        try:
            data = await source.read(_PART)
        except asyncssh.SignalReceived as received:
            number = getattr(signal, f"SIG{received.signal}", None)
            if number is not None and process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            continue
        except (asyncssh.BreakReceived, asyncssh.TerminalSizeChanged):
            continue
        except (asyncssh.Error, OSError):
            break
        if not data:
            break
        try:
            process.stdin.write(data)
            await process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            break
    process.stdin.close()


async def _pump(source: asyncio.StreamReader, target: "asyncssh.SSHWriter[bytes]") -> None:
    try:
        while data := await source.read(_PART):
            target.write(data)
            await target.drain()
    except (asyncssh.Error, OSError):
        return


class HostServer(asyncssh.SSHServer):
    """One login."""

    def __init__(self, shell: Shell, logins: "set[asyncssh.SSHServerConnection]") -> None:
        self._shell = shell
        self._logins = logins
        self._connection: asyncssh.SSHServerConnection | None = None
        self._sessions = 0

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._logins.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._logins.discard(self._connection)

    def begin_auth(self, username: str) -> bool:
        return True

    def session_requested(self) -> "asyncssh.SSHServerSessionFactory":
        if self._sessions >= MAX_SESSIONS:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "open failed")
        return self._counted

    async def _counted(
        self, stdin: "asyncssh.SSHReader[bytes]", stdout: "asyncssh.SSHWriter[bytes]", stderr: "asyncssh.SSHWriter[bytes]"
    ) -> None:
        self._sessions += 1
        try:
            await self._shell.session(stdin, stdout, stderr)
        finally:
            self._sessions -= 1

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        if dest_host not in _LOOPBACK:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, "open failed")
        return True

    def unix_connection_requested(self, dest_path: str) -> bool:
        return True


async def listen(
    home: Path, shell: Shell, logins: "set[asyncssh.SSHServerConnection]", host_key: Path, authorized: Path
) -> "asyncssh.SSHAcceptor":
    """Start the server on a free port of the loopback."""
    return await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=lambda: HostServer(shell, logins),
        server_host_keys=[str(host_key)],
        authorized_client_keys=str(authorized),
        encoding=None,
        server_version="OpenSSH_9.2p1",
        allow_scp=False,
        x11_forwarding=False,
        agent_forwarding=False,
        line_editor=False,
        keepalive_interval=0,
        login_timeout=60,
        config=None,
    )


ALIAS = "simulated-gpu-box"
"""The host's name in the client's configuration."""


def make_keys(directory: Path) -> tuple[Path, Path]:
    """Make the host's key and the user's; return the paths of the host's private and of the user's public one."""
    client, server = directory / "client", directory / "server"
    for folder in (client, server):
        folder.mkdir(mode=0o700)
    for path, comment in ((server / "host_key", "simulated host"), (client / "id_ed25519", "simulated user")):
        key = asyncssh.generate_private_key("ssh-ed25519", comment=comment)
        key.write_private_key(str(path))
        key.write_public_key(f"{path}.pub")
        path.chmod(0o600)
    return server / "host_key", client / "id_ed25519.pub"


def write_client_files(directory: Path, host_key: Path, port: int) -> None:
    """Write what leads the user's client to the host, at a port of this machine, and let it trust the host's key."""
    client = directory / "client"
    kind, key = host_key.with_name("host_key.pub").read_text().split()[:2]
    (client / "known_hosts").write_text(f"[127.0.0.1]:{port} {kind} {key}\n")
    (client / "config").write_text(
        f"Host {ALIAS}\n  HostName 127.0.0.1\n  Port {port}\n  User engineer\n"
        f"  IdentityFile {client / 'id_ed25519'}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
        f"  UserKnownHostsFile {client / 'known_hosts'}\n  GlobalKnownHostsFile none\n  StrictHostKeyChecking yes\n"
    )
    (client / "config").chmod(0o600)


_HIGH = 4 * 2**20


class SimulatedLink:
    """Relays connections of a port of its own to the server's.

    Bytes are held back, in order, while the link is frozen or delayed.
    """

    def __init__(self) -> None:
        self._to_port = 0
        self._ends: set[_End] = set()
        self._server: asyncio.Server | None = None
        self.frozen = False
        self.delay_s = 0.0
        self.refusing = False
        self.on_connect: Callable[[], None] | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def open(self, to_port: int) -> None:
        self._to_port = to_port
        self._server = await asyncio.get_running_loop().create_server(lambda: _End(self), "127.0.0.1", 0)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()

    def cut(self) -> None:
        """End every connection, as a reset would."""
        for end in tuple(self._ends):
            end.abort()

    def freeze(self) -> None:
        self.frozen = True
        for end in self._ends:
            end.hold()

    def thaw(self) -> None:
        self.frozen = False
        for end in self._ends:
            end.release()

    async def join(self, near: "_End") -> None:
        """Connect the other side of a new connection."""
        if self.refusing:
            near.abort()
            return
        try:
            _, far = await asyncio.get_running_loop().create_connection(lambda: _End(self, near), "127.0.0.1", self._to_port)
        except OSError:
            near.abort()
            return
        near.other = far
        near.flush()
        if self.on_connect is not None:
            self.on_connect()


class _End(asyncio.Protocol):
    def __init__(self, link: SimulatedLink, other: "_End | None" = None) -> None:
        self._link = link
        self.other = other
        self._first = other is None
        self._transport: asyncio.Transport | None = None
        self._held: list[bytes] = []
        self._joining: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=_HIGH)
        self._transport = transport
        self._link._ends.add(self)
        if self._first:
            self._joining = asyncio.ensure_future(self._link.join(self))
        if self._link.frozen:
            self.hold()

    def data_received(self, data: bytes) -> None:
        if self._link.delay_s > 0:
            asyncio.get_running_loop().call_later(self._link.delay_s, self._pass, data)
        else:
            self._pass(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._link._ends.discard(self)
        if self._joining is not None and self.other is None:
            self._joining.cancel()
        if self.other is not None:
            with contextlib.suppress(OSError):
                self.other.finish(abort=exc is not None)

    def pause_writing(self) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other._transport is not None and not self._link.frozen:
            self.other._transport.resume_reading()

    def hold(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def release(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()
        self.flush()

    def finish(self, *, abort: bool) -> None:
        if self._transport is not None:
            if abort:
                self._transport.abort()
            else:
                self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def flush(self) -> None:
        held, self._held = self._held, []
        for data in held:
            self._pass(data)

    def _pass(self, data: bytes) -> None:
        target = self.other._transport if self.other is not None else None
        if target is None or self._link.frozen:
            self._held.append(data)
        elif not target.is_closing():
            target.write(data)
