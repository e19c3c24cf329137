"""A session over a real sshd at the end of a real network of 300 ms that loses packets, freezes, and comes back."""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lossy_link import CLIENT, HOST, LossyLink, why_not
from needs import allowed, need
from sshd import SSHD, Sshd, free_port
from test_session import until

from tui.core.connection import LinkState
from tui.core.deployment import DeploymentState
from tui.host.ssh import SshHost
from tui.services.deployment_watch import Session
from tui.settings import Deployment, EngineSettings, Settings

pytestmark = [pytest.mark.sshd, pytest.mark.timeout(240)]


@pytest.fixture
def link() -> Iterator[LossyLink]:
    reason = why_not()
    allowed(reason is None, reason or "")
    with LossyLink(delay=0.15, loss=0.05) as link:
        yield link


@pytest.fixture
def far(link: LossyLink, tmp_path: Path) -> Iterator[Sshd]:
    need(SSHD, "OpenSSH's server (sshd) isn't installed")
    sshd = Sshd(tmp_path / "sshd")
    sshd.host = HOST
    sshd.trust()
    sshd.write_client_config()
    link.host.call(sshd.start)
    yield sshd
    sshd.stop()


def texts(state: DeploymentState) -> list[str]:
    return [line.text for line in state.log.lines]


def at_least(lines: int) -> Callable[[DeploymentState], bool]:
    return lambda state: len(state.log.lines) >= lines


def numbered(first: int, last: int) -> list[str]:
    return [f"line {number}" for number in range(first, last)]


def watch(sshd: Sshd, log: Path) -> Session:
    deployment = Deployment(api=f"http://127.0.0.1:{free_port()}", engines=(EngineSettings(host="gpu-box", log=f"file:{log}"),))
    return Session("kimi", "gpu-box", deployment, Settings(), SshHost("gpu-box", config_files=[sshd.client_config]))


def write(log: Path, lines: list[str]) -> None:
    with log.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_the_network_is_what_it_says(link: LossyLink) -> None:
    link.loss = 0.0
    out = link.client.call(lambda: subprocess.run(["ip", "route", "get", HOST], capture_output=True, text=True, check=True).stdout)
    assert "dev far" in out
    assert CLIENT in out


def test_watched_at_300_ms_and_5_percent_loss(link: LossyLink, far: Sshd, tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    write(log, numbered(0, 1))

    async def main() -> None:
        async with watch(far, log) as session:
            await until(session, lambda s: s.connection.online and s.log.lines and s.machine, 90)
            for start in range(1, 200, 20):
                write(log, numbered(start, start + 20))
                await until(session, at_least(start + 20), 60)
            state = await until(session, lambda s: s.connection.round_trip_ms is not None, 30)
            assert state.connection.online
            assert state.connection.round_trip_ms is not None
            assert state.connection.round_trip_ms >= 300
            assert texts(state) == numbered(0, 201)

    link.client.call(lambda: asyncio.run(main()))
    assert link.lost > 5
    print(f"{link.carried} packets came through, {link.lost} did not")


@pytest.mark.parametrize("seconds", [4.0, None], ids=["a pause of 4 s", "until it is lost"])
def test_a_freeze(link: LossyLink, far: Sshd, tmp_path: Path, seconds: float | None) -> None:
    log = tmp_path / "vllm.log"
    write(log, numbered(0, 1))
    link.loss = 0.02

    async def main() -> None:
        async with watch(far, log) as session:
            await until(session, lambda s: s.connection.online and s.log.lines and s.machine, 90)
            link.freeze()
            write(log, numbered(1, 20))
            if seconds is not None:
                await asyncio.sleep(seconds)  # the pause itself
            else:
                lost = await until(session, lambda s: s.connection.link is LinkState.LOST, 40)
                assert lost.connection.cause
                assert lost.connection.retry_at is not None
                assert lost.machine is not None
                assert texts(lost) == ["line 0"]
            link.thaw()
            session.retry()
            state = await until(session, lambda s: s.connection.online and len(s.log.lines) >= 20, 90)
            assert texts(state) == numbered(0, 20)

    link.client.call(lambda: asyncio.run(main()))
