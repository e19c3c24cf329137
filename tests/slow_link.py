"""A link between a client and a server of this machine that can be slow, frozen or cut: a TCP proxy for tests."""

import asyncio
import contextlib
from typing import Self


class SlowLink:
    """Passes what comes to `port` on to `to_port`, each way `delay` seconds late, in order. All ports are on 127.0.0.1."""

    def __init__(self, to_port: int, *, delay: float = 0.0) -> None:
        self.delay = delay
        self.port = 0
        self._to = to_port
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2)

    def freeze(self) -> None:
        """Nothing passes any more, and nobody is told: a cable pulled out, a laptop asleep."""
        self._flowing.clear()

    def thaw(self) -> None:
        self._flowing.set()

    def cut(self) -> None:
        """Closes all connections at once."""
        for writer in tuple(self._writers):
            writer.transport.abort()
        self.thaw()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(far_writer)
        for source, target in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._pump(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

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
        delivery.cancel()
        await asyncio.wait([delivery])
        if not delivery.cancelled():
            delivery.exception()
        target.close()
        self._writers.discard(target)
