"""The chat pane by itself: what it shows, what it posts, and that nothing remote acts on it."""

from dataclasses import replace

import pytest
from pane_host import HOSTILE, PaneHost, text, until
from textual.widgets import Markdown

from tui.core.api_status import ApiStatus, Reach, ServedModel
from tui.core.connection import ConnectionState, LinkState
from tui.core.conversation import NO_TEMPLATE, Conversation, Turn, Usage
from tui.core.deployment import DeploymentState
from tui.core.deployment_status import not_ready_reason
from tui.core.logs.load_state import Loader, LoadState, Phase
from tui.core.smoke_prompts import Outcome, SmokeResult, SmokeRun
from tui.core.text import clean
from tui.messages import ConversationCleared, GenerationStopped, PromptSubmitted, SystemPromptChanged, TextCopied
from tui.widgets.chat_pane import ChatPane, Prompt, Turns
from tui.widgets.turn_view import TurnView

DONE = Turn(
    "Which is larger?",
    "**9.9** is larger.",
    reasoning="Compare the tenths.\nNine is more than one.",
    ttft_ms=187,
    thought_s=1.9,
    tokens_s=81.3,
    usage=Usage(28, 201, 16, 154),
    seconds=2.7,
    finish="stop",
    chunks=201,
)
SIZES = [(80, 24), (120, 35), (200, 60)]
THEMES = ["readyroom-dark", "readyroom-light", "readyroom-16"]


@pytest.mark.parametrize("size", SIZES)
async def test_a_reply_with_its_figures(size: tuple[int, int]) -> None:
    pane = ChatPane()
    async with PaneHost(pane).run_test(size=size) as pilot:
        pane.ready, pane.model = True, "kimi"
        pane.conversation = Conversation("Be terse.", (DONE,))
        await until(pilot, lambda: "2.7 s" in text(pilot.app) and "9.9 is larger." in text(pilot.app))
        shown = text(pilot.app)
        for words in (
            "system  Be terse.",
            "Which is larger?",
            "thought for 1.9 s, 154 tokens",
            "TTFT 187 ms",
            "81.3 tok/s",
            "28 in (16 cached), 201 out",
            "Ask kimi",
        ):
            assert words in shown
        assert "Nine is more than one." not in shown
        pane.toggle_thoughts()
        await until(pilot, lambda: "Nine is more than one." in text(pilot.app))


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES)
async def test_hostile_text_is_only_text(size: tuple[int, int], theme: str) -> None:
    pane, evil = ChatPane(), clean(HOSTILE, keep_newlines=True)
    async with PaneHost(pane, theme).run_test(size=size) as pilot:
        pane.ready, pane.reason, pane.model = True, evil, evil
        turn = Turn(evil, evil, reasoning=evil, error=evil, note=evil, finish=evil, seconds=1.0)
        pane.conversation = Conversation(evil, (turn,))
        pane.folded = False
        await until(pilot, lambda: "<script>alert(1)</script>" in text(pilot.app))
        pane.ready = False
        await pilot.pause()
        shown = text(pilot.app)
        assert "[/x]" in shown
        assert not {"\x1b", "\x9b", "\x07", "\u202e"} & set(shown)


async def test_a_streamed_reply_is_appended_and_ends_as_a_whole() -> None:
    pane = ChatPane()
    async with PaneHost(pane).run_test(size=(100, 30)) as pilot:
        pane.ready = pane.streaming = True
        whole = "# Title\n\nSome *text* and\n\n```python\nx = 1\n```\n\n- one\n- two\n"
        for end in range(0, len(whole), 7):
            pane.conversation = Conversation(turns=(Turn("Go", whole[:end], ttft_ms=5.0, chunks=end),))
            await pilot.pause()
        pane.streaming = False
        pane.conversation = Conversation(turns=(Turn("Go", whole, ttft_ms=5.0, seconds=1.0, finish="stop", chunks=9),))
        await until(pilot, lambda: pane.query_one(Markdown).source == whole and "9 chunks" in text(pilot.app))
        assert "x = 1" in text(pilot.app)


async def test_a_reply_that_turns_out_to_be_reasoning_moves() -> None:
    pane = ChatPane()
    async with PaneHost(pane).run_test(size=(100, 30)) as pilot:
        pane.conversation = Conversation(turns=(Turn("Go", "Let me think", chunks=3),))
        await until(pilot, lambda: "Let me think" in text(pilot.app))
        pane.conversation = Conversation(
            turns=(Turn("Go", "Yes.", reasoning="Let me think", chunks=5, seconds=1.0, finish="stop"),)
        )
        await until(pilot, lambda: "Yes." in text(pilot.app) and "Let me think" not in text(pilot.app))


async def test_it_follows_the_end_only_while_the_reader_is_there() -> None:
    pane = ChatPane()
    async with PaneHost(pane).run_test(size=(80, 24)) as pilot:
        turns = pane.query_one(Turns)

        def grow(lines: int) -> None:
            reply = "\n\n".join(f"line {i}" for i in range(lines))
            pane.conversation = Conversation(turns=(Turn("Go", reply, chunks=lines),))

        grow(30)
        await until(pilot, lambda: "line 29" in text(pilot.app))
        grow(40)
        await until(pilot, lambda: "line 39" in text(pilot.app))
        pane.action_page(-1)
        await until(pilot, lambda: "line 39" not in text(pilot.app))
        at = turns.scroll_y
        grow(60)
        await until(pilot, lambda: turns.max_scroll_y > 90)
        assert turns.scroll_y == at
        pane.action_end()
        await until(pilot, lambda: "line 59" in text(pilot.app))
        grow(70)
        await until(pilot, lambda: "line 69" in text(pilot.app))


async def test_a_very_long_reply_stays_quick() -> None:
    pane = ChatPane()
    async with PaneHost(pane).run_test(size=(80, 24)) as pilot:
        pane.conversation = Conversation(turns=(Turn("Go", "word " * 100_000 + "\nthe end", chunks=9, seconds=1.0, finish="stop"),))
        await until(pilot, lambda: "the end" in text(pilot.app))
        assert len(pane.query_one(Markdown).source) <= 40_000


async def test_keys_of_the_prompt() -> None:
    pane = ChatPane()
    app = PaneHost(pane)
    async with app.run_test(size=(80, 24), message_hook=app.posted.append) as pilot:
        pane.ready = True
        pane.focus_prompt()
        prompt = pane.query_one(Prompt)
        await pilot.press(*"one", "ctrl+j", *"two", "enter")
        assert [message.text for message in app.seen(PromptSubmitted)] == ["one\ntwo"]  # type: ignore[attr-defined]
        assert prompt.text == ""
        await pilot.press(*"three", "enter", *"draft", "up")
        assert prompt.text == "three"
        await pilot.press("up", "up", "up")  # two lines: the cursor goes up in them first
        assert prompt.text == "one\ntwo"
        await pilot.press("down", "down", "down", "down")
        assert prompt.text == "draft"
        await pilot.press("ctrl+j", "enter")
        assert app.seen(PromptSubmitted)[-1].text == "draft"  # type: ignore[attr-defined]
        await pilot.press("enter", "space", "enter")
        assert len(app.seen(PromptSubmitted)) == 3


async def test_what_cannot_be_sent_stays_with_its_reason() -> None:
    pane = ChatPane()
    app = PaneHost(pane)
    async with app.run_test(size=(80, 24), message_hook=app.posted.append) as pilot:
        pane.reason = "the model is not up yet: shard 14 of 64"
        pane.focus_prompt()
        await pilot.press(*"hello", "enter")
        assert pane.query_one(Prompt).text == "hello"
        assert not app.seen(PromptSubmitted)
        await until(pilot, lambda: "not sent: the model is not up yet: shard 14 of 64" in text(pilot.app))
        pane.ready, pane.reason = True, ""
        await pilot.press("enter")
        await until(pilot, lambda: len(app.seen(PromptSubmitted)) == 1)
        pane.streaming = True
        await pilot.press(*"more", "enter")
        await until(pilot, lambda: "esc stops it" in text(pilot.app))
        await pilot.press("escape")
        await until(pilot, lambda: len(app.seen(GenerationStopped)) == 1)
        assert pane.query_one(Prompt).text == "more"


async def test_system_prompt_new_conversation_and_copy() -> None:
    pane = ChatPane()
    app = PaneHost(pane)
    async with app.run_test(size=(80, 24), message_hook=app.posted.append) as pilot:
        pane.ready = True
        pane.conversation = Conversation("old", (DONE, replace(DONE, reply="", error="boom")))
        await pilot.pause()
        pane.focus_prompt()
        await pilot.press(*"draft")
        pane.edit_system()
        await pilot.press(*"er", "enter")
        assert [message.text for message in app.seen(SystemPromptChanged)] == ["older"]  # type: ignore[attr-defined]
        assert pane.query_one(Prompt).text == "draft"
        pane.edit_system()
        await pilot.press(*"x", "escape")
        assert len(app.seen(SystemPromptChanged)) == 1
        pane.copy_reply()
        await until(pilot, lambda: bool(app.seen(TextCopied)))
        assert app.seen(TextCopied)[0].text == DONE.reply  # type: ignore[attr-defined]
        pane.clear_conversation()
        await until(pilot, lambda: bool(app.seen(ConversationCleared)))
        pane.conversation = Conversation("older")
        await until(pilot, lambda: not pane.query(TurnView))
        assert "Ask the model something" in text(app)


async def test_a_smoke_run_shows_where_it_has_no_panel() -> None:
    pane = ChatPane()
    run = SmokeRun("m", 2, (SmokeResult("fact", Outcome.FAILED, "Sydney, not Canberra"),))
    async with PaneHost(pane).run_test(size=(80, 24)) as pilot:
        pane.ready = True
        pane.smoke, pane.smoking = run, True
        await until(pilot, lambda: "✗ fact" in text(pilot.app) and "prompt 2 of 2" in text(pilot.app))
        pane.smoking = False
        pane.focus_prompt()
        await pilot.press("x", "enter")
        await until(pilot, lambda: "Sydney" not in text(pilot.app))
        pane.smoke = replace(run, finished=True)
        await pilot.resize_terminal(140, 40)
        await until(pilot, lambda: "Sydney" not in text(pilot.app))


async def test_errors_and_notes_stand_in_the_pane() -> None:
    pane = ChatPane()
    async with PaneHost(pane).run_test(size=(80, 24)) as pilot:
        error = "This model's maximum context length is 4096 tokens. However, your prompt contains at least 4097 input tokens."
        pane.conversation = Conversation(
            turns=(Turn("a", error=error, seconds=0.1), Turn("b", " it was", note=NO_TEMPLATE, seconds=1.0))
        )
        await until(pilot, lambda: "4097 input tokens" in text(pilot.app))
        await until(pilot, lambda: NO_TEMPLATE in text(pilot.app))


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"load": LoadState(lines=5, phase=Phase.LOADING, shards=Loader("model", 14, 64))}, "shard 14 of 64"),
        ({"load": LoadState(lines=5, phase=Phase.KV_CACHE)}, "KV cache"),
        ({"load": LoadState(lines=5, phase=Phase.STOPPED)}, "stopped"),
        ({"connection": ConnectionState(LinkState.LOST, cause="no answer to 3 keepalives")}, "keepalives"),
        ({"api": ApiStatus(reach=Reach.ERROR, error="502 Bad Gateway")}, "502"),
        ({"api": ApiStatus(reach=Reach.UP, health=200, models=(ServedModel("m"),))}, ""),
    ],
)
def test_why_nothing_can_be_sent(state: dict[str, object], words: str) -> None:
    fields: dict[str, object] = {"connection": ConnectionState(LinkState.ONLINE), **state}
    told = not_ready_reason(DeploymentState("d", "t", **fields))  # type: ignore[arg-type]
    assert words in told
    assert bool(told) == bool(words)
