"""The GPU host apart from its GPUs: processor, memory, disk, network, as sampled in /proc."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct


class MachineCounters(Struct, frozen=True):
    """Cumulative counters that the rates are made of, at `mono` seconds of the host's clock."""

    mono: float | None = None
    cpu_total: float | None = None
    """Ticks of all cores; idle and iowait are parts of it."""
    cpu_idle: float | None = None
    cpu_iowait: float | None = None
    disk_read_bytes: float | None = None
    disk_busy_ms: float | None = None
    network_rx_bytes: float | None = None
    engine_read_bytes: float | None = None


class MachineSample(Struct, frozen=True):
    """Rates are per second since the previous sample; None on the first one or if the host doesn't tell."""

    cpu_percent: float | None = None
    """Of all cores together, 0 to 100."""
    cores: int | None = None
    iowait_percent: float | None = None
    load_1m: float | None = None
    ram_total_mib: float | None = None
    ram_available_mib: float | None = None
    page_cache_mib: float | None = None
    swap_used_mib: float | None = None
    shm_total_mib: float | None = None
    shm_free_mib: float | None = None
    disk_read_mb_s: float | None = None
    """All block devices, or NFS where the model lies on it; 10**6 bytes."""
    disk_busy_percent: float | None = None
    disk: str | None = None
    """What the two are of: `nvme0n1`, `nfs4 server:/models`; None for all disks together."""
    network_rx_mb_s: float | None = None
    engine_read_mb_s: float | None = None
    """Bytes that the engine's processes read (/proc/PID/io), where permitted."""
    engine_read_bytes: int | None = None
    storage_bound: bool | None = None
    """Whether reads of the storage have set the pace of late (`core.storage`); None if that can't be told."""
    wall: float | None = None
    received_at: float | None = None
    counters: MachineCounters = MachineCounters()


WINDOW_S: Final = 30.0
"""Shards are read in bursts: one second says nothing."""
LEAST_S: Final = 8.0
BUSY_SHARE: Final = 0.8
"""Of the time in which the disk had reads under way."""
WAITING_CORES: Final = 0.8
"""Processors that waited for input, if the storage tells no busy time (NFS and its like): one reader that always waits."""
LEAST_MB_S: Final = 5.0
"""Below this nobody loads a model."""


@dataclass(slots=True)
class StorageTracker:
    """Fed with samples as they come, by the host's monotonic clock."""

    _seen: deque[MachineSample] = field(default_factory=deque)

    def see(self, sample: MachineSample) -> bool | None:
        """Return whether storage was the bound over the last half minute, or None if that can't be told, or not yet."""
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
