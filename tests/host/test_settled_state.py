"""When a snapshot is taken: after everything has answered, never before the connection has been made or has failed."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tui.cli import status
from tui.cli.context import open_session
from tui.cli.status import settled_state
from tui.core.connection import LinkState
from tui.core.deployment_status import exit_code_of
from tui.host.ssh import SshHost
from tui.services.deployment_watch import Session
from tui.settings import Deployment, EngineSettings, Settings


@pytest.fixture
def mute() -> Iterator[int]:
    """Listen on a port that accepts connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield int(listening.getsockname()[1])


def far(folder: Path, port: int, connect_timeout: int) -> Session:
    config = folder / "ssh_config"
    config.write_text(f"Host *\n  ConnectTimeout {connect_timeout}\n")
    target = f"nobody@127.0.0.1:{port}"
    host = SshHost(target, config_files=[config])
    return Session("far", target, Deployment(engines=(EngineSettings(host=target),)), Settings(), host)


async def test_a_mute_host_is_unreachable_when_its_time_is_over(tmp_path: Path, mute: int) -> None:
    async with far(tmp_path, mute, 1) as session:
        state = await settled_state(session, 0.1)
    assert state.connection.link is LinkState.UNREACHABLE
    assert exit_code_of(state) == 5
    assert "within 1 s" in (state.connection.cause or "")


async def test_a_connection_that_never_ends_is_unreachable(tmp_path: Path, mute: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "CONNECT_S", 0.5)
    async with far(tmp_path, mute, 300) as session:
        state = await settled_state(session, 0.1)
    assert exit_code_of(state) == 5
    assert state.connection.cause
    assert state.connection.advice


async def test_a_log_that_is_not_to_be_read_is_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "none").write_text("INFO 06-01 10:00:00 [api_server.py:1] vLLM API server version 0.11.0\n")
    settings = Settings(deployments={"here": Deployment(engines=(EngineSettings(host="local", log="none"),))})
    async with open_session(settings, "here") as session:
        state = await settled_state(session, 30.0)
        assert session.settled
    assert (state.log.source, state.log.problem) == ("none", None)
    assert (state.load, state.log.lines) == (None, ())


async def test_further_hosts_are_waited_for() -> None:
    engines = (
        EngineSettings(host="local", log="none"),
        EngineSettings(host="exec:env", log="none"),
        EngineSettings(host="exec:/nonexistent/prefix", log="none"),
    )
    settings = Settings(deployments={"two": Deployment(api="http://127.0.0.1:9", engines=engines)})
    async with open_session(settings, "two") as session:
        state = await settled_state(session, 60.0)
    there, away = state.others
    assert there.gpus is not None
    assert away.connection.link in (LinkState.UNREACHABLE, LinkState.REFUSED)


async def test_a_host_whose_name_resembles_a_command() -> None:
    async with open_session(Settings(), "statsu.invalid", resembles="status") as session:
        state = await settled_state(session, 1.0)
    assert state.connection.link is LinkState.UNREACHABLE
    assert (state.connection.advice or "").endswith("(or did you mean the command 'status'?)")
