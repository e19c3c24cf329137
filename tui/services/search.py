"""Asks a host once what serves on it."""

import asyncio
from collections.abc import Sequence

from tui.host.base import Host, ProbeFailed
from tui.services.found import Server, servers_from_frame
from tui.wire.frames import FIND

SEARCH_S = 20.0


async def find_servers(host: Host, become: Sequence[str] = ()) -> tuple[Server, ...]:
    """The servers that run on a connected host; `become` are words before a command that may see more.

    Raises ProbeFailed, Unreachable or TimeoutError.
    """
    stream = await host.start_probe(FIND, {"become": list(become)})
    try:
        async with asyncio.timeout(SEARCH_S):
            async for frame in stream:
                if frame.get("f") == "servers":
                    return servers_from_frame(frame)
    finally:
        await stream.close()
    raise ProbeFailed("the search for servers ended without an answer", "try again; readyroom doctor says what is missing")
