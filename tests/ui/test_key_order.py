"""Keys that arrive together do what they do one by one: in the prompt, the log's filter and the command palette."""

import random
import time

import pytest
import scenes
from room import Room, SetSession, room, shows, until
from textual._xterm_parser import XTermParser
from textual.events import Key
from textual.widgets import Input

from tui.host.api import ApiError
from tui.messages import PromptSubmitted
from tui.screens.palette import Palette
from tui.widgets.chat_pane import Prompt

SENT = {"backspace": "\x7f", "left": "\x1b[D", "right": "\x1b[C", "home": "\x1b[H", "end": "\x1b[F", "delete": "\x1b[3~"}
"""What a terminal sends for keys that are no characters."""


class Silent(SetSession):
    def stream(self, *_: object, **__: object) -> None:
        raise ApiError(500, "no answer", "error")


def send(pilot: Room, text: str) -> int:
    """Hand the app what one read of the terminal gives; return how many keys that is."""
    keys = [event for event in XTermParser().feed(text) if isinstance(event, Key)]
    for key in keys:
        key.set_sender(pilot.app)
        pilot.app.post_message(key)
    return len(keys)


async def drained(pilot: Room) -> None:
    await pilot.pause()
    await until(pilot, lambda: not pilot.app._waiting and pilot.app._followed is None)  # type: ignore[attr-defined]
    await pilot.pause()


def edited(keys: list[str]) -> str:
    """Return what a one-line editor makes of the keys."""
    text, at = "", 0
    for key in keys:
        match key:
            case "backspace":
                text, at = text[: max(0, at - 1)] + text[at:], max(0, at - 1)
            case "delete":
                text = text[:at] + text[at + 1 :]
            case "left" | "right":
                at = min(len(text), max(0, at + (1 if key == "right" else -1)))
            case "home" | "end":
                at = len(text) if key == "end" else 0
            case _:
                text, at = text[:at] + key + text[at:], at + 1
    return text


@pytest.mark.parametrize(
    ("keys", "text"),
    [("abx\x7fc", "abc"), ("ab\x1b[Dc", "acb"), ("ab\x1b[H\x1b[3~c", "cb"), ("fir\rsecond", "second")],
    ids=["backspace", "left", "home", "enter"],
)
async def test_a_read_of_several_keys_in_the_prompt(keys: str, text: str) -> None:
    state = scenes.SCENES["ready"](time.monotonic())
    app, _ = room(state, session=Silent(state))
    sent: list[object] = []
    async with app.run_test(size=(80, 24), message_hook=sent.append) as pilot:
        await shows(pilot, "READY")
        await until(pilot, lambda: app.main.tab == "chat")
        await pilot.press("enter")
        prompt = app.main.chat.query_one(Prompt)
        await until(pilot, lambda: prompt.has_focus)
        send(pilot, keys)
        await until(pilot, lambda: prompt.text == text)
        await drained(pilot)
        assert prompt.text == text
        assert {message.text for message in sent if isinstance(message, PromptSubmitted)} == ({"fir"} if "\r" in keys else set())


@pytest.mark.parametrize("seed", range(4))
async def test_random_bursts_are_the_same_keys_one_by_one(seed: int) -> None:
    dice = random.Random(seed)
    app, _ = room(scenes.SCENES["ready"](time.monotonic()))
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, "READY")
        await until(pilot, lambda: app.main.tab == "chat")
        for place in ("prompt", "filter", "palette"):
            keys = [dice.choice([*"abcdefg", *SENT]) for _ in range(60)]
            keys = ["x", *keys]
            if place == "prompt":
                await pilot.press("enter")
                await until(pilot, lambda: app.main.chat.query_one(Prompt).has_focus)
            else:
                send(pilot, "/" if place == "filter" else "\x10")  # the keys that follow are for what this one opens
            left = [SENT.get(key, key) for key in keys]
            while left:
                count = dice.randint(1, 20)
                send(pilot, "".join(left[:count]))
                left = left[count:]
                if dice.random() < 0.5:
                    await pilot.pause()
            await drained(pilot)
            if place == "prompt":
                assert app.main.chat.query_one(Prompt).text == edited(keys)
            else:
                box = app.screen.query_one("#log-find" if place == "filter" else "CommandInput", Input)
                assert box.value == edited(keys)
            if place == "palette":
                assert isinstance(app.screen, Palette)
            await pilot.press("escape")
            await drained(pilot)
