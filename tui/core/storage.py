"""Whether the storage sets the pace of a load: its reads keep the disk, or whoever waits for them, busy nearly all of the time."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from tui.core.machine import MachineSample

WINDOW_S: Final = 30.0
"""Shards are read in bursts: one second says nothing."""
LEAST_S: Final = 8.0
BUSY_SHARE: Final = 0.8
"""Of the time in which the disk had reads under way."""
WAITING_CORES: Final = 0.8
"""Processors that waited for input, where the storage tells no busy time (NFS and its like): one reader that always waits."""
LEAST_MB_S: Final = 5.0
"""Below this nobody loads a model."""


@dataclass(slots=True)
class StorageTracker:
    """Fed with samples as they come, by the host's monotonic clock."""

    _seen: deque[MachineSample] = field(default_factory=deque)

    def see(self, sample: MachineSample) -> bool | None:
        """Whether the storage has been the bound over the last half minute; None where that can't be told, or not yet."""
        now = sample.counters.mono
        if now is None:
            return None
        if self._seen and (now < (self._seen[-1].counters.mono or 0.0) or sample.disk != self._seen[-1].disk):
            self._seen.clear()  # another boot of the host, or another disk
        self._seen.append(sample)
        while now - (self._seen[0].counters.mono or 0.0) > WINDOW_S:
            self._seen.popleft()
        first, last = self._seen[0].counters, sample.counters
        seconds = now - (first.mono or 0.0)
        if seconds < LEAST_S:
            return None
        read = _gain(first.engine_read_bytes, last.engine_read_bytes)
        if read is None:
            read = _gain(first.disk_read_bytes, last.disk_read_bytes)
        if read is None:
            return None
        if read / 1e6 / seconds < LEAST_MB_S:
            return False
        busy = _gain(first.disk_busy_ms, last.disk_busy_ms)
        if busy is not None:
            return busy / 1000.0 / seconds >= BUSY_SHARE
        waited, ticks = _gain(first.cpu_iowait, last.cpu_iowait), _gain(first.cpu_total, last.cpu_total)
        if waited is None or not ticks or sample.cores is None:
            return None
        return waited / ticks * sample.cores >= WAITING_CORES


def _gain(before: float | None, now: float | None) -> float | None:
    return now - before if before is not None and now is not None and now >= before else None
