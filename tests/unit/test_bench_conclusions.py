"""What the points of a benchmark come to: the knee of a sweep, the course of a soak, drift."""

import random
from typing import Any

import pytest

from tui.core.bench_conclusions import decays, drift, drift_words, knee_of, knee_words, rates_of, soak_verdict, soak_words, trend_of
from tui.core.bench_documents import document
from tui.core.bench_result import Plan, Point, Result, Vantage
from tui.widgets.bench_pane import remarks

FLAT = [1000.0, 1004.0, 997.0, 1001.0, 1003.0, 998.0]


COURSES = [
    ("flat", FLAT, "no more than its slices differ"),
    ("a slow first slice hides no decay", [600.0, 1000.0, 1003.0, 998.0, 801.0, 797.0, 803.0], "it decays"),
    ("a fast first slice is no decay", [1300.0, *FLAT], "no more than its slices differ"),
    ("a slow last slice is no decay", [*FLAT, 600.0], "no more than its slices differ"),
    ("a slow slice in the middle is no decay", [*FLAT[:3], 500.0, *FLAT[3:]], "no more than its slices differ"),
    ("a steady decay", [1000.0, 950.0, 900.0, 850.0, 800.0, 750.0], "it decays"),
    ("a slow decay of an hour", [1000.0 - 4.0 * i + (3.0 if i % 2 else -3.0) for i in range(30)], "it decays"),
    ("a step down", [1000.0, 1002.0, 999.0, 850.0, 852.0, 849.0], "it decays"),
    ("slices that alternate", [1000.0, 900.0, 1000.0, 900.0, 1000.0, 900.0], "no more than its slices differ"),
    ("noise as large as the change", [1000.0, 800.0, 1100.0, 950.0, 760.0, 1000.0], "no more than its slices differ"),
    ("less than 3 %", [1000.0, 1000.0, 1000.0, 980.0, 980.0, 980.0], "no more than its slices differ"),
    ("a server that warms up", [700.0, 800.0, 900.0, 990.0, 1000.0, 1000.0, 1000.0], "it grows"),
]


def soak(rates: list[float], **last: object) -> Result:
    longest = Point(4, {"output_throughput": 50.0, "repeat": "longest prompt", "completed": 4, "failed": 0, "duration": 5.0})
    figures = [{"output_throughput": rate, "completed": 9, "failed": 0, "duration": 120.0} for rate in rates]
    figures[-1].update(last)  # type: ignore[arg-type]
    return Result("e", "m", Vantage.HOST, Plan(kind="soak"), (longest, *(Point(16, dict(figure)) for figure in figures)))


@pytest.mark.parametrize(("rates", "verdict"), [case[1:] for case in COURSES], ids=[case[0] for case in COURSES])
def test_its_course(rates: list[float], verdict: str) -> None:
    words = soak_words(soak(rates))
    assert f"throughput between {min(rates):,.0f} and {max(rates):,.0f} tok/s: " in words
    assert words.endswith(f" %, {verdict})")


def test_its_words() -> None:
    words = soak_words(soak([1000.0, 1002.0, 999.0, 850.0, 852.0, 849.0]))
    assert words.endswith("throughput between 849 and 1,002 tok/s: 1,000 at first and 850 at the end (-15 %, it decays)")


@pytest.mark.parametrize(
    ("rates", "verdict", "ends"),
    [
        ([1000.0, 1002.0, 999.0, 850.0, 852.0, 849.0], "decays", (1000.0, 850.0)),
        (FLAT, "holds", (1000.0, 1001.0)),
        ([700.0, 800.0, 900.0, 990.0, 1000.0, 1000.0, 1000.0], "grows", (800.0, 1000.0)),
        ([1000.0, 900.0], None, (None, None)),
    ],
)
def test_its_verdict_is_in_the_document_and_on_the_screen(
    rates: list[float], verdict: str | None, ends: tuple[float | None, float | None]
) -> None:
    result = soak(rates)
    told = document(result)["soak"]
    assert (told["verdict"], told["words"]) == (verdict, soak_words(result))
    assert (told["first_tokens_per_s"], told["last_tokens_per_s"]) == ends
    assert (told["observed_s"], told["completed"], told["failed"]) == (5.0 + 120.0 * len(rates), 4 + 9 * len(rates), 0)
    assert (told["peak_kv_cache"], told["preemptions"], told["last_fullest_gpu_mib"]) == (None, None, None)
    assert decays(result) is (verdict == "decays")
    assert remarks(result, result.points, None)[-1].plain == f"{'▲' if verdict == 'decays' else '·'} {soak_words(result)}"


def test_only_a_soak_has_a_verdict() -> None:
    assert soak_verdict(Result("e", "m", Vantage.HOST, Plan(), soak(FLAT).points)) is None


@pytest.mark.parametrize("rates", [[1000.0], [1000.0, 900.0], [1000.0, 900.0, 800.0, 700.0, 600.0]])
def test_too_few_slices_have_no_course(rates: list[float]) -> None:
    assert trend_of(rates) is None
    assert "at first" not in soak_words(soak(rates))


def test_a_slice_that_was_cut_counts_for_nothing() -> None:
    """What it had in flight when the soak was stopped is not in its throughput."""
    assert rates_of(soak([*FLAT, 31.0], cut=True).points) == FLAT


def test_waves_of_long_replies_are_no_course() -> None:
    """A slice counts whole replies: the time in which all streams were busy has them by their tokens."""
    assert rates_of(soak([1000.0, 500.0], steady_output_throughput=980.0).points) == [1000.0, 980.0]


@pytest.mark.parametrize(("slices", "most"), [(6, 35), (9, 12), (30, 3)])
@pytest.mark.parametrize("spread", [0.02, 0.1])
def test_noise_alone_seldom_looks_like_a_decay(slices: int, most: int, spread: float) -> None:
    chance = random.Random(7)
    soaks = [[chance.gauss(1000.0, 1000.0 * spread) for _ in range(slices)] for _ in range(1000)]
    alarms = sum(course.moved and course.share < 0 for rates in soaks if (course := trend_of(rates)) is not None)
    assert alarms <= most


def test_memory_at_the_ends_is_no_single_slice() -> None:
    memory = [70_000.0, 90_000.0, 90_100.0, 90_000.0, 90_200.0, 90_100.0, 97_000.0]
    result = soak([1000.0] * len(memory))
    for point, used in zip(result.points[1:], memory, strict=True):
        point.figures["gpu"] = {"memory_used_mib": [used, None]}
    assert "fullest GPU 90,000 MiB at first and 90,200 at the end (+200)" in soak_words(result)


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


def run(*points: Point, stopped: str | None = None) -> Result:
    return Result("/v1/chat/completions", "m", Vantage.DIRECT, Plan(), points, stopped=stopped, started_at=1.8e9)


def at(streams: int, **figures: Any) -> Point:
    return Point(streams, {"completed": 100, "failed": 0, **figures})


AT_THE_END = "at the end against the beginning"


def steady(streams: int, rate: float, half: float, **more: Any) -> Point:
    bounds = [rate - half, rate + half]
    return at(streams, output_throughput=100.0, steady_output_throughput=rate, steady_output_throughput_ci95=bounds, **more)


@pytest.mark.parametrize(
    ("points", "share", "better", "words"),
    [
        (
            (at(1, output_throughput=100.0), at(2), at(1, output_throughput=90.0, repeat="again")),
            -0.1,
            False,
            "1 stream at the end against the beginning: -10.0 %",
        ),
        (
            (steady(2, 100.0, 1.0), at(4), steady(2, 90.0, 1.0, repeat="again")),
            -0.1,
            False,
            "2 streams at the end against the beginning: -10.0 %",
        ),
        (
            (steady(1, 100.0, 6.0), steady(1, 91.0, 6.0, repeat="again")),
            -0.09,
            None,
            f"1 stream {AT_THE_END}: -9.0 % (may be chance: the 95 % intervals overlap)",
        ),
        ((at(1, output_throughput=100.0),), None, None, None),
        ((at(1, output_throughput=100.0), at(1, output_throughput=50.0, repeat="again", cut=True)), None, None, None),
        ((at(1, output_throughput=None), at(1, output_throughput=50.0, repeat="again")), None, None, None),
    ],
)
def test_drift(points: tuple[Point, ...], share: float | None, better: bool | None, words: str | None) -> None:
    found = drift(run(*points))
    assert (None if found is None else found.share) == (None if share is None else pytest.approx(share))
    assert (None if found is None else found.better) is better
    assert drift_words(run(*points)) == words
