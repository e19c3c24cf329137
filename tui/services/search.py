"""Asks a host once what serves on it."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from tui.host.base import Host, HostError, ProbeFailed, Unreachable
from tui.services.found import Server, servers_from_frame
from tui.services.processes import servers_without_probe
from tui.wire.frames import FIND

SEARCH_S = 20.0


async def find_servers(host: Host, become: Sequence[str] = ()) -> tuple[Server, ...]:
    """The servers that run on a connected host; `become` are words before a command that may see more (with the probe only).

    Raises ProbeFailed, Unreachable or TimeoutError.
    """
    try:
        stream = await host.start_probe(FIND, {"become": list(become)})
    except ProbeFailed as error:
        return await _without_probe(host, error)
    try:
        async with asyncio.timeout(SEARCH_S):
            async for frame in stream:
                if frame.get("f") == "servers":
                    return servers_from_frame(frame)
    finally:
        await stream.close()
    raise ProbeFailed("the search for servers ended without an answer", "try again; readyroom doctor says what is missing")


async def _without_probe(host: Host, error: ProbeFailed) -> tuple[Server, ...]:
    try:
        async with asyncio.timeout(SEARCH_S), aclosing(servers_without_probe(host, seconds=0.0)) as found:
            return await anext(found)
    except Unreachable:
        raise
    except HostError as failed:
        raise ProbeFailed(f"{error.cause}, and {failed.cause}", error.advice) from None
