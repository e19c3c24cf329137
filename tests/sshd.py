"""A real OpenSSH server on 127.0.0.1 with its own keys, configuration and account of trust, for tests.

`Sshd(folder)` prepares the files; `start`, `stop`, `restart` run it. It serves the user who runs the tests, with a key made for it.
"""

import asyncio
import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import asyncssh

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def until(condition: Callable[[], object], *, seconds: float = 10.0, what: str = "condition") -> None:
    """Wait until the condition holds, asking every 20 ms; fail the test after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds:g} s")
        time.sleep(0.02)


async def eventually(condition: Callable[[], object], *, seconds: float = 10.0, what: str = "condition") -> None:
    """Wait like `until`, while the test's event loop runs."""
    deadline = time.monotonic() + seconds
    while True:
        if condition():
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds:g} s")
        await asyncio.sleep(0.02)


@contextlib.contextmanager
def running(argv: Sequence[str], **options: Any) -> Iterator["subprocess.Popen[Any]"]:
    """Start a process; at the end of the block, even if the test fails, kill it and close its pipes."""
    with subprocess.Popen(argv, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def free_port() -> int:
    """Return a port on which nothing listens.

    Below the range from which the kernel takes the ports of clients: there, a connection to a free port may meet itself.
    """
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def descendants(pid: int) -> list[int]:
    """Return all living processes below one, nearest first."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text("utf-8", "replace")
            except OSError:
                continue
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state != "Z":
                parents.setdefault(int(parent), []).append(int(entry))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = parents.get(waiting.pop(0), [])
        found += children
        waiting += children
    return found


def alive(pid: int) -> bool:
    """Tell whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Sshd:
    """One server. `options` are lines of sshd_config that come before the defaults here (the first value of an option wins)."""

    host = "127.0.0.1"

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.user = pwd.getpwuid(os.getuid()).pw_name
        self.port = free_port()
        self.options = list(options)
        self.log = folder / "sshd.log"
        self.config = folder / "sshd_config"
        self.authorized_keys = folder / "authorized_keys"
        self.identity = folder / "id"
        self.known_hosts = folder / "known_hosts"
        self.client_config = folder / "ssh_config"
        self.home = folder / "home"
        self.environment = {"HOME": str(self.home)}
        """Of the commands that run there; the home is the test's own, so that no start-up file of this machine matters."""
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.home.mkdir(exist_ok=True)
        self.host_key = self.new_host_key()
        self.client_key = asyncssh.generate_private_key("ssh-ed25519", comment="tests")
        self.client_key.write_private_key(str(self.identity))
        self.client_key.write_public_key(str(self.identity) + ".pub")
        self.identity.chmod(0o600)
        self.authorized_keys.write_bytes(self.client_key.export_public_key())
        self.trust()
        self.write_client_config()

    @property
    def target(self) -> str:
        return f"{self.user}@{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The pid of the listening server; sessions are its descendants."""
        assert self._process is not None
        return self._process.pid

    def new_host_key(self, kind: str = "ssh-ed25519") -> asyncssh.SSHKey:
        key = asyncssh.generate_private_key(kind)
        file = self.folder / "host_key"
        key.write_private_key(str(file))
        file.chmod(0o600)
        self.host_key = key
        return key

    def host_line(self, key: asyncssh.SSHKey | None = None, *, marker: str = "") -> str:
        """Return a known_hosts line for this server."""
        words = (key or self.host_key).export_public_key().decode().split()[:2]
        return f"{marker} [{self.host}]:{self.port} {' '.join(words)}\n".lstrip()

    def trust(self) -> None:
        self.known_hosts.write_text(self.host_line())

    def write_client_config(self, *lines: str) -> None:
        """Write a client configuration: `lines` come first, as the first value wins; the alias `gpu-box` is this server."""
        self.client_config.write_text(
            "\n".join(lines)
            + f"\nHost gpu-box\n  HostName {self.host}\n  Port {self.port}\n  User {self.user}\n"
            + f"\nHost *\n  IdentityFile {self.identity}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
            + f"  UserKnownHostsFile {self.known_hosts}\n  GlobalKnownHostsFile {os.devnull}\n"
        )

    def write_home(self) -> dict[str, str]:
        """Return an environment whose HOME makes the ssh client find this server's configuration.

        For processes that tests start.
        """
        folder = self.home / ".ssh"
        folder.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(self.client_config, folder / "config")
        return {**os.environ, "HOME": str(self.home)}

    def start(self) -> "Sshd":
        assert SSHD is not None
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        lines = [
            *self.options,
            f"ListenAddress {self.host}:{self.port}",
            f"HostKey {self.folder / 'host_key'}",
            f"AuthorizedKeysFile {self.authorized_keys}",
            f"PidFile {self.folder / 'pid'}",
            "StrictModes no",
            "UsePAM no",
            "PermitRootLogin yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PubkeyAuthentication yes",
            "AllowTcpForwarding yes",
            "PrintMotd no",
            "UseDNS no",
            "LogLevel VERBOSE",
            # Of several SetEnv lines only the first counts.
            "SetEnv " + " ".join(f'"{name}={value}"' for name, value in self.environment.items()),
        ]
        self.config.write_text("\n".join(lines) + "\n")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(self.config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        process = self._process

        def listening() -> bool:
            if process.poll() is not None:
                raise AssertionError(f"sshd ended: {self.log.read_text('utf-8', 'replace')}")
            try:
                with socket.create_connection((self.host, self.port), 1) as greeting:
                    return greeting.recv(4) == b"SSH-"
            except OSError:
                return False

        until(listening, what="sshd listens")
        return self

    def sessions(self) -> list[int]:
        """Return the processes of the logins: sshd's own and all that run under them."""
        return descendants(self.pid)

    def signal_sessions(self, number: int) -> None:
        """Send a signal to sshd's session processes (SIGSTOP freezes the link without closing it)."""
        for pid in self.sessions():
            try:
                name = Path(f"/proc/{pid}/comm").read_text().strip()
            except OSError:
                continue
            if name.startswith("sshd"):
                os.kill(pid, number)

    def stop(self, *, sessions: bool = True) -> None:
        """End the server, and its sessions unless asked not to."""
        process, self._process = self._process, None
        if process is None:
            return
        below = descendants(process.pid) if sessions else []
        process.send_signal(signal.SIGTERM)
        process.wait(5)
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()
