"""How a load is shared among processes: nothing of it is lost, and none is left that has nothing to do."""

from typing import Any

import pytest

from tui.probe.load_net import Address
from tui.probe.load_workers import LoadShare, split

ADDRESS = Address(2, ("127.0.0.1", 1))


def shares(order: dict[str, Any], count: int) -> list[dict[str, Any]]:
    whole = LoadShare({}, {}, {}, order, 0, 1, 0, None, ADDRESS)
    parts = split(whole, count)
    assert [(part.first, part.step) for part in parts] == [(i, len(parts)) for i in range(len(parts))]
    return [part.order for part in parts]


@pytest.mark.parametrize(
    ("order", "count", "parts"),
    [
        ({"concurrency": 5, "requests": 20}, 2, [{"concurrency": 3, "requests": 10}, {"concurrency": 2, "requests": 10}]),
        # more processes than streams
        ({"concurrency": 2, "requests": 10}, 4, [{"concurrency": 1, "requests": 5}] * 2),
        ({"concurrency": 2, "at_least": 8, "at_least_s": 10.0}, 4, [{"concurrency": 1, "at_least": 4, "at_least_s": 10.0}] * 2),
        ({"concurrency": 1, "duration_s": 5.0}, 8, [{"concurrency": 1, "duration_s": 5.0}]),
        # fewer requests than streams, and than processes
        ({"concurrency": 4, "requests": 3}, 4, [{"concurrency": 2, "requests": 1}] + [{"concurrency": 1, "requests": 1}] * 2),
        # an open loop's gate, and its requests
        ({"schedule": [1.0, 2.0, 3.0], "requests": 3, "gate": 1}, 2, [{"schedule": [1.0, 2.0, 3.0], "requests": 3, "gate": 1}]),
        ({"schedule": [1.0, 2.0, 3.0], "gate": 3}, 2, [{"schedule": [1.0, 3.0], "gate": 2}, {"schedule": [2.0], "gate": 1}]),
        ({"schedule": [1.0, 2.0]}, 8, [{"schedule": [1.0]}, {"schedule": [2.0]}]),
        ({"schedule": [], "gate": 4}, 2, [{"schedule": [], "gate": 4}]),
    ],
)
def test_the_parts_of_a_load(order: dict[str, Any], count: int, parts: list[dict[str, Any]]) -> None:
    assert shares(order, count) == parts


@pytest.mark.parametrize("count", range(1, 12))
@pytest.mark.parametrize("streams", [1, 2, 5, 8, 64])
def test_the_parts_are_the_whole(streams: int, count: int) -> None:
    for order in (
        {"concurrency": streams, "requests": 20},
        {"concurrency": streams, "at_least": 4 * streams},
        {"schedule": [float(i) for i in range(20)], "requests": 20, "gate": streams},
    ):
        parts = shares(order, count)
        for name in ("concurrency", "requests", "at_least", "gate"):
            assert sum(part.get(name, 0) for part in parts) == order.get(name, 0)
        assert all(part.get("concurrency") or part.get("gate") for part in parts)
        if "schedule" in order:
            assert sorted(due for part in parts for due in part["schedule"]) == order["schedule"]
