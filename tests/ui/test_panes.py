"""A pane is an entry in the registry and its widget: nothing else has to be touched for one more."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tui.panes import PANES, Pane
from tui.screens.main_screen import MainScreen

PROGRAM = """
import asyncio, sys, time
sys.path.insert(0, sys.argv[1])
from textual.content import Content
from tui import panes

panes.PANES = (
    *panes.PANES,
    panes.Pane(id="notes", title="Notes", widget="__main__:Notes", place="tab", key="7", help="What was noted down",
               values={"busy": "activity"}, focus="#tab-notes"),
    panes.Pane(id="clock", title="Clock", widget="__main__:Clock", place="machine", starting={"wide": 5}),
)
panes.TAB = {pane.id: pane for pane in panes.PANES if pane.key}
panes.TABS = tuple(panes.TAB)

from tui.widgets.canvas import Canvas, drawn
import scenes
from room import room, screen, shows, until


class Notes(Canvas):
    can_focus = True
    busy: drawn[str] = drawn("")

    def draw(self, width, height):
        return Content(f"noted: {self.busy or 'nothing'} by {self.state.name}")


class Clock(Canvas):
    def draw(self, width, height):
        return Content("half past nine")

    def note(self):
        return Content("local time")


async def main():
    app, _ = room(scenes.SCENES["loading"](time.monotonic()))
    async with app.run_test(size=(200, 60)) as pilot:
        await shows(pilot, "LOADING", "7 Notes", "─ Clock ─", "half past nine", "local time")
        await pilot.press("7")
        await shows(pilot, "noted: nothing by kimi-k2-w4")
        assert app.focused is app.main.query_one("#tab-notes")
        app.main.streaming = True
        await shows(pilot, "noted: ◐ reply")
        await pilot.press("question_mark")
        await shows(pilot, "What was noted down")
        await pilot.press("escape")
        assert any(command.title == "Go to Notes" for command in app.get_system_commands(app.main))
        await pilot.resize_terminal(120, 35)
        await until(pilot, lambda: "half past nine" not in screen(pilot))
        await shows(pilot, "7 Notes")
    print("shown")


asyncio.run(main())
"""


def test_one_more_is_placed_titled_keyed_and_in_the_help() -> None:
    folder = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", PROGRAM, folder], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "shown\n", done.stdout + done.stderr


@pytest.mark.parametrize("pane", PANES, ids=lambda pane: f"{pane.place}: {pane.id}")
def test_its_widget_has_the_values_that_it_is_given(pane: Pane) -> None:
    module, _, name = pane.widget.partition(":")
    widget = getattr(import_module(module), name)
    assert pane.values.keys() <= widget._reactives.keys()
    assert set(pane.values.values()) <= MainScreen._reactives.keys()
    assert pane.starting or pane.serving or pane.place == "tab"


def test_no_key_and_no_place_is_given_twice() -> None:
    keys = [pane.key for pane in PANES if pane.key]
    assert len(keys) == len(set(keys))
    assert len({(pane.place, pane.id) for pane in PANES}) == len(PANES)
