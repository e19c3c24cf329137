"""`readyroom smoke` and the chat against the simulated host, over its SSH server."""

import asyncio
import json
import os
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from tui.core.conversation import NO_TEMPLATE, Conversation, Turn
from tui.host.ssh import SshHost
from tui.services.chat_turn import converse
from tui.services.deployment_watch import Session
from tui.settings import Settings
from tui.simulator.simulation import Simulation, simulated_host


async def command(sim: Simulation, tmp_path: Path, *arguments: str, max_tokens: int = 4096) -> tuple[int, str, str]:
    """Run the installed command with a configuration that reaches the simulated API directly."""
    file = tmp_path / "config.toml"
    file.write_text(
        f'[deployments.sim]\napi = "{sim.api_url}"\ndirect = true\n[[deployments.sim.engines]]\nhost = "local"\n'
        f"[smoke]\nmax_tokens = {max_tokens}\n"
    )
    env = {**os.environ, "READYROOM_CONFIG": str(file), "XDG_STATE_HOME": str(tmp_path / "state")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tui", "smoke", "sim", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.DEVNULL,
        env=env,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def until_ready(session: Session) -> None:
    async with asyncio.timeout(60):
        async for state in session.states():
            if state.api.ready:
                return


@pytest.mark.parametrize(
    ("scenario", "code", "counts"),
    [
        ("ready", 0, {"passed": 6, "failed": 0, "inconclusive": 0}),
        ("reasoning", 0, {"passed": 6, "failed": 0, "inconclusive": 0}),
        ("base", 0, {"passed": 4, "failed": 0, "inconclusive": 0}),
        ("gibberish", 1, {"passed": 0, "failed": 6, "inconclusive": 0}),
    ],
)
async def test_the_command_judges_the_model(scenario: str, code: int, counts: dict[str, int], tmp_path: Path) -> None:
    async with simulated_host(scenario) as sim:
        # babble is as clear after 160 tokens as after 400 of them
        status, out, err = await command(sim, tmp_path, "--json", max_tokens=160 if scenario == "gibberish" else 4096)
        document = json.loads(out)
        assert (status, document["counts"]) == (code, counts), (document["results"], err)
        assert document["passed"] is (code == 0)
        if scenario == "gibberish":
            assert all("incoherent" in result["says"] for result in document["results"])
        if scenario == "reasoning":
            assert all(result["reasoning"] for result in document["results"])
        if scenario == "ready":
            status, out, _ = await command(sim, tmp_path)
            assert status == 0
            assert "✓" in out
            assert "6 passed" in out
            status, out, err = await command(sim, tmp_path, "--model", "nope")
            assert (status, out) == (2, "")
            assert "does not serve 'nope'" in err


async def test_a_closed_port_is_unreachable(tmp_path: Path) -> None:
    async with simulated_host("stall", speed=1.0) as sim:
        status, out, err = await command(sim, tmp_path, "--json")
    assert (status, out) == (5, "")
    assert "nothing listens" in err


async def said(session: Session, asked: str, **options: Any) -> Turn:
    model = session.state.api.models[0].id
    async with aclosing(converse(session.api, Conversation(), asked, model=model, **options)) as turns:
        async for turn in turns:
            last = turn
    return last


@pytest.mark.parametrize("scenario", ["ready", "reasoning", "base"])
async def test_chat_through_the_connection(scenario: str) -> None:
    async with simulated_host(scenario) as sim:
        host = SshHost(sim.target, config_files=[sim.ssh_config])
        async with Session("sim", sim.target, sim.deployment, Settings(), host) as session:
            await until_ready(session)
            turn = await said(session, "What is the capital of Australia?" if scenario != "base" else "The capital of Australia is")
            assert turn.error is None
            assert "Canberra" in turn.reply
            assert turn.ttft_ms is not None
            assert turn.usage.completion_tokens
            assert bool(turn.reasoning) == (scenario == "reasoning")
            assert turn.note == (NO_TEMPLATE if scenario == "base" else None)

            refused = await said(session, "Hi", max_tokens=10_000_000)
            assert refused.error is not None
            assert "max_model_len" in refused.error or "maximum context" in refused.error

            # closing the iterator ends the request on the server
            model = session.state.api.models[0].id
            async with aclosing(converse(session.api, Conversation(), "Tell me a long story about rain.", model=model)) as turns:
                async for value in turns:
                    if value.chunks > 3:
                        break
            async with asyncio.timeout(15):
                while True:
                    status = await session.api.poll()
                    if status.metrics is not None and status.metrics.running == 0:
                        break
                    await asyncio.sleep(0.1)
