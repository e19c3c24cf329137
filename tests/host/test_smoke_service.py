"""The smoke run against a real socket: right answers, gibberish, a base model, a dead server."""

import asyncio
import contextlib
import json
import random
import string
from contextlib import aclosing
from typing import Any

import pytest
from replay import SSE_HEAD, Asked, Replay, answer, client, event, recorded, replay, reply
from test_chat_service import NO_CHAT

from tui.core.smoke_prompts import Outcome, SmokeRun
from tui.host.api import ApiError
from tui.services.smoke_run import run_smoke
from tui.settings import SmokeSettings

RAIN = (
    "Rain forms when water vapor in the air cools and condenses into tiny droplets. The droplets gather into clouds, grow, and "
    "fall when they are too heavy."
)
OBJECT = '{"name": "Ada", "born": 1815, "tags": ["math", "engine"]}'


def sane(asked: str) -> str:
    if "17 × 23" in asked:
        return "17 × 23 = **391**"
    if "9.11" in asked:
        return "9.9 is larger."
    if "Australia" in asked:
        return "Canberra"
    if "JSON" in asked:
        return f"```json\n{OBJECT}\n```"
    if "access word" in asked:
        return "heron-4817" if "heron-4817" in asked else "none"
    return RAIN


def models(length: int | None = 131072) -> bytes:
    return reply(200, {"data": [{"id": "m", "object": "model", "max_model_len": length}]})


def chatting(one: Asked) -> bytes:
    if one.path == "/v1/models":
        return models()
    return answer(sane(one.body["messages"][-1]["content"]))


async def smoke(server: Replay, **settings: Any) -> tuple[SmokeRun, list[SmokeRun]]:
    async with client(server) as api, aclosing(run_smoke(api, model="m", settings=SmokeSettings(**settings))) as states:
        runs = [run async for run in states]
    assert runs[-1].finished
    return runs[-1], runs


async def test_a_sane_model_passes() -> None:
    async with replay(chatting) as server:
        run, runs = await smoke(server)
    assert run.passed, run.results
    assert [result.name for result in run.results] == ["arithmetic", "comparison", "fact", "format", "long context", "coherence"]
    assert [len(smoke.results) for smoke in runs] == [0, 1, 2, 3, 4, 5, 6, 6]
    assert all(result.ttft_ms is not None and result.seconds is not None for result in run.results)
    bodies = [request.body for request in server.asked if request.path != "/v1/models"]
    assert {body["max_tokens"] for body in bodies} == {4096}
    assert 4000 < len(bodies[4]["messages"][0]["content"].split()) < 7000


async def test_a_short_context_is_respected() -> None:
    async with replay(lambda one: models(2048) if one.path == "/v1/models" else chatting(one)) as server:
        run, _ = await smoke(server)
    assert run.passed
    for request in server.asked[1:]:
        text = request.body["messages"][0]["content"]
        assert len(text) / 3 + request.body["max_tokens"] < 2048


async def test_random_weights_fail_as_incoherent() -> None:
    async with replay(lambda one: models() if one.path == "/v1/models" else recorded("chat-stream-utf8")) as server:
        run, _ = await smoke(server)
    assert run.count(Outcome.FAILED) == 6
    assert all("incoherent" in result.says for result in run.results)


async def test_nonsense_without_end_is_not_waited_for() -> None:
    ended = asyncio.Semaphore(0)

    async def endless(one: Asked, writer: Any) -> None:
        writer.write(SSE_HEAD)
        chance = random.Random(len(one.body["messages"][0]["content"]))
        try:
            while not one.left.is_set():
                writer.write(event({"content": "".join(chance.choices(string.ascii_lowercase, k=chance.randint(3, 9))) + " "}) * 4)
                await writer.drain()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(one.left.wait(), 0.002)
        finally:
            ended.release()

    async with replay(lambda one: models() if one.path == "/v1/models" else endless) as server:
        run, _ = await smoke(server)
        async with asyncio.timeout(5):
            for _ in run.results:
                await ended.acquire()
    assert run.count(Outcome.FAILED) == 6
    assert all("incoherent" in result.says and len(result.reply) > 1200 for result in run.results)


async def test_a_base_model_is_asked_to_continue() -> None:
    def route(one: Asked) -> bytes:
        if one.path == "/v1/models":
            return models()
        if one.path == "/v1/chat/completions":
            return reply(400, {"error": {"message": NO_CHAT, "code": 400}})
        text = " " + sane(one.body["prompt"]) + "\n\nQuestion: What is 3 + 3?\nAnswer: 6"
        chunk = {"choices": [{"index": 0, "text": text, "finish_reason": "length"}]}
        return SSE_HEAD + b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n"

    async with replay(route) as server:
        run, _ = await smoke(server)
    assert [result.name for result in run.results] == ["arithmetic", "fact", "long context", "coherence"]
    assert run.passed, run.results
    assert server.paths().count("/v1/chat/completions") == 1


async def test_cut_replies_are_inconclusive() -> None:
    def route(one: Asked) -> bytes:
        return (
            models() if one.path == "/v1/models" else answer("Let me think about that for a moment and", "length", completion=4096)
        )

    async with replay(route) as server:
        run, _ = await smoke(server)
    assert run.count(Outcome.INCONCLUSIVE) == 6
    assert not run.passed
    assert "4,096 tokens" in run.results[0].says


async def test_a_slow_reply_is_cut_by_its_time() -> None:
    async def slow(one: Asked, writer: Any) -> None:
        writer.write(answer("Let me think").removesuffix(b"data: [DONE]\n\n")[:600])
        await one.left.wait()

    async with replay(lambda one: models() if one.path == "/v1/models" else slow) as server:
        run, _ = await smoke(server, timeout_s=0.3)
    assert {result.outcome for result in run.results} == {Outcome.INCONCLUSIVE}
    assert "time was up" in run.results[0].says


async def test_a_dying_server_ends_the_run() -> None:
    def route(one: Asked) -> bytes:
        if len(server.asked) > 3:
            return b""
        return chatting(one)

    async with replay(route) as server:
        run, _ = await smoke(server)
    assert [result.outcome for result in run.results] == [Outcome.PASSED, Outcome.PASSED, Outcome.FAILED]
    assert not run.passed


async def test_nobody_there_and_no_key() -> None:
    async with replay(lambda _: b"") as server:
        pass
    with pytest.raises(ApiError, match="nothing listens"):
        await smoke(server)
    async with replay(lambda _: recorded("error-no-auth-chat")) as server:
        with pytest.raises(ApiError, match="API key"):
            await smoke(server)
