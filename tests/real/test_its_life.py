"""The life of a real vLLM beside another server, as a session tells it: it serves, stands still, is killed, is started again."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from needs import need
from vllm_server import end, serve_command, vllm_folder

from tui.core.deployment import DeploymentState
from tui.core.deployment_status import Status, conflict_of, hang_of, status_of
from tui.core.gpu_groups import next_steps
from tui.host.open import open_host
from tui.services.deployment_watch import Session
from tui.settings import Deployment, EngineSettings, Settings

COMMAND = str(Path(sys.executable).with_name("readyroom"))
START_S = 240.0
NOTICED_S = 15.0

pytestmark = [pytest.mark.real_vllm, pytest.mark.timeout(900)]


async def until(session: Session, fits: Callable[[DeploymentState], object], seconds: float) -> DeploymentState:
    async with asyncio.timeout(seconds):
        async for state in session.states():
            if fits(state):
                return state
    raise AssertionError("the session ended")


@contextmanager
def running(command: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True
        )
    try:
        yield process
    finally:
        end(process)


def another(folder: Path, port: int) -> list[str]:
    """Return the words of what looks like one more server of this host, and listens nowhere."""
    program = folder / "vllm"
    program.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(900)\n")
    program.chmod(0o755)
    return [str(program), "serve", "/models/other", "--port", str(port)]


def engine_of(server: int) -> int:
    """Return the pid of a vLLM's engine process."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid=,comm="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    return next(int(pid) for pid, parent, name in rows if int(parent) == server and name.startswith("VLLM::Engine"))


async def test_a_life(tmp_path: Path, unused_tcp_port_factory: Callable[[], int]) -> None:
    folder = vllm_folder()
    need(folder, "READYROOM_VLLM names no real vLLM (tests/real/setup.sh makes one)")
    assert folder is not None
    port, log, config = unused_tcp_port_factory(), tmp_path / "vllm.log", tmp_path / "config.toml"
    command, environment = serve_command(folder, port)
    deployment = Deployment(api=f"http://127.0.0.1:{port}", engines=(EngineSettings(host="local"),))
    config.write_text(f'[deployments.real]\napi = "http://127.0.0.1:{port}"\n[[deployments.real.engines]]\nhost = "local"\n')
    beside = another(tmp_path, unused_tcp_port_factory())
    session = Session("real", "local", deployment, Settings(), open_host("local"))
    with running(beside, dict(os.environ), tmp_path / "other.log"):
        async with session:
            await live(session, command, environment, log, config)


async def live(session: Session, command: list[str], environment: dict[str, str], log: Path, config: Path) -> None:
    with running(command, environment, log) as server:
        await until(session, lambda state: status_of(state) is Status.READY and state.server_pid == server.pid, START_S)

        engine = engine_of(server.pid)
        os.kill(engine, signal.SIGSTOP)
        state = await until(session, lambda state: status_of(state) is Status.HUNG, NOTICED_S)
        assert f"(pid {engine}) is stopped" in (hang_of(state) or "")
        status = await asyncio.to_thread(
            subprocess.run,
            [COMMAND, "status", "real", "--json", "--config", str(config)],
            capture_output=True,
            text=True,
            env={**os.environ, "XDG_STATE_HOME": str(log.parent)},
            timeout=120,
        )
        assert (status.returncode, json.loads(status.stdout)["status"]) == (4, "hung"), status.stderr
        os.kill(engine, signal.SIGCONT)
        await until(session, lambda state: status_of(state) is Status.READY, NOTICED_S)

        os.killpg(server.pid, signal.SIGKILL)
        state = await until(session, lambda state: status_of(state) is Status.FAILED, NOTICED_S)
        assert state.load is not None
        assert state.load.failure is not None
        assert "does not say why" in state.load.failure.cause
        assert "another server runs on" in (conflict_of(state) or "") or "other servers run on" in (conflict_of(state) or "")
        assert "memory to spare" in next_steps(state)[0]
    with running(command, environment, log) as again:
        began = time.monotonic()
        state = await until(session, lambda state: status_of(state) is Status.LOADING, NOTICED_S)
        assert time.monotonic() - began < NOTICED_S
        assert state.server_pid == again.pid
        assert state.load is None or state.load.failure is None
        seen: set[Status] = set()

        def ready(state: DeploymentState) -> bool:
            seen.add(status_of(state))
            return status_of(state) is Status.READY

        state = await until(session, ready, START_S)
        assert seen == {Status.LOADING, Status.READY}
        assert state.server_pid == again.pid
