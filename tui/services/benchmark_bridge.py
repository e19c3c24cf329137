"""Single requests of the load generator's code, which asks from a thread and waits, through the connection of this process."""

import asyncio
import json
from concurrent.futures import CancelledError, Future
from typing import Any

import httpx

from tui.host.base import HostError
from tui.probe.load_ask import MAX_REPLY_BYTES, Caller
from tui.probe.load_http import Target


class Bridge(Caller):
    """The load generator's single requests, made through httpx: called from a worker thread, carried by the event loop."""

    def __init__(self, client: httpx.AsyncClient, base: str, target: Target) -> None:
        self._client = client
        self._target = target
        self._base = base
        self._loop = asyncio.get_running_loop()
        self._asked: set[Future[tuple[int, bytes]]] = set()
        """What threads wait for."""

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None, within_s: float | None = None) -> tuple[int, bytes]:
        asked = asyncio.run_coroutine_threadsafe(self._request(method, path, body, within_s), self._loop)
        self._asked.add(asked)
        try:
            return asked.result()
        except CancelledError:
            raise OSError("let go") from None
        finally:
            self._asked.discard(asked)

    def let_go(self) -> None:
        """Waits for no answer any more: a thread that does would hold up the end of the program."""
        for asked in tuple(self._asked):
            asked.cancel()

    async def _request(self, method: str, path: str, body: dict[str, Any] | None, within_s: float | None) -> tuple[int, bytes]:
        try:
            data = None if body is None else json.dumps(body)
            async with asyncio.timeout(within_s), self._client.stream(method, self._base + path, content=data) as reply:
                pieces = bytearray()
                async for piece in reply.aiter_raw():
                    pieces += piece
                    if len(pieces) > MAX_REPLY_BYTES:
                        raise ValueError(f"the reply to {path} is larger than {MAX_REPLY_BYTES} bytes")
        except httpx.HTTPError as error:
            cause = error.__cause__
            raise OSError(cause.cause if isinstance(cause, HostError) else str(error) or type(error).__name__) from None
        return reply.status_code, bytes(pieces)

    def close(self) -> None:
        pass
