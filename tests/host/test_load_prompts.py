"""Prompts of an exact length without a local tokenizer, and bodies that the server takes."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from scripted_server import SSE, Exchange, Scripted, scripted

from tui.probe.load_http import target_of
from tui.probe.load_net import resolve
from tui.probe.load_preflight import fit_longest, settle_fields
from tui.probe.load_prompts import PlanRefused, Prompts, TokenLengths, settle_lengths
from tui.probe.load_server import ApiCaller

TEMPLATE = 7
"""Tokens that this server's chat template adds."""


def tokens(text: str) -> list[str]:
    """Split a text like a tokenizer with a small vocabulary: words of more than five letters become several tokens."""
    return re.findall(r" ?[A-Za-z]{1,5}|[^A-Za-z ]| ", text)


def count(body: dict[str, Any]) -> int:
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        return len(prompt)
    if isinstance(prompt, str):
        return len(tokens(prompt))
    return len(tokens(body["messages"][0]["content"])) + TEMPLATE


def with_tokenizer(server: Scripted) -> Callable[[Exchange], None]:
    original = server.single

    def single(exchange: Exchange) -> None:
        if exchange.path == "/tokenize":
            n = count(exchange.body)
            exchange.plain("200 OK", json.dumps({"count": n, "tokens": list(range(20, 20 + n))}).encode())
        elif exchange.path.endswith("completions"):
            usage = {"prompt_tokens": count(exchange.body), "completion_tokens": 1}
            exchange.plain("200 OK", json.dumps({"choices": [{}], "usage": usage}).encode())
        else:
            original(exchange)

    return single


def plan(url: str, **more: Any) -> dict[str, Any]:
    return {"url": url, "endpoint": "chat", "model": "m", "input_tokens": 300, "output_tokens": 9, "seed": "s", **more}


def caller(url: str) -> ApiCaller:
    target = target_of(url)
    return ApiCaller(target, resolve(target), None, {}, "0")


def bodies(fields: dict[str, Any], numbers: range) -> list[dict[str, Any]]:
    """Return what the load generator would send to a server with that tokenizer."""
    with scripted(lambda exchange: exchange.reply()) as server:
        server.answer = with_tokenizer(server)
        asked = plan(server.url, **fields)
        with caller(server.url) as client:
            taken, notes = settle_fields(client, asked)
            lengths, more = settle_lengths(client, asked, taken)
        assert notes == []
        assert more == []
        prompts = Prompts(asked, lengths, taken)
        return [json.loads(prompts.body(number)[0]) for number in numbers]


@pytest.mark.parametrize("wanted", [20, 60, 300, 2000])
@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_lengths_are_exact(endpoint: str, wanted: int) -> None:
    made = bodies({"endpoint": endpoint, "input_tokens": wanted}, range(20))
    assert {count(body) for body in made} == {wanted}
    assert len({json.dumps(body) for body in made}) == 20


def test_token_ids_are_as_many_as_asked_for() -> None:
    made = bodies({"endpoint": "completions", "style": "tokens", "input_tokens": 64}, range(5))
    assert {len(body["prompt"]) for body in made} == {64}
    assert len({tuple(body["prompt"][:8]) for body in made}) == 5


def test_a_shared_prefix_comes_on_top_and_is_the_same_for_all() -> None:
    made = bodies({"endpoint": "completions", "input_tokens": 64, "shared_prefix": 100}, range(5))
    assert {count(body) for body in made} == {164}
    prefix = " ".join(made[0]["prompt"].split(" ")[:40])
    assert all(body["prompt"].startswith(prefix) for body in made)
    assert len({body["prompt"] for body in made}) == 5


def test_another_run_has_other_prompts() -> None:
    one, other = (bodies({"seed": seed}, range(1))[0]["messages"][0]["content"] for seed in ("a", "b"))
    assert one[:30] != other[:30]


def test_bodies_ask_for_the_whole_reply_and_usage() -> None:
    (body,) = bodies({"extra_body": {"temperature": 0}}, range(1))
    assert body["max_tokens"] == 9
    assert "min_tokens" not in body  # it would cost the server a step of its own at every token
    assert body["ignore_eos"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert body["temperature"] == 0


def test_without_a_tokenizer_usage_calibrates_within_a_few_per_cent() -> None:
    with scripted(lambda exchange: exchange.reply()) as server:
        tokenizing = with_tokenizer(server)

        def single(exchange: Exchange) -> None:
            if exchange.path == "/tokenize":
                exchange.plain("404 Not Found", b"{}")
            else:
                tokenizing(exchange)

        server.answer = single
        asked = plan(server.url, input_tokens=800)
        with caller(server.url) as client:
            lengths, notes = settle_lengths(client, asked, {})
        prompts = Prompts(asked, lengths, {})
        counts = [count(json.loads(prompts.body(number)[0])) for number in range(20)]
    assert "within a few per cent" in notes[0]
    assert abs(sum(counts) / 20 - 800) < 800 * 0.06


def tokens_of_odd_words(body: dict[str, Any]) -> int:
    """Count tokens as some tokenizers do: long words are two or three tokens, and so is one with a full stop."""
    text = body["messages"][0]["content"] if "messages" in body else body["prompt"]
    return TEMPLATE + sum(1 + (len(w) > 6) + (len(w) > 9) + (w[-1:] in ".,;:") for w in text.split())


@pytest.mark.parametrize("counter", [count, tokens_of_odd_words])
@pytest.mark.parametrize("endpoint", ["chat", "completions"])
@pytest.mark.parametrize("prefix", [0, 500])
def test_without_a_tokenizer_no_prompt_passes_the_longest_length(
    counter: Callable[[dict[str, Any]], int], endpoint: str, prefix: int
) -> None:
    """Whatever the seed: the server counts one prompt near it first."""
    wanted = 4016 - prefix

    def single(exchange: Exchange) -> None:
        if exchange.path == "/tokenize":
            exchange.plain("404 Not Found", b"{}")
        else:
            usage = {"prompt_tokens": counter(exchange.body), "completion_tokens": 1}
            exchange.plain("200 OK", json.dumps({"choices": [{}], "usage": usage}).encode())

    off = []
    with scripted(lambda exchange: exchange.reply()) as server, caller(server.url) as client:
        server.answer = single
        for seed in range(12):
            asked = plan(server.url, endpoint=endpoint, seed=str(seed), shared_prefix=prefix)
            lengths, _ = settle_lengths(client, asked, {})
            known, aim = fit_longest(client, asked, {}, lengths.known, wanted)
            prompts = Prompts(dict(asked, input_tokens=aim), TokenLengths(known), {})
            off += [counter(json.loads(prompts.body(number)[0])) - 4016 for number in range(4)]
    assert max(off) <= 64  # the margin that a plan leaves
    assert min(off) >= -0.06 * 4016


@pytest.mark.parametrize(
    ("status", "reply", "aim"),
    [
        ("400 Bad Request", b'{"error":{"message":"maximum context length is 4096 tokens"}}', 2000),
        ("200 OK", b'{"choices":[{}]}', 2000),
        ("200 OK", b'{"choices":[{}],"usage":{"prompt_tokens":null}}', 2000),
    ],
)
def test_where_nothing_is_counted_half_of_the_longest_length_is_tried(status: str, reply: bytes, aim: int) -> None:
    with scripted(lambda exchange: exchange.reply()) as server, caller(server.url) as client:
        server.answer = lambda exchange: exchange.plain(status, reply)
        asked = plan(server.url)
        lengths, _ = settle_lengths(client, asked, {})
        assert fit_longest(client, asked, {}, lengths.known, 4000) == (lengths.known, aim)


def test_a_template_that_tokenize_does_not_tell_is_seen_at_the_longest_length() -> None:
    with scripted(lambda exchange: exchange.reply()) as server, caller(server.url) as client:
        tokenizing = with_tokenizer(server)

        def single(exchange: Exchange) -> None:
            if exchange.path == "/tokenize" and "messages" in exchange.body:
                exchange.plain("400 Bad Request", b"{}")
            else:
                tokenizing(exchange)

        server.answer = single
        asked = plan(server.url)
        lengths, notes = settle_lengths(client, asked, {})
        assert "longer by the chat template" in notes[0]
        known, aim = fit_longest(client, asked, {}, lengths.known, 4000)
        prompts = Prompts(dict(asked, input_tokens=aim), TokenLengths(known), {})
        counts = [count(json.loads(prompts.body(number)[0])) for number in range(4)]
    assert 3980 <= max(counts) <= 4000


def refusing(*words: str) -> Callable[[Exchange], None]:
    """Serve, but reject every request with one of those fields."""

    def single(exchange: Exchange) -> None:
        if any(word in exchange.body for word in words):
            exchange.plain("400 Bad Request", b'{"error":{"message":"Unrecognized request argument"}}')
        else:
            exchange.plain("200 OK", b'{"choices":[{}],"usage":{"prompt_tokens":4,"completion_tokens":4}}')

    return single


@pytest.mark.parametrize(
    ("fields_refused", "kept", "words"),
    [
        (("ignore_eos",), {"max_tokens", "stream", "stream_options", "min_tokens"}, "ignore_eos is not accepted, min_tokens is"),
        (("ignore_eos", "min_tokens"), {"max_tokens", "stream", "stream_options"}, "ignore_eos is not accepted: replies may end"),
        (("max_tokens",), {"max_completion_tokens", "stream", "stream_options"}, "max_tokens is accepted"),
    ],
)
def test_fields_that_a_server_rejects_are_left_out_and_said(fields_refused: tuple[str, ...], kept: set[str], words: str) -> None:
    with scripted(lambda exchange: exchange.reply()) as server:
        server.answer = refusing(*fields_refused)
        with caller(server.url) as client:
            fields, notes = settle_fields(client, plan(server.url))
    assert set(fields) == kept
    assert words in notes[0]


SAID = b'{"error":{"message":"Unrecognized request argument supplied: stream_options"}}'


def refuses_plainly(exchange: Exchange) -> None:
    exchange.plain("400 Bad Request", SAID)


def refuses_as_an_event(exchange: Exchange) -> None:
    exchange.send(SSE)
    exchange.event(json.loads(SAID))
    exchange.done()


@pytest.mark.parametrize("refuse", [refuses_plainly, refuses_as_an_event])
@pytest.mark.parametrize(
    ("others", "kept", "notes"),
    [
        ((), {"max_tokens", "stream", "ignore_eos"}, ["stream_options are not"]),
        (
            ("ignore_eos", "min_tokens"),
            {"max_tokens", "stream"},
            ["ignore_eos is not accepted: replies may", "stream_options are not"],
        ),
        (("max_tokens",), {"max_completion_tokens", "stream"}, ["max_tokens is accepted", "stream_options are not"]),
    ],
)
def test_stream_options_that_a_server_rejects_are_left_out_and_said(
    refuse: Callable[[Exchange], None], others: tuple[str, ...], kept: set[str], notes: list[str]
) -> None:
    """It must be asked with a stream: vLLM rejects them without one, and this server doesn't look at them then."""

    def single(exchange: Exchange) -> None:
        if exchange.body.get("stream") and "stream_options" in exchange.body:
            refuse(exchange)
        elif exchange.body.get("stream") and not any(word in exchange.body for word in others):
            exchange.reply(1)
        else:
            refusing(*others)(exchange)

    with scripted(lambda exchange: exchange.reply()) as server, caller(server.url) as client:
        server.answer = single
        fields, said = settle_fields(client, plan(server.url))
    assert set(fields) == kept
    assert len(said) == len(notes)
    assert all(words in note for words, note in zip(notes, said, strict=True))


def test_a_server_that_takes_nothing_says_why() -> None:
    def single(exchange: Exchange) -> None:
        exchange.plain("404 Not Found", b'{"error":{"message":"The model `m` does not exist."}}')

    with scripted(lambda exchange: exchange.reply()) as server:
        server.answer = single
        with caller(server.url) as client, pytest.raises(PlanRefused, match="does not exist") as caught:
            settle_fields(client, plan(server.url))
    assert caught.value.kind == "http_404"
