"""The user's own keys, from the configuration's [keys]: they work wherever their action does, and every text names them."""

import time

import scenes
from room import room, screen, shows, until

from tui.actions import BY_ID, shown_key
from tui.core.deployment import DeploymentState
from tui.messages import ReportRequested, TextCopied
from tui.screens.dialogs import HelpDialog
from tui.screens.load_report import LoadReport
from tui.screens.palette import Palette
from tui.settings import Settings
from tui.widgets.chat_pane import Prompt


def scene(name: str) -> DeploymentState:
    return scenes.SCENES[name](time.monotonic())


async def test_the_users_own_keys() -> None:
    app, _ = room(scene("loading"), Settings(keys={"zoom": "ctrl+f", "help": "h"}))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "^f zoom", "h help")
        await pilot.press("h")
        await until(pilot, lambda: isinstance(app.screen, HelpDialog))
    assert shown_key(BY_ID["find"], {}) == "/"


async def test_texts_name_the_users_own_keys() -> None:
    app, _ = room(scene("ready"), Settings(keys={"smoke": "ctrl+t", "look": "f12", "bench-sweep": "S", "log_there": "x"}))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "^t sends six prompts")
        await pilot.press("2")
        await shows(pilot, "press ^t for the smoke prompts")
        await pilot.press("3")
        await shows(pilot, "f6  single stream", "S  sweep")
    app, _ = room(scene("failed"), Settings(keys={"log_there": "x"}))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "press x for the line in the log")


async def test_the_users_own_keys_of_leaving_and_typing() -> None:
    app, _ = room(scene("ready"), Settings(keys={"leave": "f12", "type": "t", "zoom": "ctrl+g"}))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "READY")
        await pilot.press("2")
        await shows(pilot, "t: type here", "t type")
        await pilot.press("t")
        await until(pilot, lambda: app.main.typing)
        app.main.streaming = True
        await shows(pilot, "a reply is streaming: f12 stops it", "f12 leave")
        posted = app.main.chat.check_action("stop_or_leave", ())
        assert posted
        app.main.streaming = False
        await pilot.press("f3")
        await shows(pilot, "enter keeps it, f12 leaves it")
        await pilot.press("f12")
        await until(pilot, lambda: "leaves it" not in screen(pilot))
        await pilot.press("f12", "5", "slash")
        await shows(pilot, "enter applies, f12 clears")
        await pilot.press("x", "ctrl+g")  # though z, its usual key, would be typed here
        await until(pilot, lambda: app.main.has_class("-zoomed-log"))
        await pilot.press("f12")
        await until(pilot, lambda: not app.main.log_pane.has_class("-finding"))
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpDialog))
        told = " ".join(app.screen.told().plain.split())  # type: ignore[attr-defined]
        assert "t focuses the prompt" in told
        assert "Focus the prompt to type; f12 leaves it" in told
        assert "Filter the log; f12 clears the filter" in told


async def test_a_key_of_the_users_that_types_is_typed() -> None:
    app, _ = room(scene("ready"), Settings(keys={"bench-sweep": "S", "look": "plus", "find": "ctrl+f"}))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "READY")
        await pilot.press("2", "enter")
        await until(pilot, lambda: app.main.typing)
        theme = app.theme
        await pilot.press(*"1S+")
        prompt = app.main.chat.query_one(Prompt)
        await until(pilot, lambda: prompt.text == "1S+")
        assert not app.main.benching
        assert app.theme == theme
        assert "S sweep" not in screen(pilot)
        await pilot.press("ctrl+f")  # in a text it has a meaning of its own, as f6 has
        await until(pilot, lambda: app.main.log_pane.has_class("-finding"))


async def test_the_help_closes_with_the_key_that_opened_it() -> None:
    app, _ = room(scene("loading"), Settings(keys={"help": "f12", "commands": "f2", "look": "ctrl+p"}))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "LOADING", "f12 help")
        await pilot.press("f12")
        await until(pilot, lambda: isinstance(app.screen, HelpDialog))
        await pilot.press("f12")
        await until(pilot, lambda: app.screen is app.main)
        theme = app.theme
        await pilot.press("ctrl+p")
        await until(pilot, lambda: app.theme != theme)
        assert app.screen is app.main
        await pilot.press("f2")
        await until(pilot, lambda: isinstance(app.screen, Palette))


async def test_the_report_has_the_keys_of_the_main_screen() -> None:
    app, _ = room(scene("failed"), Settings(keys={"copy_cause": "Y", "load_report": "f12", "export": "W"}))
    posted: list[object] = []
    async with app.run_test(size=(80, 24), message_hook=posted.append) as pilot:
        await shows(pilot, "FAILED")
        await pilot.press("f12")
        await until(pilot, lambda: isinstance(app.screen, LoadReport))
        await shows(pilot, "Y copy · W export · esc close")
        await pilot.press("y", "e", "i")
        await pilot.pause()
        assert isinstance(app.screen, LoadReport)
        assert not any(isinstance(message, TextCopied | ReportRequested) for message in posted)
        await pilot.press("Y", "W")
        await until(pilot, lambda: {TextCopied, ReportRequested} <= {type(message) for message in posted})
        await pilot.press("f12")
        await until(pilot, lambda: app.screen is app.main)
