"""Memory of a screen that watches for a day, played fast: python tests/benchmarks/monitoring_memory.py [HOURS]

The whole control room without a terminal gets what a day brings through the real fold: 8 GPUs and the machine twice a second, the
API's word and ten log lines every second, ETA and verdict; the screen is painted every ten simulated seconds. One row an hour;
after the first one nothing may grow.
"""

import asyncio
import gc
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "ui"))

import scenes
from msgspec.structs import replace
from room import room

from tui.core.deployment import ApiPolled, DeploymentState, ForecastMade, GpusSampled, LogRead, MachineSampled, fold
from tui.core.logs.forecast import make_forecast
from tui.core.logs.log_reader import LogReader

PAINT_S = 10
LINE = '(APIServer pid=1) INFO:     10.0.0.{host}:40000 - "POST /v1/chat/completions HTTP/1.1" 200 OK for request {number}'


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def second(state: DeploymentState, reader: LogReader, number: int) -> DeploymentState:
    """Apply the events of one second."""
    now = time.monotonic()
    for half in (0, 1):
        sample = scenes.gpus(used=96_733.0 + (number + half) % 3, busy=float((number * 7 + half) % 100), mono=now)
        state = fold(state, GpusSampled(sample))
        state = fold(state, MachineSampled(replace(scenes.machine(now), disk_read_mb_s=float(number % 50))))
    lines = tuple(reader.feed(LINE.format(host=number % 250, number=number * 10 + i), 1e9 + number) for i in range(10))
    state = fold(state, LogRead(lines, reader.state))
    state = fold(state, ApiPolled(replace(state.api, received_at=now)))
    return fold(state, ForecastMade(make_forecast(reader.state, 1e9 + number), state.signs))


async def main(hours: int) -> None:
    state = scenes.ready(time.monotonic())
    app, session = room(state)
    reader = LogReader()
    first = 0.0
    print("hour   resident   live objects   widgets   processor time")
    async with app.run_test(size=(200, 60)) as pilot:
        for hour in range(1, hours + 1):
            for number in range((hour - 1) * 3600, hour * 3600):
                state = second(state, reader, number)
                if number % PAINT_S == 0:
                    session.set(state)
                    await pilot.pause()
                    app.main._tick()
                    await pilot.pause()
            gc.collect()
            now = resident_mib()
            first = first or now
            widgets = sum(1 for _ in app.screen.walk_children())
            print(
                f"{hour:4}   {now:6.1f} MiB   {len(gc.get_objects()):10,}   {widgets:7}   {time.process_time():8.0f} s", flush=True
            )
    print(f"grown since the first hour: {now - first:+.1f} MiB")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 24))
