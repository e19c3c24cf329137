"""Makes the screenshots: drives the control room on the simulated host and saves SVGs beside this file.

python screenshots/make.py [PART-OF-NAME]        some six minutes for all: the sweep takes most of them
"""

import asyncio
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

import msgspec
from textual.pilot import Pilot

from tui.app import ControlRoom
from tui.core.logs.load_state import Phase
from tui.host.ssh import SshHost
from tui.record.store import RunStore
from tui.screens.login_dialogs import ScreenAsker
from tui.services.deployment_watch import Session
from tui.settings import BenchSettings, EngineSettings, Settings, UiSettings
from tui.simulator.simulation import simulated_host

HERE = Path(__file__).parent
NAME = "kimi-k2-w4"
MID, LOW = (120, 35), (80, 24)
SETTINGS = Settings(ui=UiSettings(theme="dark"), bench=BenchSettings(output_tokens=128, min_seconds=4.0))
PATIENCE_S = 600.0

Room = Pilot[str | None]


@asynccontextmanager
async def room(
    record: RunStore, scenario: str, size: tuple[int, int], **changes: object
) -> AsyncIterator[tuple[ControlRoom, Room]]:
    """Open the control room on a simulated host, as `readyroom demo` does, with a Pilot at its keys."""
    async with simulated_host(scenario, **changes) as sim:  # type: ignore[arg-type]
        engine = EngineSettings(host=sim.target, log=f"file:{sim.log_path}")
        deployment = msgspec.structs.replace(sim.deployment, engines=(engine,))
        asker = ScreenAsker()
        host = SshHost(sim.target, asker=asker, config_files=[sim.ssh_config])
        async with Session(NAME, sim.target, deployment, SETTINGS, host, record) as session:
            app = ControlRoom(session, SETTINGS, asker=asker, record=record)
            async with app.run_test(size=size) as pilot:
                yield app, pilot


async def until(pilot: Room, holds: Callable[[], bool]) -> None:
    """Let the app run until the predicate holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the screen did not come to the state that was to be shown")
        await pilot.pause(0.1)


async def settle(pilot: Room, seconds: float) -> None:
    """Let trends grow for this many seconds."""
    end = time.monotonic() + seconds
    await until(pilot, lambda: time.monotonic() > end)


def save(app: ControlRoom, name: str) -> None:
    """Write the screen as an SVG that loads nothing from the network: it uses the viewer's own fonts."""
    svg = app.export_screenshot(title="readyroom")
    svg = re.sub(r"@font-face\s*\{[^}]*\}", "", svg)
    svg = svg.replace("Fira Code", "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas")
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    (HERE / f"{name}.svg").write_text("\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n", "utf-8")
    print(f"{name}.svg")


async def ready(record: RunStore) -> None:
    """Two questions, their thoughts folded, beside a smoke run."""
    async with room(record, "reasoning", MID) as (app, pilot):
        main = app.main
        await until(pilot, lambda: main.shown.api.ready and main.tab == "chat")
        await pilot.press("f5")
        await until(pilot, lambda: main.smoke is not None and main.smoke.finished and not main.smoking)
        await pilot.press("enter")  # into the prompt
        await until(pilot, lambda: main.typing)
        questions = ("Which is larger, 9.11 or 9.9?", "Write Python that prints the free memory of a GPU, in GiB.")
        for asked in questions:
            await pilot.press(*(("space" if char == " " else char) for char in asked), "enter")
            await until(pilot, lambda: bool(main.conversation.turns) and not main.streaming)
        assert len(main.conversation.turns) == len(questions)
        await settle(pilot, 2.0)
        save(app, "ready-120x35")


async def bench(record: RunStore) -> None:
    """Save a sweep while it runs, and its results."""
    async with room(record, "ready", MID) as (app, pilot):
        main = app.main
        await until(pilot, lambda: main.shown.api.ready and main.tab == "chat")
        await pilot.press("f6")
        await until(pilot, lambda: main.result is not None and not main.benching)
        await pilot.press("f7")
        await until(pilot, lambda: len(main.points) >= 6 and main.progress is not None and main.progress.stage == "measuring")
        save(app, "bench-running-120x35")
        await until(pilot, lambda: main.result is not None and not main.benching)
        await settle(pilot, 2.0)
        save(app, "bench-120x35")


async def loading(record: RunStore) -> None:
    """Save a load at 22 %, on two sizes of terminal, compared with the one before it."""
    if not record.loads(NAME):
        async with room(record, "ready", MID) as (_, pilot):
            await until(pilot, lambda: bool(record.loads(NAME)))
    for size in (MID, LOW):
        async with room(record, "midway", size, under_way_s=420.0) as (app, pilot):
            await until(pilot, partial(shards_reach, app, 14))
            await settle(pilot, 10.0)
            save(app, f"loading-{size[0]}x{size[1]}")


def shards_reach(app: ControlRoom, count: int) -> bool:
    load = app.main.shown.load
    return load is not None and load.shards is not None and load.shards.done >= count


async def failed(record: RunStore) -> None:
    """Save a load that failed in one worker."""
    async with room(record, "oom", MID, under_way_s=1080.0) as (app, pilot):
        main = app.main
        await until(
            pilot, lambda: (load := main.shown.load) is not None and load.phase is Phase.FAILED and load.failure is not None
        )
        await settle(pilot, 4.0)
        save(app, "failed-120x35")


async def main(only: str = "") -> None:
    with tempfile.TemporaryDirectory() as folder, closing(RunStore(Path(folder) / "record.sqlite")) as record:
        # the first ones leave a load and a benchmark in the record, with which the later ones compare
        for make in (ready, bench, loading, failed):
            if only in make.__name__:
                await make(record)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
