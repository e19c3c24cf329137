"""`converse` against a real socket that replays what real vLLM servers sent."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from replay import SSE_HEAD, Asked, Replay, answer, client, event, recorded, replay, reply

from tui.core.conversation import NO_TEMPLATE, Conversation, Turn
from tui.services.chat_turn import converse

NO_CHAT = (
    "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if the tokenizer "
    "does not define one."
)


async def ask(server: Replay, conversation: Conversation | None = None, **options: Any) -> tuple[Turn, list[Turn]]:
    async with (
        client(server) as api,
        aclosing(converse(api, conversation or Conversation(), "Hi?", model="m", **options)) as values,
    ):
        turns = [turn async for turn in values]
    assert all(turn.streaming for turn in turns[:-1])
    assert not turns[-1].streaming
    return turns[-1], turns


async def test_a_recorded_reply_with_usage() -> None:
    async with replay(lambda _: recorded("chat-stream-usage")) as server:
        turn, turns = await ask(server)
    assert turn.reply == "ckle set CONFIG leftover list commandsOW specificationbangnb PATHubyte exists successWait %"
    assert (turn.finish, turn.error, turn.note) == ("length", None, None)
    assert (turn.usage.prompt_tokens, turn.usage.completion_tokens) == (25, 16)
    assert turn.ttft_ms is not None
    assert turn.seconds is not None
    assert turn.seconds * 1000 >= turn.ttft_ms > 0
    assert turns[0] == Turn(asked="Hi?")
    body = server.asked[0].body
    assert body["messages"] == [{"role": "user", "content": "Hi?"}]
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert "max_tokens" not in body


async def test_a_server_that_refuses_the_options_is_asked_for_less() -> None:
    def route(asked: Asked) -> bytes:
        options = asked.body.get("stream_options", {})
        if "continuous_usage_stats" in options:
            return reply(400, {"error": {"message": "Unknown parameter: 'stream_options.continuous_usage_stats'."}})
        if options:
            return reply(422, {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]})
        return recorded("chat-stream-usage")

    async with replay(route) as server:
        turn, _ = await ask(server)
    assert (turn.finish, turn.error) == ("length", None)
    assert [request.body.get("stream_options") for request in server.asked] == [
        {"include_usage": True, "continuous_usage_stats": True},
        {"include_usage": True},
        None,
    ]


async def test_what_was_refused_is_not_asked_for_again_in_the_conversation() -> None:
    def route(asked: Asked) -> bytes:
        if "continuous_usage_stats" in asked.body.get("stream_options", {}):
            return reply(400, {"error": {"message": "Unknown parameter: 'stream_options.continuous_usage_stats'."}})
        return recorded("chat-stream-usage")

    async with replay(route) as server:
        first, _ = await ask(server)
        second, _ = await ask(server, Conversation().answered(first))
    assert second.error is None
    assert len(server.asked) == 3


async def test_a_refusal_for_another_reason_is_not_tried_again() -> None:
    async with replay(lambda _: reply(400, {"error": {"message": "maximum context length is 4096 tokens"}})) as server:
        turn, _ = await ask(server)
    assert turn.error is not None
    assert len(server.asked) == 1


async def test_reasoning_of_a_parser_stands_apart() -> None:
    async with replay(lambda _: recorded("chat-stream-reasoning")) as server:
        turn, _ = await ask(server)
    assert turn.reply == ""
    assert turn.reasoning == "'tpendCancelledErrorancelled=\"#iven Systemrays"
    assert turn.thought_s is not None
    assert turn.usage.reasoning_tokens is None  # the server says 0 beside 8 tokens of it: no measurement


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_both_names_of_reasoning(field: str) -> None:
    def route(_: Asked) -> bytes:
        return (
            SSE_HEAD
            + event({"role": "assistant"})
            + event({field: "Hm."})
            + event({"content": "Yes."}, "stop")
            + b"data: [DONE]\n\n"
        )

    async with replay(route) as server:
        turn, _ = await ask(server)
    assert (turn.reasoning, turn.reply, turn.finish) == ("Hm.", "Yes.", "stop")


async def test_utf8_cut_by_chunks_arrives_whole() -> None:
    async with replay(lambda _: recorded("chat-stream-utf8")) as server:
        turn, _ = await ask(server)
    assert turn.finish == "length"
    assert turn.chunks > 100


@pytest.mark.parametrize(
    ("name", "words", "begins"),
    [
        ("chat-stream-kill9-EngineCore", "EngineCore encountered an issue", "DLE ACK"),
        ("chat-stream-kill9-APIServer", "closed", "DLE ACK"),
        ("error-context-too-long", "maximum context length is 4096 tokens", ""),
        ("error-unknown-model-stream", "does not exist", ""),
        ("error-no-auth-chat", "API key", ""),
        ("chat-after-kill9-Worker", "EngineCore encountered an issue", ""),
        ("error-max-tokens-too-large", "cannot be greater than max_model_len=4096", ""),
        ("error-wrong-type", "int_parsing", ""),
    ],
)
async def test_errors_of_real_servers_are_in_the_turn_beside_what_came_before(name: str, words: str, begins: str) -> None:
    async with replay(lambda _: recorded(name)) as server:
        turn, _ = await ask(server)
    assert turn.error is not None
    assert words in turn.error
    assert turn.reply.startswith(begins)
    assert len(server.asked) == 1
    assert "sk-of-this-test" not in turn.error


async def test_an_aborted_stream_says_so() -> None:
    async with replay(lambda _: recorded("chat-stream-sigterm-streaming")) as server:
        turn, _ = await ask(server)
    assert (turn.finish, turn.error) == ("abort", None)


async def test_nothing_listens() -> None:
    async with replay(lambda _: b"") as server:
        pass
    turn, _ = await ask(server)
    assert turn.error is not None
    assert "nothing listens" in turn.error


async def test_a_reply_that_is_no_http() -> None:
    async with replay(lambda _: b"\x16\x03\x01 hello\r\n\r\n") as server:
        turn, _ = await ask(server)
    assert turn.error


@pytest.mark.parametrize(
    "refusal",
    [
        reply(400, {"error": {"message": NO_CHAT, "type": "BadRequestError", "param": None, "code": 400}}),
        reply(400, {"object": "error", "message": NO_CHAT, "type": "BadRequestError", "code": 400}),
        reply(400, {"error": "Cannot use chat template functions because tokenizer.chat_template is not set and no template"}),
        reply(500, {"error": {"message": "The model does not support Chat Completions API", "type": "NotImplementedError"}}),
        SSE_HEAD + b'data: {"error": {"message": "' + NO_CHAT.encode() + b'", "code": 400}}\n\ndata: [DONE]\n\n',
    ],
)
async def test_a_model_without_a_chat_template_is_asked_for_a_completion(refusal: bytes) -> None:
    async with replay(lambda one: recorded("completions-stream") if one.path == "/v1/completions" else refusal) as server:
        turn, turns = await ask(server, Conversation(system="A tale."))
        assert turn.error is None
        assert turn.note == NO_TEMPLATE
        assert turn.reply.startswith("handlers1234567890")
        assert turn.usage.completion_tokens == 12
        assert server.paths() == ["/v1/chat/completions", "/v1/completions"]
        assert server.asked[1].body["prompt"] == "A tale.\n\nHi?"
        assert server.asked[1].body["max_tokens"] > 16

        again, _ = await ask(server, Conversation().answered(turn))
        assert again.note == NO_TEMPLATE
        assert server.paths()[2:] == ["/v1/completions"]
        assert server.asked[2].body["prompt"] == f"Hi?{turn.reply}\n\nHi?"
    assert all(turn.error is None for turn in turns)


async def test_closing_the_iterator_closes_the_connection() -> None:
    async def endless(one: Asked, writer: Any) -> None:
        writer.write(SSE_HEAD)
        while not one.left.is_set():
            writer.write(event({"content": "on and "}))
            await writer.drain()
            await asyncio.sleep(0.01)

    async with replay(lambda _: endless) as server, client(server) as api:
        async with aclosing(converse(api, Conversation(), "Hi?", model="m")) as values:
            async for turn in values:
                if len(turn.reply) > 50:
                    break
        async with asyncio.timeout(5):
            await server.asked[0].left.wait()
    stopped = turn.stopped()
    assert (stopped.finish, stopped.reply, stopped.streaming) == ("stopped", turn.reply, False)
    assert stopped.seconds is not None


async def test_cancelling_the_reader_closes_the_connection() -> None:
    begun = asyncio.Event()

    async def silent(one: Asked, writer: Any) -> None:
        writer.write(SSE_HEAD + event({"content": "one"}))
        begun.set()
        await one.left.wait()

    async with replay(lambda _: silent) as server, client(server) as api:

        async def consume() -> None:
            async with aclosing(converse(api, Conversation(), "Hi?", model="m")) as values:
                async for _ in values:
                    pass

        task = asyncio.create_task(consume())
        await begun.wait()
        task.cancel()
        async with asyncio.timeout(5):
            await server.asked[0].left.wait()
        await asyncio.wait({task})


async def test_a_stalled_stream_is_given_up() -> None:
    async def stalls(one: Asked, writer: Any) -> None:
        writer.write(SSE_HEAD + event({"content": "one"}))
        await one.left.wait()

    async with replay(lambda _: stalls) as server:
        turn, _ = await ask(server, stall_s=0.2)
    assert turn.reply == "one"
    assert turn.error is not None
    assert "no further token for" in turn.error

    async def mute(one: Asked, writer: Any) -> None:
        await one.left.wait()

    async with replay(lambda _: mute) as server:
        turn, _ = await ask(server, first_token_s=0.2, stall_s=0.1)
    assert turn.error is not None
    assert "no token for" in turn.error


async def test_a_stream_of_events_without_a_token_is_given_up() -> None:
    async def drips(one: Asked, writer: Any) -> None:
        writer.write(SSE_HEAD + event({"content": "one"}))
        while not one.left.is_set():
            writer.write(event({}))
            await asyncio.wait([asyncio.ensure_future(one.left.wait())], timeout=0.05)

    async with replay(lambda _: drips) as server, asyncio.timeout(10):
        turn, _ = await ask(server, stall_s=0.5)
    assert (turn.reply, turn.error is not None and "no further token for" in turn.error) == ("one", True)


async def test_values_are_few_however_many_tokens_come() -> None:
    text = " ".join(["word"] * 3000)
    async with replay(lambda _: answer(text)) as server:
        turn, turns = await ask(server)
    assert turn.reply == text
    assert turn.seconds is not None
    assert len(turns) <= 4 + turn.seconds * 20


async def test_hostile_text_is_cleaned() -> None:
    evil = "\x1b]0;title\x07bold\x1b[31m \u202eright\x9b2J [/x] \x00end"
    async with replay(lambda _: SSE_HEAD + event({"content": evil}, "stop\x1b[2J") + b"data: [DONE]\n\n") as server:
        turn, _ = await ask(server)
    assert turn.reply == "bold right [/x] end"
    assert turn.finish == "stop"


async def test_turns_before_are_sent_without_reasoning_and_without_failures() -> None:
    conversation = Conversation(
        "Be brief.",
        (
            Turn("a", "A", reasoning="hm", seconds=1),
            Turn("b", error="boom", seconds=1),
            Turn("c", "C", finish="stopped", seconds=1),
        ),
    )
    async with replay(lambda _: answer("yes")) as server:
        await ask(server, conversation)
    assert server.asked[0].body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "C"},
        {"role": "user", "content": "Hi?"},
    ]
