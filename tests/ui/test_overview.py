"""All deployments on one screen: the worst on top, filter and order, opening one and coming back, each keeping its own screen."""

import time
from typing import cast

import pytest
import scenes
from msgspec.structs import replace
from room import Room, SetSession, room, screen, shows, until

from tui.app import ControlRoom
from tui.core.connection import ConnectionState
from tui.core.deployment import DeploymentState
from tui.core.deployment_status import arranged, exit_code_of, gravity, status_of
from tui.core.logs.load_state import Forecast
from tui.core.text import clean
from tui.screens.dialogs import HelpDialog
from tui.screens.palette import Palette
from tui.services.deployment_watch import Session
from tui.services.lazy_session import Fleet, LazySession, OpeningFailed
from tui.settings import Settings, UiSettings
from tui.widgets.canvas import Moment
from tui.widgets.fleet_view import STATE_W, since_words

WHICH = (
    ("qwen3-235b", "lost"),
    ("llama-70b", "ready"),
    ("kimi-k2-w4", "loading"),
    ("deepseek-r1", "failed"),
    ("glm-4.6", "ready"),
    ("embed", "waiting"),
)
HOSTILE = clean("[/x] [bold]b[/] \x1b]0;title\x07\x1b[31mred\u202e 你好 " + "w" * 220)


class OneSession(SetSession):
    """A set session of a fleet."""

    def __init__(self, state: DeploymentState) -> None:
        super().__init__(state)
        self.name, self.target = state.name, state.target

    async def __aexit__(self, *_: object) -> None:
        pass


def states(names: tuple[tuple[str, str], ...] = WHICH) -> list[DeploymentState]:
    mono = time.monotonic()
    return [replace(scenes.SCENES[kind](mono), name=name, target=f"gpu-{name[:4]}") for name, kind in names]


def fleet_room(
    theme: str = "dark", *, all_first: bool = True, own: list[DeploymentState] | None = None, keys: dict[str, str] | None = None
) -> ControlRoom:
    fleet = Fleet([cast("LazySession", OneSession(state)) for state in own or states()])
    session = cast("Session", fleet.session(fleet.names[0]))
    return ControlRoom(session, Settings(ui=UiSettings(theme=theme), keys=keys or {}), fleet=fleet, all_first=all_first)


def order(pilot: Room) -> list[str]:
    """Names of deployments down the screen."""
    lines = screen(pilot).splitlines()
    found = [(y, name) for name, _ in WHICH for y, line in enumerate(lines) if 10 < line.find(name + " ") < 24]
    return [name for _, name in sorted({name: (y, name) for y, name in reversed(found)}.values())]


def test_the_worst_comes_first_and_a_text_finds() -> None:
    ordered = [state.name for state in arranged(states(), "worst first")]
    assert ordered == ["deepseek-r1", "qwen3-235b", "kimi-k2-w4", "embed", "llama-70b", "glm-4.6"]
    assert [state.name for state in arranged(states(), "by name", "ready")] == ["glm-4.6", "llama-70b"]
    assert [state.name for state in arranged(states(), "as configured", "gpu-kimi load")] == ["kimi-k2-w4"]
    assert arranged(states(), "by host", "nothing of the kind") == []
    assert gravity(states()[3]) == 0


@pytest.mark.parametrize("seconds", [5.0, 3599.0, 35_999.0, 36_000.0, 86_399.0, 105_454.0, 9.9 * 86400, 40 * 86400.0])
def test_no_time_of_a_row_is_cut_off(seconds: float) -> None:
    state = scenes.SCENES["loading"](time.monotonic())
    assert state.load is not None
    assert state.host_now is not None
    silent = Forecast(silent_s=state.forecast.silent_s)
    began = replace(state, load=replace(state.load, started_at=state.host_now - seconds), forecast=silent)
    expected = replace(state, forecast=replace(state.forecast, ready_eta_s=seconds))
    failed = replace(scenes.SCENES["failed"](time.monotonic()), forecast=Forecast(silent_s=seconds))
    for shown in (began, expected, failed):
        words = since_words(shown, Moment())
        assert words
        assert len(words) <= STATE_W - 3, words


@pytest.mark.parametrize("theme", ["dark", "16"])
@pytest.mark.parametrize("size", [(80, 24), (120, 35), (200, 60), (40, 10)])
async def test_all_are_shown_with_what_they_are_at(size: tuple[int, int], theme: str) -> None:
    app = fleet_room(theme)
    async with app.run_test(size=size) as pilot:
        await shows(pilot, "FAILED", "LINK LOST")
        if size[0] >= 80:
            await shows(pilot, "CUDA out of memory", "14 of 64", "READY", "6 deployments", "✗ 1", "● 2")
            assert order(pilot) == ["deepseek-r1", "qwen3-235b", "kimi-k2-w4", "embed", "llama-70b", "glm-4.6"]


async def test_one_is_opened_and_each_keeps_its_own_screen() -> None:
    app = fleet_room()
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "LINK LOST", "14 of 64")
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: app.screen is app.main and app.main.furnished)
        await shows(pilot, "kimi-k2-w4 on", "14,951", "d deployments")
        await pilot.press("4", "d")
        await until(pilot, lambda: app.screen is app.deployments.overview)
        await pilot.press("up", "up", "enter")
        await shows(pilot, "deepseek-r1 on", "✗ CUDA out of memory on GPU 3")
        await pilot.press("d")
        await until(pilot, lambda: app.screen is app.deployments.overview)
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: app.screen is app.main and app.main.tab == "gpus")
        await pilot.press("d")
        await until(pilot, lambda: app.screen is app.deployments.overview)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)


async def test_filter_order_and_mouse() -> None:
    app = fleet_room(all_first=False)
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "qwen3-235b")
        await until(pilot, lambda: app.main.furnished)
        await pilot.press("d")
        await shows(pilot, "worst first", "glm-4.6")
        await pilot.press("slash", *"ready", "enter")
        await until(pilot, lambda: order(pilot) == ["llama-70b", "glm-4.6"])
        await pilot.press("escape", "s")
        await shows(pilot, "by name")
        await until(pilot, lambda: order(pilot)[:2] == ["deepseek-r1", "embed"])
        y = next(y for y, line in enumerate(screen(pilot).splitlines()) if "glm-4.6" in line)
        await pilot.click(offset=(20, y))
        await until(pilot, lambda: app.deployments.overview.chosen.name == "glm-4.6")
        await pilot.click(offset=(20, y))
        await until(pilot, lambda: app.screen is app.main and app.session.name == "glm-4.6")


@pytest.mark.parametrize("theme", ["dark", "16"])
async def test_hostile_names_and_causes_are_only_text(theme: str) -> None:
    own = [replace(state, name=f"{i} {HOSTILE}", target=HOSTILE) for i, state in enumerate(states())]
    app = fleet_room(theme, own=own)
    async with app.run_test(size=(80, 24)) as pilot:
        for size in ((80, 24), (120, 35), (20, 5), (3, 1), (200, 60)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        await shows(pilot, "[/x]")
        assert not any(char in screen(pilot) for char in "\x1b\x07\u202e")


async def test_a_session_that_cannot_be_made_says_why_and_is_tried_again() -> None:
    tries = []

    def fails() -> Session:
        tries.append(1)
        raise OpeningFailed("api_key_env names K, but it is not set")

    opening = LazySession("kimi", "gpu", fails)
    told = opening.states()
    assert (await anext(told)).connection.cause is None
    failed = await anext(told)
    assert failed.connection.cause == "api_key_env names K, but it is not set"
    assert (status_of(failed).label, status_of(failed).value, exit_code_of(failed)) == ("BAD CONFIG", "misconfigured", 2)
    opening.retry()
    assert (await anext(told)).connection.cause is not None
    assert len(tries) == 2
    await told.aclose()


async def test_a_configuration_that_does_not_hold_is_no_refusal_of_the_host() -> None:
    cause = "api_key_env names K, but it is not set"
    connection = ConnectionState(host="gpu", cause=cause, advice="Correct it.")
    app, _ = room(DeploymentState("kimi", "gpu", connection=connection, misconfigured=cause))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "BAD CONFIG", "The configuration is not valid", cause, "Correct it. · Press r to try again.")


async def test_the_users_own_keys_work_here_too() -> None:
    keys = {"help": "f12", "quit": "x", "commands": "f2", "deployments": "b", "retry": "n", "look": "ctrl+l", "stop": "S"}
    app = fleet_room(keys=keys, all_first=False)
    async with app.run_test(size=(120, 35), notifications=True) as pilot:
        await until(pilot, lambda: app.main.furnished)
        app.main.streaming = True
        await pilot.press("b")
        await until(pilot, lambda: any("Stop what runs first (S)" in notification.message for notification in app._notifications))
        app.main.streaming = False
        await pilot.press("b")
        await until(pilot, lambda: app.screen is app.deployments.overview)
        await shows(pilot, "f12 help", "x quit", "f2 commands", "n try now")
        await pilot.press("question_mark")
        await pilot.pause()
        assert app.screen is app.deployments.overview
        await pilot.press("f12")
        await until(pilot, lambda: isinstance(app.screen, HelpDialog))
        await pilot.press("f12")
        await until(pilot, lambda: app.screen is app.deployments.overview)
        await pilot.press("f2")
        await until(pilot, lambda: isinstance(app.screen, Palette))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.deployments.overview)
        theme = app.theme
        await pilot.press("ctrl+l")
        await until(pilot, lambda: app.theme != theme)
        await pilot.press("b")
        await until(pilot, lambda: app.screen is app.main)
        await pilot.press("b")
        await until(pilot, lambda: app.screen is app.deployments.overview)
        await pilot.press("d", "q")
        await pilot.pause()
        assert app.screen is app.deployments.overview
        await pilot.press("x")
        await until(pilot, lambda: app._exit)
