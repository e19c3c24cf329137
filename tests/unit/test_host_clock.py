"""The host's clock by the stamps of its frames."""

import time
from typing import Any

import pytest

from tui.services.deployment_store import HostClock

NOW = 1_796_000_000.0


@pytest.mark.parametrize(
    ("frames", "now"),
    [
        ([{"f": "gpus", "wall": NOW}], NOW),
        ([{"f": "gpus", "wall": NOW}, {"f": "machine", "wall": NOW + 2}], NOW + 2),
        ([{"f": "gpus", "wall": NOW}, {"f": "machine", "wall": NOW - 7.5}], NOW),  # held back by a slow link
        ([{"f": "gpus", "wall": NOW}, {"f": "lines", "wall": NOW + 3600}], NOW),  # the stamp of a line is the log's
        ([{"f": "gpus", "wall": NOW, "late": True}, {"f": "machine", "wall": NOW - 7.5}], NOW - 7.5),  # that of old values
        ([{"f": "gpus", "wall": NOW}, {"f": "gpus", "wall": "soon"}, {"f": "gpus"}], NOW),
    ],
)
def test_the_most_advanced_stamp_counts(frames: list[dict[str, Any]], now: float) -> None:
    clock = HostClock()
    for frame in frames:
        clock.see(frame)
    assert clock.now() == pytest.approx(now, abs=1.0)


def test_before_the_first_stamp_it_is_this_machines() -> None:
    assert HostClock().now() == pytest.approx(time.time(), abs=1.0)
