"""The whole product against the real thing: a real vLLM on the CPU, watched over a real sshd from before it starts to its death."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from needs import need
from sshd import SSHD, Sshd, running
from vllm_server import VllmServer, serving, vllm_folder

from tui.core.connection import LinkState
from tui.core.conversation import Conversation, Turn
from tui.core.deployment import DeploymentState
from tui.core.logs.load_state import Phase
from tui.host.open import open_host
from tui.record.store import RunStore
from tui.services.chat_turn import converse
from tui.services.deployment_watch import Session
from tui.settings import load_settings

COMMAND = str(Path(sys.executable).with_name("readyroom"))
READY_S = 240.0

pytestmark = [pytest.mark.real_vllm, pytest.mark.sshd, pytest.mark.timeout(600)]


@dataclass
class Deployed:
    server: VllmServer
    sshd: Sshd
    environment: dict[str, str]
    config: Path

    def command(self, *words: str) -> AbstractContextManager[subprocess.Popen[str]]:
        return running(
            [COMMAND, *words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str) -> tuple[int, Any]:
        """Exit code and the JSON document of a headless command."""
        with self.command(*words, "--json") as process:
            out, err = process.communicate(timeout=300)
        assert out, err
        return process.returncode, json.loads(out)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    folder = vllm_folder()
    need(folder, "READYROOM_VLLM names no real vLLM (tests/real/setup.sh makes one)")
    need(SSHD, "OpenSSH's server (sshd) isn't installed")
    assert folder is not None
    here = tmp_path_factory.mktemp("deployed")
    sshd = Sshd(here / "sshd").start()
    log = here / "a log with spaces.log"
    log.write_text("")
    try:
        with serving(folder, log, shard_delay=0.15) as server:
            config = here / "config.toml"
            config.write_text(
                "[smoke]\nmax_tokens = 160\n"
                f'[deployments.real]\napi = "{server.url}"\n[[deployments.real.engines]]\nhost = "gpu-box"\nlog = "file:{log}"\n'
                f'[deployments.found]\napi = "{server.url}"\n[[deployments.found.engines]]\nhost = "gpu-box"\nlog = "auto"\n'
            )
            state = here / "state"
            environment = sshd.write_home() | {"READYROOM_CONFIG": str(config), "XDG_STATE_HOME": str(state), "NO_COLOR": "1"}
            yield Deployed(server, sshd, environment, config)
    finally:
        sshd.stop()


async def test_a_start_is_watched_until_the_api_says_ready(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", deployed.environment["HOME"])
    with deployed.command("wait", "real", "--timeout", str(int(READY_S)), "--json") as waiting:
        settings = load_settings(deployed.config)
        seen: list[DeploymentState] = []
        codes: set[int] = set()
        async with Session("real", "gpu-box", settings.deployments["real"], settings, open_host("gpu-box")) as session:
            async with asyncio.timeout(READY_S):
                async for state in session.states():
                    seen.append(state)
                    load = state.load
                    if load is not None and load.shards and 5 < load.shards.done < 40 and not codes:
                        code, document = await asyncio.to_thread(deployed.run, "status", "real")
                        codes.add(code)
                        assert document["load"]["phase"] == "loading"
                        assert document["load"]["shards"]["total"] == 64
                    if state.api.ready and load is not None and load.phase is Phase.READY:
                        break
            ready = session.state

            # it was loading when asked, and the screens saw it count
            assert codes == {3}
            counts = {int(state.load.shards.done) for state in seen if state.load and state.load.shards}
            assert len(counts) > 10
            assert max(counts) == 64
            etas = [state.forecast.shards_eta_s for state in seen if state.forecast.shards_eta_s is not None]
            assert etas
            assert all(eta < READY_S for eta in etas)
            assert ready.connection.link is LinkState.ONLINE
            assert not any(state.api.error for state in seen), "a port that is still closed is no error"

            # what the log said of it is right
            assert ready.load is not None
            assert ready.load.version == "0.32.0+cpu" or (ready.load.version or "").startswith("0.32.0")
            (server,) = (server for server in ready.servers if server.pid == ready.server_pid)
            assert ready.load.started_at == server.started_at, "a start begins with its process"
            assert ready.load.first_line_at is not None
            assert ready.load.started_at is not None
            assert ready.load.first_line_at > ready.load.started_at + 1, "its imports come before its first line"
            assert ready.load.kv_tokens
            assert ready.load.max_model_len
            assert ready.load.failure is None
            assert ready.api.models[0].id == "tiny"
            assert ready.api.metrics is not None
            generated = ready.api.metrics.generation_tokens

            # talk to it: random weights, so only the figures count
            turns: list[Turn] = []
            async with aclosing(converse(session.api, Conversation(), "Say something.", model="tiny", max_tokens=24)) as replies:
                turns.extend([turn async for turn in replies])
            last = turns[-1]
            assert last.error is None
            assert last.finish == "length"
            assert last.usage.completion_tokens == 24
            assert last.ttft_ms is not None
            assert last.ttft_ms > 0
            assert last.tokens_s is not None
            assert len(turns) > 2, "the reply streamed"

            # watching generated nothing; `wait` one token at its end
            assert not generated or generated <= 1

        out, err = await asyncio.to_thread(waiting.communicate, timeout=60)
        assert waiting.returncode == 0, err
        lines = [json.loads(line) for line in out.splitlines()]
        assert len(lines) > 3


def test_status_and_the_search_for_servers_agree(deployed: Deployed) -> None:
    code, document = deployed.run("status", "real")
    assert code == 0
    assert document["api"]["ready"] is True
    assert document["load"]["shards"]["done"] == 64
    code, found = deployed.run("status", "found")
    assert code == 0
    assert found["load"]["shards"]["done"] == 64, "log = auto finds the file that the server writes to"


def test_a_start_is_in_the_record_once_whatever_its_name(deployed: Deployed) -> None:
    for name in ("real", "found", "gpu-box"):
        _, document = deployed.run("status", name, *(["--port", str(deployed.server.port)] if name == "gpu-box" else []))
        assert "usual" not in (document["load"]["verdict_reason"] or ""), "no start is compared with itself"
    record = RunStore(Path(deployed.environment["XDG_STATE_HOME"]) / "readyroom" / "record.sqlite")
    (run,) = record.runs(kind="load")
    record.close()
    assert run.document["outcome"] == "ready"
    assert run.document["started_at"] == run.document["process_started_at"]


def test_smoke_fails_for_incoherence_only_where_weights_are_random(deployed: Deployed) -> None:
    code, document = deployed.run("smoke", "real")
    assert code == 1
    assert document["results"]
    assert not any(result["outcome"] == "passed" for result in document["results"])


@pytest.mark.parametrize("vantage", ["host", "direct"])
def test_benchmarks_run_over_the_connection_and_against_a_url(deployed: Deployed, vantage: str) -> None:
    where = ["real"] if vantage == "host" else ["--base-url", deployed.server.url, "--model", "tiny"]
    options = ["--concurrency", "1,4", "--requests", "8", "--input-tokens", "32", "--output-tokens", "16", "--yes"]
    code, document = deployed.run("bench", *where, *options)
    assert code == 0
    assert document["vantage"] == vantage
    assert [point["max_concurrency"] for point in document["points"]][:2] == [1, 4]
    for point in document["points"]:
        assert point["failed"] == 0
        assert point["completed"] == 8
        assert point["total_output_tokens"] == 8 * 16
        assert 0 < point["median_tpot_ms"] < 1000
        assert point["mean_ttft_ms"] > 0


def test_doctor_goes_from_here_to_the_first_token(deployed: Deployed) -> None:
    code, document = deployed.run("doctor", "real")
    grades = {check["name"]: check["grade"] for check in document["checks"]}
    assert code == 0, document
    assert {grades[name] for name in ("connection", "python3", "server", "log", "API", "model", "one token")} == {"ok"}


def test_the_death_of_the_engine_is_told(deployed: Deployed) -> None:
    """Last: it ends the server."""
    engine = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and os.path.exists(entry / "stat") and _is_engine(entry, deployed.server.process.pid)
    ]
    assert engine
    os.kill(engine[0], 9)
    deadline = time.monotonic() + 60
    code, document = deployed.run("status", "real")
    while code != 4 and time.monotonic() < deadline:
        code, document = deployed.run("status", "real")
    assert code == 4, document
    assert document["load"]["phase"] == "failed"
    assert document["load"]["was_ready"] is True
    assert document["load"]["failure"]["kind"] in ("engine_died", "host_oom_or_killed", "worker_died")


def _is_engine(entry: Path, session: int) -> bool:
    try:
        fields = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return int(fields[3]) == session and b"EngineCore" in (entry / "cmdline").read_bytes()
    except OSError:
        return False
