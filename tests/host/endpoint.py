"""A small HTTP/1.1 server on 127.0.0.1 (or a Unix socket) for tests of transports: tiny replies, endless event streams."""

import asyncio
import ssl
import time

from listening import Listening

from tui.aio import ended


class Endpoint(Listening):
    """`/tiny` replies "ok"; `/big?N` replies N bytes; `/events` streams events, `gap` seconds apart, until the client leaves."""

    def __init__(self, *, gap: float = 0.01, path: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(self._answer, path=path, tls=tls)
        self.gap = gap
        self.requests = 0
        self.connections = 0
        self.left_at: float | None = None
        """When the client of a stream was noticed to have gone (monotonic)."""
        self.left = asyncio.Event()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while head := await reader.readuntil(b"\r\n\r\n"):
            self.requests += 1
            path = head.split(b" ", 2)[1].decode()
            if path == "/events":
                await self._events(reader, writer)
                return
            body = b"x" * int(path.partition("?")[2]) if path.startswith("/big") else b"ok"
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            await writer.drain()

    async def _events(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        gone = asyncio.create_task(reader.read(1))
        try:
            number = 0
            while not gone.done():
                event = b'data: {"n": %d}\n\n' % number
                writer.write(b"%x\r\n%b\r\n" % (len(event), event))
                number += 1
                await asyncio.wait([gone], timeout=self.gap)
        finally:
            await ended(gone)
            self.left_at = time.monotonic()
            self.left.set()
