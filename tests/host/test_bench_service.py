"""The benchmark service: every vantage, one at a time, stopped at once, nothing left behind."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, NoReturn

import pytest
from scripted_server import SSE, Exchange, scripted
from sshd import Sshd, alive, descendants, eventually, until

from tui.core.bench_result import BenchProgress, Plan, Point, Result, Vantage
from tui.host.base import Host, ProbeFailed
from tui.host.local import LocalHost
from tui.host.ssh import SshHost
from tui.services.bench_run import BenchmarkRefused, BenchmarkRunning, Benchmarks, BenchmarkTarget, collect

LIMIT_S = 20.0
"""8 s of silence, and what a loaded machine adds: time in which the probe does not run counts in part only."""

SHORT = Plan(concurrency=(1, 2), requests=4, input_tokens=16, output_tokens=3)


def good(exchange: Exchange) -> None:
    exchange.reply()


def endless(exchange: Exchange) -> str:
    exchange.send(SSE)
    exchange.token()
    exchange.wait_closed()
    return "close"


def made(url: str, state: Path, host: Host | None = None, **more: object) -> Benchmarks:
    target = BenchmarkTarget(url, {"Authorization": "Bearer hush"})
    return Benchmarks("box", target, host=host, open_local=LocalHost, state=state, **more)  # type: ignore[arg-type]


def kept_in(state: Path) -> list[dict[str, Any]]:
    """Return the stored results; each must be readable by its owner only."""
    files = sorted(state.glob("*.json"))
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    return [json.loads(file.read_text()) for file in files]


async def test_points_progress_and_result(tmp_path: Path) -> None:
    with scripted(good) as server:
        news = [item async for item in made(server.url, tmp_path).run(SHORT)]
    assert isinstance(news[0], BenchProgress)
    assert [item.concurrency for item in news if isinstance(item, Point)] == [1, 2]
    result = news[-1]
    assert isinstance(result, Result)
    assert result.vantage is Vantage.DIRECT
    assert result.model == "scripted"
    assert result.stopped is None
    for point in result.points:
        assert point.figures["completed"] == 4
        assert point.figures["total_output_tokens"] == 12
    (kept,) = kept_in(tmp_path)
    assert kept["path"] == result.path
    assert kept["points"][1]["figures"]["max_concurrency"] == 2
    assert "hush" not in json.dumps(kept)


async def test_workers_pool_their_raw_records(tmp_path: Path) -> None:
    plan = Plan(concurrency=(5,), requests=20, input_tokens=16, output_tokens=3, workers=2, save_detailed=True)
    with scripted(good) as server:
        result = await collect(made(server.url, tmp_path), plan)
    (point,) = result.points
    assert point.figures["completed"] == 20
    assert point.figures["client_workers"] == 2
    assert point.figures["peak_concurrency"] <= 5
    assert point.detail is not None
    assert len(point.detail["ttfts"]) == 20
    assert point.detail["generated_texts"] == ["t0t1t2"] * 20


@pytest.mark.parametrize("workers", [1, 2])
async def test_the_pace_that_is_told_meanwhile_is_the_one_of_the_end(tmp_path: Path, workers: int) -> None:
    """Four tokens a chunk, as with speculation; the first request waits, so the pace since the beginning is another."""

    def script(exchange: Exchange) -> None:
        pause = threading.Event()
        exchange.send(SSE)
        if 2 <= exchange.number < 4:  # behind those of the warm-up
            pause.wait(1.0)
        for _ in range(25):
            pause.wait(0.02)
            exchange.token()
        exchange.token("x", "length")
        exchange.usage(104)
        exchange.done()

    plan = Plan(concurrency=(2,), duration_s=3.0, input_tokens=16, output_tokens=104, workers=workers, save_detailed=True)
    told: list[float | None] = []
    with scripted(script) as server:
        async with LocalHost() as host:
            await host.connect()
            async for item in made(server.url, tmp_path, host).run(plan):
                if isinstance(item, BenchProgress) and item.stage == "measuring":
                    told.append(item.tokens_s)
                elif isinstance(item, Point):
                    point = item
    assert point.figures["tokens_per_chunk"] == 4.0
    assert point.detail is not None
    latencies = point.detail["latencies"]
    of_one = 104 / min(latency for latency in latencies if latency)
    assert told[-1] is not None
    assert told[-1] == pytest.approx(2 * of_one, rel=0.25)


async def test_never_two_at_once(tmp_path: Path) -> None:
    with scripted(endless) as server:
        first, second = made(server.url, tmp_path), made(server.url, tmp_path)
        async with aclosing(first.run(SHORT)) as news:
            await anext(news)
            running = first.running
            assert running
            with pytest.raises(BenchmarkRunning):
                await anext(first.run(SHORT))
            with pytest.raises(BenchmarkRunning):
                await anext(second.run(SHORT))  # as another process would
    with scripted(good) as server:
        other = Benchmarks("box", BenchmarkTarget(server.url), host=None, open_local=LocalHost, state=tmp_path)
        assert (await collect(other, SHORT)).points


async def until_in_flight(news: AsyncIterator[object], count: int, stage: str = "measuring") -> None:
    async for item in news:
        if isinstance(item, BenchProgress) and item.in_flight >= count and item.stage == stage:
            return


def warm_then_endless(count: int) -> Callable[[Exchange], object]:
    """Answer the first `count` requests (a warm-up), then none."""

    def script(exchange: Exchange) -> object:
        if exchange.number >= count:
            return endless(exchange)
        exchange.reply()
        return None

    return script


async def test_stop_ends_every_request_and_keeps_the_rest(tmp_path: Path) -> None:
    with scripted(warm_then_endless(3)) as server:
        benchmarks = made(server.url, tmp_path)
        async with aclosing(benchmarks.run(Plan(concurrency=(3,), requests=9, input_tokens=16, output_tokens=3))) as news:
            await until_in_flight(news, 3)
            await benchmarks.stop()
            rest = [item async for item in news]
        result = rest[-1]
        assert isinstance(result, Result)
        assert result.stopped == "stopped by the user"
        assert result.points[0].figures["incomplete"] == 3
        assert result.points[0].figures["failed"] == 0
        await eventually(lambda: server.open <= 0, what="connections closed")


async def test_stopping_at_a_server_that_hangs_waits_for_its_metrics_for_a_moment_only(tmp_path: Path) -> None:
    plan = Plan(concurrency=(3,), duration_s=60.0, input_tokens=16, output_tokens=3, vantage=Vantage.TUNNEL)
    hanging: list[str] = []

    def hang(exchange: Exchange) -> None:
        hanging.append(exchange.path)
        exchange.wait_closed(90.0)

    with scripted(warm_then_endless(3)) as server:
        server.metrics = b'vllm:num_requests_running{engine="0"} 1.0\n'
        async with LocalHost() as host:
            await host.connect()
            benchmarks = made(server.url, tmp_path, host)
            async with aclosing(benchmarks.run(plan)) as news:
                await until_in_flight(news, 3)
                server.answer = hang
                await eventually(lambda: "/metrics" in hanging, what="its gauges looked at")
                asked = time.monotonic()
                await benchmarks.stop()
                rest = [item async for item in news]
            result = rest[-1]
            assert isinstance(result, Result)
            assert result.stopped == "stopped by the user"
            assert result.points[0].figures["incomplete"] == 3
            assert result.points[0].figures["server_running_before"] is not None
            # nor does a thread wait that the end of the program would wait for
            await asyncio.get_running_loop().shutdown_default_executor()
            assert time.monotonic() - asked < 8


async def test_leaving_ends_every_request_and_keeps_what_was_found(tmp_path: Path) -> None:
    with scripted(warm_then_endless(6)) as server:
        benchmarks = made(server.url, tmp_path)
        plan = Plan(concurrency=(1, 2), requests=3, input_tokens=16, output_tokens=3)
        async with aclosing(benchmarks.run(plan)) as news:
            async for item in news:
                if isinstance(item, BenchProgress) and item.point == 1 and item.stage in ("measuring", "draining"):
                    break
        await eventually(lambda: server.open <= 0, what="connections closed")
        assert not benchmarks.running
        (kept,) = kept_in(tmp_path)
        assert kept["stopped"] == "stopped by the user"
        assert len(kept["points"]) == 1


@pytest.mark.parametrize(
    ("on_host", "more", "asked", "told"),
    [
        (False, {}, None, Vantage.DIRECT),
        (True, {"direct": True}, None, Vantage.DIRECT),
        (True, {}, None, Vantage.HOST),
        (True, {}, Vantage.TUNNEL, Vantage.TUNNEL),
        (True, {}, Vantage.DIRECT, Vantage.DIRECT),
    ],
)
async def test_one_that_never_began_tells_where_its_load_was_to_come_from(
    tmp_path: Path, on_host: bool, more: dict[str, bool], asked: Vantage | None, told: Vantage
) -> None:
    with scripted(good) as server:
        server.answer = lambda exchange: exchange.wait_closed()
        async with LocalHost() as host:
            await host.connect()
            benchmarks = made(server.url, tmp_path, host if on_host else None, **more)
            async for item in benchmarks.run(Plan(concurrency=(1,), requests=1, vantage=asked)):
                if isinstance(item, BenchProgress) and item.waiting_s:
                    await benchmarks.stop()
    assert isinstance(item, Result)
    assert (item.vantage, item.points, item.stopped) == (told, (), "stopped by the user")


async def test_a_closed_port_is_unreachable(tmp_path: Path) -> None:
    with scripted(good) as server:
        url = server.url
    with pytest.raises(BenchmarkRefused) as caught:
        await collect(made(url, tmp_path), SHORT)
    assert caught.value.unreachable
    assert not kept_in(tmp_path)


async def test_the_servers_refusal_is_told_in_its_words(tmp_path: Path) -> None:
    def picky(exchange: Exchange) -> None:
        exchange.plain("404 Not Found", b'{"error":{"message":"The model `x` \\u001b[31mdoes not exist."}}')

    with scripted(good) as server:
        server.answer = picky
        with pytest.raises(BenchmarkRefused, match="The model `x` does not exist") as caught:
            await collect(made(server.url, tmp_path), Plan(model="x", requests=1))
    assert caught.value.kind == "http_404"
    assert not caught.value.unreachable


@pytest.mark.sshd
@pytest.mark.parametrize("vantage", [None, Vantage.HOST, Vantage.TUNNEL])
async def test_over_a_real_sshd(sshd: Sshd, tmp_path: Path, vantage: Vantage | None) -> None:
    plan = Plan(concurrency=(2,), requests=4, input_tokens=16, output_tokens=3, vantage=vantage)
    with scripted(good) as server:
        async with SshHost("gpu-box", config_files=[sshd.client_config]) as host:
            await host.connect()
            result = await collect(made(server.url, tmp_path, host), plan)
    assert result.vantage is (vantage or Vantage.HOST)
    assert result.points[0].figures["completed"] == 4
    assert result.points[0].figures["client_stamps"] == ("process" if vantage is Vantage.TUNNEL else "kernel")
    assert any("through the connection" in note for note in result.deviations) == (vantage is Vantage.TUNNEL)


@pytest.mark.sshd
async def test_a_host_without_python_is_benched_through_the_tunnel(sshd: Sshd, tmp_path: Path) -> None:
    class WithoutPython(SshHost):
        async def start_probe(self, role: str, arguments: Mapping[str, Any]) -> NoReturn:
            raise ProbeFailed("no python3 on gpu-box", "install it")

    with scripted(good) as server:
        async with WithoutPython("gpu-box", config_files=[sshd.client_config]) as host:
            await host.connect()
            result = await collect(made(server.url, tmp_path, host), SHORT)
    assert result.vantage is Vantage.TUNNEL
    assert [point.figures["completed"] for point in result.points] == [4, 4]


async def test_failures_through_the_tunnel_are_counted_alike(sshd: Sshd, tmp_path: Path) -> None:
    def script(exchange: Exchange) -> object:
        match exchange.number % 4:
            case 0:
                exchange.plain("503 Service Unavailable", b'{"error":{"message":"overloaded"}}')
            case 1:
                exchange.send(SSE)
                exchange.token()
                return "close"
            case 2:
                exchange.send(SSE)
                exchange.token()
                exchange.event({"error": {"message": "EngineCore"}})
                exchange.done()
            case 3:
                exchange.reply()
        return None

    plan = Plan(concurrency=(1,), requests=4, input_tokens=16, output_tokens=3, vantage=Vantage.TUNNEL)
    with scripted(script) as server:
        async with SshHost("gpu-box", config_files=[sshd.client_config]) as host:
            await host.connect()
            result = await collect(made(server.url, tmp_path, host), plan)
    figures = result.points[0].figures
    assert figures["completed"] == 1
    assert figures["errors_by_kind"] == {"http_503": 1, "cut": 1, "error_object": 1}


CLIENT = """
import asyncio, sys
from pathlib import Path
from typing import Any
from tui.core.bench_result import BenchProgress, Plan, Vantage
from tui.host.local import LocalHost
from tui.host.ssh import SshHost
from tui.services.bench_run import Benchmarks, BenchmarkTarget

async def main():
    url, config, state = sys.argv[1:]
    async with SshHost("gpu-box", config_files=[Path(config)]) as host:
        await host.connect()
        benchmarks = Benchmarks("box", BenchmarkTarget(url), host=host, open_local=LocalHost, state=Path(state))
        plan = Plan(concurrency=(4,), requests=400, input_tokens=16, output_tokens=3, workers=2, vantage=Vantage.HOST)
        async for item in benchmarks.run(plan):
            if isinstance(item, BenchProgress) and item.in_flight == 4 and item.stage == "measuring":  # the warm-up's workers end
                print("busy", flush=True)

asyncio.run(main())
"""


@pytest.mark.sshd
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_no_worker_is_left_behind(sshd: Sshd, tmp_path: Path, how: signal.Signals) -> None:
    """After `kill -9` of the client, and with its link frozen: the load generator is gone within 10 s, with its workers."""
    with scripted(warm_then_endless(4)) as server:
        command = [sys.executable, "-c", CLIENT, server.url, str(sshd.client_config), str(tmp_path)]
        client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == "busy\n"
            until(lambda: server.open >= 4, what="four streams")
            until(lambda: len(python_below(sshd.pid)) >= 3, what="the generator and two workers")
            remote = python_below(sshd.pid)
            os.kill(client.pid, how)
            until(lambda: not any(alive(pid) for pid in remote), seconds=LIMIT_S, what="the remote side is gone")
            until(lambda: server.open <= 0, what="every request ended")
        finally:
            client.kill()
            client.wait()
            assert client.stdout is not None
            client.stdout.close()


def python_below(above: int) -> list[int]:
    return [pid for pid in descendants(above) if _is_python(pid)]


def _is_python(pid: int) -> bool:
    try:
        return b"python" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0", 1)[0]
    except OSError:
        return False


async def test_given_prompts_are_sent_as_they_are(tmp_path: Path) -> None:
    seen: list[str] = []

    def script(exchange: Exchange) -> None:
        seen.append(exchange.body["messages"][0]["content"])
        exchange.reply()

    with scripted(script) as server:
        await collect(made(server.url, tmp_path), SHORT, [{"prompt": "one"}, {"prompt": "two"}])
    assert set(seen) == {"one", "two"}


async def test_a_cancelled_run_leaves_no_process(tmp_path: Path) -> None:
    with scripted(endless) as server:
        before = set(descendants(os.getpid()))
        task = asyncio.create_task(collect(made(server.url, tmp_path), SHORT))
        await eventually(lambda: server.open > 0, what="a request")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: set(descendants(os.getpid())) <= before, what="no process left")


async def test_a_request_of_others_that_runs_on_beside_ours_is_warned_of(tmp_path: Path) -> None:
    """It began before and ends after: no counter has it, but the server runs one more than ours."""
    with scripted(good) as server:
        server.metrics = b'vllm:num_requests_running{engine="0"} 3.0\nvllm:request_success_total{finished_reason="length"} 0.0\n'
        result = await collect(made(server.url, tmp_path), Plan(concurrency=(2,), duration_s=2.5, input_tokens=16, output_tokens=3))
    (point,) = result.points
    assert point.figures["foreign_requests"] == 0
    assert point.figures["server_peak_running"] == 3.0
    assert point.figures["foreign_running"] == 1
    assert "1 request from others was still running beside ours" in point.figures["warnings"]
