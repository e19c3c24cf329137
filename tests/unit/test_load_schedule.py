"""When the load generator sends its requests, when it has sent enough, and what it tells of what came."""

from array import array
from typing import Any

import pytest

from tui.probe.load_schedule import LEAST_S, Agenda, LoadOrder, Tally, a_chunk_of
from tui.probe.load_stream import ReplyStream
from tui.wire.request_record import COMPLETED, RequestRecord

BEGIN = 1000.0


@pytest.mark.parametrize(
    ("order", "sent", "after", "enough", "by_time"),
    [
        (LoadOrder(concurrency=2, requests=4), 3, 99.0, False, False),
        (LoadOrder(concurrency=2, requests=4), 4, 0.0, True, False),
        (LoadOrder(concurrency=2, duration_s=5.0), 999, 99.0, False, True),
        (LoadOrder(concurrency=2, at_least=4, at_least_s=5.0), 4, 4.9, False, True),
        (LoadOrder(concurrency=2, at_least=4, at_least_s=5.0), 3, 5.1, False, True),
        (LoadOrder(concurrency=2, at_least=4, at_least_s=5.0), 4, 5.1, True, True),
        (LoadOrder(concurrency=2, at_least=4, at_least_s=5.0, at_most_s=9.0), 3, 9.0, True, True),
        (LoadOrder(schedule=[0.5, 1.0]), 0, 0.0, False, False),
        (LoadOrder(schedule=[]), 0, 0.0, True, False),
    ],
)
def test_when_it_is_enough(order: LoadOrder, sent: int, after: float, enough: bool, by_time: bool) -> None:
    agenda = Agenda(order, lambda: 0)
    agenda.start(BEGIN)
    agenda.sent = sent
    assert agenda.is_enough(BEGIN + after) is enough
    assert agenda.wants_another(BEGIN + after) is (order.concurrency is not None and not enough)
    agenda.close(BEGIN + after)
    assert agenda.dispatch_end == (BEGIN + after if by_time else None)
    assert not agenda.wants_another(BEGIN + after)


def test_a_schedule_behind_a_gate() -> None:
    in_flight = 0
    agenda = Agenda(LoadOrder(schedule=[0.5, 1.0, 1.5], gate=2), lambda: in_flight)
    agenda.start(BEGIN)
    assert (agenda.planned, agenda.spare, agenda.next_at()) == (3, 2, 1000.5)
    assert agenda.take_due(1000.4) is None
    assert agenda.take_due(1001.2) == 1000.5
    in_flight = 2
    assert agenda.take_due(1001.2) is None
    assert agenda.next_at() == float("inf")
    in_flight = 1
    assert agenda.take_due(1001.2) == 1001.0
    assert agenda.next_at() == 1001.5
    assert not agenda.is_enough(1001.4)
    assert agenda.take_due(1001.6) == 1001.5
    assert agenda.is_enough(1001.6)


def test_slots_that_wait_come_in_the_order_of_their_times() -> None:
    agenda = Agenda(LoadOrder(concurrency=2, requests=9), lambda: 0)
    agenda.start(BEGIN)
    agenda.postpone(1002.0, 0)
    agenda.postpone(1001.0, 1)
    assert agenda.next_at() == 1001.0
    assert [agenda.take_later(now) for now in (1000.9, 1001.0, 1001.9, 1002.0, 1003.0)] == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("schedule", "spare"), [(None, 0), ([], 2), ([0.0], 2), ([n / 100 for n in range(1, 301)], 12), ([0.001], 64)]
)
def test_idle_connections_follow_the_rate(schedule: list[float] | None, spare: int) -> None:
    assert Agenda(LoadOrder(schedule=schedule), lambda: 0).spare == spare


def sent(chunks: int, **fields: Any) -> ReplyStream:
    """Return a request of which this many chunks have come."""
    record = RequestRecord(0, 400)
    record.chunks = array("d", [1000.0] * chunks)
    for name, value in fields.items():
        setattr(record, name, value)
    return ReplyStream(None, record, b"", "chat", False)


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
    assert a_chunk_of(stream.record for stream in ended) == 2.5
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
