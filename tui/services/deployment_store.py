"""The state of one watched deployment: events are folded into it, and whoever waits gets the newest."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from msgspec.structs import replace

from tui.core.deployment import DeploymentState, Event, MachineSampled, fold
from tui.core.deployment_status import with_unheard_end
from tui.core.host_machine import MachineSample
from tui.core.liveness import SignTracker
from tui.core.logs.load_state import LoadState

MEMORY_SAMPLES = 20
TRUSTED_S = 60.0
"""Seconds for which the most advanced estimate counts: a frame that a slow link held back must not set the clock back."""


class HostClock:
    """The host's newest stamp, and when it arrived here."""

    def __init__(self) -> None:
        self._seen: tuple[float, float] | None = None

    def now(self) -> float:
        """Return the host's wall clock: its newest stamp plus the time since then; this machine's before the first one."""
        if self._seen is None:
            return time.time()
        wall, arrived = self._seen
        return wall + (time.monotonic() - arrived)

    def see(self, frame: Mapping[str, Any]) -> None:
        """Take the stamp of a frame, but not of lines (it is their own) or of a late one (it is that of old values)."""
        wall = frame.get("wall")
        if isinstance(wall, int | float) and frame.get("f") != "lines" and frame.get("late") is not True:
            arrived = time.monotonic()
            if self._seen is None or arrived - self._seen[1] > TRUSTED_S or float(wall) > self.now():
                self._seen = (float(wall), arrived)


class RecentMemory:
    """How much of the host's memory was in use of late, while the server ran: whether the kernel can have ended it for that."""

    def __init__(self) -> None:
        self._used: deque[tuple[float, float]] = deque(maxlen=MEMORY_SAMPLES)

    def see(self, sample: MachineSample) -> None:
        total, available = sample.ram_total_mib, sample.ram_available_mib
        if total and available is not None:
            self._used.append((total - available, total))

    def most(self) -> tuple[float, float] | None:
        """Return the most that was in use, and all that there is, in MiB; None if nothing was seen."""
        return max(self._used, default=None)


MAILBOX_HZ = 10.0


class DeploymentStore:
    """The state, the host's clock, and the signs of life that the events carry."""

    def __init__(self, state: DeploymentState, forecast: Callable[[LoadState], Event]) -> None:
        """`forecast` judges the load; it is asked at each new phase, so that no verdict is shown with the next phase."""
        self.state = state
        self.clock = HostClock()
        self.signs = SignTracker()
        self._forecast = forecast
        self._told = state.load
        """The load as the log tells it, without an end that only the processes tell."""
        self._ran = False
        self._ended_at: float | None = None
        self._memory = RecentMemory()
        self._news: set[asyncio.Event] = set()
        self._work: asyncio.Task[None] | None = None

    def publish(self, event: Event) -> None:
        """Fold an event into the state and wake whoever waits for a newer one."""
        before = self.state
        told = before if before.load is self._told else replace(before, load=self._told)
        after = fold(told, event)
        if after is told:
            return
        self._told = after.load
        after = with_unheard_end(after, self._end_seen_at(event, after), self._memory.most())
        load = after.load
        self.state = after
        if load is not None and load.recognised and (before.load is None or load.phase is not before.load.phase):
            self.state = fold(after, self._forecast(load))
        self._wake()

    def _end_seen_at(self, event: Event, state: DeploymentState) -> float | None:
        """Note whether the server's process runs, and the host's memory meanwhile; return when it was seen to be gone."""
        if state.server_pid is not None:
            self._ran, self._ended_at = True, None
            if isinstance(event, MachineSampled):
                self._memory.see(event.sample)
        elif self._ran and self._ended_at is None:
            self._ended_at = self.clock.now()
        return self._ended_at

    def end_with(self, work: asyncio.Task[None]) -> None:
        """End `states` when this task ends; what broke it is raised there and by `next_state`."""
        self._work = work
        work.add_done_callback(lambda _: self._wake())

    def _wake(self) -> None:
        for news in self._news:
            news.set()

    async def states(self) -> AsyncGenerator[DeploymentState]:
        """Yield the newest state whenever there is one, ten times a second at most. Raise what broke the work behind it."""
        news = asyncio.Event()
        news.set()
        self._news.add(news)
        try:
            while True:
                await news.wait()
                news.clear()
                yield self.state
                if self._work is not None and self._work.done():
                    if not self._work.cancelled():
                        self._work.result()
                    return
                await asyncio.sleep(1 / MAILBOX_HZ)
        finally:
            self._news.discard(news)

    async def next_state(self, timeout: float) -> DeploymentState:
        """Return the next newer state; the present one after `timeout` seconds. Raise what broke the work behind it."""
        news = asyncio.Event()
        self._news.add(news)
        try:
            async with asyncio.timeout(timeout):
                await news.wait()
                await asyncio.sleep(1 / MAILBOX_HZ)
        except TimeoutError:
            pass
        finally:
            self._news.discard(news)
        if self._work is not None and self._work.done() and not self._work.cancelled():
            self._work.result()
        return self.state

    def make_forecast(self) -> None:
        """Judge the load anew, as time passes without an event."""
        if self.state.load is not None and self.state.load.recognised:
            self.publish(self._forecast(self.state.load))
