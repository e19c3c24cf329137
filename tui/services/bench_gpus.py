"""The GPUs of the engine while a benchmark runs: their memory, and what they draw."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from tui.aio import ended
from tui.core.bench_soak import engine_gpus
from tui.core.gpu import GpuSample, mean_power_w
from tui.core.gpu_frames import gpus_from_frame
from tui.host.base import Host, HostError

ENERGY_S = 2.0
"""Seconds between readings of the energy counters: eight of them take 30 ms of a core."""


class GpuWatch:
    """Samples the host's GPUs once a second in the background; a host without GPUs or Python has no samples."""

    def __init__(self, host: Host, wanted: str = "all", hz: float = 1.0) -> None:
        self._host = host
        self._wanted = wanted
        self._hz = hz
        self._sample: GpuSample | None = None
        self._work: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._work = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._work is not None:
            await ended(self._work)

    def newest(self) -> GpuSample | None:
        """The newest sample, of the engine's GPUs only; None when there is none."""
        return self._sample

    async def _watch(self) -> None:
        with contextlib.suppress(HostError):
            probe = await self._host.start_probe("watch", {"hz": self._hz, "pids": None, "paths": [], "energy_s": ENERGY_S})
            try:
                async for frame in probe:
                    if frame.get("f") == "gpus":
                        self._take(frame)
            finally:
                await probe.close()

    def _take(self, frame: Mapping[str, Any]) -> None:
        sample = gpus_from_frame(frame, time.monotonic())
        chosen = engine_gpus(sample, self._wanted)
        self._sample = replace(sample, gpus=chosen) if chosen else None


class Drawn:
    """What the GPUs drew between `begin` and `end`, by their energy counters.

    `own` gives the samples whose counters are read often; `other` those that tell of the memory where there are none.
    """

    def __init__(self, own: Callable[[], GpuSample | None], other: Callable[[], GpuSample | None]) -> None:
        self._own = own
        self._other = other
        self._begun = False
        self._read_before: float | None = None
        """When the counters were read last before it began."""
        self._first: GpuSample | None = None
        self._last: GpuSample | None = None
        self._over = False

    def begin(self) -> None:
        """To be called again and again while the load runs: what counts is the first sample whose counters were read since the
        first call, since those that it finds are of a time before, in which the GPUs may have idled."""
        own = self._own()
        read = None if own is None else _read_at(own)
        if not self._begun:
            self._begun = True
            self._read_before = read
        elif self._first is None and read is not None and (self._read_before is None or read > self._read_before):
            self._first = own

    def end(self) -> None:
        """The first call counts: what the GPUs draw while they idle afterwards is not the load's."""
        if not self._over:
            self._over = True
            self._last = self._own()

    def figures(self) -> dict[str, Any] | None:
        """The point's "gpu", up to now where `end` was not called; None where no GPU was seen."""
        self.end()
        own = self._last
        last = own if own is not None else self._other()
        if last is None:
            return None
        return {
            "count": len(last.gpus),
            "memory_used_mib": [gpu.memory_used_mib for gpu in last.gpus],
            "mean_power_w": mean_power_w(self._first, own) if self._first is not None and own is not None else None,
        }


def _read_at(sample: GpuSample) -> float | None:
    """When the last of its energy counters was read, in seconds of the host's clock; None where there is none."""
    return max((gpu.energy_at for gpu in sample.gpus if gpu.energy_at is not None), default=None)
