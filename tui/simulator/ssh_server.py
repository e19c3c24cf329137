"""The simulated host's SSH server: asyncssh, with sshd's habits.

Commands run as real processes under /bin/sh in the host's directory. When a client goes away, a process's pipes are closed, as sshd
does it; what does not end by that within ten seconds is killed. Ten sessions a connection (MaxSessions), forwarding to the loopback
only.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
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
        """The client is gone: the pipes are closed, and the process has some time to notice."""
        transport = process._transport  # type: ignore[attr-defined]  # the only way to close the reading ends too
        for descriptor in (0, 1, 2):
            pipe = transport.get_pipe_transport(descriptor)
            if pipe is not None:
                pipe.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):  # wait_for may swallow a cancellation (Python 3.11)
                await process.wait()

    async def end(self) -> None:
        """Kills what still runs."""
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
    """The server on a free port of the loopback."""
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
    """Makes the host's key and the user's; paths of the host's private and of the user's public one."""
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
    """Writes what leads the user's client to the host, at a port of this machine, and lets it trust the host's key."""
    client = directory / "client"
    kind, key = host_key.with_name("host_key.pub").read_text().split()[:2]
    (client / "known_hosts").write_text(f"[127.0.0.1]:{port} {kind} {key}\n")
    (client / "config").write_text(
        f"Host {ALIAS}\n  HostName 127.0.0.1\n  Port {port}\n  User engineer\n"
        f"  IdentityFile {client / 'id_ed25519'}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
        f"  UserKnownHostsFile {client / 'known_hosts'}\n  GlobalKnownHostsFile none\n  StrictHostKeyChecking yes\n"
    )
    (client / "config").chmod(0o600)
