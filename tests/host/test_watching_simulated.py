"""`readyroom status` and `wait` over SSH on the simulated host: what a script gets in each situation."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tui.core.connection import LinkState
from tui.core.deployment import DeploymentState
from tui.core.deployment_status import Status, status_of
from tui.core.text import clean
from tui.host.open import open_host
from tui.services.deployment_watch import Session
from tui.settings import Deployment, EngineSettings, Settings
from tui.simulator.simulation import Simulation, simulated_host


async def command(sim: Simulation, home: Path, *words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tui", words[0], sim.target, *words[1:]),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=sim.user(home),
    )
    out, errors = await asyncio.wait_for(process.communicate(), 100)
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


async def status(sim: Simulation, home: Path) -> tuple[int, dict[str, Any]]:
    code, out, errors = await command(sim, home, "status", "--json")
    assert out, errors
    document = json.loads(out)
    assert isinstance(document, dict)
    return code, document


async def test_a_load_midway(tmp_path: Path) -> None:
    async with simulated_host("midway") as sim:
        code, document = await status(sim, tmp_path)
        assert code == 3
        assert document["status"] == "loading"
        assert document["load"]["verdict"] == "progressing"
        assert document["load"]["shards"]["total"] == 64
        assert document["load"]["silent_s"] < 120
        assert len(document["gpus"]) == 8
        assert document["uniform"] is True
        assert document["api"]["reach"] == "closed"
        code, _, errors = await command(sim, tmp_path, "wait", "--timeout", "2s")
        assert code == 6, errors


async def test_a_ready_server(tmp_path: Path) -> None:
    async with simulated_host("ready") as sim:
        code, document = await status(sim, tmp_path)
        assert code == 0
        assert document["status"] == "ready"
        assert document["conflict"] is None
        assert document["headroom"]["free_mib"] == pytest.approx(1154, abs=2)
        assert document["load"]["ready"] is True


async def test_a_start_until_ready(tmp_path: Path) -> None:
    async with simulated_host("fast", speed=100) as sim:
        code, out, errors = await command(sim, tmp_path, "wait", "--timeout", "80s", "--json")
        assert code == 0, errors
        last = json.loads(out.splitlines()[-1])
        assert (last["event"], last["exit_code"]) == ("ready", 0)


async def test_a_host_without_python(tmp_path: Path) -> None:
    async with simulated_host("no-python") as sim:
        code, document = await status(sim, tmp_path)
        assert code == 3
        assert document["load"] is not None
        assert document["log"]["problem"] is None
        assert document["gpu_source"]["source"] == "nvidia-smi"
        assert "no Python 3.8" in document["log"]["note"]


async def test_a_host_without_python_and_without_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is found, and its log, by what a shell can see; a lost link loses and doubles no line."""
    async with simulated_host("no-python", speed=4) as sim:
        monkeypatch.setenv("HOME", sim.user(tmp_path)["HOME"])
        deployment = Deployment(api=sim.deployment.api, engines=(EngineSettings(host=sim.target),))
        assert deployment.engines[0].log == "auto"
        async with Session("sim", sim.target, deployment, Settings(), open_host(sim.target)) as session:

            async def until(predicate: Any) -> DeploymentState:
                async with asyncio.timeout(40):
                    async for state in session.states():
                        if predicate(state):
                            return state
                raise AssertionError("the session ended")

            # Other servers of this machine may be seen first: the one on the API's port is meant.
            await until(lambda s: s.log.lines and s.log.source == sim.log_path and s.server_pid and s.gpus and s.gpus.gpus)
            await sim.do("drop_link")
            await until(lambda s: s.connection.link in (LinkState.LOST, LinkState.UNREACHABLE))
            session.retry()
            state = await until(lambda s: s.connection.online and s.api.ready and s.load and s.load.ready)
            assert status_of(state) == Status.READY
            await until(lambda s: s.gpus and s.gpus.source == "nvidia-smi" and not s.gpus.late)
            text = await asyncio.to_thread(Path(sim.log_path).read_text)
            start = text.partition("Application startup complete")[0].replace("\r", "\n").splitlines()[:-1]
            once = [line for line in start if line.strip() and text.count(line) == 1]
            assert len(once) > 50
            got = [line.text for line in session.state.log.lines]
            assert [line for line in once if got.count(clean(line)) != 1] == []


async def test_a_dropped_link_is_taken_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with simulated_host("midway", speed=20) as sim:
        monkeypatch.setenv("HOME", sim.user(tmp_path)["HOME"])
        async with Session("sim", sim.target, sim.deployment, Settings(), open_host(sim.target)) as session:

            async def until(predicate: Any) -> None:
                async with asyncio.timeout(60):
                    async for state in session.states():
                        if predicate(state):
                            return

            await until(lambda s: s.load and s.load.shards and s.gpus)
            assert status_of(session.state) == Status.LOADING
            await sim.do("drop_link")
            await until(lambda s: s.connection.link in (LinkState.LOST, LinkState.UNREACHABLE))
            assert session.state.gpus is not None
            session.retry()
            await until(lambda s: s.connection.online)
            done = session.state.load.shards.done if session.state.load and session.state.load.shards else 0
            await until(lambda s: s.load.shards.done > done)
            assert session.state.load is not None
            assert session.state.load.restarts == 0
            bars = [line.text for line in session.state.log.lines if "% Completed" in line.text]
            written = await asyncio.to_thread(Path(sim.log_path).read_text)
            assert bars
            assert all(written.count(bar) >= bars.count(bar) for bar in bars)  # none twice that does not stand there twice
