"""A link between a client and a server of this machine that can be slow, frozen or cut: a TCP proxy for tests."""

import asyncio
import contextlib

from listening import Listening

from tui.aio import ended, together


class SlowLink(Listening):
    """Passes what comes to `port` on to `to_port`, each way `delay` seconds late, in order. All ports are on 127.0.0.1."""

    def __init__(self, to_port: int, *, delay: float = 0.0) -> None:
        super().__init__(self._join)
        self.delay = delay
        self._to = to_port
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._far: set[asyncio.StreamWriter] = set()

    def freeze(self) -> None:
        """Let nothing pass any more, without a word to either side: a cable pulled out, a laptop asleep."""
        self._flowing.clear()

    def thaw(self) -> None:
        self._flowing.set()

    def cut(self) -> None:
        """Close all connections at once."""
        super().cut()
        for writer in self._far:
            writer.transport.abort()
        self.thaw()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        self._far.add(far_writer)
        try:
            await together(self._pump(reader, far_writer), self._pump(far_reader, writer))
            with contextlib.suppress(OSError):
                await far_writer.wait_closed()
        finally:
            far_writer.transport.abort()
            self._far.discard(far_writer)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=64)

        async def deliver() -> None:
            while True:
                due, data = await queue.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                await self._flowing.wait()
                if not data:
                    return
                target.write(data)
                await target.drain()

        delivery = asyncio.create_task(deliver())
        with contextlib.suppress(OSError):
            data = b"start"
            while data and not delivery.done():
                data = await source.read(65536)
                await queue.put((loop.time() + self.delay, data))
            await delivery
        await ended(delivery)
        target.close()
