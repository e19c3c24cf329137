"""The event-stream decoder and the token-bearing rule."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui.wire.event_stream import EventDecoder, error_of, token_of


def decode(data: bytes, cuts: list[int] | None = None) -> list[bytes]:
    decoder = EventDecoder()
    out: list[bytes] = []
    last = 0
    for cut in [*sorted(cuts or []), len(data)]:
        out += decoder.feed(data[last:cut])
        last = max(last, cut)
    return out + decoder.close()


STREAMS = [
    (b'data: {"a":1}\n\ndata: [DONE]\n\n', [b'{"a":1}', b"[DONE]"]),
    (b'data:{"a":1}\r\n\r\ndata: [DONE]\r\n\r\n', [b'{"a":1}', b"[DONE]"]),
    (b"data: x\r\rdata: y\r\r", [b"x", b"y"]),
    (b": ping\n\ndata: x\n\n: ping\n\n", [b"x"]),
    (b"event: error\ndata: x\nid: 4\n\n", [b"x"]),
    (b"data: one\ndata: two\n\n", [b"one\ntwo"]),
    (b"\n\n\ndata: x\n\n\n\ndata: y\n\n", [b"x", b"y"]),
    (b"data:\n\ndata\n\ndata: x\n\n", [b"x"]),
    (b"data: last without its empty line\n", [b"last without its empty line"]),
    (b"\xef\xbb\xbfdata: x\n\n", [b"x"]),
    ("data: Grüße 你好 🚀\n\n".encode(), ["Grüße 你好 🚀".encode()]),
    (b"", []),
]


@pytest.mark.parametrize(("data", "payloads"), STREAMS)
def test_payloads(data: bytes, payloads: list[bytes]) -> None:
    assert decode(data) == payloads
    assert decode(data, list(range(1, len(data)))) == payloads


@settings(deadline=None)
@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1), max_size=5),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.data(),
)
def test_any_cut_gives_the_same_events(texts: list[str], end: bytes, data: st.DataObject) -> None:
    stream = b"".join(b"data: " + text.encode() + end + end for text in texts)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    assert decode(stream, cuts) == [text.encode() for text in texts]


def test_endless_event_is_refused() -> None:
    decoder = EventDecoder()
    for _ in range(16):
        decoder.feed(b"x" * 1_000_000)
    with pytest.raises(ValueError, match="larger"):
        decoder.feed(b"x" * 1_000_000)


def test_a_large_event_costs_linear_time() -> None:
    """Fifteen megabytes in pieces of 512 bytes: copied anew with each one that would be 240 GB, an hour and more."""
    whole = b"data: " + b"x" * 15_000_000 + b"\n"
    decoder = EventDecoder()
    begun = time.process_time()
    for at in range(0, len(whole), 512):
        assert decoder.feed(whole[at : at + 512]) == []
    assert decoder.feed(b"\ndata: y\n\n") == [whole[6:-1], b"y"]
    assert time.process_time() - begun < 5
    assert decoder.idle


def delta(**fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": fields}]}


TOKENS = [
    (delta(role="assistant", content=""), "chat", (None, "")),
    (delta(content="hi"), "chat", ("content", "hi")),
    (delta(role="assistant", content="hi"), "chat", ("content", "hi")),
    (delta(content=""), "chat", ("content", "")),
    (delta(), "chat", (None, "")),
    (delta(content=None), "chat", (None, "")),
    (delta(reasoning="hm"), "chat", ("reasoning", "hm")),
    (delta(reasoning_content="hm"), "chat", ("reasoning", "hm")),
    (delta(role="assistant", reasoning_content="hm", content=None), "chat", ("reasoning", "hm")),
    (delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": "{}"}}]), "chat", ("tool", "f{}")),
    (delta(function_call={"name": "f"}), "chat", ("tool", "f")),
    (delta(content="", tool_calls=[]), "chat", ("content", "")),
    ({"choices": [], "usage": {"completion_tokens": 3}}, "chat", (None, "")),
    ({"usage": {}}, "chat", (None, "")),
    ({"choices": [{"text": "a"}]}, "completions", ("content", "a")),
    ({"choices": [{"text": ""}]}, "completions", ("content", "")),
    ({"choices": []}, "completions", (None, "")),
    ({"choices": "nonsense"}, "chat", (None, "")),
    ({"choices": [7]}, "chat", (None, "")),
    ({"choices": [{"delta": "x"}]}, "chat", (None, "")),
]


@pytest.mark.parametrize(("obj", "endpoint", "expected"), TOKENS)
def test_token_rule(obj: dict[str, object], endpoint: str, expected: tuple[str | None, str]) -> None:
    assert token_of(obj, endpoint) == expected


ERRORS = [
    ('{"error": {"message": "EngineCore encountered an issue.", "code": 500}}', "EngineCore encountered an issue."),
    ('{"error":"Unauthorized"}', "Unauthorized"),
    ('{"object":"error","message":"no such model","code":404}', "no such model"),
    ('{"detail":"Not Found"}', "Not Found"),
    ('{"choices":[],"error":null}', None),
    ('{"choices":[{"delta":{}}]}', None),
    ("[1]", None),
]


@pytest.mark.parametrize(("text", "message"), ERRORS)
def test_error_shapes(text: str, message: str | None) -> None:
    assert error_of(json.loads(text)) == message
