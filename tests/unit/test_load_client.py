"""When a point's figures are the client's own doing: from what it read late, and what that is beside the load."""

from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from tui.probe.load_client import client_figures, gap_of
from tui.probe.load_schedule import ClientHealth, LoadOutcome
from tui.wire.request_record import COMPLETED, FAILED, RequestRecord
from tui.wire.summary import summary


def replies(count: int, ttft: float, gaps: Sequence[float]) -> list[RequestRecord]:
    """Return replies of a closed loop, one after the other; times in ms."""
    made = []
    for index in range(count):
        record = RequestRecord(index, len(gaps) + 1)
        record.start = at = 1e9 + index
        record.chunks = array("d", [at := at + ms / 1000.0 for ms in (ttft, *gaps)])
        record.end = record.chunks[-1]
        record.state = COMPLETED
        record.n_out = len(record.chunks)
        made.append(record)
    return made


def judged(
    records: list[RequestRecord], lags: Sequence[float], together: int = 0, rest: float = 0.0, busy: float = 0.1
) -> dict[str, Any]:
    """Judge with lags and the rest in ms; `together` chunks were read together with a later one."""
    health = ClientHealth(array("f", [ms / 1000.0 for ms in lags]), 0.1, 1.0, len(lags), True, 0.0, 0, together, rest / 1000.0)
    outcome = LoadOutcome(records, 1e9, 1e9 + len(records), None, "", health)
    return client_figures(outcome, [busy], summary(records, 1e9, 1e9 + len(records), concurrency=8))


PROMPT = [0.07] * 1000
STEADY = replies(100, 10.0, [4.0] * 7)
LONG = replies(10, 10.0, [4.0] * 199)


@pytest.mark.parametrize(
    ("records", "lags", "together", "rest", "limited"),
    [
        pytest.param(STEADY, PROMPT, 0, 0.0, False, id="in time"),
        # measured with a client that had 3 of each 17 ms: 14 % of the throughput and the gaps were gone, and TTFT 15.2 for 10.2
        pytest.param(
            replies(100, 15.2, [0.0, 0.0, 17.0, 0.0, 0.0, 6.0, 0.0]), [1.3] * 900 + [15.1] * 100, 390, 0.0, True, id="throttled"
        ),
        # no read of a long reply is later than a gap: what is told is the last chunk's lag
        pytest.param(replies(10, 14.0, [0.0, 0.0, 0.0, 16.0] * 50), [i % 40 / 10 for i in range(500)], 1500, 0.0, True, id="long"),
        pytest.param(LONG, [0.07] * 900 + [3.0] * 100, 0, 0.0, False, id="late, but each chunk by itself"),
        pytest.param(LONG, [0.07] * 900 + [3.0] * 100, 15, 0.0, False, id="0.75 % together"),
        pytest.param(LONG, [0.07] * 900 + [3.0] * 100, 40, 0.0, True, id="2 % together"),
        pytest.param(replies(10, 10.0, [0.0, 0.0, 0.0, 16.0] * 50), PROMPT, 1500, 0.0, False, id="the server's batches"),
        pytest.param(replies(10, 10.0, [0.0, 0.0, 0.0, 0.4] * 50), [0.3] * 500, 1500, 0.0, False, id="a quick server's batches"),
        pytest.param(replies(10, 900.0, [0.0] * 199), [3.0] * 10, 1990, 0.0, False, id="all at once"),
        pytest.param(replies(100, 50.0, []), PROMPT, 0, 0.0, False, id="one token"),
        pytest.param(replies(100, 50.0, []), [0.07] * 90 + [4.0] * 10, 0, 0.0, True, id="one token, the next request 8 % late"),
        pytest.param(replies(100, 500.0, []), [0.07] * 90 + [4.0] * 10, 0, 0.0, False, id="0.8 % late"),
        pytest.param(replies(100, 0.8, [0.1] * 3), [0.5] * 400, 0, 0.0, False, id="below a millisecond nothing counts"),
        pytest.param(replies(100, 60.0, [16.0] * 7), [2.3] * 800, 0, 2.0, False, id="its own rest"),
        pytest.param(replies(100, 50.0, [2.0] * 7), [0.8] * 500, 100, 0.25, False, id="its own rest, chunks gathered by it"),
        pytest.param(replies(100, 60.0, [16.0] * 7), [7.0] * 800, 0, 2.0, True, id="more than its rest"),
        pytest.param(replies(100, 900.0, [30.0] * 99), [25.0] * 800, 0, 0.0, True, id="20 ms, most of a gap"),
        pytest.param(replies(100, 900.0, [60.0] * 99), [25.0] * 800, 0, 0.0, False, id="20 ms, less than half a gap"),
    ],
)
def test_a_client_that_reads_late(
    records: list[RequestRecord], lags: list[float], together: int, rest: float, limited: bool
) -> None:
    assert judged(records, lags, together, rest)["client_limited"] is limited


def test_a_busy_process_and_one_that_ran_out_of_files_limit_a_point() -> None:
    assert judged(STEADY, PROMPT, busy=0.9)["client_limited"] is True
    failed = RequestRecord(100, 8)
    failed.state, failed.kind, failed.start, failed.end = FAILED, "open_files", 1e9, 1e9
    assert judged([*STEADY, failed], PROMPT)["client_limited"] is True


def test_a_point_without_a_reply_says_nothing_of_its_lag() -> None:
    failed = RequestRecord(0, 8)
    failed.state, failed.kind, failed.start, failed.end = FAILED, "refused", 1e9, 1e9
    figures = judged([failed], [])
    assert figures["client_limited"] is False
    assert figures["client_lag_p99_ms"] is None


@pytest.mark.parametrize(
    ("records", "gap"),
    [
        (LONG, 4.0),
        (replies(3, 10.0, [0.0, 0.0, 12.0]), 4.0),  # the median would be 0
        (replies(3, 10.0, []), None),
        (replies(3, 10.0, [0.0, 0.0]), None),
        ([], None),
    ],
)
def test_the_time_between_two_chunks(records: list[RequestRecord], gap: float | None) -> None:
    found = gap_of(records)
    assert found is None if gap is None else found == pytest.approx(gap / 1000.0, rel=1e-4)
