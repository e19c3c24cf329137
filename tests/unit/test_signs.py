"""How fast the engine reads, from the counters of its processes."""

import pytest

from tui.core.host_machine import MachineSample
from tui.core.liveness import SignTracker

GIB = 2**30


@pytest.mark.parametrize(
    ("reads", "rate"),
    [
        ([], None),
        ([(0.0, 0)], None),
        ([(0.0, 0), (10.0, GIB)], None),  # too short a look
        ([(0.0, 0), (10.0, 5 * GIB), (20.0, 5 * GIB)], 0.25),  # bursts average out
        ([(0.0, 90 * GIB), (10.0, GIB), (30.0, 5 * GIB)], 0.2),  # another process: its counter began anew
        ([(0.0, 0), (40.0, 40 * GIB), (80.0, 40 * GIB), (100.0, 42 * GIB)], 2 / 60),  # the last minute only
    ],
)
def test_the_rate_of_the_last_minute(reads: list[tuple[float, int]], rate: float | None) -> None:
    tracker = SignTracker()
    for now, total in reads:
        tracker.see_machine(MachineSample(engine_read_bytes=total), now)
    assert tracker.signs(200.0).read_gib_s == (None if rate is None else pytest.approx(rate))
