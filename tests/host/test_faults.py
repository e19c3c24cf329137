"""Faults while something is watched: a session over a real sshd, the installed command as a process. See tests/README.md."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from needs import allowed
from slow_link import SlowLink
from sshd import Sshd, alive, eventually, free_port
from test_session import until

from tui.core.connection import LinkState
from tui.core.deployment import DeploymentState
from tui.host.ssh import SshHost
from tui.services.deployment_watch import Session
from tui.settings import Deployment, EngineSettings, Settings

READY = (Path(__file__).parent.parent / "data" / "logs" / "servers" / "26-kimi-k25-8xh200-ep8-ready.log").read_text()
pytestmark = pytest.mark.sshd


@pytest.fixture
async def link(sshd: Sshd) -> AsyncIterator[SlowLink]:
    async with SlowLink(sshd.port) as link:
        sshd.write_client_config(f"Host gpu-box\n  Port {link.port}")
        sshd.known_hosts.write_text(sshd.host_line().replace(f":{sshd.port} ", f":{link.port} "))
        yield link


def watch(sshd: Sshd, log: Path) -> Session:
    deployment = Deployment(api=f"http://127.0.0.1:{free_port()}", engines=(EngineSettings(host="gpu-box", log=f"file:{log}"),))
    return Session("kimi", "gpu-box", deployment, Settings(), SshHost("gpu-box", config_files=[sshd.client_config]))


def texts(state: DeploymentState) -> list[str]:
    return [line.text for line in state.log.lines]


@pytest.mark.parametrize("fault", ["cut", "frozen", "sshd restarted"])
async def test_the_link_is_lost_and_taken_up_again(sshd: Sshd, link: SlowLink, tmp_path: Path, fault: str) -> None:
    log = tmp_path / "vllm.log"
    log.write_text("line 0\n")
    async with watch(sshd, log) as session:
        await until(session, lambda s: s.log.lines and s.machine)
        match fault:
            case "cut":
                link.cut()
            case "frozen":
                link.freeze()
            case _:
                await asyncio.to_thread(sshd.restart)
        lost = await until(session, lambda s: not s.connection.online)
        assert lost.connection.link in (LinkState.LOST, LinkState.UNREACHABLE, LinkState.CONNECTING)
        assert lost.connection.cause
        assert lost.machine is not None  # what was known stays
        assert texts(lost) == ["line 0"]
        with log.open("a") as file:
            file.writelines(f"line {number}\n" for number in range(1, 40))
        if fault == "frozen":
            link.cut()  # the old connection is gone for good; what comes next passes
        session.retry()
        state = await until(session, lambda s: s.connection.online and len(s.log.lines) >= 40, 60)
        assert texts(state) == [f"line {number}" for number in range(40)]


async def test_a_key_that_changed_meanwhile_is_refused_for_good(sshd: Sshd, link: SlowLink, tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text("line 0\n")
    async with watch(sshd, log) as session:
        await until(session, lambda s: s.log.lines)
        sshd.new_host_key()
        await asyncio.to_thread(sshd.restart)
        state = await until(session, lambda s: s.connection.link is LinkState.REFUSED, 60)
        assert "key" in (state.connection.cause or "")
        assert state.connection.retry_at is None
        assert texts(state) == ["line 0"]


async def test_300_ms_away(sshd: Sshd, link: SlowLink, tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(READY)
    link.delay = 0.15
    async with watch(sshd, log) as session:
        state = await until(session, lambda s: s.load and s.load.ready and s.connection.round_trip_ms, 60)
        assert len(state.log.lines) == len(READY.splitlines())
        assert (state.connection.round_trip_ms or 0) >= 300


class Client:
    """The command `wait` on a host over ssh, as a process of its own."""

    def __init__(self, sshd: Sshd, folder: Path) -> None:
        self.log = folder / "vllm.log"
        self.log.write_text(READY[: READY.index("\n", 2000) + 1])
        config = folder / "config.toml"
        config.write_text(
            f'[deployments.kimi]\napi = "http://127.0.0.1:{free_port()}"\n'
            f'[[deployments.kimi.engines]]\nhost = "gpu-box"\nlog = "file:{self.log}"\n'
        )
        self.env = sshd.write_home() | {
            "READYROOM_CONFIG": str(config),
            "XDG_STATE_HOME": str(folder / "state"),
            "PYTHONUNBUFFERED": "1",
        }

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tui", *words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=self.env
        )


def probes(sshd: Sshd) -> list[int]:
    return [pid for pid in sshd.sessions() if alive(pid)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda number: number.name)
async def test_a_client_that_is_ended_leaves_nothing_on_the_host(sshd: Sshd, tmp_path: Path, number: signal.Signals) -> None:
    process = await Client(sshd, tmp_path).start("wait", "kimi", "--json")
    try:
        assert process.stdout is not None
        while (
            b'"phase"' not in (line := await asyncio.wait_for(process.stdout.readline(), 60))
            or b"null" in line.split(b"phase")[1][:8]
        ):
            assert line
        assert probes(sshd)
        process.send_signal(number)
        _, errors = await asyncio.wait_for(process.communicate(), 30)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if number is not signal.SIGKILL:
        assert process.returncode == 130
        assert errors.decode().strip().splitlines()[-1] == "readyroom: interrupted"
    await eventually(lambda: not probes(sshd), seconds=15, what="the end of all processes on the host")


async def test_a_client_that_slept(sshd: Sshd, tmp_path: Path) -> None:
    """A laptop asleep for longer than the leash is long: what was written meanwhile is there when it wakes up."""
    client = Client(sshd, tmp_path)
    process = await client.start("wait", "kimi", "--json")
    try:
        assert process.stdout is not None
        while b'"phase": null' in (line := await asyncio.wait_for(process.stdout.readline(), 60)):
            assert line
        process.send_signal(signal.SIGSTOP)
        with client.log.open("a") as file:
            file.write(READY[client.log.stat().st_size :])
        await asyncio.sleep(11)  # the sleep itself
        process.send_signal(signal.SIGCONT)
        while b'"phase": "ready"' not in (line := await asyncio.wait_for(process.stdout.readline(), 60)):
            assert line
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 130
        await eventually(lambda: not probes(sshd), seconds=15, what="the end of all processes on the host")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


STATES = {
    "full disk": "mount -t tmpfs -o size=64k none '{0}' && head -c 100000 /dev/zero > '{0}/filler'; exec",
    "read-only": "mount -t tmpfs -o ro none '{0}' && exec",
}


@pytest.mark.parametrize("fault", list(STATES))
def test_a_state_directory_that_takes_nothing(tmp_path: Path, fault: str) -> None:
    state = tmp_path / "state"
    state.mkdir()
    log = tmp_path / "vllm.log"
    log.write_text(READY)
    config = tmp_path / "config.toml"
    config.write_text(
        f'[deployments.kimi]\napi = "http://127.0.0.1:{free_port()}"\n[[deployments.kimi.engines]]\nlog = "file:{log}"\n'
    )
    env = os.environ | {"READYROOM_CONFIG": str(config), "XDG_STATE_HOME": str(state)}
    space = ["unshare", "--mount", "--"]
    allowed(
        subprocess.run([*space, "true"], capture_output=True, check=False).returncode == 0, "namespaces can't be made (unshare)"
    )
    command = [
        *space,
        "sh",
        "-c",
        f'{STATES[fault].format(state)} "$@"',
        "sh",
        sys.executable,
        "-m",
        "tui",
        "status",
        "kimi",
        "--json",
    ]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert done.returncode in (3, 7), done.stderr.decode()
    assert json.loads(done.stdout)["load"]["phase"] == "ready"


def test_a_record_that_is_no_record(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "readyroom"
    folder.mkdir(parents=True)
    (folder / "record.sqlite").write_bytes(os.urandom(8192))
    env = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path)}
    env.pop("READYROOM_CONFIG", None)
    command = [sys.executable, "-m", "tui", "runs", "--json"]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    json.loads(done.stdout)
    assert len(list(folder.iterdir())) >= 2  # set aside, never deleted
