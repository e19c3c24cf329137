"""Byte streams from the host through the probe's role "relay", for hosts without forwarding: all streams share one probe.

Requests: `{"do": "open", "id", "host", "port"}` or `"path"`, `{"do": "data", "id", "b64"}`, `{"do": "close", "id"}`. Frames:
`opened`, `data` (b64), `closed`, `failed` (why, code; 1 = forbidden, 2 = nothing listens), each with the id.
"""

import asyncio
import base64
import contextlib
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
from anyio.abc import ByteStream

from tui.core.text import clean
from tui.host.base import HostError, NotPermitted, PortClosed, ProbeFailed, ProbeStream, Unreachable
from tui.wire import frames

BUFFER_LIMIT = 16 << 20
"""Bytes that a stream may hold unread. All streams share one pipe, so that one that nobody reads is ended, not waited for."""
PIECE = 1 << 16
"""Bytes of one data request; larger ones would hold up the heartbeat behind them."""


class RelayClient:
    """Starts the probe when the first stream is opened, and again after it ended."""

    def __init__(self, start: Callable[[], Awaitable[ProbeStream]], where: str) -> None:
        self._start = start
        self._where = where
        self._probe: ProbeStream | None = None
        self._reader: asyncio.Task[None] | None = None
        self._streams: dict[int, RelayStream] = {}
        self._numbers = itertools.count(1)
        self._starting = asyncio.Lock()

    async def open(self, host: str, port: int, path: str | None = None) -> ByteStream:
        """Open a stream from the host. Raises PortClosed, NotPermitted, Unreachable or ProbeFailed."""
        async with self._starting:
            if self._probe is None:
                self._probe = await self._start()
                self._reader = asyncio.create_task(self._read(self._probe))
        stream = RelayStream(next(self._numbers), self)
        self._streams[stream.number] = stream
        where = {"path": path} if path is not None else {"host": host, "port": port}
        try:
            await self.send({"do": "open", "id": stream.number, **where})
            await stream.opened()
        except BaseException as error:
            self._streams.pop(stream.number, None)
            if isinstance(error, asyncio.CancelledError):
                await self._forget(stream.number)
            raise
        return stream

    async def send(self, message: Mapping[str, Any]) -> None:
        if self._probe is None:
            raise Unreachable(f"the relay on {self._where} has ended")
        await self._probe.send(message)

    async def _forget(self, number: int) -> None:
        if self._streams.pop(number, None) is not None or self._probe is not None:
            with contextlib.suppress(HostError):
                await self.send({"do": "close", "id": number})

    async def _read(self, probe: ProbeStream) -> None:
        error: HostError = ProbeFailed(f"the relay on {self._where} has ended")
        try:
            async for frame in probe:
                stream = self._streams.get(frame.get("id", 0))
                if stream is not None:
                    stream.take(frame)
        except HostError as why:
            error = why
        finally:
            if self._probe is probe:
                self._probe = None
            for stream in tuple(self._streams.values()):
                stream.fail(error)
            self._streams.clear()

    def reset(self) -> None:
        """Forget the probe: its connection is gone."""
        if self._reader is not None:
            self._reader.cancel()
        self._probe, self._reader = None, None


class RelayStream(ByteStream):
    """One stream of the relay."""

    def __init__(self, number: int, relay: RelayClient) -> None:
        self.number = number
        self._relay = relay
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self._is_open = False
        self._ended = False
        self._closed = False
        self._error: HostError | None = None

    def take(self, frame: Mapping[str, Any]) -> None:
        match frame.get("f"):
            case "opened":
                self._is_open = True
            case "data":
                self._hold(str(frame.get("b64", "")))
            case "closed":
                self._ended = True
            case "failed":
                self._error = _failure(frame)
        self._news.set()

    def _hold(self, encoded: str) -> None:
        try:
            data = base64.b64decode(encoded)
        except ValueError:
            self.fail(ProbeFailed("the relay sent bytes that can't be read"))
            return
        self._chunks.append(data)
        self._size += len(data)
        if self._size > BUFFER_LIMIT:
            self._chunks.clear()
            self.fail(ProbeFailed("a stream of the relay was not read for too long"))

    def fail(self, error: HostError) -> None:
        self._error = self._error or error
        self._news.set()

    async def _wait(self) -> None:
        self._news.clear()
        await self._news.wait()

    async def opened(self) -> None:
        while not self._is_open:
            if self._error is not None:
                raise self._error
            await self._wait()

    @property
    def readable(self) -> bool:
        return bool(self._chunks) or self._ended or self._error is not None

    async def receive(self, max_bytes: int = 65536) -> bytes:
        while not self._chunks:
            if self._closed:
                raise anyio.ClosedResourceError
            if self._error is not None:
                raise self._error
            if self._ended:
                raise anyio.EndOfStream
            await self._wait()
        data = self._chunks.popleft()
        if len(data) > max_bytes:
            self._chunks.appendleft(data[max_bytes:])
            data = data[:max_bytes]
        self._size -= len(data)
        return data

    async def send(self, item: bytes) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
        if self._error is not None or self._ended:
            raise anyio.BrokenResourceError
        view = memoryview(item)
        for start in range(0, len(view), PIECE):
            await self._relay.send({"do": "data", "id": self.number, "b64": base64.b64encode(view[start : start + PIECE]).decode()})

    async def send_eof(self) -> None:
        await self._relay.send({"do": "eof", "id": self.number})

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._news.set()
            await self._relay._forget(self.number)


def _failure(frame: Mapping[str, Any]) -> HostError:
    words = clean(str(frame.get("why", "the relay could not connect")))
    match frame.get("code"):
        case frames.FORBIDDEN:
            return NotPermitted(words)
        case frames.NOTHING_LISTENS:
            return PortClosed(words, "the server isn't up yet, or listens elsewhere")
        case _:
            return Unreachable(words)
