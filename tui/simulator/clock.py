"""The time in which a start is played: now at a chosen speed, or a past that costs nothing."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """`wall` is Unix time, `monotonic` seconds; `spend` lets that much of the scenario's time pass and returns what it took."""

    def wall(self) -> float: ...

    def monotonic(self) -> float: ...

    async def spend(self, seconds: float) -> float: ...


class PlayedClock:
    """This machine's clock; the scenario's seconds pass `speed` times as fast."""

    def __init__(self, speed: float) -> None:
        self._speed = speed

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def spend(self, seconds: float) -> float:
        began = time.monotonic()
        await asyncio.sleep(seconds / self._speed)
        return time.monotonic() - began


class PastClock:
    """Began that long ago, and passes only when it is spent."""

    def __init__(self, seconds_ago: float) -> None:
        self._ahead = -seconds_ago
        self._wall, self._monotonic = time.time(), time.monotonic()

    def wall(self) -> float:
        return self._wall + self._ahead

    def monotonic(self) -> float:
        return self._monotonic + self._ahead

    async def spend(self, seconds: float) -> float:
        self._ahead += seconds
        return seconds
