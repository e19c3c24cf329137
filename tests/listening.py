"""A server of a test, of which nothing is left at its end: no connection, no task."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Self

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[object]]
END_S = 5.0
"""The longest that what serves a connection may take to notice its end."""


class Listening:
    """Serves every connection to a free port of 127.0.0.1, or to a Unix socket, until `stop` or the end of the block.

    A connection is closed when what serves it returns; that the client leaves is no error.
    """

    def __init__(self, serve: Serve, *, path: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._serve = serve
        self._path = path
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._writers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def __aenter__(self) -> Self:
        if self._path is not None:
            self._server = await asyncio.start_unix_server(self._accept, self._path)
        else:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
            self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()
        self.cut()
        if self._writers:
            _, late = await asyncio.wait(self._writers, timeout=END_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
                raise AssertionError("what serves a connection does not notice its end")

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    async def stop(self) -> None:
        """Stop listening; open connections stay.

        A connection whose server is closed between its accept and its transport is dropped unclosed: so it accepts no more first.
        """
        assert self._server is not None
        for listening in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listening)
        accepting = [task for task in asyncio.all_tasks() if "_accept_connection2" in repr(task.get_coro())]
        if accepting:
            await asyncio.wait(accepting, timeout=END_S)
        self._server.close()

    def cut(self) -> None:
        """End every connection at once."""
        for writer in tuple(self._writers.values()):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._writers[task] = writer
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._serve(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            del self._writers[task]
