"""The time in which a start is played: a past that costs nothing, then now at a chosen speed."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """`wall` is Unix time, `monotonic` seconds; `spend` lets that much of the scenario's time pass and returns what it took."""

    def wall(self) -> float: ...

    def monotonic(self) -> float: ...

    async def spend(self, seconds: float) -> float: ...


class PlayedClock:
    """Began `ago` seconds back, runs up to now in no time, and passes from then on; `speed` of the scenario's seconds a second."""

    def __init__(self, speed: float, ago: float = 0.0) -> None:
        self._speed = speed
        self._behind = ago

    def wall(self) -> float:
        return time.time() - self._behind

    def monotonic(self) -> float:
        return time.monotonic() - self._behind

    async def spend(self, seconds: float) -> float:
        began = self.monotonic()
        past = min(seconds, self._behind)
        self._behind -= past
        if seconds > past:
            await asyncio.sleep((seconds - past) / self._speed)
        return self.monotonic() - began
