"""A small HTTP server that answers with recorded exchanges, or piece by piece as a test says."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from listening import Listening

from tui.aio import ended
from tui.host.api import ApiClient

DATA = Path(__file__).parents[1] / "data/http"
SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def recorded(name: str) -> bytes:
    return (DATA / f"{name}.response").read_bytes()


def reply(code: int, document: object) -> bytes:
    body = json.dumps(document).encode()
    head = f"HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return head.encode() + body


def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).encode() + b"\n\n"


def answer(text: str, finish: str = "stop", prompt: int = 20, completion: int | None = None) -> bytes:
    """Return a whole streamed chat reply, one word a chunk."""
    words = text.split(" ")
    pieces = [event({"content": word if i == 0 else f" {word}"}) for i, word in enumerate(words)]
    usage = {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion or len(words)}}
    return (
        b"".join(
            [
                SSE_HEAD,
                event({"role": "assistant", "content": ""}),
                *pieces,
                event({}, finish),
                b"data: " + json.dumps(usage).encode(),
            ]
        )
        + b"\n\ndata: [DONE]\n\n"
    )


@dataclass
class Asked:
    """One request as it came; `left` is set when the client closed the connection before the answer was whole."""

    path: str
    body: dict[str, Any]
    left: asyncio.Event = field(default_factory=asyncio.Event)


Answer = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]] | bytes
Route = Callable[[Asked], Answer]


@dataclass
class Replay:
    url: str
    asked: list[Asked]

    def paths(self) -> list[str]:
        return [request.path for request in self.asked]


@asynccontextmanager
async def replay(route: Route) -> AsyncIterator[Replay]:
    asked: list[Asked] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.split("\r\n")
        length = next((int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")), 0)
        body = await reader.readexactly(length) if length else b""
        one = Asked(lines[0].split()[1], json.loads(body) if body else {})
        asked.append(one)
        watch = asyncio.create_task(_gone(reader, one))
        found = route(one)
        try:
            if isinstance(found, bytes):
                writer.write(found)
                await writer.drain()
            else:
                await found(one, writer)
        except ConnectionError:
            one.left.set()  # a write may meet the end before the read does
            raise
        finally:
            await ended(watch)

    async with Listening(serve) as listening:
        yield Replay(listening.url, asked)


async def _gone(reader: asyncio.StreamReader, one: Asked) -> None:
    with contextlib.suppress(ConnectionError):  # a client that leaves what was sent unread resets the connection
        while await reader.read(1024):
            pass
    one.left.set()


@asynccontextmanager
async def client(server: Replay) -> AsyncIterator[ApiClient]:
    api = ApiClient(server.url, None, api_key="sk-of-this-test")
    try:
        yield api
    finally:
        await api.close()
