"""The load generator's short cut for a token's chunk reads exactly what the long way reads, wherever the pieces begin and end."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui.probe.load_stream import SIZES, UPPER_SIZES, ReplyStream, RequestFailure
from tui.wire.request_record import COMPLETED, RequestRecord

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(text: str, finish: str | None = None, ascii_only: bool = True, **more: object) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": finish}
    obj = {"id": "chatcmpl-1", "choices": [choice], **more}
    return b"data: " + json.dumps(obj, separators=(",", ":"), ensure_ascii=ascii_only).encode() + b"\n\n"


def read(pieces: list[bytes]) -> ReplyStream:
    stream = ReplyStream(None, RequestRecord(0, 8), b"", "chat", True)
    for i, piece in enumerate(pieces):
        if stream.feed(piece, float(i)):
            stream.judge()
    return stream


pieces_of_text = st.one_of(
    st.text(max_size=12),
    st.sampled_from(['"', "\\", "\n", "\r\n", "\n\n", "data: ", "é", "😀", '"}', "token", "a" * 60]),
)


@settings(deadline=None, max_examples=50)
@given(st.lists(pieces_of_text, min_size=1, max_size=12), st.booleans())
def test_whole_chunks_read_as_single_bytes_do(texts: list[str], ascii_only: bool) -> None:
    chunks = [framed(event(text, ascii_only=ascii_only)) for text in texts]
    chunks += [framed(event("", "length") + event("", None, usage={"completion_tokens": len(texts)}) + b"data: [DONE]\n\n"), END]
    whole = read([HEAD, *chunks])
    single = read([bytes([byte]) for byte in HEAD + b"".join(chunks)])
    assert whole.record.text == single.record.text == "".join(texts)
    assert whole.record.state == single.record.state == COMPLETED
    assert len(whole.record.chunks) == len(single.record.chunks)
    assert list(whole.record.chunks)[: len(texts)] == [float(i + 1) for i in range(len(texts))]


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([framed(event(" c")) + framed(event(" d"))], " c d"),
        ([framed(event(" c") + event(" d"))], " c d"),
        ([framed(event(" c"))[:9], framed(event(" c"))[9:]], " c"),
        ([framed(event(" c") + b": ping\n\n")], " c"),
        ([b"%x;name=value\r\n%b\r\n" % (len(event(" c")), event(" c"))], " c"),
        ([b"%X\r\n%b\r\n" % (len(event(" c")), event(" c"))], " c"),
    ],
    ids=["two-chunks", "two-events", "cut-chunk", "comment-behind", "extension", "upper-case-size"],
)
def test_pieces_of_other_shapes(pieces: list[bytes], text: str) -> None:
    ending = [framed(event("!", "stop")), END]
    assert read([HEAD, framed(event("a")), framed(event(" b")), *pieces, *ending]).record.text == f"a b{text}!"


@pytest.mark.parametrize("form", [b"%x", b"%X", b"%08x", b"%x ;a=b"], ids=["lower", "upper", "padded", "extension"])
def test_tokens_of_every_length(form: bytes) -> None:
    """The size of a chunk gains a digit at 256 and at 4096 bytes; above that a piece is longer than one that is read at once."""
    around = len(event(""))
    lengths = [1, 2, *range(256 - around - 9, 256 - around + 3), *range(4096 - around - 12, 4096 - around + 12), 5000]
    texts = ["a", *("x" * length for length in lengths)]
    pieces = [(form + b"\r\n%b\r\n") % (len(data), data) for data in map(event, texts)]
    stream = read([HEAD, *pieces, framed(event("!", "stop")), END])
    assert stream.record.text == "".join(texts) + "!"
    assert len(stream.record.chunks) == len(texts) + 1


@pytest.mark.parametrize(("form", "sizes"), [(b"%x", SIZES), (b"%X", UPPER_SIZES)])
def test_both_ways_of_writing_sizes_are_quick(form: bytes, sizes: list[bytes]) -> None:
    data = event("x" * (0xFA - len(event(""))))
    stream = read([HEAD, (form + b"\r\n%b\r\n") % (len(data), data)])
    assert stream.sizes is sizes
    for line in (form % size + b"\r\n" for size in (1, 9, 15, 16, 0xAB, 255, 256, 0xFA0, 4000)):
        assert sizes[len(line) + int(line, 16) + 2] == line


@pytest.mark.parametrize("size", [b"4", b"-5", b"x", b""])
def test_a_wrong_size_is_no_token(size: bytes) -> None:
    stream = read([HEAD, framed(event("a")), framed(event(" b"))])
    with pytest.raises(RequestFailure) as caught:
        stream.feed(size + b"\r\n" + event(" c") + b"\r\n", 9.0)
    assert caught.value.kind == "bad_http"
    assert len(stream.record.chunks) == 2


def test_chunks_that_came_together_are_counted() -> None:
    stream = read([HEAD, framed(event("a")), framed(event(" b")) + framed(event(" c")) + framed(event(" d"))])
    assert stream.together == 2
