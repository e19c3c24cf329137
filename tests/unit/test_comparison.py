"""Two benchmarks side by side: what is a change, what may be chance, and what is not compared at all."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tui.cli import runs as command
from tui.core.bench_compare import compare, differences, headlines, left_out, loads
from tui.core.bench_result import STOPPED_BY_USER, Plan, Point, Result, Vantage
from tui.record.store import RunStore
from tui.widgets.runs_pane import Compared, compared_view


def run(*points: Point, stopped: str | None = None) -> Result:
    return Result("/v1/chat/completions", "m", Vantage.DIRECT, Plan(), points, stopped=stopped, started_at=1.8e9)


def at(streams: int, **figures: Any) -> Point:
    return Point(streams, {"completed": 100, "failed": 0, **figures})


@pytest.mark.parametrize(
    ("name", "before", "after", "better", "doubt"),
    [
        # two sweeps of one server: TTFT p99 differs by a quarter, of 80 requests
        (
            "p99_ttft_ms",
            {"p99_ttft_ms": 100.0, "p99_supported": False},
            {"p99_ttft_ms": 75.0, "p99_supported": True},
            None,
            "too few requests for a p99",
        ),
        (
            "p99_tpot_ms",
            {"p99_tpot_ms": 10.0, "p99_supported": True},
            {"p99_tpot_ms": 9.0, "p99_supported": False},
            None,
            "too few requests for a p99",
        ),
        (
            "p99_ttft_ms",
            {"p99_ttft_ms": 100.0, "p99_ttft_ms_ci95": [90.0, 130.0], "p99_supported": True},
            {"p99_ttft_ms": 75.0, "p99_ttft_ms_ci95": [70.0, 82.0], "p99_supported": True},
            True,
            "",
        ),
        (
            "median_ttft_ms",
            {"median_ttft_ms": 100.0, "median_ttft_ms_ci95": [90.0, 112.0]},
            {"median_ttft_ms": 120.0, "median_ttft_ms_ci95": [111.0, 130.0]},
            None,
            "the 95 % intervals overlap",
        ),
        (
            "median_ttft_ms",
            {"median_ttft_ms": 100.0, "median_ttft_ms_ci95": [96.0, 104.0]},
            {"median_ttft_ms": 120.0, "median_ttft_ms_ci95": [111.0, 130.0]},
            False,
            "",
        ),
        # below 3 % runs of one server differ, however narrow their own intervals are
        (
            "median_tpot_ms",
            {"median_tpot_ms": 10.0, "median_tpot_ms_ci95": [9.99, 10.01]},
            {"median_tpot_ms": 10.2, "median_tpot_ms_ci95": [10.19, 10.21]},
            None,
            "",
        ),
        (
            "median_tpot_ms",
            {"median_tpot_ms": 10.0, "median_tpot_ms_ci95": None},
            {"median_tpot_ms": 12.0, "median_tpot_ms_ci95": [11.9, 12.1]},
            None,
            "too few requests for an interval",
        ),
        ("median_tpot_ms", {"median_tpot_ms": 10.0}, {"median_tpot_ms": 12.0}, False, ""),  # an older run: it holds no intervals
        ("median_e2el_ms", {"median_e2el_ms": 10.0}, {"median_e2el_ms": 12.0, "median_e2el_ms_ci95": [11.9, 12.1]}, False, ""),
        # the whole run's rate holds the ramp and loses what its end cut off: the steady one tells whether the server changed
        (
            "output_throughput",
            {"output_throughput": 100.0, "steady_output_throughput": 110.0, "steady_output_throughput_ci95": [109.0, 111.0]},
            {"output_throughput": 95.6, "steady_output_throughput": 109.4, "steady_output_throughput_ci95": [108.0, 111.0]},
            None,
            "the steady throughput has no such change",
        ),
        (
            "output_throughput",
            {"output_throughput": 100.0, "steady_output_throughput": 110.0, "steady_output_throughput_ci95": [109.0, 111.0]},
            {"output_throughput": 90.0, "steady_output_throughput": 99.0, "steady_output_throughput_ci95": [98.0, 100.0]},
            False,
            "",
        ),
        (
            "request_throughput",
            {"request_throughput": 10.0, "steady_output_throughput": None},
            {"request_throughput": 12.0, "steady_output_throughput": 110.0},
            None,
            "too short for a steady throughput: the ramp may make the difference",
        ),
        (
            "request_goodput",
            {"request_goodput": 1.0, "duration": 20.0},
            {"request_goodput": 1.2, "duration": 20.0},
            None,
            "so few requests can differ by as much",
        ),
        ("request_goodput", {"request_goodput": 50.0, "duration": 60.0}, {"request_goodput": 60.0, "duration": 60.0}, True, ""),
        ("failed", {"failed": 0}, {"failed": 1}, False, ""),
        ("output_throughput", {"output_throughput": 61.0}, {"output_throughput": 81.4}, True, ""),
        ("output_throughput", {"output_throughput": 100.0}, {"output_throughput": 98.0}, None, ""),
        ("output_throughput", {"output_throughput": 0.0}, {"output_throughput": 5.0}, None, ""),
        ("failed", {"failed": 10}, {"failed": 12}, None, "so few requests can differ by as much"),
        ("failed", {"failed": 10}, {"failed": 60}, False, ""),
    ],
)
def test_what_may_be_chance_is_neither_better_nor_worse(
    name: str, before: dict[str, Any], after: dict[str, Any], better: bool | None, doubt: str
) -> None:
    (point,) = compare(run(at(8, **before)), run(at(8, **after)))
    change = point.change(name)
    assert change is not None
    assert (change.better, change.doubt) == (better, doubt)
    assert change.sign == ("~" if doubt else {True: "✓", False: "▲", None: ""}[better])


def test_the_headline_is_the_steady_throughput_where_both_have_one() -> None:
    whole, steady = {"output_throughput": 90.0}, {"output_throughput": 90.0, "steady_output_throughput": 100.0}
    assert [metric.heading for metric in headlines(compare(run(at(8, **steady)), run(at(8, **steady))))] == [
        "steady tok/s",
        "tok/s",
        "failed",
    ]
    assert [metric.heading for metric in headlines(compare(run(at(8, **whole)), run(at(8, **whole))))] == ["tok/s", "failed"]
    assert [metric.heading for metric in headlines(compare(run(at(8, **whole)), run(at(8, **steady))))] == ["tok/s", "failed"]


LEFT_OUT = [
    (run(at(1), at(4)), run(at(1), at(4)), ["1", "4"], ()),
    (run(at(1), at(4)), run(at(1), at(4), at(8)), ["1", "4"], ("only in the run after: 8 streams",)),
    (
        run(at(1), at(2), at(4), at(8)),
        run(at(1), at(16)),
        ["1"],
        ("only in the run before: 2, 4 and 8 streams", "only in the run after: 16 streams"),
    ),
    (run(at(1)), run(at(2)), [], ("only in the run before: 1 stream", "only in the run after: 2 streams")),
    (
        run(at(4, repeat="longest prompt"), at(8)),
        run(at(8), at(0, request_rate=2.5)),
        ["8"],
        ("only in the run before: 4 streams (longest prompt)", "only in the run after: 2.5 req/s"),
    ),
    # what was cut holds time without its tokens: it is compared with nothing
    (
        run(at(32), at(64)),
        run(at(32), at(64, cut=True), stopped=STOPPED_BY_USER),
        ["32"],
        ("cut before its end in the run after, not compared: 64 streams",),
    ),
    (run(at(1, cut=True)), run(at(1)), [], ("cut before its end in the run before, not compared: 1 stream",)),
    (run(at(1), at(1, repeat="again", cut=True)), run(at(1)), ["1"], ()),
]


@pytest.mark.parametrize(("before", "after", "compared", "words"), LEFT_OUT)
def test_what_is_not_compared_is_said(before: Result, after: Result, compared: list[str], words: tuple[str, ...]) -> None:
    assert [point.name for point in compare(before, after)] == compared
    assert left_out(before, after).words == words


def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *results: Result) -> RunStore:
    record = RunStore(tmp_path / "record.sqlite")
    for result in results:
        assert record.save_benchmark("kimi", result) is not None
    monkeypatch.setattr(command, "open_record", lambda: record)
    return record


FIGURES = {"output_throughput": 1718.0, "median_ttft_ms": 100.0, "median_itl_ms": 5.5, "median_e2el_ms": 1200.0, "failed": 2}


def test_the_command_says_what_is_compared_and_what_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = run(at(32, **FIGURES), at(64, **FIGURES))
    after = run(at(32, **{**FIGURES, "output_throughput": 1890.0}), at(128), at(64, cut=True), stopped=STOPPED_BY_USER)
    stored(tmp_path, monkeypatch, before, after)
    shown = CliRunner().invoke(command.compare, ["1", "2"], terminal_width=80)
    assert shown.exit_code == 0, shown.output
    for words in (
        "only in the run after: 128 streams",
        "not compared: 64 streams",
        "ITL p50 ms",
        "E2EL p50 s",
        "failed",
        "+10 % ✓",
    ):
        assert words in " ".join(shown.output.split())
    assert max(map(len, shown.output.splitlines())) <= 80
    told = json.loads(CliRunner().invoke(command.compare, ["1", "2", "--json"]).output)
    assert [point["concurrency"] for point in told["points"]] == [32]
    assert told["points"][0]["changes"]["output_throughput"]["better"] is True
    assert (told["only_before"], told["only_after"]) == ([], [{"concurrency": 128, "request_rate": None, "label": None}])
    assert (told["cut_before"], told["cut_after"]) == ([], [{"concurrency": 64, "request_rate": None, "label": None}])


def test_runs_that_were_cut_before_their_first_point_ended_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = run(at(1, cut=True, **FIGURES), stopped=STOPPED_BY_USER)
    stored(tmp_path, monkeypatch, cut, cut)
    shown = CliRunner().invoke(command.compare, ["1", "2"])
    assert shown.exit_code != 0
    assert "✓" not in shown.output


@pytest.mark.parametrize("width", [60, 90, 200])
def test_the_pane_says_it_too(tmp_path: Path, width: int) -> None:
    record = RunStore(tmp_path / "record.sqlite")
    before, after = run(at(32, **FIGURES), at(64, **FIGURES)), run(at(32, **FIGURES), at(64, cut=True), at(128))
    for result in (before, after):
        record.save_benchmark("kimi", result)
    newer, older = record.runs()
    shown = compared_view(Compared(older, newer, before, after), width).plain
    assert "▲ only in the run after: 128 streams" in shown
    assert "▲ cut before its end in the run after, not compared: 64 streams" in shown
    assert "E2EL p50 s" in shown


BASE = Plan(concurrency=(1, 8))
RATE = Plan(kind="rate", request_rate=4.0)


@pytest.mark.parametrize(
    ("one", "two", "told"),
    [
        (BASE, Plan(concurrency=(2,), max_failures=3, stall_s=9.0, save_detailed=True), ()),
        (RATE, replace(RATE, request_rate=40.0), ("request rate differs: 4.0 and 40.0",)),
        (
            RATE,
            replace(RATE, burstiness=0.5, max_concurrency=8),
            ("burstiness differs: 1.0 and 0.5", "max concurrency differs: none and 8"),
        ),
        (BASE, replace(BASE, kind="single", requests=5), ("kind differs: sweep and single", "requests differ: none and 5")),
        (BASE, replace(BASE, shared_prefix_tokens=256), ("shared prefix tokens differ: 0 and 256",)),
        (BASE, replace(BASE, output_tokens=64), ("output tokens differ: 512 and 64",)),
        (BASE, replace(BASE, token_ids=True), ("token ids differ: no and yes",)),
        (BASE, replace(BASE, prompts_file="p\x1b[31m.jsonl"), ("prompts file differs: none and p.jsonl",)),
        (BASE, replace(BASE, ignore_eos=False, seed=7), ("seed differs: none and 7", "ignore eos differs: yes and no")),
        (BASE, replace(BASE, extra_body={"top_k": 1}), ('extra body differs: none and {"top_k": 1}',)),
        (BASE, replace(BASE, stagger_s=5.0), ("stagger in s differs: 0.0 and 5.0",)),
        (BASE, replace(BASE, headers={"X-Key": "…"}), ('headers differ: none and ["X-Key"]',)),
    ],
)
def test_every_difference_of_plans_is_named(one: Plan, two: Plan, told: tuple[str, ...]) -> None:
    assert differences(replace(run(), plan=one), replace(run(), plan=two)) == told


def loaded(*points: tuple[int, float | None, str | None, float]) -> Result:
    made = [
        Point(streams, {"request_rate": rate or "inf", "repeat": label, "output_throughput": tokens_s, "completed": 8})
        for streams, rate, label, tokens_s in points
    ]
    return run(*made)


@pytest.mark.parametrize(
    ("before", "after", "compared"),
    [
        (loaded((0, 4.0, None, 37.1)), loaded((0, 40.0, None, 373.3)), []),
        (loaded((0, 4.0, None, 37.1)), loaded((0, 4.0, None, 74.2)), [("4 req/s", 1.0)]),
        (loaded((8, 4.0, None, 37.1)), loaded((8, None, None, 373.3)), []),
        (
            loaded((2, None, "longest prompt", 10.0), (2, None, None, 100.0), (2, None, None, 50.0)),
            loaded((2, None, "longest prompt", 20.0), (2, None, None, 110.0), (2, None, None, 50.0)),
            [("2", 0.1), ("2 longest prompt", 1.0)],
        ),
        (
            loaded((1, None, None, 10.0), (8, None, None, 70.0), (1, None, "again", 50.0)),
            loaded((1, None, None, 11.0), (1, None, "repeat 2", 50.0)),
            [("1", 0.1)],
        ),
    ],
)
def test_only_the_same_load_is_compared(before: Result, after: Result, compared: list[tuple[str, float]]) -> None:
    found = compare(before, after)
    shares = [(point.name, change.share) for point in found if (change := point.change("output_throughput")) is not None]
    assert [name for name, _ in shares] == [name for name, _ in compared]
    assert [share for _, share in shares] == pytest.approx([share for _, share in compared])


def test_loads_have_names() -> None:
    assert loads(loaded((2, None, "longest prompt", 1.0), (2, None, None, 1.0), (0, 40.0, None, 1.0))) == (
        "2",
        "2 longest prompt",
        "40 req/s",
    )
