"""A reader of the log keeps the place: nothing but the reader moves what is read."""

import time

import pytest
import scenes
from msgspec.structs import replace
from room import Room, room, screen, shows, until

from tui.app import ControlRoom
from tui.core.deployment import DeploymentState, LogLine, LogTail
from tui.widgets.log_view import LogView

pytestmark = pytest.mark.slow


def state(lines: int = 300) -> DeploymentState:
    tail = LogTail(source="/var/log/vllm/kimi.log").extended([LogLine(f"entry {n} of it", "INFO", n) for n in range(1, lines + 1)])
    return replace(scenes.SCENES["loading"](time.monotonic()), log=tail)


def grown(before: DeploymentState, by: int = 10) -> DeploymentState:
    first = before.log.seen + 1
    return replace(before, log=before.log.extended([LogLine(f"entry {n} of it", "INFO", n) for n in range(first, first + by)]))


def top(app: ControlRoom) -> str:
    return app.main.query_one(LogView).render_line(0).text.strip()


async def at_log(pilot: Room, *keys: str) -> str:
    await shows(pilot, "LOADING")
    await pilot.press("5")
    await shows(pilot, "entry 300 of it")
    await pilot.press(*keys)
    await pilot.pause()
    assert isinstance(pilot.app, ControlRoom)
    return top(pilot.app)


@pytest.mark.parametrize("keys", [("home",), ("f", "pageup", "pageup"), ("pageup", "pageup"), ("home", "down", "down")])
@pytest.mark.parametrize("size", [(80, 24), (120, 35)])
async def test_the_place_is_kept(size: tuple[int, int], keys: tuple[str, ...]) -> None:
    app, _ = room(state())
    async with app.run_test(size=size) as pilot:
        place = await at_log(pilot, *keys)
        assert "entry 300" not in screen(pilot)
        for width, height in ((110, 50), (80, 12), (70, 30), (200, 60), size):
            await pilot.resize_terminal(width, height)
            await until(pilot, lambda w=width: app.main.size.width == w)  # type: ignore[misc]
            await pilot.pause()
            assert top(app) == place
        await pilot.press("1")
        await until(pilot, lambda: app.main.tab == "load")
        await pilot.press("4", "5")
        await pilot.pause()
        assert top(app) == place
        await pilot.press("slash", *"entry 2")
        await shows(pilot, "only entry 2")
        await pilot.press("escape")
        await until(pilot, lambda: app.main.log_pane.sought == "")
        await pilot.pause()
        assert top(app) == place


async def seeks(pilot: Room, app: ControlRoom, *keys: str) -> None:
    """Type the keys; wait until all of them are in the filter and what they find is drawn."""
    await pilot.press("slash", *keys)
    sought = "".join(keys)
    await until(pilot, lambda: app.main.log_pane.sought == sought)
    await pilot.pause()


async def test_what_is_found_begins_at_the_place_and_moving_there_moves_it() -> None:
    app, _ = room(state(900))
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, "LOADING")
        await pilot.press("5")
        await shows(pilot, "entry 900 of it")
        await pilot.press("home", "pagedown", "pagedown", "pagedown")
        await pilot.pause()
        number = int(top(app).split()[1])
        assert number % 10 != 7
        found = f"entry {number + (7 - number) % 10} of it"
        await seeks(pilot, app, *"7 of")
        assert top(app) == found
        await pilot.press("enter")
        await until(pilot, lambda: not app.main.log_pane.has_class("-finding"))
        await pilot.pause()
        assert top(app) == found
        for width, height in ((110, 50), (80, 12), (200, 60), (80, 24)):
            await pilot.resize_terminal(width, height)
            await until(pilot, lambda w=width: app.main.size.width == w)  # type: ignore[misc]
            await pilot.pause()
            assert top(app) == found
        await pilot.press("escape")  # the line itself is at the top again
        await until(pilot, lambda: app.main.log_pane.sought == "")
        await pilot.pause()
        assert top(app) == f"entry {number} of it"
        await seeks(pilot, app, *"7 of")
        await pilot.press("enter", "home", "down")
        await until(pilot, lambda: top(app) == "entry 17 of it")
        await pilot.press("escape")
        await until(pilot, lambda: app.main.log_pane.sought == "")
        await pilot.pause()
        assert top(app) == "entry 17 of it"


async def test_a_place_after_all_that_is_found_shows_the_last_of_it() -> None:
    app, _ = room(state(900))
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, "LOADING")
        await pilot.press("5")
        await shows(pilot, "entry 900 of it")
        await pilot.press("pageup", "pageup")
        await pilot.pause()
        place = top(app)
        await seeks(pilot, app, *"entry 1")
        await shows(pilot, "entry 199 of it")
        await pilot.press("enter")
        await pilot.resize_terminal(80, 20)
        await shows(pilot, "entry 199 of it")
        await pilot.press("escape")
        await until(pilot, lambda: app.main.log_pane.sought == "")
        await pilot.pause()
        assert top(app) == place


async def test_the_end_is_followed_again() -> None:
    now = state()
    app, session = room(now)
    async with app.run_test(size=(80, 24)) as pilot:
        place = await at_log(pilot, "pageup", "pageup")
        now = grown(now)
        session.set(now)
        await shows(pilot, "5 Log  paused, 10 new")
        assert top(app) == place
        await pilot.press("end")
        await shows(pilot, "entry 310 of it")
        session.set(grown(now))
        await shows(pilot, "entry 320 of it")
        await until(pilot, lambda: "paused" not in screen(pilot))


async def test_what_is_followed_stays_followed() -> None:
    now = state()
    app, session = room(now)
    async with app.run_test(size=(80, 24)) as pilot:
        await at_log(pilot)
        for width, height in ((110, 50), (80, 12), (200, 60), (80, 24)):
            await pilot.resize_terminal(width, height)
            await until(pilot, lambda w=width: app.main.size.width == w)  # type: ignore[misc]
            await shows(pilot, "entry 300 of it")
        await pilot.press("1", "5", "slash", *"entry 1", "escape")
        session.set(grown(now))
        await shows(pilot, "entry 310 of it")
        assert app.main.log_pane.follow
