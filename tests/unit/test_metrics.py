"""Figures against answers worked out by hand, by the standard library, and by a recorded `vllm bench serve`."""

import json
import statistics
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui.wire.request_record import COMPLETED, FAILED, INCOMPLETE, RequestRecord
from tui.wire.summary import PLAIN_ARRAYS, _warnings, detail, percentile, quantile_interval, spread, steady_window, summary

DATA = Path(__file__).parent.parent / "data" / "bench"


def record(index: int, start: float, chunks: list[float], n_out: int | None = None, **fields: Any) -> RequestRecord:
    made = RequestRecord(index, fields.pop("asked", n_out or len(chunks)))
    made.start = start
    made.chunks = array("d", chunks)
    made.end = chunks[-1] if chunks else start
    made.n_out = n_out
    made.state = COMPLETED
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("values", "p", "expected"),
    [([1.0], 99, 1.0), ([1.0, 2.0], 50, 1.5), ([1.0, 2.0, 3.0, 4.0], 90, 3.7), ([0.0, 10.0], 99, 9.9), ([5.0, 6.0, 7.0], 0, 5.0)],
)
def test_percentile(values: list[float], p: float, expected: float) -> None:
    assert percentile(values, p) == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e3), min_size=2, max_size=300))
def test_percentiles_are_those_of_the_standard_library(values: list[float]) -> None:
    ordered = sorted(values)
    cuts = statistics.quantiles(ordered, n=100, method="inclusive")
    for p in (1, 50, 90, 99):
        assert percentile(ordered, p) == pytest.approx(cuts[p - 1], rel=1e-9, abs=1e-9)
    figures = spread("itl", values)
    assert figures["std_itl_ms"] == pytest.approx(statistics.pstdev(values) * 1000, rel=1e-6, abs=1e-6)


def test_definitions() -> None:
    records = [
        record(0, 10.0, [10.5, 10.6, 10.7, 10.8], n_out=4, n_in=7),
        record(1, 10.0, [11.0, 11.5], n_out=5, n_in=8),  # several tokens in a chunk
        record(2, 10.0, [10.2], n_out=1, n_in=9),
        record(3, 10.0, [10.1, 10.2], n_out=9, n_in=9, state=FAILED, kind="cut", error="gone"),
        record(4, 10.0, [10.1, 10.2], n_in=9, state=INCOMPLETE),
    ]
    figures = summary(records, 10.0, 12.0, concurrency=5, limits={"ttft": 600, "tpot": 150})
    assert figures["completed"] == 3
    assert figures["failed"] == 1
    assert figures["incomplete"] == 1
    assert figures["errors_by_kind"] == {"cut": 1}
    assert figures["total_output_tokens"] == 10
    assert figures["total_input_tokens"] == 24
    assert figures["output_throughput"] == pytest.approx(5.0)
    assert figures["mean_ttft_ms"] == pytest.approx((500 + 1000 + 200) / 3)
    assert figures["mean_tpot_ms"] == pytest.approx((100 + 125) / 2)
    assert figures["mean_itl_ms"] == pytest.approx((100 * 3 + 500) / 4)
    assert figures["median_e2el_ms"] == pytest.approx(800)
    assert figures["request_goodput"] == pytest.approx(2 / 2.0)
    assert figures["tokens_per_chunk"] == pytest.approx(10 / 7)
    assert figures["max_output_tokens_per_s"] == 5.0
    assert figures["peak_tokens_per_s"] == pytest.approx(5.0)


def test_nothing_completed_is_unknown_not_zero() -> None:
    figures = summary([record(0, 1.0, [], state=FAILED, kind="http_503")], 1.0, 2.0, concurrency=1)
    assert figures["failed"] == 1
    assert figures["mean_ttft_ms"] is None
    assert figures["p99_tpot_ms"] is None
    assert figures["steady_output_throughput"] is None
    assert figures["output_throughput"] == 0.0


def test_steady_window_leaves_ramp_and_drain_out() -> None:
    # two streams of ten tokens a second each; the second one starts late, and ends late
    starts = enumerate((50.0, 52.0, 55.0, 57.0))
    records = [record(i, start, [start + 0.1 * n for n in range(1, 51)]) for i, start in starts]
    figures = summary(records, 50.0, 62.0, concurrency=2)
    assert figures["output_throughput"] == pytest.approx(200 / 12)
    assert figures["steady_output_throughput"] == pytest.approx(20.0, rel=0.03)
    assert figures["steady_window_s"] == pytest.approx(7.9)


def test_less_than_a_request_is_no_steady_state() -> None:
    """From the last first token to the first end there is decoding alone: the rate is higher than any that lasts."""
    records = [record(i, 50.0, [52.0 + 0.1 * n for n in range(51)]) for i in range(2)]
    figures = summary(records, 50.0, 57.0, concurrency=2)
    assert figures["steady_output_throughput"] is None
    assert figures["steady_window_s"] is None


def waves(stream: int, start: float, lasts: float, count: int, tokens: int = 10) -> list[RequestRecord]:
    """Return requests of one stream, one after the other, a millisecond apart, with evenly spaced tokens."""
    made = []
    for k in range(count):
        begin = start + k * (lasts + 0.001)
        made.append(record(100 * stream + k, begin, [begin + lasts * i / tokens for i in range(1, tokens + 1)]))
    return made


def failed_first(stream: int, start: float, fails_at: float, lasts: float, count: int) -> list[RequestRecord]:
    """Return a stream whose first request fails before any token."""
    refused = record(100 * stream + 99, start, [], state=FAILED, kind="http_503", end=fails_at)
    return [refused, *waves(stream, fails_at + 0.001, lasts, count)]


STREAMS = [
    ("a burst of equal streams", [waves(s, 100.0, 1.0, 5) for s in range(4)], 4, 110.0, (100.1, 105.004)),
    ("cut by the end", [waves(s, 100.0, 1.0, 5) for s in range(4)], 4, 103.5, (100.1, 103.5)),
    ("each stream starts 2 s later", [waves(s, 100.0 + 2 * s, 1.0, 12 - 2 * s) for s in range(4)], 4, 120.0, (106.1, 112.005)),
    # two processes with as many requests each: one is done after half the time
    ("one process ends first", [waves(s, 100.0, 1.0 if s < 2 else 0.5, 10) for s in range(4)], 4, 120.0, (100.1, 105.009)),
    ("the last wave has one stream only", [waves(s, 100.0, 1.0, 3 if s else 4) for s in range(4)], 4, 110.0, (100.1, 103.002)),
    ("a stream is given nothing more", [waves(0, 100.0, 1.0, 2), waves(1, 100.0, 1.0, 6)], 2, 110.0, (100.1, 102.001)),
    ("its first one was refused", [waves(0, 100.0, 1.0, 6), failed_first(1, 100.0, 100.5, 1.0, 5)], 2, 110.0, (100.5, 105.505)),
    ("one could not be sent", [waves(0, 100.0, 1.0, 3), [record(9, 100.0, [], state=FAILED)]], 2, 110.0, None),
    ("the streams never overlap", [waves(0, 100.0, 1.0, 1), waves(1, 102.0, 1.0, 1)], 2, 110.0, None),
    ("fewer requests than streams", [waves(0, 100.0, 1.0, 1)], 2, 110.0, None),
    ("nothing was sent", [], 2, 110.0, None),
]


@pytest.mark.parametrize(
    ("streams", "concurrency", "stop", "window"), [row[1:] for row in STREAMS], ids=[row[0] for row in STREAMS]
)
def test_steady_is_when_all_streams_were_busy(
    streams: list[list[RequestRecord]], concurrency: int, stop: float, window: tuple[float, float] | None
) -> None:
    records = sorted((record for stream in streams for record in stream), key=lambda one: one.index)
    found = steady_window(records, concurrency, stop)
    assert found == (None if window is None else pytest.approx(window, abs=1e-6))


@pytest.mark.parametrize(
    ("streams", "rate"),
    [
        ([waves(s, 100.0 + 2 * s, 1.0, 14 - 2 * s) for s in range(4)], 40.0),
        ([waves(s, 100.0, 1.0 if s < 2 else 0.5, 10) for s in range(4)], 60.0),
    ],
    ids=["staggered", "of two processes"],
)
def test_steady_throughput_is_that_of_all_streams(streams: list[list[RequestRecord]], rate: float) -> None:
    records = [record for stream in streams for record in stream]
    figures = summary(records, 100.0, max(record.end for record in records), concurrency=4)
    assert figures["output_throughput"] < 0.85 * rate
    assert figures["steady_output_throughput"] == pytest.approx(rate, rel=0.01)
    assert figures["peak_concurrency"] == 4


def test_interval_of_a_median() -> None:
    ordered = [float(x) for x in range(1, 101)]
    low, high = quantile_interval(ordered, 50.0) or (0.0, 0.0)
    assert low == 40.0
    assert high == 61.0
    assert quantile_interval(ordered, 99.0) is None


@pytest.mark.parametrize("name", ["c1.json", "c8.json", "chat-c8.json"])
def test_the_same_arrays_give_the_figures_that_vllm_saved(name: str) -> None:
    """A detailed result of a real `vllm bench serve`: its own per-request arrays through our definitions."""
    saved = json.loads((DATA / name).read_text())
    records = []
    for i, start in enumerate(saved["start_times"]):
        chunks = [start + saved["ttfts"][i]]
        for gap in saved["itls"][i]:
            chunks.append(chunks[-1] + gap)
        records.append(record(i, start, chunks, n_out=saved["output_lens"][i], n_in=saved["input_lens"][i]))
    figures = summary(records, 0.0, saved["duration"], concurrency=saved["max_concurrency"], percentiles=(99.0,))
    for key, value in saved.items():
        if isinstance(value, float) and key in figures:
            assert figures[key] == pytest.approx(value, rel=1e-6, abs=1e-5), key
    arrays = detail(records)
    for key in ("ttfts", "latencies"):
        assert arrays[key] == pytest.approx(saved[key], abs=1e-6)
    assert arrays["output_lens"] == saved["output_lens"]


def test_a_failed_request_has_its_prompt_in_the_arrays() -> None:
    records = [
        record(0, 10.0, [10.5, 10.75], n_out=2, n_in=33),
        record(1, 10.0, [], state=FAILED, kind="http_503"),
        record(2, 11.0, [11.5], state=INCOMPLETE, due=10.5),
    ]
    arrays = detail(records, asked_input=32)
    assert arrays["input_lens"] == [33, 32, 32]
    assert arrays["output_lens"] == [2, 0, 0]
    assert arrays["latencies"] == [0.75, 0.0, 0.0]
    assert arrays["errors"] == ["", "http_503", "incomplete: the run ended first"]
    assert detail(records)["input_lens"] == [33, 0, 0]
    assert detail(records, PLAIN_ARRAYS) == {"latencies": [0.75, 0.0, 0.0], "queue_times": [0.0, 0.0, 0.5]}
    assert detail(records, ()) == {}


@pytest.mark.parametrize(
    ("early", "without", "words"),
    [
        (0, 0, []),
        (1, 0, ["1 reply ended before the asked length"]),
        (2, 1, ["2 replies ended before the asked length", "1 reply came without usage: chunks were counted as tokens"]),
    ],
)
def test_what_is_warned_of_is_counted_in_words(early: int, without: int, words: list[str]) -> None:
    assert _warnings({"stopped_early": early, "without_usage": without}, (), None, 1.0) == words


def test_a_clock_set_back_by_more_than_the_run_loses_no_figures() -> None:
    """Sent at 1000, and answered 30 s "before": the latencies are wrong, which is warned of, but nothing else may be lost."""
    figures = summary([record(0, 1000.0, [970.0, 970.1], 2)], 1000.0, 970.1, concurrency=1)
    assert figures["completed"] == 1
    assert figures["peak_tokens_per_s"] is None
    assert figures["max_concurrent_requests"] is None
    assert figures["output_throughput"] is None
