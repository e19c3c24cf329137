"""The simulated server's HTTP endpoint against what a real vLLM answered to the same bytes, and under load."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sshd import eventually

from tui.aio import ended
from tui.simulator.endpoint import SimulatedEndpoint
from tui.simulator.scenarios import Model, Scenario

DATA = Path(__file__).parents[1] / "data" / "http"
TINY = Model(path="/models/tiny", name="/models/tiny", max_model_len=4096)
EXACT = (
    "error-unknown-model",
    "error-max-tokens-0",
    "error-max-tokens-too-large",
    "error-temperature",
    "error-bad-json",
    "error-empty-body",
    "error-empty-messages",
    "error-wrong-type",
    "error-missing-messages",
    "error-completions-no-prompt",
    "error-context-too-long",
    "error-method",
    "error-text-plain",
    "get-health",
    "get-ping",
    "get-load",
    "get-not-found",
)


@contextlib.asynccontextmanager
async def serving(model: Model = TINY, **changes: Any) -> AsyncIterator[tuple[SimulatedEndpoint, int]]:
    lines: list[tuple[str, int]] = []
    endpoint = SimulatedEndpoint(
        Scenario("test", "", model=model, **changes), lambda client, request, status: lines.append((request, status))
    )
    await endpoint.open(0)
    batching = asyncio.create_task(endpoint.engine.run())
    assert endpoint._server is not None
    try:
        yield endpoint, endpoint._server.sockets[0].getsockname()[1]
    finally:
        endpoint.close()
        await ended(batching)
        await eventually(lambda: not endpoint._connections, what="the end of its connections")


async def exchanged(port: int, request: bytes) -> tuple[list[bytes], bytes]:
    """Return the header lines and the body of the answer to raw bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        body = await reader.readexactly(int(length[1])) if length else b""
    finally:
        writer.close()
        await writer.wait_closed()
    return head.strip().split(b"\r\n"), body


def without_date(head: list[bytes]) -> set[bytes]:
    return {line for line in head if not line.startswith(b"date:")}


@pytest.mark.parametrize("name", EXACT)
async def test_answers_are_a_real_servers_to_the_byte(name: str) -> None:
    head, _, body = (DATA / f"{name}.response").read_bytes().partition(b"\r\n\r\n")
    async with serving() as (_, port):
        answered = await exchanged(port, (DATA / f"{name}.request").read_bytes())
    assert answered[1] == body
    assert without_date(answered[0]) == without_date(head.split(b"\r\n"))


@pytest.mark.parametrize("name", ["error-no-auth", "error-wrong-auth"])
async def test_a_key_is_demanded_in_a_real_servers_words(name: str) -> None:
    head, _, body = (DATA / f"{name}.response").read_bytes().partition(b"\r\n\r\n")
    async with serving(api_key="sk-right") as (_, port):
        answered = await exchanged(port, (DATA / f"{name}.request").read_bytes())
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers={"Authorization": "Bearer sk-right"}) as client:
            assert (await client.get("/v1/models")).status_code == 200
            assert (await client.get("/health", headers={"Authorization": ""})).status_code == 200
    assert answered[1] == body
    assert without_date(answered[0]) == without_date(head.split(b"\r\n"))


def events(text: str) -> list[Any]:
    payloads = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [payload if payload == "[DONE]" else json.loads(payload) for payload in payloads]


def shape(event: Any) -> Any:
    """Keys of an event, and those of its first choice and its delta."""
    if not isinstance(event, dict):
        return event
    choices = event.get("choices", [])
    choice = choices[0] if choices else {}
    return frozenset(event), frozenset(choice), frozenset(choice.get("delta", {})), choice.get("finish_reason")


@pytest.mark.parametrize(
    ("name", "path", "body", "model"),
    [
        ("chat-stream-usage", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Say hello."}]}, TINY),
        (
            "chat-stream-reasoning",
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "hi"}]},
            Model(path="/models/tiny", name="/models/tiny", max_model_len=4096, reasoning=True),
        ),
        ("completions-stream", "/v1/completions", {"prompt": "Once upon a time"}, TINY),
    ],
)
async def test_streams_have_a_real_servers_shape(name: str, path: str, body: dict[str, Any], model: Model) -> None:
    recorded = (DATA / f"{name}.response").read_bytes().partition(b"\r\n\r\n")[2].decode()
    wanted = [shape(event) for event in events(recorded)]
    async with serving(model) as (_, port), httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        asked = {**body, "max_tokens": 4, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
        answer = await client.post(path, json=asked)
    got = [shape(event) for event in events(answer.text)]
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert got[0] == wanted[0]
    assert got[1] == wanted[1]
    assert got[-3:] == wanted[-3:]
    usage = events(answer.text)[-2]["usage"]
    assert usage["completion_tokens"] == 4
    assert usage["total_tokens"] == usage["prompt_tokens"] + 4


async def test_many_streams_at_once_and_what_the_metrics_say_of_them() -> None:
    async with serving() as (endpoint, port):
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", limits=limits, timeout=60) as client:

            async def ask(number: int) -> int:
                body = {
                    "messages": [{"role": "user", "content": f"{number} hello"}],
                    "max_tokens": 8,
                    "ignore_eos": True,
                    "stream": True,
                }
                answer = await client.post("/v1/chat/completions", json=body)
                heard = events(answer.text)
                assert heard[-1] == "[DONE]"
                assert heard[-2]["choices"][0]["finish_reason"] == "length"
                return len(heard) - 2

            tokens = await asyncio.gather(*(ask(number) for number in range(64)))
            metrics = (await client.get("/metrics")).text
        assert tokens == [8] * 64
        assert 'vllm:generation_tokens_total{engine="0",model_name="/models/tiny"} 512.0' in metrics
        assert 'vllm:request_success_total{engine="0",finished_reason="length",model_name="/models/tiny"} 64.0' in metrics
        assert 'vllm:num_requests_running{engine="0",model_name="/models/tiny"} 0.0' in metrics
        assert endpoint.engine.running == 0


async def test_hanging_up_ends_the_generation() -> None:
    async with serving() as (endpoint, port), httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4000, "ignore_eos": True, "stream": True}
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                if "content" in line and endpoint.engine.running:
                    break
        async with asyncio.timeout(5):
            await endpoint.engine.drained()
        assert b'finished_reason="abort",model_name="/models/tiny"} 1.0' in endpoint.metrics.exposition()


async def test_a_repeated_prompt_is_found_in_the_cache() -> None:
    async with serving() as (_, port), httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        body = {"prompt": "the same words again and again " * 40, "max_tokens": 1}
        first, second = [(await client.post("/v1/completions", json=body)).json()["usage"] for _ in range(2)]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["prompt_tokens_details"]["cached_tokens"] >= 192


async def test_the_engines_death_reaches_every_stream() -> None:
    async with serving() as (endpoint, port), httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4000, "ignore_eos": True, "stream": True}
        heard = []
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                heard.append(line)
                if len(heard) == 8:
                    endpoint.engine.die()
        recorded = (DATA / "chat-stream-kill9-EngineCore.response").read_bytes().decode("utf-8", "replace")
        assert next(line for line in reversed(heard) if "error" in line) in recorded
        assert events("\n".join(heard))[-1] == "[DONE]"
        assert (await client.get("/health")).status_code == 503
        assert (await client.post("/v1/chat/completions", json=body)).status_code == 500
