"""One turn of a conversation, streamed: growing values of the turn, at a rate that a screen can follow."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from tui.aio import ended
from tui.core.conversation import (
    NO_TEMPLATE,
    STREAM_OPTIONS,
    Conversation,
    ReplyReader,
    Turn,
    lacks_chat_template,
    refuses_options,
    request,
)
from tui.core.text import clean
from tui.host.api import ApiError

if TYPE_CHECKING:
    from tui.host.api import ApiClient


PERIOD_S = 0.05
"""Between two values of the turn: 20 a second, however many tokens come."""
FIRST_TOKEN_S = 600.0
"""A long prompt behind a full queue may take minutes until its first token."""
STALL_S = 120.0
"""Silence after the first token for which a stream is given up."""
REPLY_LIMIT = 4 * 1024 * 1024
"""Characters after which a reply is cut off here: no model means that much, and the screen must live."""


async def converse(
    api: "ApiClient",
    conversation: Conversation,
    asked: str,
    *,
    model: str,
    max_tokens: int | None = None,
    extra: Mapping[str, Any] | None = None,
    first_token_s: float = FIRST_TOKEN_S,
    stall_s: float = STALL_S,
) -> AsyncGenerator[Turn, None]:
    """Ask the next question of a conversation and yield the growing turn; the last value is final.

    Closing the iterator (`async with aclosing(converse(…))`) closes the connection, which ends the generation on the server; so
    does cancelling a task that waits in it. What fails is in the turn's `error`, in the server's own words, beside what came
    before; nothing is raised. A model without a chat template is asked again as a plain completion, and `note` says so.
    """
    endpoint = conversation.endpoint
    note = NO_TEMPLATE if endpoint == "completions" else None
    reader = ReplyReader(asked, time.monotonic(), endpoint=endpoint, note=note, refused=conversation.refused)
    yield reader.turn()
    while True:
        path, body = request(
            conversation,
            asked,
            model=model,
            endpoint=reader.endpoint,
            max_tokens=max_tokens,
            extra=extra,
            options=STREAM_OPTIONS[reader.refused],
        )
        task = asyncio.create_task(_read(api, path, body, reader, first_token_s, stall_s))
        seen = reader.changes
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=PERIOD_S)
                if reader.changes != seen and not task.done():
                    seen = reader.changes
                    yield reader.turn()
            status = task.result()
        finally:
            await ended(task)
        if reader.error is None or reader.chunks:
            break
        if reader.endpoint == "chat" and lacks_chat_template(status, reader.error):
            reader = ReplyReader(asked, time.monotonic(), endpoint="completions", note=NO_TEMPLATE, refused=reader.refused)
            continue
        if reader.refused + 1 < len(STREAM_OPTIONS) and refuses_options(status, reader.error or ""):
            reader = ReplyReader(asked, time.monotonic(), endpoint=reader.endpoint, note=reader.note, refused=reader.refused + 1)
            continue
        break
    if reader.error is None and reader.finish is None and not reader.chunks:
        reader.fail("the server ended the stream without a single token")
    yield reader.turn(time.monotonic())


async def _read(
    api: "ApiClient", path: str, body: Mapping[str, Any], reader: ReplyReader, first_token_s: float, stall_s: float
) -> int | None:
    """Feed the stream into the reader until it ends, one way or another; return the HTTP status of a refusal."""
    from tui.host.api import ApiError

    size = 0
    since, chunks = asyncio.get_running_loop().time(), 0
    try:
        async with aclosing(api.stream(path, body, timeout=max(first_token_s, stall_s))) as events:
            while True:
                limit = stall_s if reader.chunks else first_token_s
                if reader.chunks != chunks:  # only a token counts: a stream of empty events would go on for ever
                    since, chunks = asyncio.get_running_loop().time(), reader.chunks
                try:
                    async with asyncio.timeout_at(since + limit):
                        at, chunk = await anext(events)
                except TimeoutError:
                    what = "no further token" if reader.chunks else "no token"
                    reader.fail(f"{what} for {limit:.0f} s: the request was given up (is the server overloaded, or hung?)")
                    return None
                except StopAsyncIteration:
                    return None
                reader.feed(at, chunk)
                size += sum(map(len, _texts(chunk)))
                if size > REPLY_LIMIT:
                    reader.fail(f"cut off here: the reply is longer than {REPLY_LIMIT >> 20} million characters")
                    return None
    except ApiError as error:
        reader.fail(error.message)
        return error.status


def _texts(chunk: Mapping[str, Any]) -> list[str]:
    choices = chunk.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return []
    found = choices[0].get("delta") or choices[0]
    return [value for value in found.values() if isinstance(value, str)] if isinstance(found, dict) else []


TOKEN_S = 120.0
_NOT_THIS_WAY = (400, 404, 405, 422, 501)
"""What an endpoint answers that the model, or the server, does not have; the other endpoint may do."""
_GENERATES_NOT = re.compile(
    r"does(?: not|n't) support (?:the )?(?:chat )?(?:completions?|generat)|is an? (?:embedding|pooling) model",
    re.IGNORECASE,
)
"""vLLM: "The model does not support Completions API"."""
_NO_ROUTE = re.compile(r"(?:404 Not Found|405 Method Not Allowed|501 Not Implemented)$")
_POOLING = ("/v1/embeddings", "/pooling", "/classify")
_NOT_SERVED = re.compile(r"model\b.*(?:does not exist|not found|is not served)|no such model", re.IGNORECASE)


async def one_token(api: "ApiClient", model: str) -> bool:
    """Generate one token. Return False if the server says that the model does not generate at all (an embedding model).

    Raises ApiError when the server fails to; its kind is "not_served" if it serves no model of that name.
    """
    refused: list[ApiError] = []
    asked = {"model": model, "max_tokens": 1}
    for path, body in (
        ("/v1/completions", {**asked, "prompt": "Hello", "temperature": 0}),
        ("/v1/chat/completions", {**asked, "messages": [{"role": "user", "content": "Hello"}]}),
    ):
        try:
            await api.post(path, body, timeout=TOKEN_S)
        except ApiError as error:
            if error.status not in _NOT_THIS_WAY:
                raise
            if error.status in (400, 404) and (
                _NOT_SERVED.search(error.message) or (model and f"`{clean(model)}`" in error.message)
            ):
                raise ApiError(error.status, error.message, "not_served") from None
            refused.append(error)
        else:
            return True
    if all(_GENERATES_NOT.search(error.message) for error in refused):
        return False
    if all(_NO_ROUTE.match(error.message) for error in refused) and await _pools(api, model):
        return False
    # An endpoint that is missing says less than one that is there and refuses.
    raise next((error for error in reversed(refused) if not _NO_ROUTE.match(error.message)), refused[-1])


async def _pools(api: "ApiClient", model: str) -> bool:
    """Return whether the model answers as a pooling model: its server may have no endpoint that generates."""
    for path in _POOLING:
        try:
            await api.post(path, {"model": model, "input": "Hello"}, timeout=TOKEN_S)
        except ApiError as error:
            if error.status not in _NOT_THIS_WAY:
                raise
        else:
            return True
    return False
