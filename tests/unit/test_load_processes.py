"""How many processes a load needs, and how it is shared among them: nothing of it is lost, none has nothing to do."""

from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from tui.probe.load_net import Address
from tui.probe.load_workers import LoadShare, demand_of, processes_of, split
from tui.wire.request_record import RequestRecord

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


def warm_up(
    streams: int, gap: float, chunks: int = 32, n_out: int | None = None, *, ttft: float | None = None, together: int = 1
) -> list[RequestRecord]:
    """Return replies whose first token takes this many seconds (else a gap); `together` chunks share the stamp of the last."""
    records = []
    for index in range(streams):
        record = RequestRecord(index, chunks)
        record.start = 1e9
        first = 1e9 + (gap if ttft is None else ttft)
        record.chunks = array("d", (first + min(i // together * together + together - 1, chunks - 1) * gap for i in range(chunks)))
        record.end = record.chunks[-1]
        record.n_out = n_out
        records.append(record)
    return records


def at_rate(rate: float, seconds: float = 10.0) -> list[float]:
    return [i / rate for i in range(1, int(rate * seconds) + 1)]


A_LONG = 256 * 15e-6 + 200e-6
"""CPU seconds of a request of 256 chunks."""


@pytest.mark.parametrize(
    ("order", "records", "output", "cores"),
    [
        ({"concurrency": 1024}, warm_up(1024, 0.020), 256, 1024 / 5.12 * A_LONG),
        ({"concurrency": 16}, warm_up(16, 0.020), 256, 16 / 5.12 * A_LONG),
        ({"concurrency": 16}, warm_up(16, 0.020, ttft=10.0), 256, 16 / 15.1 * A_LONG),
        # of the replies that had to wait for the prompts of others, the quick ones tell what is to come
        ({"concurrency": 16}, warm_up(12, 0.2, ttft=5.0) + warm_up(4, 0.020), 256, 16 / 5.12 * A_LONG),
        # one token: no gap, and a request for each
        ({"concurrency": 512}, warm_up(512, 0.0, 1, ttft=0.050), 1, 512 / 0.05 * 215e-6),
        ({"concurrency": 16}, warm_up(16, 0.0, ttft=0.640), 32, 16 / 0.64 * (32 * 15e-6 + 200e-6)),  # all at once
        ({"schedule": at_rate(200)}, warm_up(16, 0.020), 256, 200 * A_LONG),
        ({"schedule": at_rate(2000)}, warm_up(16, 0.020), 1, 2000 * 215e-6),
        ({"schedule": at_rate(200)}, warm_up(16, 0.020, n_out=128), 256, 200 * (64 * 15e-6 + 200e-6)),  # four tokens a chunk
        ({"schedule": at_rate(200), "gate": 64}, warm_up(16, 0.020), 256, 64 / 5.12 * A_LONG),  # no more than its gate lets through
        ({"schedule": [0.0] * 64}, warm_up(16, 0.020), 256, 64 / 5.12 * A_LONG),
        ({"schedule": at_rate(200)}, [], 256, 200 * A_LONG),  # a warm-up that told nothing
        ({"concurrency": 64}, [], 256, 0.0),
    ],
)
def test_the_cores_that_a_load_needs(order: dict[str, Any], records: Sequence[RequestRecord], output: int, cores: float) -> None:
    assert demand_of(order, list(records), output) == pytest.approx(cores, rel=1e-4)


@pytest.mark.parametrize("together", [2, 3, 4])
def test_chunks_read_together_change_no_demand(together: int) -> None:
    """The median of the gaps would be 0, and the demand thousands of times what it is."""
    order = {"concurrency": 64}
    single = demand_of(order, warm_up(64, 0.020), 256)
    assert demand_of(order, warm_up(64, 0.020, together=together), 256) == pytest.approx(single, rel=0.12)


@pytest.mark.parametrize(
    ("demand", "most", "processes"), [(0.0, 8, 1), (0.59, 8, 1), (0.6, 8, 2), (1.1, 8, 3), (2.2, 8, 5), (96.0, 8, 8), (2.2, 1, 1)]
)
def test_the_processes_that_carry_it(demand: float, most: int, processes: int) -> None:
    assert processes_of(demand, most) == processes
