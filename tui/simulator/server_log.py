"""The simulated server's clock and its log: records as vLLM writes them, and tqdm's bars."""

import asyncio
import os
import time
from collections.abc import Callable
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


class ServerLog:
    """Writes to one descriptor, a whole line a write, so that lines of several processes never mix."""

    def __init__(self, descriptor: int = 1, wall: Callable[[], float] = time.time) -> None:
        self._descriptor = descriptor
        self.wall = wall

    def raw(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]

    def line(self, text: str) -> None:
        self.raw(text.encode("utf-8", "surrogateescape") + b"\n")

    def record(self, who: str, message: str, *, source: str, level: str = "INFO") -> None:
        """Write one record; the lines of a longer message each carry the head again, and all but the last end in CR LF."""
        head = f"({who}) {level} {time.strftime('%m-%d %H:%M:%S', time.localtime(self.wall()))} [{source}] "
        self.line("\r\n".join(head + part for part in message.split("\n")))


def interval(seconds: float) -> str:
    """tqdm's format_interval: MM:SS, and H:MM:SS from one hour on."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:d}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


class _Mean:
    """tqdm's exponential mean with smoothing 0.3, corrected for its start."""

    def __init__(self) -> None:
        self._last = 0.0
        self._calls = 0

    def add(self, value: float) -> None:
        self._last = 0.3 * value + 0.7 * self._last
        self._calls += 1

    @property
    def value(self) -> float:
        return self._last / (1 - 0.7**self._calls) if self._calls else 0.0


class TqdmBar:
    """A tqdm bar: `text(n, now)` is what it draws after the n-th step."""

    def __init__(self, description: str, total: int, now: float, *, shards: bool = False) -> None:
        self._description = description
        self._total = total
        self._shards = shards
        self._began = self._then = now
        self._n = 0
        self._steps, self._seconds = _Mean(), _Mean()

    def text(self, n: int, now: float, *, closing: bool = False) -> str:
        if n > self._n:
            self._steps.add(n - self._n)
            self._seconds.add(now - self._then)
            self._n, self._then = n, now
        elapsed = now - self._began
        rate: float | None = None
        if closing and elapsed > 0:
            rate = n / elapsed
        elif self._seconds.value > 0:
            rate = self._steps.value / self._seconds.value
        left = interval((self._total - n) / rate) if rate else "?"
        if not rate:
            speed = "?it/s"
        elif rate < 1:
            speed = f"{1 / rate:5.2f}s/it"
        else:
            speed = f"{rate:5.2f}it/s"
        percent = n / self._total * 100
        counts = f"{n}/{self._total} [{interval(elapsed)}<{left}, {speed}]"
        if self._shards:
            return f"{self._description}: {percent:3.0f}% Completed | {counts}"
        return f"{self._description}: {percent:3.0f}%|{_blocks(n / self._total)}| {counts}"


def _blocks(share: float, width: int = 10) -> str:
    eighths = int(share * width * 8)
    full, rest = divmod(eighths, 8)
    if full >= width:
        return "█" * width
    return "█" * full + " ▏▎▍▌▋▊▉"[rest] + " " * (width - full - 1)
