"""The wire between a client and the simulated host: it can be cut, stand still, or be slow."""

import asyncio
import contextlib
from collections.abc import Callable

_HIGH = 4 * 2**20


class Link:
    """Relays connections of a port of its own to the server's.

    Bytes are held back, in order, while the link is frozen or delayed.
    """

    def __init__(self) -> None:
        self._to_port = 0
        self._ends: set[_End] = set()
        self._server: asyncio.Server | None = None
        self.frozen = False
        self.delay_s = 0.0
        self.refusing = False
        self.on_connect: Callable[[], None] | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def open(self, to_port: int) -> None:
        self._to_port = to_port
        self._server = await asyncio.get_running_loop().create_server(lambda: _End(self), "127.0.0.1", 0)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()

    def cut(self) -> None:
        """Ends every connection, as a reset would."""
        for end in tuple(self._ends):
            end.abort()

    def freeze(self) -> None:
        self.frozen = True
        for end in self._ends:
            end.hold()

    def thaw(self) -> None:
        self.frozen = False
        for end in self._ends:
            end.release()

    async def join(self, near: "_End") -> None:
        """Connects the other side of a new connection."""
        if self.refusing:
            near.abort()
            return
        try:
            _, far = await asyncio.get_running_loop().create_connection(lambda: _End(self, near), "127.0.0.1", self._to_port)
        except OSError:
            near.abort()
            return
        near.other = far
        near.flush()
        if self.on_connect is not None:
            self.on_connect()


class _End(asyncio.Protocol):
    def __init__(self, link: Link, other: "_End | None" = None) -> None:
        self._link = link
        self.other = other
        self._first = other is None
        self._transport: asyncio.Transport | None = None
        self._held: list[bytes] = []
        self._joining: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=_HIGH)
        self._transport = transport
        self._link._ends.add(self)
        if self._first:
            self._joining = asyncio.ensure_future(self._link.join(self))
        if self._link.frozen:
            self.hold()

    def data_received(self, data: bytes) -> None:
        if self._link.delay_s > 0:
            asyncio.get_running_loop().call_later(self._link.delay_s, self._pass, data)
        else:
            self._pass(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._link._ends.discard(self)
        if self._joining is not None and self.other is None:
            self._joining.cancel()
        if self.other is not None:
            with contextlib.suppress(OSError):
                self.other.finish(abort=exc is not None)

    def pause_writing(self) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other._transport is not None and not self._link.frozen:
            self.other._transport.resume_reading()

    def hold(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def release(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()
        self.flush()

    def finish(self, *, abort: bool) -> None:
        if self._transport is not None:
            if abort:
                self._transport.abort()
            else:
                self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def flush(self) -> None:
        held, self._held = self._held, []
        for data in held:
            self._pass(data)

    def _pass(self, data: bytes) -> None:
        target = self.other._transport if self.other is not None else None
        if target is None or self._link.frozen:
            self._held.append(data)
        elif not target.is_closing():
            target.write(data)
