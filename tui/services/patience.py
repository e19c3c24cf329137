"""A stream's output with its silences."""

import asyncio
from collections.abc import AsyncGenerator, Callable

from tui.host.base import CommandStream


async def patiently(stream: CommandStream, patience: Callable[[], float]) -> AsyncGenerator[bytes | None]:
    """The output as it comes; None whenever nothing has come for `patience()` seconds. Raises Unreachable.

    Close it (`contextlib.aclosing`) before the stream.
    """
    source = aiter(stream)
    coming = asyncio.ensure_future(anext(source, b""))
    try:
        while True:
            await asyncio.wait([coming], timeout=patience())
            if not coming.done():
                yield None
                continue
            data = coming.result()
            if not data:
                return
            coming = asyncio.ensure_future(anext(source, b""))
            yield data
    finally:
        coming.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody waits for it any more
        coming.cancel()
        await asyncio.wait([coming])  # not `await coming`: its cancellation and that of this task could not be told apart
