"""Serve byte streams of a host on a private Unix socket, so that the load generator of this machine reaches a server behind it.

Each connection to the socket is one stream from the host to the server. It begins with a line from this side: an empty one once the
stream is open, else the reason why it isn't. What follows is passed on unread in both directions, TLS included.
"""

import asyncio
import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteStream

from tui.aio import ended
from tui.host.base import Host, HostError
from tui.wire.urls import port_of, socket_of

PIECE = 1 << 16
BUFFER_LIMIT = 1 << 18
"""Bytes that may wait for the load generator before the host's stream is left unread."""

LINGER_S = 5.0
"""How long the load generator may take to close a connection whose server has gone."""


class Tunnel:
    """A socket that stands for the server at a URL as seen from a host; `async with` guarantees that nothing of it is left."""

    def __init__(self, host: Host, url: str) -> None:
        """Take the URL of the server. Raises ValueError if it names no address."""
        self._host = host
        self._socket = socket_of(url)
        self._name = "" if self._socket else urlsplit(url).hostname or ""
        self._port = 0 if self._socket else port_of(url)
        self._folder = ""
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def path(self) -> str:
        """Return the socket's path, in a folder of this user alone."""
        return str(Path(self._folder) / "api")

    async def __aenter__(self) -> Self:
        """Start the local listener. Raises OSError."""
        self._folder = tempfile.mkdtemp(prefix="readyroom-")  # 0700
        try:
            self._server = await asyncio.start_unix_server(self._serve, self.path)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            if self._server is not None:
                self._server.close()
            await ended(*self._connections)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._pass_on(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()  # not closed: what is not read any more would hold it open
            raise
        finally:
            self._connections.discard(task)
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            stream = await self._host.open_stream(self._name, self._port, self._socket)
        except HostError as error:
            writer.write(error.cause.encode("utf-8", "replace") + b"\n")
            return
        async with stream:
            writer.write(b"\n")
            up, down = asyncio.create_task(_pass_up(reader, stream)), asyncio.create_task(_pass_down(stream, writer))
            try:
                await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
                if not up.done():
                    writer.write_eof()  # with bytes unread, closing it now would be a reset
                    await asyncio.wait([up], timeout=LINGER_S)
            finally:
                await ended(up, down)


async def _pass_up(reader: asyncio.StreamReader, stream: ByteStream) -> None:
    """Pass on what the load generator sends, until it closes its connection."""
    taken = True
    with contextlib.suppress(OSError):
        while data := await reader.read(PIECE):
            if taken:
                try:
                    await stream.send(data)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError, HostError):
                    taken = False  # what the server said before it closed is still on its way down


async def _pass_down(stream: ByteStream, writer: asyncio.StreamWriter) -> None:
    """Pass on what the server sends, until it closes its end or the link is lost."""
    with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, HostError, OSError):
        while True:
            writer.write(await stream.receive(PIECE))
            if writer.transport.get_write_buffer_size() > BUFFER_LIMIT:
                await writer.drain()
