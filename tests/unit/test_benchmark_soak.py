"""How throughput went in a soak: its ends against each other, with the slices' own differences as the bound of noise."""

import random

import pytest

from tui.core.bench_conclusions import decays, rates_of, soak_verdict, soak_words, trend_of
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
    return Result("e", "m", Vantage.HOST, Plan(kind="soak"), (longest, *(Point(16, dict(one)) for one in figures)))


@pytest.mark.parametrize(("rates", "verdict"), [one[1:] for one in COURSES], ids=[one[0] for one in COURSES])
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
