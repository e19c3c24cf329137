"""What the GPUs draw for a load: of the time in which it ran, however long its records travel afterwards."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from scripted_server import Exchange, scripted

from tui.core.bench_result import Plan
from tui.core.gpu import Gpu, GpuSample
from tui.host.base import ProbeStream
from tui.host.local import LocalHost
from tui.services.bench_point import PowerMeter
from tui.services.bench_run import Benchmarks, BenchmarkTarget, collect

LOADED_W, IDLE_W = 700.0, 100.0


def reading(at: float, joules: float, memory: float = 9e4) -> GpuSample:
    return GpuSample(gpus=(Gpu(0, uuid="GPU-1", memory_used_mib=memory, energy_j=joules, energy_at=at),))


def test_counters_that_were_read_before_the_load_began_do_not_count() -> None:
    """They are read every two seconds; it idles at 100 W until 101.5 s, and draws 700 W until 121.5 s."""
    read = [reading(100.0, 0.0), *(reading(102.0 + 2 * i, 500.0 + 1400.0 * i) for i in range(10)), reading(122.0, 14_250.0)]
    now: list[GpuSample | None] = [None]
    drawn = PowerMeter(lambda: now[0], lambda: None)
    for now[0] in (read[0], read[0], *read[1:-1]):
        drawn.begin()
    drawn.end()
    now[0] = read[-1]
    drawn.end()
    figures = drawn.figures()
    assert figures is not None
    assert figures["mean_power_w"] == 700.0


@pytest.mark.parametrize(
    ("seen", "watts"),
    [
        ([], None),
        ([reading(100.0, 0.0)], None),  # not read anew while it ran
        ([reading(100.0, 0.0), reading(102.0, 900.0)], None),  # nor twice
        ([None, reading(102.0, 900.0), reading(104.0, 2300.0)], 700.0),
    ],
)
def test_what_was_not_read_twice_is_not_known(seen: list[GpuSample | None], watts: float | None) -> None:
    now: list[GpuSample | None] = [None]
    drawn = PowerMeter(lambda: now[0], lambda: reading(0.0, 0.0, 5.0))
    for now[0] in seen:
        drawn.begin()
    figures = drawn.figures()
    assert figures is not None
    assert figures["mean_power_w"] == watts
    assert figures["memory_used_mib"] == [9e4 if seen else 5.0]


class Board:
    """A GPU that draws more while requests come, and tells what it has drawn twenty times a second."""

    def __init__(self) -> None:
        self.served = 0.0
        self.joules = 1e6
        self.readings = 0
        self.read = asyncio.Condition()

    def serve(self, exchange: Exchange) -> None:
        self.served = time.monotonic()
        exchange.reply()

    async def readings_more(self, count: int) -> None:
        enough = self.readings + count
        async with self.read:
            await self.read.wait_for(lambda: self.readings >= enough)

    async def send(self, message: dict[str, Any]) -> None:
        raise AssertionError(message)

    async def close(self) -> None:
        pass

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        never = asyncio.Event()
        then = time.monotonic()
        while True:
            now = time.monotonic()
            self.joules += (LOADED_W if now - self.served < 0.2 else IDLE_W) * (now - then)
            then = now
            gpu = {"index": 0, "uuid": "GPU-1", "memory_used_mib": 9e4, "energy_j": self.joules, "energy_at": now}
            yield {"f": "gpus", "gpus": [gpu]}
            async with self.read:
                self.readings += 1
                self.read.notify_all()
            try:
                await asyncio.wait_for(never.wait(), 0.05)
            except TimeoutError:
                continue


class Late:
    """A load generator whose records come when the board has been read forty times more."""

    def __init__(self, probe: ProbeStream, board: Board) -> None:
        self.probe = probe
        self.board = board
        self.send = probe.send
        self.close = probe.close

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        async for frame in self.probe:
            if frame["f"] == "records":
                await self.board.readings_more(40)
            yield frame


class BoardHost(LocalHost):
    """This machine with that board, over a link on which records are long on their way."""

    def __init__(self, board: Board) -> None:
        super().__init__()
        self.board = board

    async def start_probe(self, role: str, arguments: Mapping[str, Any]) -> Any:
        return self.board if role == "watch" else Late(await super().start_probe(role, arguments), self.board)


async def test_joules_are_those_of_the_load_and_not_of_the_wait_for_its_records(tmp_path: Path) -> None:
    board = Board()
    plan = Plan(concurrency=(2,), duration_s=2.0, input_tokens=16, output_tokens=3, save_detailed=True)
    with scripted(board.serve) as server:
        async with BoardHost(board) as host:
            await host.connect()
            benchmarks = Benchmarks("box", BenchmarkTarget(server.url), host=host, open_local=LocalHost, state=tmp_path)
            result = await collect(benchmarks, plan)
    (point,) = result.points
    assert point.detail is not None
    gpu = point.figures["gpu"]
    assert 0.9 * LOADED_W < gpu["mean_power_w"] <= 1.01 * LOADED_W
    tokens = point.figures["arrived_output_tokens"]
    assert gpu["tokens_per_joule"] == tokens / (gpu["mean_power_w"] * point.figures["duration"])
