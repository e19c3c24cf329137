"""`readyroom status` and `readyroom wait` as installed, on this machine: exit codes, and what they print."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from test_api import IDLE, UP, Replay, recorded

LOGS = Path(__file__).parent.parent / "data" / "logs"
READY = (LOGS / "servers" / "26-kimi-k25-8xh200-ep8-ready.log").read_text()
FAILED = (LOGS / "servers" / "09-cpu-032-kv-too-small.log").read_text()
SHARD = READY.index("\n", READY.rindex("% Completed |", 0, READY.index("Loading weights took") - 400)) + 1
LOADING = READY[:SHARD]

Run = Callable[..., Any]


class Command:
    """A running command."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def result(self) -> tuple[int, str, str]:
        out, errors = await asyncio.wait_for(self.process.communicate(), 60)
        assert self.process.returncode is not None
        return self.process.returncode, out.decode(), errors.decode()

    async def line(self, wanted: str) -> str:
        """Return the first line of its output that holds a text."""
        assert self.process.stdout is not None
        while line := (await asyncio.wait_for(self.process.stdout.readline(), 60)).decode():
            if wanted in line:
                return line
        raise AssertionError(f"it ended without saying {wanted!r}")


@pytest.fixture
async def server() -> AsyncIterator[Replay]:
    async with Replay() as replay:
        yield replay


@pytest.fixture
async def start(tmp_path: Path, server: Replay) -> AsyncIterator[Run]:
    """Start the command with a configuration whose deployment `kimi` is this machine."""
    config = tmp_path / "config.toml"
    config.write_text(
        f'[deployments.kimi]\napi = "{server.url}"\n'
        f'[[deployments.kimi.engines]]\nhost = "local"\nlog = "file:{tmp_path}/vllm.log"\n'
        '[deployments.far]\n[[deployments.far.engines]]\nhost = "nobody@127.0.0.1:1"\n'
    )
    env = os.environ | {"READYROOM_CONFIG": str(config), "XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONUNBUFFERED": "1"}
    started: list[asyncio.subprocess.Process] = []

    async def run(*words: str) -> Command:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tui", *words, stdout=pipe, stderr=pipe, stdin=asyncio.subprocess.DEVNULL, env=env
        )
        started.append(process)
        return Command(process)

    yield run
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def closed(server: Replay) -> None:
    """Free the port, so that nothing listens on it any more."""
    await server.stop()


async def test_status_of_a_load(start: Run, tmp_path: Path, server: Replay) -> None:
    (tmp_path / "vllm.log").write_text(LOADING)
    await closed(server)
    code, out, _ = await (await start("status", "kimi", "--json")).result()
    assert code == 3
    document = json.loads(out)
    assert document["schema"] == 1
    assert (document["name"], document["target"], document["status"]) == ("kimi", "local", "loading")
    assert document["connection"]["link"] == "online"
    assert document["load"]["phase"] == "loading"
    assert document["load"]["shards"]["total"] == 64
    assert document["api"]["reach"] == "closed"
    assert document["uniform"] is None


async def test_status_of_a_ready_server_for_a_person(start: Run, tmp_path: Path, server: Replay) -> None:
    (tmp_path / "vllm.log").write_text(READY)
    server.answers = dict(IDLE)
    code, out, errors = await (await start("status", "kimi")).result()
    assert code == 0
    assert "kimi: READY: /models/tiny" in out
    assert "ready after 11 min 44 s" in out
    assert errors == ""


async def test_status_of_a_failed_start(start: Run, tmp_path: Path, server: Replay) -> None:
    (tmp_path / "vllm.log").write_text(FAILED)
    await closed(server)
    code, out, _ = await (await start("status", "kimi")).result()
    assert code == 4
    assert "FAILED" in out
    assert "KV cache" in out


async def test_status_of_a_host_that_is_not_there(start: Run) -> None:
    code, out, _ = await (await start("status", "far", "--json")).result()
    assert code == 5
    document = json.loads(out)
    assert document["status"] == "unreachable"
    assert document["connection"]["cause"]
    assert document["gpus"] == []
    assert document["load"] is None


async def test_wait_until_ready_with_a_token(start: Run, tmp_path: Path, server: Replay) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(LOADING)
    server.answers = {"GET /health": b""}
    command = await start("wait", "kimi", "--json")
    progress = json.loads(await command.line('"phase": "loading"'))
    assert progress["event"] == "progress"
    assert progress["shards"]["total"] == 64
    assert "a shard" in progress["verdict_reason"], "of this phase, not of the one before"
    with log.open("a") as file:
        file.write(READY[SHARD:])
    server.answers = UP | {"POST /v1/completions": recorded("completions")}
    code, out, _ = await command.result()
    assert code == 0
    last = json.loads(out.splitlines()[-1])
    assert (last["event"], last["exit_code"], last["models"]) == ("ready", 0, ["/models/tiny"])
    asked = [json.loads(body) for line, _, body in server.asked if line.startswith("POST")]
    assert [body["max_tokens"] for body in asked] == [1]


async def test_wait_fails_with_the_start(start: Run, tmp_path: Path, server: Replay) -> None:
    log = tmp_path / "vllm.log"
    begin = FAILED.index("\n", len(FAILED) // 4) + 1
    log.write_text(FAILED[:begin])
    await closed(server)
    # On a busy machine the failure may come before the processes have been looked at: then it is an old one for the grace time.
    command = await start("wait", "kimi", "--grace", "2s")
    await command.line("starting")
    with log.open("a") as file:
        file.write(FAILED[begin:])
    code, _, errors = await command.result()
    assert code == 4
    assert "kimi: failed: " in errors


async def test_wait_does_not_count_an_old_failure_before_the_grace_time(start: Run, tmp_path: Path, server: Replay) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(FAILED)
    command = await start("wait", "kimi", "--grace", "60s")
    await command.line("failed")
    with log.open("a") as file:
        file.write(READY)
    server.answers = UP | {"POST /v1/completions": recorded("completions")}
    code, out, _ = await command.result()
    assert code == 0
    assert "ready" in out


async def test_wait_gives_up_on_an_old_failure_after_the_grace_time(start: Run, tmp_path: Path, server: Replay) -> None:
    (tmp_path / "vllm.log").write_text(FAILED)
    await closed(server)
    code, _, errors = await (await start("wait", "kimi", "--grace", "1s")).result()
    assert code == 4
    assert "kimi: failed: " in errors


async def test_wait_times_out(start: Run, tmp_path: Path, server: Replay) -> None:
    (tmp_path / "vllm.log").write_text(LOADING)
    await closed(server)
    code, _, errors = await (await start("wait", "kimi", "--timeout", "2s")).result()
    assert code == 6
    assert "timed out" in errors


async def test_wait_for_a_host_that_is_not_there(start: Run) -> None:
    code, _, errors = await (await start("wait", "far")).result()
    assert code == 5
    assert "unreachable" in errors


@pytest.mark.parametrize("words", [["wait", "kimi", "--timeout", "soon"], ["wait", "kimi", "--restarts", "-1"], ["status", "a b"]])
async def test_usage(start: Run, words: list[str]) -> None:
    code, _, errors = await (await start(*words)).result()
    assert code == 2
    assert errors
