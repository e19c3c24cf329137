"""Keys that can't act say why and what to do; keys pressed faster than the screen follows close nothing twice."""

import time
from dataclasses import replace as replaced

import pytest
import scenes
from room import room, screen, shows, until
from textual.events import Key

from tui.actions import BY_ID
from tui.core.bench_result import BenchProgress, Plan
from tui.core.deployment import DeploymentState
from tui.core.smoke_prompts import Outcome, SmokeResult, SmokeRun
from tui.messages import BenchmarkStopped, SmokeRequested
from tui.screens.availability import unavailable
from tui.screens.dialogs import ConfirmDialog, HelpDialog, HostKeyDialog
from tui.screens.palette import Palette
from tui.settings import Settings, UiSettings
from tui.widgets.chat_pane import Prompt

pytestmark = pytest.mark.slow


def scene(name: str) -> DeploymentState:
    return scenes.SCENES[name](time.monotonic())


@pytest.mark.parametrize(
    ("name", "key", "words"),
    [
        ("ready", "l", "No start has failed here"),
        ("ready", "y", "No start has failed here"),
        ("ready", "r", "The connection is up"),
        ("ready", "f8", "Nothing is running"),
        ("ready", "s", "4 shows the GPUs"),
        ("failed", "f5", "Not yet: the server failed to start: CUDA out of memory"),
        ("failed", "f7", "1 shows why"),
        ("loading", "f5", "shard 14 of 64"),
        ("loading", "f6", "1 shows how far it is"),
        ("loading", "e", "i shows it as it is now"),
        ("loading", "v", "No server has been found"),
        ("loading", "d", "no other deployment"),
        ("connecting", "i", "No line of a start has been read yet"),
    ],
)
async def test_a_key_that_cannot_act_says_why(name: str, key: str, words: str) -> None:
    app, _ = room(scene(name))
    posted: list[object] = []
    async with app.run_test(size=(200, 60), message_hook=posted.append, notifications=True) as pilot:
        await until(pilot, lambda: app.main.furnished and app.main.shown.name != "")
        await pilot.press("1", key)
        await until(pilot, lambda: any(words in notification.message for notification in app._notifications))
        await pilot.press(key)
        assert len(app._notifications) == 1  # the next word takes the place of the one before
        assert not any(isinstance(message, SmokeRequested) for message in posted)


async def test_a_word_on_a_key_takes_no_other_word_away() -> None:
    app, session = room(scene("loading"))
    async with app.run_test(size=(120, 35), notifications=True) as pilot:
        await shows(pilot, "LOADING")

        def told() -> set[str]:
            return {notification.message for notification in app._notifications}

        app.notify("the record could not be written", severity="error", timeout=60)
        await pilot.press("f5")
        await until(pilot, lambda: any(notice.startswith("Not yet") for notice in told()))
        await pilot.press("d")
        await until(pilot, lambda: any("no other deployment" in notice for notice in told()))
        assert len(told()) == 2
        await pilot.press("f5")
        await until(pilot, lambda: any(notice.startswith("Not yet") for notice in told()))
        session.set(scene("ready"))
        await until(pilot, lambda: told() == {"the record could not be written"})
        await pilot.press("r")
        await until(pilot, lambda: any("The connection is up" in notice for notice in told()))
        session.set(scene("loading"))
        await shows(pilot, "LOADING")
        session.set(scene("ready"))
        await shows(pilot, "READY")
        await pilot.pause()
        assert len(told()) == 2  # that word still holds
        for key in ("r", "d", "r", "d"):
            app.post_message(Key(key, None))
        await until(pilot, lambda: any("no other deployment" in notice for notice in told()))
        await pilot.pause()
        assert len(told()) == 2


async def test_every_key_acts_or_says_why() -> None:
    """What has a need in the table has an obstacle if the need is not met, in words unless nobody expects it to act."""
    app, _ = room(scene("connecting"))
    async with app.run_test(size=(120, 35)) as pilot:
        await until(pilot, lambda: app.main.furnished)
        silent = {action.id for action in BY_ID.values() if action.needs and unavailable(app.main.view, action) == ""}
        assert silent == {"send", "type", "leave"}


async def test_keys_faster_than_the_screen_close_nothing_twice() -> None:
    app, _ = room(scene("loading"))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "LOADING")
        for keys in (
            ["ctrl+p", "escape", "escape", "escape"] * 3,
            ["ctrl+p", "enter", "enter", "escape", "escape"] * 3,
            ["question_mark", "escape", "escape", "question_mark"] * 3,
            ["i", "escape", "escape", "question_mark", "escape", "ctrl+p", "ctrl+p", "escape"] * 3,
        ):
            for key in keys:
                app.post_message(Key(key, None))
            await pilot.pause()
            while app.screen is not app.main:
                await pilot.press("escape")
            await until(pilot, lambda: app.screen is app.main)


async def test_a_dialog_closed_twice_leaves_the_one_below() -> None:
    app, _ = room(scene("loading"))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "LOADING")
        for dialog in (HelpDialog({}), Palette(), ConfirmDialog("a", "b", "c")):
            await app.push_screen(dialog)
            dialog.dismiss()
            dialog.dismiss()
            await until(pilot, lambda: app.screen is app.main)


async def test_the_palette_finds_words_of_the_descriptions() -> None:
    app, _ = room(scene("failed"))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "FAILED")
        await pilot.press("ctrl+p")
        await until(pilot, lambda: isinstance(app.screen, Palette))
        await pilot.press(*"clipboard")
        await shows(pilot, "Copy cause", "Copy reply")
        assert "Go to Load" not in screen(pilot)


async def test_leaving_a_benchmark_asks_first() -> None:
    app, _ = room(scene("ready"))
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, "READY")
        app.main.begin_benchmark(Plan(kind="sweep", concurrency=(1, 2, 4)))
        app.main.progress = BenchProgress(point=1, points=3, concurrency=2, stage="measuring")
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        await shows(pilot, "point 2 of 3", "Quitting stops it and keeps")
        await pilot.press("n")
        await until(pilot, lambda: app.screen is app.main)
        assert app.main.benching
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        await pilot.press("y")
        await until(pilot, lambda: not app.is_running or app._exit)


async def test_a_chat_that_opens_by_itself_leaves_the_keys_to_be_commands() -> None:
    app, session = room(scene("loading"))
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, "LOADING")
        session.set(scene("ready"))
        await until(pilot, lambda: app.main.tab == "chat")
        assert not app.main.typing
        await shows(pilot, "enter: type here", "enter type")
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpDialog))
        await pilot.press("escape", "2")
        await shows(pilot, "enter: type here")
        await pilot.press("3")
        await until(pilot, lambda: app.main.tab == "bench")  # it was not typed
        await pilot.press("1", "2", "escape", "2", "enter")
        await until(pilot, lambda: app.main.typing)


@pytest.mark.parametrize("pane", ["1", "3", "4", "5", "6"])
async def test_keys_of_places_are_never_typed_into_the_chat_that_they_show(pane: str) -> None:
    app, _ = room(scene("ready"))
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, "READY")
        for keys, tab in (("22", "chat"), ("2" + pane, None), ("2", "chat"), (pane + "2", "chat"), ("25", "log"), ("2", "chat")):
            await pilot.press(pane)
            for key in keys:
                app.post_message(Key(key, key))
            await until(pilot, lambda tab=tab: tab is None or app.main.tab == tab)  # type: ignore[misc]
        await pilot.pause()
        prompt = app.main.chat.query_one(Prompt)
        assert prompt.text == ""
        await pilot.press("enter", *"2+3?")
        await until(pilot, lambda: prompt.text == "2+3?")


async def test_escape_does_not_stop_a_benchmark() -> None:
    app, _ = room(scene("ready"))
    posted: list[object] = []
    async with app.run_test(size=(80, 24), message_hook=posted.append, notifications=True) as pilot:
        await shows(pilot, "READY")
        app.main.begin_benchmark(Plan(kind="sweep", concurrency=(1, 2, 4)))
        await pilot.press("escape")
        await shows(pilot, "f8 stops the benchmark.")
        assert app.main.benching
        assert not any(isinstance(message, BenchmarkStopped) for message in posted)
        await pilot.press("f8")
        await until(pilot, lambda: any(isinstance(message, BenchmarkStopped) for message in posted))


async def test_smoke_verdicts_are_at_once_in_sight_on_a_small_screen() -> None:
    app, _ = room(scene("ready"))
    done = SmokeRun(
        "m", 2, (SmokeResult("fact", Outcome.FAILED, "Sydney, not Canberra"), SmokeResult("format", Outcome.PASSED, "valid JSON"))
    )
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, "READY")
        await pilot.press("2")
        app.main.smoke = replaced(done, finished=True)
        await shows(pilot, "✗ fact", "Sydney, not Canberra", "✓ format", "valid JSON", "1 of 2")


async def test_what_a_benchmark_said_of_a_closed_port_goes_when_the_server_is_up() -> None:
    app, session = room(scene("loading"))
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, "LOADING")
        app.main.bench_problem = "Connection refused"
        await pilot.press("3")
        await shows(pilot, "Connection refused")
        session.set(scene("ready"))
        await shows(pilot, "READY")
        await until(pilot, lambda: "Connection refused" not in screen(pilot))


async def test_keys_typed_on_the_way_out_are_nobodys() -> None:
    app, _ = room(scene("loading"))
    async with app.run_test(size=(120, 35)) as pilot:
        await shows(pilot, "LOADING")
        app.exit()
        for key in ("ctrl+p", "question_mark", "escape", "enter", "i", "7"):
            app.post_message(Key(key, None))
    assert app.bug is None


@pytest.mark.parametrize("theme", ["dark", "16"])
async def test_the_answers_of_a_question_can_be_read(theme: str) -> None:
    app, _ = room(scene("loading"), Settings(ui=UiSettings(theme=theme)))
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, "LOADING")
        for dialog, words in (
            (ConfirmDialog("Sure?", "It costs.", "go on"), ("n cancel", "y go on")),
            (HostKeyDialog("gpu-box", "ssh-ed25519", "SHA256:abc"), ("r refuse", "a accept")),
        ):
            await app.push_screen(dialog)
            await shows(pilot, *words)
            await pilot.press("escape")
            await until(pilot, lambda: app.screen is app.main)
