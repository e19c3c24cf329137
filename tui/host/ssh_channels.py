"""Channels of an SSH connection: a process, and a byte stream to a port or Unix socket of the host."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any

import anyio
import asyncssh
from anyio.abc import ByteStream

from tui.host.base import HostError, Unreachable

CHUNK = 1 << 16
BUFFER_LIMIT = 1 << 20
"""Bytes read ahead of a slow reader before the channel's window closes: the back-pressure."""


class SshProcess:
    """A process on the host. See `tui.host.shell.Process`."""

    def __init__(
        self, process: "asyncssh.SSHClientProcess[bytes]", explain: Callable[[Exception | None], HostError | None]
    ) -> None:
        self._process = process
        self._explain = explain
        self._closed = False

    async def read(self) -> bytes:
        return await self._read(self._process.stdout)

    async def read_error(self) -> bytes:
        return await self._read(self._process.stderr)

    async def _read(self, reader: "asyncssh.SSHReader[bytes]") -> bytes:
        try:
            data = await reader.read(CHUNK)
        except (asyncssh.Error, OSError) as error:
            raise (self._explain(error) or Unreachable(str(error))) from error
        if not data and not self._closed and (lost := self._explain(None)) is not None:
            raise lost
        return bytes(data)

    async def write(self, data: bytes) -> None:
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except BrokenPipeError:
            pass  # it has ended; its output says why
        except (asyncssh.Error, OSError) as error:
            raise (self._explain(error) or Unreachable(str(error))) from error

    async def write_eof(self) -> None:
        with contextlib.suppress(OSError):
            self._process.stdin.write_eof()

    async def wait(self) -> int | None:
        await self._process.wait_closed()
        return self._process.exit_status

    async def close(self, grace: float = 1.0) -> None:
        self.abandon()

    def abandon(self) -> None:
        """End it without waiting for anything."""
        if not self._closed:
            self._closed = True
            self._process.close()


class ChannelStream(ByteStream, asyncssh.SSHTCPSession[bytes]):
    """A direct-tcpip or direct-streamlocal channel as anyio's byte stream."""

    def __init__(self) -> None:
        self._channel: Any = None
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._ended = False
        self._broken: Exception | None = None
        self._paused = False
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = False

    # -- called by asyncssh ------------------------------------------------------------------------------------------------------

    def connection_made(self, chan: Any) -> None:
        self._channel = chan

    def session_started(self) -> None:
        pass

    def data_received(self, data: bytes, datatype: Any) -> None:
        self._chunks.append(data)
        self._size += len(data)
        self._arrived.set()
        if self._size > BUFFER_LIMIT and not self._paused:
            self._paused = True
            self._channel.pause_reading()

    def eof_received(self) -> bool:
        self._ended = True
        self._arrived.set()
        return True  # what is still to be written may go out

    def connection_lost(self, exc: Exception | None) -> None:
        self._broken = self._broken or exc
        self._ended = True
        self._arrived.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # -- anyio's side ------------------------------------------------------------------------------------------------------------

    @property
    def readable(self) -> bool:
        """Return whether reading would return at once: data, or the end."""
        return bool(self._chunks) or self._ended

    async def receive(self, max_bytes: int = 65536) -> bytes:
        while not self._chunks:
            if self._closed:
                raise anyio.ClosedResourceError
            if self._ended:
                if self._broken is not None:
                    raise anyio.BrokenResourceError(str(self._broken)) from self._broken
                raise anyio.EndOfStream
            self._arrived.clear()
            await self._arrived.wait()
        data = self._chunks.popleft()
        if len(data) > max_bytes:
            self._chunks.appendleft(data[max_bytes:])
            data = data[:max_bytes]
        self._size -= len(data)
        if self._paused and self._size < BUFFER_LIMIT // 2:
            self._paused = False
            self._channel.resume_reading()
        return data

    async def send(self, item: bytes) -> None:
        await self._writable.wait()
        if self._closed:
            raise anyio.ClosedResourceError
        if self._broken is not None or self._channel.is_closing():
            raise anyio.BrokenResourceError
        try:
            self._channel.write(item)
        except OSError as error:
            raise anyio.BrokenResourceError(str(error)) from error

    async def send_eof(self) -> None:
        if not self._channel.is_closing():
            self._channel.write_eof()

    async def aclose(self) -> None:
        """Close at once, unsent data dropped: a cancelled request must reach the server now, not after what is queued."""
        if not self._closed:
            self._closed = True
            self._arrived.set()
            self._channel.abort()
