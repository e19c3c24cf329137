"""A stream's output with its silences."""

import asyncio
from collections.abc import AsyncGenerator, Callable

from tui.host.base import CommandStream
from tui.host.together import ended


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
        await ended(coming)
