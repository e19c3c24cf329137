"""Sweep and soak against the simulated server: an engine that batches, queues, counts and has a longest length."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from sshd import eventually

from tui.aio import ended
from tui.core.bench_conclusions import drift, soak_words
from tui.core.bench_plan import sweep
from tui.core.bench_result import Plan
from tui.host.local import LocalHost
from tui.services.bench_run import Benchmarks, BenchmarkTarget, collect
from tui.simulator.endpoint import SimulatedEndpoint
from tui.simulator.scenarios import Model, Scenario

MODEL = Model(path="/models/tiny", name="tiny", max_model_len=4096)


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[str]:
    endpoint = SimulatedEndpoint(Scenario("test", "", model=MODEL), lambda client, request, status: None)
    await endpoint.open(0)
    batching = asyncio.create_task(endpoint.engine.run())
    assert endpoint._server is not None
    try:
        yield f"http://127.0.0.1:{endpoint._server.sockets[0].getsockname()[1]}"
    finally:
        endpoint.close()
        await ended(batching)
        await eventually(lambda: not endpoint._connections, what="the end of its connections")


def benchmarks(url: str, state: Path) -> Benchmarks:
    server = BenchmarkTarget(url)
    return Benchmarks("box", server, host=None, open_local=LocalHost, batched_tokens=lambda: 2048, state=state)


async def test_a_sweep(tmp_path: Path) -> None:
    async with serving() as url:
        plan = sweep(4, input_tokens=64, output_tokens=16, min_seconds=0.3)
        result = await collect(benchmarks(url, tmp_path), plan)
    assert [(point.concurrency, point.figures["repeat"]) for point in result.points] == [
        (1, None),
        (2, None),
        (4, None),
        (1, "again"),
    ]
    for point in result.points:
        figures = point.figures
        assert figures["failed"] == 0
        assert figures["completed"] >= 4 * point.concurrency
        assert figures["total_output_tokens"] == 16 * figures["completed"]
        assert figures["foreign_requests"] == 0
        assert figures["peak_concurrency"] == point.concurrency
    assert drift(result) is not None


async def test_a_soak_begins_with_the_longest_prompts(tmp_path: Path) -> None:
    async with serving() as url:
        plan = Plan(kind="soak", concurrency=(2,), duration_s=2.0, input_tokens=64, output_tokens=16)
        result = await collect(benchmarks(url, tmp_path), plan)
    longest, sustained = result.points
    assert longest.figures["repeat"] == "longest prompt"
    assert longest.figures["completed"] == 2
    assert longest.figures["total_input_tokens"] / 2 > 4096 * 0.9
    assert sustained.figures["failed"] == 0
    assert sustained.figures["completed"] > 0
    assert "prompts of about 4," in soak_words(result) or "prompts of about 3," in soak_words(result)
    assert "tokens among them (more than one batch of prefill, 2,048 tokens)" in soak_words(result)


async def test_requests_of_others_are_noticed(tmp_path: Path) -> None:
    import httpx

    async with serving() as url:

        async def other() -> None:
            async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
                while True:
                    body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
                    (await client.post("/v1/chat/completions", json=body)).raise_for_status()

        task = asyncio.create_task(other())
        plan = Plan(concurrency=(1,), requests=8, input_tokens=64, output_tokens=16)
        result = await collect(benchmarks(url, tmp_path), plan)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    (point,) = result.points
    assert point.figures["foreign_requests"] > 0
    assert any("requests from others" in warning for warning in point.figures["warnings"])
