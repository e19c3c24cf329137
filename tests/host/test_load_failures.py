"""Every way in which a stream can go wrong, done to the real load loop by a real server: counted right, and in no latency."""

import threading
from collections.abc import Callable

import pytest
from loads import good, load, run
from scripted_server import SSE, Exchange, scripted, until

from tui.wire.request_record import COMPLETED, FAILED, INCOMPLETE
from tui.wire.summary import summary


def test_a_good_stream() -> None:
    outcome = run(good)
    assert [r.state for r in outcome.records] == [COMPLETED] * 4
    assert all(len(r.chunks) == 3 and r.n_out == 3 and r.n_in == 5 for r in outcome.records)
    figures = summary(outcome.records, outcome.begin, outcome.end, concurrency=2)
    assert figures["completed"] == 4
    assert figures["connections"] == 2  # kept alive


def http_503(exchange: Exchange) -> None:
    exchange.plain("503 Service Unavailable", b'{"error":{"message":"overloaded","code":503}}')


def error_not_json(exchange: Exchange) -> None:
    exchange.plain("502 Bad Gateway", b"<html>nginx</html>")


def error_in_a_200(exchange: Exchange) -> None:
    exchange.plain("200 OK", b'{"object":"error","message":"no such model","code":404}')


def not_streamed(exchange: Exchange) -> None:
    exchange.plain("200 OK", b'{"choices":[{"message":{"content":"hi"}}]}')


def reset_before(exchange: Exchange) -> str:
    exchange.reset()
    return "close"


def closed_before(exchange: Exchange) -> str:
    exchange.send(SSE)
    return "close"


def reset_after(exchange: Exchange) -> str:
    exchange.send(SSE)
    exchange.token()
    exchange.token()
    threading.Event().wait(0.05)  # a reset throws away what was not read yet
    exchange.reset()
    return "close"


def cut_after(exchange: Exchange) -> str:
    exchange.send(SSE)
    exchange.token()
    return "close"


def cut_in_an_event(exchange: Exchange) -> str:
    exchange.send(SSE)
    exchange.token()
    exchange.send(b'ff\r\ndata: {"choices": [{"del')
    return "close"


def cut_in_the_first_event(exchange: Exchange) -> str:
    exchange.send(SSE + b"ff\r\ndata: {")
    return "close"


def cut_in_an_event_of_a_body_without_length(exchange: Exchange) -> str:
    exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    exchange.send(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\ndata: {"cho')
    return "close"


UNSIZED = b"HTTP/1.1 413 Too Large\r\nContent-Type: text/plain\r\n\r\ntoo large"


def refused_with_a_reset(exchange: Exchange) -> str:
    exchange.send(UNSIZED)
    threading.Event().wait(0.05)  # a reset throws away what was not read yet
    exchange.reset()
    return "close"


def refused_and_cut(exchange: Exchange) -> str:
    exchange.send(UNSIZED.replace(b"\r\n\r\n", b"\r\nContent-Length: 99\r\n\r\n"))
    return "close"


def ended_without_reason(exchange: Exchange) -> None:
    exchange.send(SSE)
    exchange.token()
    exchange.send(b"0\r\n\r\n")


def error_mid_stream(exchange: Exchange) -> None:
    exchange.send(SSE)
    exchange.token()
    exchange.event({"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "code": 500}})
    exchange.done()


def error_first(exchange: Exchange) -> None:
    exchange.send(SSE)
    exchange.event({"error": {"message": "no"}})
    exchange.done()


def aborted(exchange: Exchange) -> None:
    exchange.send(SSE)
    exchange.token()
    exchange.token("", "abort")
    exchange.done()


def role_only(exchange: Exchange) -> None:
    exchange.send(SSE)
    exchange.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
    exchange.done()


def usage_only(exchange: Exchange) -> None:
    exchange.send(SSE)
    exchange.usage(0)
    exchange.done()


def garbage_event(exchange: Exchange) -> None:
    exchange.send(SSE)
    exchange.chunk(b"data: {not json\n\n")
    exchange.done()


def garbage_http(exchange: Exchange) -> None:
    exchange.send(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")


def bad_chunk(exchange: Exchange) -> None:
    exchange.send(SSE + b"zz\r\ndata: x\r\n")


FAILURES = [
    (http_503, "http_503", "overloaded"),
    (error_not_json, "http_502", "<html>nginx</html>"),
    (error_in_a_200, "error_object", "no such model"),
    (not_streamed, "not_streamed", ""),
    (reset_before, "reset", ""),
    (closed_before, "closed", ""),
    (reset_after, "cut", ""),
    (cut_after, "cut", ""),
    (cut_in_an_event, "cut", "in the middle of the response"),
    (cut_in_the_first_event, "closed", "in the middle of the response"),
    (cut_in_an_event_of_a_body_without_length, "cut", "in the middle of an event"),
    (refused_with_a_reset, "http_413", "too large"),
    (refused_and_cut, "http_413", "too large"),
    (ended_without_reason, "cut", ""),
    (error_mid_stream, "error_object", "EngineCore encountered an issue."),
    (error_first, "error_object", "no"),
    (aborted, "aborted", ""),
    (role_only, "no_token", ""),
    (usage_only, "no_token", ""),
    (garbage_event, "bad_event", ""),
    (garbage_http, "bad_http", ""),
    (bad_chunk, "bad_http", ""),
]


@pytest.mark.parametrize(("script", "kind", "words"), FAILURES, ids=[script.__name__ for script, _, _ in FAILURES])
def test_failures_are_counted_and_in_no_latency(script: Callable[[Exchange], object], kind: str, words: str) -> None:
    """Every second request goes wrong in one way; the others must not feel it."""

    seen: dict[str, int] = {}

    def mixed(exchange: Exchange) -> object:
        # by its prompt: a request that is sent again goes wrong again
        number = seen.setdefault(str(exchange.body["messages"]), len(seen))
        return (script if number % 2 else good)(exchange)

    outcome = run(mixed, {"concurrency": 1, "requests": 4})
    figures = summary(outcome.records, outcome.begin, outcome.end, concurrency=1)
    assert figures["completed"] == 2
    assert figures["failed"] == 2
    assert figures["errors_by_kind"] == {kind: 2}
    assert words in figures["error_examples"][0]["message"]
    assert figures["total_output_tokens"] == 6
    assert figures["p99_ttft_ms"] < 5000


PINGED = b": ping\n\n"


@pytest.mark.parametrize(
    ("before", "drip"),
    [(b"HTTP/1.1 200 OK\r\nX-Slow: ", b"a"), (SSE, b"6\r\ndata: \r\n"), (SSE, b"%x\r\n%b\r\n" % (len(PINGED), PINGED))],
    ids=["head", "event", "comments"],
)
def test_a_stream_that_trickles_stalls(before: bytes, drip: bytes) -> None:
    """Bytes and comments that go on for ever are no reply: the limit counts from the last event that came whole."""

    def trickle(exchange: Exchange) -> str:
        exchange.send(before)
        while True:
            exchange.send(drip)
            exchange.sock.settimeout(0.05)
            try:
                if not exchange.sock.recv(1):
                    return "close"
            except TimeoutError:
                pass

    outcome = run(trickle, {"concurrency": 1, "requests": 1, "stall_s": 0.5, "timeout_s": 10.0})
    assert [(r.kind, r.error) for r in outcome.records] == [("stalled", "no event, though bytes came, for 0.5 s")]


def test_an_event_of_30_megabytes_is_refused_at_once() -> None:
    def huge(exchange: Exchange) -> str:
        exchange.send(SSE)
        exchange.chunk(b"data: " + b"x" * (30 << 20))
        return "close"

    outcome = run(huge, {"concurrency": 1, "requests": 1, "stall_s": 30.0})
    assert [(r.kind, r.error) for r in outcome.records] == [("bad_event", "an event of the stream is larger than 16777216 bytes")]


def test_a_stalled_stream_times_out() -> None:
    def stall(exchange: Exchange) -> str:
        exchange.send(SSE)
        exchange.token()
        exchange.wait_closed()
        return "close"

    outcome = run(stall, {"concurrency": 2, "requests": 2, "stall_s": 0.4})
    assert [r.kind for r in outcome.records] == ["stalled", "stalled"]


def test_a_refused_connection() -> None:
    with scripted(good) as server:
        url = server.url
    outcome = load(url, {"concurrency": 2, "requests": 3})
    assert [r.kind for r in outcome.records] == ["connection_refused"] * 3


def test_without_usage_chunks_are_counted_and_it_is_said() -> None:
    def script(exchange: Exchange) -> None:
        exchange.send(SSE)
        for i in range(3):
            exchange.token("x", "length" if i == 2 else None)
        exchange.done()

    outcome = run(script)
    figures = summary(outcome.records, outcome.begin, outcome.end, concurrency=2)
    assert figures["total_output_tokens"] == 12
    assert figures["without_usage"] == 4


def test_no_done_but_a_finish_reason_is_complete() -> None:
    def script(exchange: Exchange) -> None:
        exchange.send(SSE)
        exchange.token("x", "stop")
        exchange.send(b"0\r\n\r\n")

    assert [r.state for r in run(script).records] == [COMPLETED] * 4


def test_a_body_that_ends_with_the_connection() -> None:
    def script(exchange: Exchange) -> str:
        exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        exchange.send(b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"length"}]}\n\ndata: [DONE]\n\n')
        return "close"

    assert [r.state for r in run(script).records] == [COMPLETED] * 4


def test_the_connection_ends_after_done_without_the_last_chunk() -> None:
    def script(exchange: Exchange) -> str:
        exchange.send(SSE)
        exchange.token("x", "length")
        exchange.usage(1)
        exchange.chunk(b"data: [DONE]\n\n")
        return "close"

    assert [r.state for r in run(script).records] == [COMPLETED] * 4


def test_the_last_chunk_never_comes_after_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.probe.load_loop.LINGER_S", 0.3)

    def script(exchange: Exchange) -> str:
        exchange.send(SSE)
        exchange.token("x", "length")
        exchange.usage(1)
        exchange.chunk(b"data: [DONE]\n\n")
        exchange.wait_closed()
        return "close"

    outcome = run(script, {"concurrency": 2, "requests": 4})
    assert [r.state for r in outcome.records] == [COMPLETED] * 4
    assert max(r.end - r.start for r in outcome.records) < 0.25  # as long as the reply took, not the waiting behind it


@pytest.mark.parametrize("more", [b"\r\n", b"0\r\n\r\n"], ids=["an empty line", "garbage"])
def test_bytes_behind_a_reply_do_not_fail_it(more: bytes) -> None:
    def script(exchange: Exchange) -> None:
        exchange.send(SSE)
        exchange.token("x", "length")
        exchange.chunk(b"data: [DONE]\n\n")
        exchange.send(b"0\r\n\r\n" + more)

    assert [r.state for r in run(script, {"concurrency": 2, "requests": 10}).records] == [COMPLETED] * 10


def test_several_tokens_in_a_chunk_comments_crlf_and_cut_characters() -> None:
    """Three tokens a chunk; comments; CR LF; every byte of a three-byte character in a packet of its own."""

    def script(exchange: Exchange) -> None:
        exchange.send(SSE)
        exchange.chunk(b": ping\r\n\r\n")
        text = 'data: {"choices":[{"delta":{"content":"你好🚀"}}]}\r\n\r\n'.encode()
        for i in range(len(text)):
            exchange.chunk(text[i : i + 1])
        exchange.chunk(
            b'event: x\r\ndata: {"choices":[{"delta":{"content":"a b c"},"finish_reason":"length"}]}\r\n\r\n: ping\r\n\r\n'
        )
        exchange.usage(6)
        exchange.done()

    outcome = run(script, {"concurrency": 1, "requests": 2, "keep_text": True})
    assert [(len(r.chunks), r.n_out, r.text) for r in outcome.records] == [(2, 6, "你好🚀a b c")] * 2
    figures = summary(outcome.records, outcome.begin, outcome.end, concurrency=1)
    assert figures["tokens_per_chunk"] == 3.0


def test_empty_deltas_are_tokens_only_without_a_role() -> None:
    def script(exchange: Exchange) -> None:
        exchange.send(SSE)
        exchange.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        exchange.event({"choices": [{"index": 0, "delta": {}}]})
        exchange.event({"choices": [{"index": 0, "delta": {"content": ""}}]})
        exchange.token("x", "length")
        exchange.usage(2)
        exchange.done()

    assert [len(r.chunks) for r in run(script).records] == [2] * 4


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_is_a_token_and_the_answer_is_timed_apart(field: str) -> None:
    def script(exchange: Exchange) -> None:
        exchange.send(SSE)
        exchange.event({"choices": [{"index": 0, "delta": {field: "hm"}}]})
        threading.Event().wait(0.05)
        exchange.token("x", "stop")
        exchange.usage(2)
        exchange.done()

    outcome = run(script)
    figures = summary(outcome.records, outcome.begin, outcome.end, concurrency=2)
    assert figures["median_first_answer_ms"] >= figures["median_ttft_ms"] + 45


def test_a_tool_call_is_a_token() -> None:
    def script(exchange: Exchange) -> None:
        exchange.send(SSE)
        call = {"index": 0, "function": {"name": "f", "arguments": "{}"}}
        exchange.event({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
        exchange.done()

    assert [len(r.chunks) for r in run(script).records] == [1] * 4


def slow(exchange: Exchange) -> None:
    exchange.send(SSE)
    for i in range(3):
        exchange.token("x", "length" if i == 2 else None)
        threading.Event().wait(0.15)
    exchange.usage(3)
    exchange.done()


def test_a_request_cut_by_the_end_of_the_duration_is_incomplete() -> None:
    outcome = run(slow, {"concurrency": 2, "duration_s": 0.7})
    figures = summary(outcome.records, outcome.begin, outcome.end, concurrency=2, dispatch_end=outcome.dispatch_end)
    assert figures["failed"] == 0
    assert figures["incomplete"] == 2
    assert figures["completed"] == 2
    assert figures["duration"] < 2.0


def test_stopping_closes_every_request_at_once() -> None:
    seen: list[int] = []

    def endless(exchange: Exchange) -> str:
        exchange.send(SSE)
        exchange.token()
        seen.append(exchange.number)
        exchange.wait_closed()
        return "close"

    with scripted(endless) as server:
        outcome = load(server.url, {"concurrency": 3, "requests": 6}, stopping=lambda: len(seen) == 3)
        assert [r.state for r in outcome.records] == [INCOMPLETE] * 3
        assert outcome.stopped == "stopped"
        until(lambda: server.open == 0)


def test_stopping_while_connections_open_sends_nothing() -> None:
    asked: list[int] = []

    def script(exchange: Exchange) -> None:
        asked.append(exchange.number)
        exchange.reply()

    looks = iter([False])  # the second look, when connections are open, and each after it says stop
    with scripted(script) as server:
        outcome = load(server.url, {"concurrency": 3, "requests": 6}, stopping=lambda: next(looks, True))
        until(lambda: server.open == 0)
    assert (outcome.records, outcome.stopped, asked) == ([], "stopped", [])


def test_a_connection_that_the_server_closed_while_idle_is_no_failure() -> None:
    """The server answers once on each connection, says nothing of closing, and closes when the next request comes."""

    def script(exchange: Exchange) -> object:
        return "close" if exchange.on_connection else good(exchange)

    outcome = run(script, {"concurrency": 1, "requests": 4})
    assert [r.state for r in outcome.records] == [COMPLETED] * 4
    assert [r.retried for r in outcome.records] == [False, True, True, True]


def test_a_request_is_sent_again_only_once() -> None:
    def script(exchange: Exchange) -> object:
        return good(exchange) if exchange.number == 0 else "close"

    outcome = run(script, {"concurrency": 1, "requests": 2})
    assert [r.state for r in outcome.records] == [COMPLETED, FAILED]
    assert outcome.records[1].kind == "closed"


def test_an_idle_connection_is_not_used_again_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.probe.load_connections.IDLE_LIMIT_S", 0.3)
    with scripted(good) as server:
        outcome = load(server.url, {"schedule": [0.0, 0.6], "concurrency": None})
        assert [r.state for r in outcome.records] == [COMPLETED] * 2
        assert outcome.records[1].connect_s is not None
        assert not outcome.records[1].retried


def test_an_open_loop_keeps_its_schedule_although_the_server_is_slow() -> None:
    schedule = [0.05 * i for i in range(8)]
    outcome = run(slow, {"schedule": schedule})
    assert [r.state for r in outcome.records] == [COMPLETED] * 8
    figures = summary(outcome.records, outcome.begin, outcome.end)
    assert figures["peak_concurrency"] > 4
    assert figures["p99_schedule_slip_ms"] < 1000


def test_a_gated_open_loop_waits_at_its_gate() -> None:
    outcome = run(slow, {"schedule": [0.0] * 4, "gate": 2})
    figures = summary(outcome.records, outcome.begin, outcome.end)
    assert figures["completed"] == 4
    assert figures["peak_concurrency"] == 2


def test_every_request_failing_gives_up() -> None:
    outcome = run(http_503, {"concurrency": 2, "at_least": 100000, "at_least_s": 60.0, "max_failures": 10})
    assert "one after the other" in outcome.stopped
    assert 10 < len(outcome.records) < 20


def test_a_server_that_closes_after_each_reply_gets_new_connections() -> None:
    def script(exchange: Exchange) -> str:
        exchange.send(SSE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        exchange.token("x", "length")
        exchange.usage(1)
        exchange.done()
        return "close"

    outcome = run(script, {"concurrency": 2, "requests": 6})
    assert [r.state for r in outcome.records] == [COMPLETED] * 6
    figures = summary(outcome.records, outcome.begin, outcome.end, concurrency=2)
    assert figures["connections"] == 6
    assert figures["retried"] == 0


def test_a_staggered_start_is_no_burst() -> None:
    outcome = run(slow, {"concurrency": 4, "requests": 4, "stagger_s": 0.4})
    starts = sorted(r.start for r in outcome.records)
    assert [r.state for r in outcome.records] == [COMPLETED] * 4
    assert starts[-1] - starts[0] > 0.25


def test_prompts_are_unique() -> None:
    seen: list[str] = []

    def script(exchange: Exchange) -> None:
        seen.append(exchange.body["messages"][0]["content"])
        exchange.reply()

    run(script, {"concurrency": 2, "requests": 20}, input_tokens=64)
    assert len({text[:40] for text in seen}) == 20
