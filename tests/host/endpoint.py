"""A small HTTP/1.1 server on 127.0.0.1 (or a Unix socket) for tests of transports: tiny replies, endless event streams."""

import asyncio
import ssl
import time
from typing import Self


class Endpoint:
    """`/tiny` replies "ok"; `/big?N` replies N bytes; `/events` streams events, `gap` seconds apart, until the client leaves."""

    def __init__(self, *, gap: float = 0.01, path: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.gap = gap
        self.path = path
        self.tls = tls
        self.requests = 0
        self.connections = 0
        self.left_at: float | None = None
        """When the client of a stream was noticed to have gone (monotonic)."""
        self.left = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def __aenter__(self) -> Self:
        if self.path is not None:
            self._server = await asyncio.start_unix_server(self._serve, self.path)
        else:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in tuple(self._writers):
            writer.close()
        async with asyncio.timeout(5):
            await self._quiet.wait()

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        self._quiet.clear()
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.requests += 1
                path = head.split(b" ", 2)[1].decode()
                if path == "/events":
                    await self._events(reader, writer)
                    return
                body = b"x" * int(path.partition("?")[2]) if path.startswith("/big") else b"ok"
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self._writers.discard(writer)
            if not self._writers:
                self._quiet.set()

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
            gone.cancel()
            self.left_at = time.monotonic()
            self.left.set()
