"""When the storage is said to set the pace of a load."""

import pytest

from tui.core.host_machine import MachineCounters, MachineSample, StorageTracker


def told(
    *,
    read_mb_s: float | None = 270.0,
    busy: float | None = 0.93,
    waiting: float = 0.0,
    seconds: int = 20,
    disk_mb_s: float | None = None,
) -> bool | None:
    tracker = StorageTracker()
    out = None
    for at in range(seconds + 1):
        counters = MachineCounters(
            mono=100.0 + at,
            cpu_total=100.0 * 128 * at,
            cpu_idle=0.0,
            cpu_iowait=100.0 * waiting * at,
            disk_busy_ms=None if busy is None else 1000.0 * busy * at,
            engine_read_bytes=None if read_mb_s is None else 1e6 * read_mb_s * at,
            disk_read_bytes=None if disk_mb_s is None else 1e6 * disk_mb_s * at,
        )
        out = tracker.see(MachineSample(cores=128, counters=counters))
    return out


@pytest.mark.parametrize(
    ("said", "case"),
    [
        (True, told()),
        (True, told(read_mb_s=None, disk_mb_s=3_200.0)),
        (True, told(busy=None, waiting=1.0)),  # NFS: one reader that always waits
        (False, told(busy=0.4)),
        (False, told(busy=None, waiting=0.3)),
        (False, told(read_mb_s=0.5)),  # the weights come from the page cache
        (None, told(read_mb_s=None)),
        (None, told(seconds=5)),
    ],
)
def test_bound(said: bool | None, case: bool | None) -> None:
    assert case is said


def test_another_boot_begins_anew() -> None:
    tracker = StorageTracker()
    for at in (100.0, 110.0):
        tracker.see(MachineSample(counters=MachineCounters(mono=at, engine_read_bytes=at * 1e8, disk_busy_ms=at * 1000)))
    assert tracker.see(MachineSample(counters=MachineCounters(mono=5.0, engine_read_bytes=0.0, disk_busy_ms=0.0))) is None
