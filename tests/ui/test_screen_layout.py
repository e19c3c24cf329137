"""The layout of the main screen, and which keys can act, as tables over what is shown."""

import time

import pytest
import scenes
from textual.content import Content

from tui.actions import BY_ID
from tui.panes import REST
from tui.screens.availability import SILENT, unavailable
from tui.screens.layout import layout, titles
from tui.screens.view import ScreenView

STATES = {name: scene(time.monotonic()) for name, scene in scenes.SCENES.items()}
SIZES = {"tiny": (50, 11), "narrow": (80, 24), "tall": (100, 40), "mid": (120, 35), "wide": (200, 60)}


def view(scene: str, size: str = "mid", tab: str = "load", **others: object) -> ScreenView:
    width, height = SIZES[size]
    return ScreenView(state=STATES[scene], width=width, height=height, tab=tab, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shown", "rows"),
    [
        (view("loading", "tiny"), {}),
        (view("loading", "narrow"), {"strip": 1, "log": 5}),
        (view("loading", "tall"), {"strip": 1, "log": 10}),
        (view("loading"), {"gpus": 13, "phases": REST, "log": 10}),
        (view("loading", "wide"), {"gpus": 21, "phases": 12, "host": REST, "deployment": 13, "past": 13, "log": 12}),
        (view("ready", "narrow", "chat"), {"strip": 1, "serving-strip": 1}),
        (view("ready", "mid", "chat"), {"gpus": 17, "serving": REST, "smoke": 8}),
        (view("ready", "wide", "chat"), {"gpus": 25, "serving": REST, "smoke": 8, "host": 8, "log": 12}),
        (view("loading", "narrow", "chat"), {"strip": 1}),
        (view("loading", "narrow", "gpus"), {}),
        (view("loading", "wide", "gpus"), {}),
        (view("loading", "narrow", "runs"), {}),
        (view("loading", "mid", "runs"), {"gpus": 13, "phases": REST, "log": 10}),
        (view("loading", "narrow", "log"), {"log": REST}),
        (view("loading", "tall", "log"), {"log": REST}),
        (view("ready", "wide", "log"), {"log": REST}),
        (view("lost"), {"gpus": 13, "phases": REST, "log": 7}),
        (view("lost", "narrow"), {"strip": 1, "log": 5}),
        (view("loading", zoomed="stage"), {}),
        (view("loading", zoomed="log"), {"gpus": 13, "phases": REST, "log": REST}),
    ],
    ids=lambda value: f"{value.size} {value.tab} {value.zoomed}" if isinstance(value, ScreenView) else "",
)
def test_which_panes_there_are_and_how_high(shown: ScreenView, rows: dict[str, int]) -> None:
    assert {id: height for (_, id), height in layout(shown).rows.items()} == rows


@pytest.mark.parametrize(
    ("shown", "on"),
    [
        (view("loading", "tiny"), {"-tiny", "-starting", "-tab-load"}),
        (view("ready", "narrow", "chat"), {"-narrow", "-tab-chat"}),
        (view("lost", "wide"), {"-wide", "-starting", "-offline", "-stale", "-tab-load"}),
        (view("refused"), {"-starting", "-offline", "-tab-load"}),
    ],
)
def test_what_the_style_sheet_is_told(shown: ScreenView, on: set[str]) -> None:
    assert {name for name, holds in layout(shown).classes.items() if holds} == on


@pytest.mark.parametrize(
    ("shown", "stage"),
    [
        (view("loading"), "1 Load  2 Chat  3 Bench  6 Runs"),
        (view("ready"), "1 Load  2 Chat  3 Bench  5 Log ▲3  6 Runs"),
        (view("ready", "wide"), "1 Load  2 Chat  3 Bench  6 Runs"),
        (view("loading", tab="gpus"), "1 Load  2 Chat  3 Bench  4 GPUs  6 Runs"),
        (view("loading", "narrow"), " 1 Load  2 Chat  3 Bench  4 GPUs  5 Log ▲3  6 Runs "),
    ],
)
def test_the_tabs_in_the_border(shown: ScreenView, stage: str) -> None:
    told = titles(shown, lambda tab: 3 if tab == "log" else 0, Content("paused"))
    assert told["stage"].plain == stage
    assert told["log"].plain == (" 5 Log ▲3  paused " if shown.narrow else "5 Log ▲3")
    assert told["phases"].plain.strip() == "Phases"


@pytest.mark.parametrize(
    ("shown", "action", "why"),
    [
        (view("ready"), "log_there", "No start has failed here"),
        (view("failed"), "log_there", None),
        (view("ready"), "retry", "The connection is up"),
        (view("lost"), "retry", None),
        (view("ready"), "stop", "Nothing is running"),
        (view("ready", benching=True), "stop", None),
        (view("ready"), "smoke", None),
        (view("ready", smoking=True), "smoke", "f8 stops them"),
        (view("loading"), "smoke", "shard 14 of 64"),
        (view("failed"), "bench-sweep", "1 shows why"),
        (view("ready", streaming=True), "bench-sweep", "The streaming reply must end first"),
        (view("ready", benching=True, own_keys={"stop": "x"}), "bench-sweep", "stopped with x"),
        (view("ready"), "compare", "No benchmark to compare yet"),
        (view("ready", measured=True), "compare", None),
        (view("loading"), "export", "i shows it as it is now"),
        (view("ready", tab="runs"), "export", "No runs are recorded yet"),
        (view("ready", tab="runs", recorded=True), "export", None),
        (view("ready"), "deployments", "no other deployment"),
        (view("ready", several=True), "deployments", None),
        (view("ready"), "gpu_order", "4 shows the GPUs"),
        (view("ready", tab="gpus"), "gpu_order", None),
        (view("ready"), "follow", "5 shows the log"),
        (view("loading"), "follow", None),
        (view("loading"), "leave", SILENT),
        (view("loading", filtered=True), "leave", None),
        (view("ready", tab="chat"), "type", None),
        (view("ready", tab="chat", typing=True), "type", SILENT),
        (view("connecting"), "load_report", "No line of a start has been read yet"),
    ],
)
def test_why_a_key_cannot_act(shown: ScreenView, action: str, why: str | None) -> None:
    said = unavailable(shown, BY_ID[action])
    assert said == why if not why else why in (said or "")
