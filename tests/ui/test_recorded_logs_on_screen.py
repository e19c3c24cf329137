"""Recorded logs, ended as they did, on the screen: the Load pane and the report draw every way to end."""

import gzip
import time
from functools import cache
from pathlib import Path

import pytest
import scenes
from msgspec.structs import replace
from room import room, screen, shows, until

from tui.core.api_status import ApiStatus, Reach
from tui.core.deployment import DeploymentState
from tui.core.logs.forecast import make_forecast
from tui.core.logs.load_state import Phase
from tui.core.logs.log_reader import LogReader
from tui.core.presentation import failure_title
from tui.core.text import LineSplitter
from tui.screens.load_report import LoadReport

DATA = Path(__file__).parent.parent / "data" / "logs"


@cache
def endings() -> tuple[DeploymentState, ...]:
    """Return one log of each engine, end, kind of failure and phase it failed in."""
    found: dict[object, DeploymentState] = {}
    for path in sorted(DATA.rglob("*.log*")):
        if path.stat().st_size < 300_000:
            state = ended(path)
            load = state.load
            failed = load.failure if load is not None else None
            found.setdefault((load and (load.engine, load.phase, load.was_ready), failed and (failed.kind, failed.phase)), state)
    return tuple(found.values())


def ended(path: Path) -> DeploymentState:
    """Return the state of a deployment whose server wrote that log and is gone, or still there if it is ready."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    splitter, reader = LineSplitter(), LogReader(2026)
    for line in splitter.feed(data) + splitter.flush():
        reader.feed(line)
    load = reader.state
    now = load.last_line_at if load.last_line_at is not None else time.time()
    api = ApiStatus(reach=Reach.UP if load.ready else Reach.CLOSED)
    before = scenes.SCENES["connecting"](time.monotonic())
    return replace(before, connection=scenes.ONLINE, load=load, forecast=make_forecast(load, now + 5.0), api=api)


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_each_is_drawn(size: tuple[int, int]) -> None:
    app, session = room(scenes.SCENES["connecting"](time.monotonic()))
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.main.furnished)
        assert len(endings()) > 30
        for state in endings():
            session.set(state)
            await until(pilot, lambda state=state: app.main.shown.load is state.load)  # type: ignore[misc]
            if app.main.tab != "load":
                await pilot.press("escape", "1")
            await pilot.pause()
            if state.load is not None and state.load.phase is Phase.FAILED and state.load.failure is not None:
                said = failure_title(state.load.failure)[: size[0] // 3]
                await until(pilot, lambda said=said: said in screen(pilot))  # type: ignore[misc]


async def test_a_server_that_failed_while_serving_has_its_start_and_its_service() -> None:
    app, session = room(scenes.SCENES["connecting"](time.monotonic()))
    async with app.run_test(size=(200, 60)) as pilot:
        await until(pilot, lambda: app.main.furnished)
        session.set(ended(DATA / "h200" / "serve-enginekilled.log.gz"))
        await until(pilot, lambda: app.main.shown.load is not None)
        await pilot.press("escape", "1")
        await shows(pilot, "✓ warm-up", "✗ serving", "while serving")
        await pilot.press("i")
        await until(pilot, lambda: isinstance(app.screen, LoadReport))
        await shows(pilot, "failed while serving")
