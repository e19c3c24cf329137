"""No process is left behind on a host: after a client's `kill -9`, a frozen link, a closed connection."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sshd import Sshd, alive, descendants, until

CLIENT = """
import asyncio, sys
from pathlib import Path
from tui.host.local import ExecHost, LocalHost
from tui.host.ssh import SshHost

async def main():
    kind, config = sys.argv[1:]
    host = {"ssh": lambda: SshHost("gpu-box", config_files=[Path(config)]),
            "local": LocalHost,
            "exec": lambda: ExecHost(["env"])}[kind]()
    async with host:
        await host.connect()
        watch = await host.start_probe("watch", {"hz": 2.0})
        # A foreign command that never touches stdin or stdout, with a child.
        run = await host.start_probe("run", {"argv": ["sh", "-c", "sleep 1234 & exec sleep 1235"]})
        command = asyncio.create_task(host.run(["sleep", "6"], timeout=6))
        await asyncio.sleep(0.2)
        print(watch.hello["pid"], run.hello["pid"], flush=True)
        async for frame in watch:
            pass

asyncio.run(main())
"""

LIMIT_S = 10.0
"""8 s of silence, and what a loaded machine adds."""


class Client:
    def __init__(self, kind: str, config: Path | str) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", CLIENT, kind, str(config)], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.probes = [int(word) for word in self.process.stdout.readline().split()]
        if len(self.probes) != 2:
            self.end()
        assert len(self.probes) == 2

    def remote(self) -> list[int]:
        """Return the probes and all that they started."""
        return [*self.probes, *(pid for probe in self.probes for pid in descendants(probe))]

    def end(self) -> None:
        self.process.kill()
        self.process.wait(5)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(params=[pytest.param("ssh", marks=pytest.mark.sshd), "local", "exec"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    config = request.getfixturevalue("sshd").client_config if request.param == "ssh" else "-"
    client = Client(request.param, config)
    yield client
    client.end()


def test_kill_9_of_the_client_leaves_nothing(client: Client) -> None:
    until(lambda: len(client.remote()) >= 4, what="the foreign command and its child")
    started = client.remote()
    client.process.send_signal(signal.SIGKILL)
    client.process.wait(5)
    until(lambda: not any(alive(pid) for pid in started), seconds=LIMIT_S, what="the end of all remote processes")


def test_a_stopped_client_leaves_nothing(client: Client) -> None:
    until(lambda: len(client.remote()) >= 4, what="the foreign command and its child")
    started = client.remote()
    client.process.send_signal(signal.SIGSTOP)
    try:
        until(lambda: not any(alive(pid) for pid in started), seconds=LIMIT_S, what="the end of all remote processes")
    finally:
        client.process.send_signal(signal.SIGCONT)


@pytest.mark.sshd
def test_a_frozen_sshd_leaves_nothing(sshd: Sshd) -> None:
    """A cut cable as the host sees it: the session's pipes stay open, and nothing comes."""
    client = Client("ssh", sshd.client_config)
    try:
        until(lambda: len(client.remote()) >= 4, what="the foreign command and its child")
        started = client.remote()
        frozen = [pid for pid in sshd.sessions() if Path(f"/proc/{pid}/comm").read_text().startswith("sshd")]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        frozen_at = time.monotonic()
        until(lambda: not any(alive(pid) for pid in started), seconds=LIMIT_S, what="the end of all remote processes")
        print(f"gone {time.monotonic() - frozen_at:.1f} s after the link froze")
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    finally:
        client.end()
