"""The link to a host: connect, run what runs there while it is online, back off, and connect again."""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, NoReturn

from msgspec.structs import replace

from tui.aio import ended, together
from tui.core.connection import ConnectionState, LinkState, retry_delay_s
from tui.host.base import Host, HostError, Refused, UnknownName, Unreachable

CONNECTION_POLL_S = 0.1
WITHOUT_PROBE_S = 600.0
"""How long a host is watched without the probe before the probe is tried again."""
STEADY_S = 5.0
"""A role that ran longer than this before it ended is started again at once; a shorter one after a growing pause."""


async def keep_running(role: Callable[[], Awaitable[object]]) -> NoReturn:
    """Run a role again and again: at once if it ran for long, else after a growing pause. Raise what the role raises.

    A role on a host that can't be reached is left to the link, which notices the loss and ends this.
    """
    attempt = 0
    while True:
        began = time.monotonic()
        try:
            await role()
        except Unreachable:
            await asyncio.sleep(1.0)
        attempt = 0 if time.monotonic() - began > STEADY_S else attempt + 1
        if attempt:
            await asyncio.sleep(retry_delay_s(attempt, 0.5))


class _LinkLost(Exception):
    """Ends what runs over a connection that is gone."""

    def __init__(self, error: HostError) -> None:
        super().__init__(str(error))
        self.error = error


class HostLink:
    """Keeps a host connected. A refused login waits for `retry`, since only a person can change it."""

    def __init__(
        self, host: Host, target: str, publish: Callable[[ConnectionState], None], *, resembles: str | None = None
    ) -> None:
        """`resembles` is the command that the target may be a misspelling of: said if no host of that name is known."""
        self._host = host
        self._target = target
        self._publish = publish
        self._resembles = resembles
        self._retry = asyncio.Event()
        self.connection = ConnectionState(host=target)

    def retry(self) -> None:
        """Try to connect now, also after a refusal."""
        self._retry.set()

    async def run(self, while_online: Callable[[], Iterable[Coroutine[Any, Any, object]]]) -> NoReturn:
        """Stay connected until cancelled; `while_online` makes what runs over each connection. Raise what breaks that."""
        attempt = 0
        while True:
            attempt += 1
            self._retry.clear()
            self.show(LinkState.CONNECTING, attempt=attempt)
            try:
                await self._connect()
            except Refused as error:
                self.show(LinkState.REFUSED, error, attempt=attempt)
                await self._retry.wait()
                attempt = 0
            except HostError as error:
                await self._back_off(LinkState.UNREACHABLE, error, attempt)
            else:
                lost = await self._while_online(while_online())
                attempt = 1
                # A login that needed a person is not repeated by the host itself: it raises Refused, which waits for `retry`.
                await self._back_off(LinkState.LOST, lost, attempt)

    async def _connect(self) -> None:
        """Connect, and show meanwhile what the host says of it (a question to the person, above all)."""
        connecting = asyncio.create_task(self._host.connect())
        try:
            while not connecting.done():
                await asyncio.wait([connecting], timeout=CONNECTION_POLL_S)
                link = self._host.connection.link
                if not connecting.done() and link in (LinkState.ASKING, LinkState.CONNECTING) and link is not self.connection.link:
                    self.show(link, attempt=self.connection.attempt)
            connecting.result()
        finally:
            await ended(connecting)

    async def _back_off(self, link: LinkState, error: HostError, attempt: int) -> None:
        delay = retry_delay_s(attempt, random.random())
        self.show(link, error, attempt=attempt, retry_at=time.monotonic() + delay)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):  # wait_for may swallow a cancellation (Python 3.11)
                await self._retry.wait()

    async def _while_online(self, work: Iterable[Coroutine[Any, Any, object]]) -> HostError:
        self.show(LinkState.ONLINE)
        try:
            # What breaks a watcher breaks the watch: figures must not stand still unseen.
            await together(*work, self._round_trips(), self._notice_loss())
        except _LinkLost as lost:
            return lost.error
        raise AssertionError("the watchers of a connection end only with it")

    async def _notice_loss(self) -> None:
        raise _LinkLost(await self._host.wait_lost())

    async def _round_trips(self) -> None:
        while True:
            measured = self._host.connection.round_trip_ms
            if measured != self.connection.round_trip_ms:
                self.connection = replace(self.connection, round_trip_ms=measured)
                self._publish(self.connection)
            await asyncio.sleep(1.0)

    def show(self, link: LinkState, error: HostError | None = None, *, attempt: int = 0, retry_at: float | None = None) -> None:
        """Publish a new state of the connection. The reason of a loss stays readable while a new try runs."""
        before = self.connection
        keeps = link in (LinkState.CONNECTING, LinkState.ASKING)
        self.connection = ConnectionState(
            link=link,
            host=self._target,
            since=before.since if link is before.link else time.monotonic(),
            cause=error.cause if error is not None else before.cause if keeps else None,
            advice=self._advice(error) if error is not None else before.advice if keeps else None,
            attempt=attempt,
            retry_at=retry_at,
        )
        self._publish(self.connection)

    def _advice(self, error: HostError) -> str:
        if self._resembles is not None and isinstance(error, UnknownName):
            return f"{error.advice} (or did you mean the command {self._resembles!r}?)"
        return error.advice
