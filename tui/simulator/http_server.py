"""A small HTTP/1.1 server on asyncio's protocols: keep-alive, bodies by length or in chunks, streamed replies, hang-ups noticed.

It answers with the headers that uvicorn does.
"""

import asyncio
import email.utils
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus

_HEAD_LIMIT = 65_536
_BODY_LIMIT = 64 * 2**20


@dataclass(slots=True)
class HttpRequest:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    client: str
    reply: "HttpReply"


@dataclass(slots=True, eq=False)
class HttpReply:
    """How a request is answered: once with `send`, or with `begin`, any number of `write` and `end`."""

    transport: asyncio.Transport
    keep_alive: bool
    on_hang_up: list[Callable[[], None]] = field(default_factory=list)
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    on_head: Callable[[int], None] | None = None
    vary: bool = True

    def send(self, status: int, body: bytes = b"", kind: str = "application/json", extra: str = "") -> None:
        kind_line = f"content-type: {kind}\r\n" if body else ""
        self._head(status, f"{extra}content-length: {len(body)}\r\n{kind_line}", body)
        self.finished.set()

    def begin(self, kind: str) -> None:
        self._head(200, f"content-type: {kind}\r\n", b"", "transfer-encoding: chunked\r\n")

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(b"0\r\n\r\n")
        self.finished.set()

    def cut(self) -> None:
        """Close the connection in the middle of the reply."""
        self.transport.abort()
        self.finished.set()

    def _head(self, status: int, lines: str, body: bytes, after: str = "") -> None:
        if self.on_head is not None:
            self.on_head(status)
        vary = "vary: Origin\r\n" if self.vary else ""
        close = "" if self.keep_alive else "connection: close\r\n"
        date = email.utils.formatdate(usegmt=True)
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ndate: {date}\r\nserver: uvicorn\r\n{lines}{vary}{after}{close}\r\n"
        )
        if not self.transport.is_closing():
            self.transport.write(head.encode("latin-1") + body)


Handler = Callable[[HttpRequest], Awaitable[None]]


class HttpConnection(asyncio.Protocol):
    """One client's connection; requests on it are answered one after the other."""

    def __init__(self, handler: Handler, connections: "set[HttpConnection]") -> None:
        self._handler = handler
        self._connections = connections
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._serving: asyncio.Task[None] | None = None
        self._reply: HttpReply | None = None
        self._client = ""
        self._continued = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        host, port = transport.get_extra_info("peername")[:2]
        self._client = f"{host}:{port}"
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        if self._reply is not None:
            for hung_up in self._reply.on_hang_up:
                hung_up()
            self._reply.finished.set()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _next(self) -> None:
        if self._serving is not None or self._transport is None or self._transport.is_closing():
            return
        try:
            parsed = self._parse()
        except ValueError:
            HttpReply(self._transport, keep_alive=False).send(400, b"Invalid HTTP request received.", "text/plain; charset=utf-8")
            self._transport.close()
            return
        if parsed is None:
            return
        method, path, headers, body = parsed
        keep = headers.get("connection", "").lower() != "close"
        self._reply = HttpReply(self._transport, keep)
        request = HttpRequest(method, path, headers, body, self._client, self._reply)
        self._serving = asyncio.ensure_future(self._serve(request))

    async def _serve(self, request: HttpRequest) -> None:
        try:
            await self._handler(request)
            await request.reply.finished.wait()
        finally:
            self._serving = self._reply = None
            if not request.reply.keep_alive:
                self.close()
        self._next()

    def _parse(self) -> tuple[str, str, dict[str, str], bytes] | None:
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            if len(self._received) > _HEAD_LIMIT:
                raise ValueError("the head is too long")
            return None
        first, *lines = self._received[:end].decode("latin-1").split("\r\n")
        method, path, version = first.split(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError("not HTTP/1")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if headers.get("expect", "").lower() == "100-continue" and self._transport is not None:
            if not self._continued:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._continued = True
        start = end + 4
        if headers.get("transfer-encoding", "").lower() == "chunked":
            chunks = bytearray()
            while True:
                line = self._received.find(b"\r\n", start)
                if line < 0:
                    return None
                size = int(self._received[start:line].split(b";")[0], 16)
                if len(self._received) < line + 2 + size + 2:
                    return None
                chunks += self._received[line + 2 : line + 2 + size]
                start = line + 2 + size + 2
                if size == 0:
                    break
            body = bytes(chunks)
        else:
            length = int(headers.get("content-length", "0"))
            if length > _BODY_LIMIT:
                raise ValueError("the body is too long")
            if len(self._received) < start + length:
                return None
            body = bytes(self._received[start : start + length])
            start += length
        del self._received[:start]
        self._continued = False
        return method, path, headers, body
