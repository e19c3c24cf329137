"""The load as a report: what it says of a failed start and of one under way, over the whole screen at each size."""

import time

import pytest
import scenes
from msgspec.structs import replace
from room import room, screen, shows, until

from tui.core.deployment import LogTail
from tui.core.text import clean
from tui.screens.load_report import LoadReport, report_rows
from tui.settings import Settings, UiSettings

HOSTILE = clean("[/x] [bold]b[/] \x1b]0;title\x07\x1b[31mred\u202e 你好 " + "w" * 220)


@pytest.mark.parametrize("size", [(80, 24), (120, 35), (200, 60), (20, 5)])
async def test_the_report_has_cause_lines_time_line_and_facts(size: tuple[int, int]) -> None:
    app, _ = room(scenes.SCENES["failed"](time.monotonic()))
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.main.furnished and app.main.shown.load is not None)
        await pilot.press("i")
        await until(pilot, lambda: isinstance(app.screen, LoadReport))
        await shows(pilot, "failed")
        if size[0] >= 80:
            await shows(pilot, "Cause", "Advice", "Lines")
            await pilot.press("end")
            await shows(pilot, "Facts", "vLLM 0.24.0")
            await pilot.press("y")
            await until(pilot, lambda: "Time line" in app.clipboard and "OutOfMemoryError" in app.clipboard)
        await pilot.press("i")
        await until(pilot, lambda: app.screen is app.main)


async def test_it_goes_on_with_the_load() -> None:
    before = scenes.SCENES["loading"](time.monotonic())
    app, session = room(before)
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "LOADING")
        await pilot.press("i")
        await shows(pilot, "14 of 64 shards")
        session.set(scenes.SCENES["failed"](time.monotonic()))
        await shows(pilot, "failed while loading weights", "40 of 64 shards")


@pytest.mark.parametrize("theme", ["dark", "16"])
async def test_hostile_lines_are_only_text(theme: str) -> None:
    state = scenes.SCENES["failed"](time.monotonic())
    assert state.load is not None
    assert state.load.failure is not None
    at = state.load.failure.line
    assert at is not None
    lines = tuple(replace(line, text=HOSTILE) if line.number == at else line for line in state.log.lines)
    failure = replace(state.load.failure, cause=HOSTILE, advice=HOSTILE)
    hostile = replace(
        state,
        name=HOSTILE,
        load=replace(state.load, failure=failure, model=HOSTILE),
        log=replace(LogTail(source=HOSTILE), lines=lines),
    )
    app, _ = room(hostile, Settings(ui=UiSettings(theme=theme)))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.main.furnished and app.main.shown.load is not None)
        await pilot.press("i")
        await shows(pilot, "[/x] [bold]b[/]")
        assert not any(char in screen(pilot) for char in "\x1b\x07\u202e")


def test_a_state_without_a_load_has_no_report() -> None:
    assert report_rows(scenes.SCENES["connecting"](0.0)) == ()
