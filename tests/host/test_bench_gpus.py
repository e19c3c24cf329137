"""What the GPUs draw for a load: of the time in which it ran, however long its records travel afterwards."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from scripted_server import Exchange, scripted

from tui.core.benchmark import Plan
from tui.host.base import ProbeStream
from tui.host.local import LocalHost
from tui.services.benchmark import Benchmarks, Server, collect

LOADED_W, IDLE_W = 700.0, 100.0


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
            result = await collect(Benchmarks("box", Server(server.url), host=host, open_local=LocalHost, state=tmp_path), plan)
    (point,) = result.points
    assert point.detail is not None
    gpu = point.figures["gpu"]
    assert 0.9 * LOADED_W < gpu["mean_power_w"] <= 1.01 * LOADED_W
    tokens = point.figures["arrived_output_tokens"]
    assert gpu["tokens_per_joule"] == tokens / (gpu["mean_power_w"] * point.figures["duration"])
