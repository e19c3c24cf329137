"""Replies folded into turns: figures by vLLM's definitions, reasoning apart however the stream is cut."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.core.conversation import (
    TAGS,
    Conversation,
    Delta,
    ReplyReader,
    ThinkingSplitter,
    Turn,
    lacks_chat_template,
    messages,
    plain_prompt,
    request,
)
from tui.widgets.turn_view import footer


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def split(*pieces: str) -> tuple[str, str]:
    splitter, thought, reply = ThinkingSplitter(), "", ""
    for piece in pieces:
        a, b, moved = splitter.feed(piece)
        if moved:
            thought, reply = thought + reply, ""
        thought, reply = thought + a, reply + b
    a, b = splitter.flush()
    return thought + a, reply + b


CASES = [
    ("<think>Hm.</think>Yes.", "Hm.", "Yes."),
    ("\n<think>\nHm.\n</think>\n\nYes.", "\nHm.\n", "Yes."),
    ("<think></think>Yes.", "", "Yes."),
    ("Let me see.\n</think>\n\nYes.", "Let me see.\n", "Yes."),  # the template opened the tag
    ("<thinking>Hm.</thinking>Yes.", "Hm.", "Yes."),
    ("[THINK]Hm.[/THINK]Yes.", "Hm.", "Yes."),
    ("◁think▷Hm.◁/think▷Yes.", "Hm.", "Yes."),
    ("<|channel|>analysis<|message|>Hm.<|channel|>final<|message|>Yes.", "Hm.", "Yes."),
    ("<think>still thinking", "still thinking", ""),
    ("<think>cut in a tag </thi", "cut in a tag </thi", ""),
    ("No tags at all, 1 < 2 and 3 > 2.", "", "No tags at all, 1 < 2 and 3 > 2."),
    ("Use `<think>` and `</think>` tags.", "", "Use `<think>` and `</think>` tags."),
    ("<b>bold</b>", "", "<b>bold</b>"),
    ("<thi", "", "<thi"),
    ("  indented", "", "  indented"),
    ("", "", ""),
]


@pytest.mark.parametrize(("text", "thought", "reply"), CASES)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_reasoning_in_the_content_is_split_off(text: str, thought: str, reply: str, size: int) -> None:
    assert split(*(text[i : i + size] for i in range(0, len(text), size))) == (thought, reply)


@given(
    st.lists(
        st.sampled_from([*(tag for pair in TAGS[:3] for tag in pair), "a", "\n", " ", "<", "think", ">", "/", "`"]), max_size=12
    ),
    st.lists(st.integers(1, 9), min_size=1, max_size=30),
)
def test_where_the_chunks_end_changes_nothing(parts: list[str], sizes: list[int]) -> None:
    text = "".join(parts)
    pieces, at, i = [], 0, 0
    while at < len(text):
        pieces.append(text[at : at + sizes[i % len(sizes)]])
        at += sizes[i % len(sizes)]
        i += 1
    assert split(*pieces) == split(text)


def test_figures_by_vllms_definitions() -> None:
    reader = ReplyReader("?", started_at=10.0)
    reader.feed(10.2, chunk(role="assistant", content=""))
    reader.feed(10.5, chunk(reasoning="Hm"))
    reader.feed(11.0, chunk(content="Yes"))
    reader.feed(12.5, chunk(content=".", finish="stop"))
    assert reader.turn().streaming
    assert reader.turn().tokens_s is None  # without the server's count nothing is claimed
    reader.feed(
        12.6,
        {
            "choices": [],
            "usage": {
                "prompt_tokens": 7,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
        },
    )
    turn = reader.turn(13.0)
    assert turn.ttft_ms == pytest.approx(500.0)
    assert turn.tokens_s == pytest.approx((5 - 1) / (12.5 - 10.5))
    assert turn.thought_s == pytest.approx(0.5)
    assert turn.seconds == pytest.approx(3.0)
    assert (turn.usage.prompt_tokens, turn.usage.cached_tokens, turn.usage.reasoning_tokens, turn.chunks) == (7, 4, 2, 3)
    assert not turn.streaming


def test_a_stopped_reply_has_the_figures_of_what_came() -> None:
    reader = ReplyReader("?", started_at=0.0)
    for n in range(5):
        reader.feed(1.0 + n, chunk(content="two tokens") | {"usage": {"prompt_tokens": 7, "completion_tokens": 2 * (n + 1)}})
    turn = reader.turn().stopped()
    assert (turn.usage.completion_tokens, turn.finish) == (10, "stopped")
    assert turn.tokens_s == pytest.approx(9 / 4)


@pytest.mark.parametrize("usage", [{}, {"usage": {"prompt_tokens": 7, "completion_tokens": 3}}])
def test_without_a_count_to_trust_the_pace_is_that_of_the_chunks(usage: dict[str, Any]) -> None:
    reader = ReplyReader("?", started_at=0.0)
    for n in range(50):
        reader.feed(1.0 + n / 10, chunk(content="x"))
    reader.feed(6.0, {"choices": [], **usage})
    turn = reader.turn(6.1)
    assert turn.tokens_s is None
    assert turn.chunks_s == pytest.approx(10.0)
    assert turn.miscounted == bool(usage)
    told = footer(turn).plain
    assert "~10.0 tok/s by chunks" in told
    assert "50 chunks" in told
    assert ("the server counts 3 tokens" in told) == bool(usage)


@pytest.mark.parametrize(
    "usage", [{}, {"completion_tokens": 1}, {"completion_tokens": "many"}, {"completion_tokens": None}, {"completion_tokens": -3}]
)
def test_what_cannot_be_told_is_none(usage: dict[str, Any]) -> None:
    reader = ReplyReader("?", started_at=0.0)
    reader.feed(1.0, chunk(content="x", finish="stop"))
    reader.feed(1.1, {"choices": [], "usage": usage})
    assert reader.turn(2.0).tokens_s is None


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"choices": None},
        {"choices": [None]},
        {"choices": [{}]},
        {"choices": [{"delta": None}]},
        {"choices": [{"delta": {"content": 5}}]},
        {"usage": 3},
    ],
)
def test_odd_chunks_are_passed_over(odd: dict[str, Any]) -> None:
    reader = ReplyReader("?", started_at=0.0)
    reader.feed(1.0, odd)
    assert (reader.chunks, reader.error, reader.turn(2.0).reply) == (0, None, "")


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"error": {"message": "boom\x1b[31m", "type": "InternalServerError"}}, "boom"),
        ({"error": "Unauthorized"}, "Unauthorized"),
        ({"object": "error", "message": "old shape"}, "old shape"),
        ({"detail": "Not Found"}, "Not Found"),
    ],
)
def test_errors_of_every_shape_end_the_turn_and_keep_what_came(event: dict[str, Any], words: str) -> None:
    reader = ReplyReader("?", started_at=0.0)
    reader.feed(1.0, chunk(content="so far"))
    reader.feed(1.1, event)
    turn = reader.turn(2.0)
    assert turn.error is not None
    assert words in turn.error
    assert "\x1b" not in turn.error
    assert turn.reply == "so far"


def test_completions() -> None:
    reader = ReplyReader("?", started_at=0.0, endpoint="completions")
    reader.feed(1.0, {"choices": [{"index": 0, "text": " <think>is text here", "finish_reason": None}]})
    reader.feed(2.0, {"choices": [{"index": 0, "text": "</think>.", "finish_reason": "length"}]})
    turn = reader.turn(3.0)
    assert (turn.reply, turn.reasoning, turn.finish) == (" <think>is text here</think>.", "", "length")


def test_a_token_that_decodes_to_nothing_is_a_token() -> None:
    reader = ReplyReader("?", started_at=0.0)
    reader.take(Delta(0.5))
    assert reader.turn().ttft_ms == 500.0


def test_requests() -> None:
    talk = Conversation("S", (Turn("a", "A", reasoning="r", seconds=1.0), Turn("b", error="x", seconds=1.0)))
    assert [message["role"] for message in messages(talk, "c")] == ["system", "user", "assistant", "user"]
    assert plain_prompt(talk, "c") == "S\n\naA\n\nc"
    path, body = request(talk, "c", model="m", extra={"temperature": 0})
    assert path == "/v1/chat/completions"
    assert body["temperature"] == 0
    assert "max_tokens" not in body
    path, body = request(talk, "c", model="m", endpoint="completions")
    assert path == "/v1/completions"
    assert body["max_tokens"] == 512


@pytest.mark.parametrize(
    ("message", "lacks"),
    [
        (
            "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template",
            True,
        ),
        (
            "Cannot use chat template functions because tokenizer.chat_template is not set and no template argument was passed!",
            True,
        ),
        ("The model does not support Chat Completions API", True),
        ("Conversation roles must alternate user/assistant/user/assistant/...", False),
        ("The model `x` does not exist.", False),
        ("This model's maximum context length is 4096 tokens.", False),
        ("Refused request with untrusted chat template.", False),
    ],
)
def test_errors_that_mean_no_chat_template(message: str, lacks: bool) -> None:
    assert lacks_chat_template(400, message) is lacks
