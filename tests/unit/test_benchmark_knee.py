"""Where a sweep bends: what more streams gain, against how much longer their requests wait."""

import pytest

from tui.core.bench_conclusions import knee_of, knee_words
from tui.core.bench_documents import document
from tui.core.bench_result import Plan, Point, Result, Vantage


def point(streams: int, throughput: float | None, tpot: float | None = None, **more: object) -> Point:
    return Point(streams, {"output_throughput": throughput, "median_tpot_ms": tpot, "completed": 8, **more})


def queued(streams: int, steady: float, ttft: float, tpot: float, whole: float | None = None, **more: object) -> Point:
    return point(streams, whole or steady, tpot, steady_output_throughput=steady, median_ttft_ms=ttft, **more)


def measured(streams: int, steady: float, half: float) -> Point:
    return queued(streams, steady, 10.0 * streams**2, 5.5, steady_output_throughput_ci95=[steady - half, steady + half])


FOUR_SLOTS = [
    # a server with `--max-num-seqs 4`, as measured: what is too many waits in its queue, and TPOT moves by noise only
    queued(1, 173.0, 31, 5.45),
    queued(2, 330.0, 34, 5.47),
    queued(4, 551.9, 57, 5.50),
    queued(8, 554.0, 277, 5.70),
    queued(16, 575.5, 686, 5.37),
    queued(32, 564.3, 1565, 5.50),
    queued(64, 552.9, 3303, 5.60),
]


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        (FOUR_SLOTS, (4, (8, 16))),
        (FOUR_SLOTS[:5], (4, (8, 16))),
        (FOUR_SLOTS[:4], None),
        ([point(1, 100, 10), point(2, 195, 10.2), point(4, 370, 10.8)], None),
        ([point(1, 100, 10), point(2, 103, 19), point(4, 104, 38)], (1, (2, 4))),
        ([point(1, 100, 10), point(2, 103, 19), point(4, 150, 26)], None),
        ([point(1, 100, 10), point(2, 190, 11), point(4, 195, 21), point(8, 230, 40), point(16, 235, 75)], None),
        ([point(1, 100, 10), point(2, 101, 9), point(4, 102, 8)], None),  # nobody waits: something else holds it back
        ([point(1, 100, 10), point(2, 101, 10.3), point(4, 102, 10.5)], None),  # as much as noise does
        ([point(1, 100, 10), point(2, 101, 20)], None),
        ([point(1, 100, median_e2el_ms=10), point(2, 101, median_e2el_ms=19), point(4, 102, median_e2el_ms=39)], (1, (2, 4))),
        (
            [point(8, 100, server_peak_waiting=0), point(16, 101, server_peak_waiting=8), point(32, 102, server_peak_waiting=24)],
            (8, (16, 32)),
        ),
        (
            [point(8, 100, server_peak_waiting=3), point(16, 101, server_peak_waiting=4), point(32, 102, server_peak_waiting=4)],
            None,
        ),
        # repeats are one number of streams: one flat doubling is no knee
        ([point(1, 100, 10), point(1, 101, 10.1), point(2, 103, 19), point(2, 102, 19.1)], None),
        ([point(1, 100, 10), point(1, 101, 10.1), point(2, 103, 19)], None),
        (
            [
                *(point(1, 100, 10 + i) for i in (0, 1)),
                *(point(2, 190, 12 + i) for i in (0, 1)),
                point(4, 191, 20),
                point(4, 191, 22),
            ],
            None,
        ),
        (
            [
                *(point(1, 100, 10 + i) for i in (0, 1)),
                *(point(2, 102, 19 + i) for i in (0, 1)),
                point(4, 103, 40),
                point(4, 102, 41),
            ],
            (1, (2, 4)),
        ),
        ([point(1, 0, 10), point(2, 0, 19), point(4, 0, 38)], None),
        ([point(1, None, 10), point(2, None, 19), point(4, None, 38)], None),
        # the whole run's rate holds the ramp: it is not set against a steady one
        ([queued(4, 550, 57, 5.5, whole=400), point(8, 420, 5.5, median_ttft_ms=270), queued(16, 555, 680, 5.5, whole=430)], None),
        # gains of 5.1 % and of -1.3 %, measured within 2 % each: no more than 5 %, as far as that can be told
        ([measured(4, 637.4, 12.0), measured(8, 669.7, 12.3), measured(16, 660.9, 12.1)], (4, (8, 16))),
        ([measured(4, 100.0, 2.0), measured(8, 109.0, 2.0), measured(16, 111.0, 2.0)], None),
        ([measured(4, 100.0, 20.0), measured(8, 119.0, 20.0), measured(16, 120.0, 20.0)], None),
        # a point that was cut holds time without its tokens, and the first again is no doubling
        ([point(1, 100, 10), point(2, 103, 19), point(4, 60, 38, cut=True)], None),
        ([point(1, 100, 10), point(2, 103, 19), point(1, 99, 12, repeat="again")], None),
    ],
)
def test_the_knee(points: list[Point], expected: tuple[int, tuple[int, ...]] | None) -> None:
    knee = knee_of(points)
    assert (None if knee is None else (knee.streams, knee.beyond)) == expected


@pytest.mark.parametrize(
    ("plan", "points", "words", "streams"),
    [
        (
            Plan(concurrency=(1, 2, 4, 8, 16, 32, 64), stop_at_knee=True),
            FOUR_SLOTS[:5],
            "knee at 4 streams: 8 and 16 gained nothing but waiting, more were not tried",
            4,
        ),
        (
            Plan(concurrency=(1, 2, 4, 8, 16), stop_at_knee=True),
            FOUR_SLOTS[:5],
            "knee at 4 streams: 8 and 16 gained nothing but waiting",
            4,
        ),
        (Plan(concurrency=(1, 2, 4), stop_at_knee=True), FOUR_SLOTS[:3], None, None),
        (Plan(concurrency=(4, 8, 16)), FOUR_SLOTS[2:5], None, None),  # it was not asked for
    ],
)
def test_what_is_said_of_the_knee(plan: Plan, points: list[Point], words: str | None, streams: int | None) -> None:
    result = Result("/v1/chat/completions", "m", Vantage.HOST, plan, tuple(points))
    assert knee_words(result) == words
    assert document(result)["knee"] == streams
