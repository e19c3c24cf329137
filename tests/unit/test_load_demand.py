"""How many cores a load will need, and how long its loop may rest: from what was seen so far."""

from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from tui.probe.load_schedule import LEAST_S, Tally, a_chunk_of
from tui.probe.load_stream import ReplyStream
from tui.probe.load_workers import demand_of, processes_of
from tui.wire.request_record import COMPLETED, RequestRecord


def warm_up(
    streams: int, gap: float, chunks: int = 32, n_out: int | None = None, *, ttft: float | None = None, together: int = 1
) -> list[RequestRecord]:
    """Replies with so many seconds to their first token (else a gap); `together` chunks each have the last one's stamp."""
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


def sent(chunks: int, **fields: Any) -> ReplyStream:
    """A request of which so many chunks have come."""
    record = RequestRecord(0, 400)
    record.chunks = array("d", [1000.0] * chunks)
    for name, value in fields.items():
        setattr(record, name, value)
    return ReplyStream(None, record, b"", "chat", False)


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


def ended(tally: Tally, start: float, end: float, chunks: int) -> None:
    record = RequestRecord(0, chunks)
    record.start, record.end = start, end
    record.chunks = array("d", [end] * chunks)
    tally.completed(ReplyStream(None, record, b"", "chat", False))


@pytest.mark.parametrize(
    ("lasted", "chunks", "wanted"),
    [
        (None, 0, 0.0),  # nothing has come
        (None, 16, 0.002),  # none has ended in those 2 seconds
        (0.034, 8, 0.0),
        (0.150, 8, 0.0),
        (0.4, 8, 0.0004),
        (1.5, 80, 0.0015),
        (60.0, 80, 0.002),
        (60.0, 90_000, 0.0),  # 1.4 ms between two tokens of a stream: an 8th is too short for a pause
        (60.0, 20_000, 0.0008),
    ],
)
def test_the_rest_of_a_turn_keeps_its_bound(lasted: float | None, chunks: int, wanted: float) -> None:
    """64 streams, over 2 seconds."""
    tally = Tally()
    tally.progress(1000.0, ())
    if lasted is not None:
        ended(tally, 1002.0 - lasted, 1002.0, chunks)
        tally.progress(1002.0, ())
    else:
        record = RequestRecord(0, chunks)
        record.chunks = array("d", [1002.0] * chunks)
        tally.progress(1002.0, (ReplyStream(None, record, b"", "chat", False),))
    moment = tally.moment(64, 2.0)
    assert moment == 0.0 or moment >= LEAST_S
    assert moment == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize(
    ("a_chunk", "n_out", "rates"),
    [
        (None, 400, [None, 400.0]),  # before one has ended
        (4.0, 400, [400.0, 400.0]),  # as the warm-up had them
        (4.0, 200, [400.0, 200.0]),  # what has ended knows better
        (None, None, [None, 100.0]),  # no usage: a chunk counts as a token
    ],
)
def test_the_pace_is_in_tokens(a_chunk: float | None, n_out: int | None, rates: list[float | None]) -> None:
    """100 chunks a second, the first request of 100."""
    tally = Tally(a_chunk)
    first = sent(0)
    assert tally.progress(1000.0, [first])["tokens_s"] is None
    first.record.chunks.extend([1000.5] * 50)
    told = [tally.progress(1000.5, [first])["tokens_s"]]
    first.record.chunks.extend([1001.0] * 50)
    first.record.n_out, first.record.state = n_out, COMPLETED
    tally.completed(first)
    told.append(tally.progress(1001.0, ())["tokens_s"])
    assert told == rates


def test_what_fails_does_not_turn_the_pace_back() -> None:
    tally = Tally(1.0)
    tally.progress(1000.0, ())
    broken, whole = sent(50), sent(10)
    assert tally.progress(1001.0, [broken, whole])["tokens_s"] == 60.0
    broken.fail("cut", "gone")
    tally.failure(broken)
    whole.record.chunks.extend([1002.0] * 10)
    progress = tally.progress(1002.0, [whole])
    assert (progress["chunks"], progress["tokens_s"]) == (70, 35.0)


def test_what_a_chunk_holds_is_that_of_completed_requests() -> None:
    ended = [sent(10, n_out=40, state=COMPLETED), sent(10, state=COMPLETED), sent(10, n_out=900)]
    assert a_chunk_of(one.record for one in ended) == 2.5
    assert a_chunk_of(()) is None


def test_tokens_read_together_shorten_the_rest() -> None:
    tally = Tally()
    tally.progress(1000.0, ())
    ended(tally, 942.0, 1002.0, 80)
    tally.together = 40
    tally.progress(1002.0, ())
    assert tally.moment(64, 2.0) == 0.0005


def test_before_a_request_has_ended_the_rest_grows_with_the_run() -> None:
    """Those in flight will have lasted at least so long."""
    record = RequestRecord(0, 100)
    record.chunks = array("d", [1000.5] * 20)
    tally = Tally()
    tally.progress(1000.0, ())
    tally.progress(1000.5, (ReplyStream(None, record, b"", "chat", False),))
    assert [tally.moment(64, elapsed) for elapsed in (0.1, 0.5, 1.0, 60.0)] == [0.0, 0.0005, 0.001, 0.002]
