"""The load generator's reader of HTTP responses, cut anywhere."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui.probe.load_http import Response, head_of, target_of

RESPONSES = {
    "chunked": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\n\r\n",
        b"hello world",
        True,
    ),
    "trailers": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\nA\r\n0123456789\r\n0\r\nX-T: 1\r\nY: 2\r\n\r\n",
        b"0123456789",
        True,
    ),
    "counted": (b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\nContent-Type: text/plain\r\n\r\nabc", b"abc", True),
    "empty": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"", True),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    "closing": (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", b"x", False),
    "http 1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", b"x", False),
    "kept http 1.0": (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\nx", b"x", True),
    "bare newlines": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", b"hi", True),
    "no reason": (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nhi", b"hi", True),
    "an empty line before": (b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"hi", True),
    "an empty line behind": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n\r\n", b"hi", False),
    "another behind": (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\ny", b"x", False),
    "interim": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"hi", True),
}


@pytest.mark.parametrize("name", RESPONSES)
@settings(deadline=None)
@given(data=st.data())
def test_any_cut_gives_the_same_body(name: str, data: st.DataObject) -> None:
    whole, body, keep = RESPONSES[name]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    response = Response()
    found = b""
    for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        if begin < end:
            found += response.feed(whole[begin:end])
    assert response.done
    assert found == body
    assert response.keep is keep


def test_a_body_that_ends_with_the_connection() -> None:
    response = Response()
    assert response.feed(b"HTTP/1.1 200 OK\r\n\r\nabc") == b"abc"
    before = response.done
    response.eof()
    assert (before, response.done, response.keep) == (False, True, False)


CUT = [
    b"",
    b"HTTP/1.1 200 OK\r\nContent-Le",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
]


@pytest.mark.parametrize("data", CUT)
def test_a_cut_response_is_told(data: bytes) -> None:
    response = Response()
    response.feed(data)
    with pytest.raises(ValueError, match="connection ended"):
        response.eof()


GARBAGE = [
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"HTTP/2 200\r\n\r\n",
    b"HTTP/1.1 abc OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
    b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
]


@pytest.mark.parametrize("data", GARBAGE)
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Response().feed(data)


URLS = [
    ("http://127.0.0.1:8000", (False, "127.0.0.1", 8000, None, ""), "127.0.0.1:8000"),
    ("http://box:8000/v1/", (False, "box", 8000, None, ""), "box:8000"),
    ("https://api.example.org/llm/v1", (True, "api.example.org", 443, None, "/llm"), "api.example.org"),
    ("http://[::1]:8000/", (False, "::1", 8000, None, ""), "[::1]:8000"),
    ("unix:/run/vllm.sock", (False, "localhost", 80, "/run/vllm.sock", ""), "localhost"),
]


@pytest.mark.parametrize(("url", "expected", "header"), URLS)
def test_urls(url: str, expected: tuple[object, ...], header: str) -> None:
    target = target_of(url)
    assert tuple(target) == expected
    assert target.host_header == header


@pytest.mark.parametrize("url", ["box:8000", "ftp://x", "http://", "http://x:99999", "http://x/a b", "unix:relative"])
def test_bad_urls(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        target_of(url)


def test_a_head() -> None:
    head = head_of(target_of("http://box:8000/p"), "POST", "/v1/completions", {"Authorization": "Bearer k"}, "1.0")
    assert head.startswith(b"POST /p/v1/completions HTTP/1.1\r\nHost: box:8000\r\n")
    assert b"Authorization: Bearer k\r\n" in head


@pytest.mark.parametrize("headers", [{"X": "a\r\nY: b"}, {"bad name": "x"}, {"": "x"}])
def test_headers_that_would_split_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="can't be sent"):
        head_of(target_of("http://box"), "GET", "/", headers, "1")
