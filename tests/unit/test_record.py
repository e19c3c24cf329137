"""The record: what is kept comes back, and a damaged or unwritable file loses nothing and stops nobody."""

import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tui.core.bench_compare import compare, differences, loads
from tui.core.bench_result import Plan, Point, Result, Vantage
from tui.core.logs.load_state import Failure, Loader, LoadState, PhaseSpan
from tui.core.logs.load_state import Phase as P
from tui.record.markdown import markdown, write_report
from tui.record.store import RecordError, RunStore, benchmark_of

LOAD = LoadState(
    engine="vllm",
    version="0.24.0",
    model="/models/kimi",
    phase=P.READY,
    ready=True,
    started_at=1000.0,
    ready_at=3160.0,
    shards=Loader("model", 64, 64, step_seconds=(40.0, 32.0, 31.5)),
    phases=(PhaseSpan(P.STARTING, 1000.0, 21.0), PhaseSpan(P.LOADING, 1021.0, 2046.0), PhaseSpan(P.READY, 3160.0, None)),
)


def result(tokens_s: float, ttft: float, output_tokens: int = 512) -> Result:
    figures = {"output_throughput": tokens_s, "median_ttft_ms": ttft, "failed": 0, "completed": 8}
    return Result(
        "http://127.0.0.1:8000",
        "kimi",
        Vantage.HOST,
        Plan(concurrency=(1, 8), output_tokens=output_tokens),
        (Point(1, figures), Point(8, figures)),
        started_at=5.0,
    )


def test_a_load_is_kept_once_and_comes_back_as_history(tmp_path: Path) -> None:
    record = RunStore(tmp_path / "state" / "record.sqlite")
    assert record.save_load("kimi", LOAD, at=3160.0) is not None
    assert record.save_load("kimi", LOAD, at=3170.0) is None  # the same start, read again
    (past,) = record.loads("kimi")
    assert (past.total_s, past.step_seconds, past.version) == (2160.0, (40.0, 32.0, 31.5), "0.24.0")
    assert past.phases == ((P.STARTING, 21.0), (P.LOADING, 2046.0))
    assert record.loads("another") == ()


def test_a_failed_load_is_kept_but_is_no_history(tmp_path: Path) -> None:
    record = RunStore(tmp_path / "record.sqlite")
    failed = LoadState(
        phase=P.FAILED, started_at=1.0, failure=Failure("cuda_oom", P.LOADING, "CUDA out of memory", advice="free it")
    )
    assert record.save_load("kimi", failed) is not None
    assert record.loads("kimi") == ()
    assert record.runs()[0].title == "failed: cuda_oom"


def test_a_load_without_times_is_not_kept(tmp_path: Path) -> None:
    assert RunStore(tmp_path / "r").save_load("kimi", LoadState(phase=P.LOADING)) is None


def test_benchmarks_come_back_as_they_were(tmp_path: Path) -> None:
    record = RunStore(tmp_path / "record.sqlite")
    number = record.save_benchmark("kimi", result(81.4, 187.0))
    assert number is not None
    run = record.run(number)
    assert run is not None
    assert benchmark_of(run) == result(81.4, 187.0)
    assert run.title == "sweep: 81.4 tok/s"
    text = markdown(run)
    assert "| 8 | 81.4 |" in text
    assert "—" in text  # what was not measured is not 0


def reported(tmp_path: Path, plan: Plan, *points: Point, stopped: str | None = None) -> str:
    record = RunStore(tmp_path / "record.sqlite")
    number = record.save_benchmark(
        "kimi", replace(result(1.0, 1.0), plan=plan, points=points, stopped=stopped, deviations=("a *note*",))
    )
    assert number is not None
    run = record.run(number)
    assert run is not None
    return markdown(run)


def test_a_report_has_what_qualifies_its_figures(tmp_path: Path) -> None:
    """What failed and why, warnings, intervals, goodput, p99 of too few requests, what was cut."""
    good = {
        "output_throughput": 640.0,
        "steady_output_throughput": 660.9,
        "steady_output_throughput_ci95": [648.8, 673.0],
        "request_goodput": 4.5,
        "p99_ttft_ms": 370.3,
        "p99_supported": False,
        "completed": 88,
        "failed": 0,
        "warnings": ["too few requests for a p99: 88 completed", "the client was the bottleneck: no idle core"],
        "client_limited": True,
        "foreign_requests": 3,
    }
    bad = {
        "completed": 0,
        "failed": 3,
        "output_throughput": 0.0,
        "p99_supported": False,
        "errors_by_kind": {"http_500": 3},
        "error_examples": [{"kind": "http_500", "message": "EngineCore died <b>"}],
        "cut": True,
    }
    plan = Plan(concurrency=(4, 8), goodput={"ttft": 500.0, "tpot": 50.0})
    text = reported(tmp_path, plan, Point(4, good), Point(8, bad), stopped="stopped by the user")
    for words in (
        "**Incomplete:** stopped by the user.",
        "- ✗ 8 streams: 3 × http\\_500: EngineCore died \\<b\\>",
        "- ▲ 4 streams: the client was the bottleneck: no idle core",
        "- ▲ too few requests for a p99, which needs 368: 4 streams had 88",
        "| 4 | 640.0 | 660.9 (648.8–673.0) | — | 4.50 | — | 370.3 † |",
        "| client was the limit, 3 other requests |",
        "| 8 | — | — | — | — |",
        "| cut before its end |",
        "ranges in parentheses are 95 % intervals; † too few requests for a p99; good requests are within ttft 500 ms, tpot 50 ms.",
        "- a \\*note\\*",
    ):
        assert words in text
    rows = [line.count("|") - line.count("\\|") for line in text.splitlines() if line.startswith("|")]
    assert len(set(rows)) == 1  # as many cells in each


def test_a_report_of_a_soak_has_its_verdict_and_names_its_longest_prompts(tmp_path: Path) -> None:
    longest = Point(3, {"output_throughput": 50.0, "completed": 3, "failed": 0, "duration": 5.0, "repeat": "longest prompt"})
    rates = (1000.0, 1002.0, 999.0, 850.0, 852.0, 849.0)
    slices = [Point(3, {"output_throughput": rate, "completed": 9, "failed": 0, "duration": 120.0}) for rate in rates]
    text = reported(tmp_path, Plan(kind="soak", concurrency=(3,), duration_s=720.0), longest, *slices)
    assert "- ▲ observed for 12 min: 57 requests completed, none failed" in text
    assert "(-15 %, it decays)" in text
    assert "| 3 (longest prompt) | 50.0 |" in text


def test_a_report_of_a_sweep_names_its_knee(tmp_path: Path) -> None:
    plan = Plan(concurrency=(1, 2, 4, 8), stop_at_knee=True)
    figures = [Point(at, {"output_throughput": 100.0, "median_e2el_ms": 10.0 * at, "completed": 9}) for at in (1, 2, 4)]
    assert "- knee at 1 stream: 2 and 4 gained nothing but waiting, more were not tried" in reported(tmp_path, plan, *figures)


def test_the_report_names_an_open_loop_by_its_rate(tmp_path: Path) -> None:
    record = RunStore(tmp_path / "record.sqlite")
    figures = {"output_throughput": 40.0, "request_rate": 8.0, "burstiness": 1.0}
    open_loop = replace(result(1.0, 1.0), plan=Plan(kind="rate", request_rate=8.0), points=(Point(0, figures, {"errors": [""]}),))
    number = record.save_benchmark("kimi", open_loop)
    assert number is not None
    run = record.run(number)
    assert run is not None
    assert "| load | tok/s |" in markdown(run)
    assert "| 8 req/s, Poisson | 40.0 |" in markdown(run)
    assert run.document["points"][0]["detail"] is None  # the arrays are in the file of the benchmark alone


@pytest.mark.parametrize(
    ("plan", "words"), [(Plan(), "512 tokens in, 512 out"), (Plan(prompts_file="p.jsonl"), "Prompts of a file, 512 out")]
)
def test_the_report_says_what_the_prompts_were(tmp_path: Path, plan: Plan, words: str) -> None:
    record = RunStore(tmp_path / "record.sqlite")
    number = record.save_benchmark("kimi", replace(result(1.0, 1.0), plan=plan))
    assert number is not None
    run = record.run(number)
    assert run is not None
    assert words in markdown(run)


def test_files_are_private(tmp_path: Path) -> None:
    path = tmp_path / "state" / "record.sqlite"
    RunStore(path).runs()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_damaged_file_is_set_aside_never_deleted(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    path.write_bytes(b"this is no database, but it may be somebody's" * 50)
    record = RunStore(path)
    assert record.runs() == ()
    assert record.problem is not None
    assert "set aside" in record.problem
    assert [one.read_bytes()[:7] for one in tmp_path.glob("*.damaged-*")] == [b"this is"]
    assert record.save_benchmark("kimi", result(1.0, 1.0)) is not None


def test_an_unwritable_directory_keeps_runs_in_memory_and_says_so(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    record = RunStore(blocked / "record.sqlite")
    assert record.save_benchmark("kimi", result(1.0, 1.0)) is not None
    assert len(record.runs()) == 1
    assert record.problem is not None
    assert "not kept" in record.problem


def test_a_locked_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    RunStore(path).runs()
    other = sqlite3.connect(path)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(RecordError, match=r"record\.sqlite is locked"):
        RunStore(path).runs()
    other.close()


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(RecordError, match="newer readyroom"):
        RunStore(path).runs()


def test_it_may_be_used_from_any_thread_and_keeps_a_start_once(tmp_path: Path) -> None:
    record = RunStore(tmp_path / "record.sqlite")
    with ThreadPoolExecutor(8) as threads:
        kept = list(threads.map(lambda at: record.save_load("kimi", LOAD, at=at), map(float, range(40))))
        measured = list(
            threads.map(lambda tokens_s: record.save_benchmark("kimi", result(tokens_s, 1.0)), map(float, range(1, 41)))
        )
    assert sum(id is not None for id in kept) == 1
    assert len(set(measured)) == 40
    assert len(record.runs()) == 41


def test_a_report_is_private_harmless_and_takes_no_other_ones_place(tmp_path: Path) -> None:
    record = RunStore(tmp_path / "record.sqlite")
    measured = replace(result(81.4, 187.0), model="kimi\x1b[2J\u202e")
    id = record.save_benchmark("kimi", measured)
    assert id is not None
    run = record.run(id)
    assert run is not None
    path = tmp_path / "report.md"
    path.write_text("mine")
    written = [write_report(run, path), write_report(run, path)]
    assert [one.name for one in written] == ["report-2.md", "report-3.md"]
    assert path.read_text() == "mine"
    for one in written:
        assert stat.S_IMODE(one.stat().st_mode) == 0o600
        assert "81.4" in one.read_text()
        assert not {"\x1b", "\u202e"} & set(one.read_text())
    with pytest.raises(OSError, match="No such file"):
        write_report(run, tmp_path / "nowhere" / "report.md")


@pytest.mark.parametrize(
    ("before", "after", "share", "better"),
    [(61.0, 81.4, 0.334, True), (100.0, 98.0, -0.02, None), (100.0, 90.0, -0.1, False), (0.0, 5.0, None, None)],
)
def test_throughput_is_compared_beyond_noise(before: float, after: float, share: float | None, better: bool | None) -> None:
    change = compare(result(before, 1.0), result(after, 1.0))[0].change("output_throughput")
    assert change is not None
    assert change.share == (None if share is None else pytest.approx(share, abs=0.001))
    assert change.better is better


def test_lower_latency_is_better() -> None:
    change = compare(result(1.0, 200.0), result(1.0, 100.0))[1].change("median_ttft_ms")
    assert change is not None
    assert change.better is True


def test_runs_that_asked_something_else_are_told_apart() -> None:
    assert differences(result(1.0, 1.0), result(1.0, 1.0, output_tokens=64)) == ("output tokens differ: 512 and 64",)


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
        (BASE, replace(BASE, token_ids=True), ("token ids differ: no and yes",)),
        (BASE, replace(BASE, prompts_file="p\x1b[31m.jsonl"), ("prompts file differs: none and p.jsonl",)),
        (BASE, replace(BASE, ignore_eos=False, seed=7), ("seed differs: none and 7", "ignore eos differs: yes and no")),
        (BASE, replace(BASE, extra_body={"top_k": 1}), ('extra body differs: none and {"top_k": 1}',)),
        (BASE, replace(BASE, stagger_s=5.0), ("stagger in s differs: 0.0 and 5.0",)),
        (BASE, replace(BASE, headers={"X-Key": "…"}), ('headers differ: none and ["X-Key"]',)),
    ],
)
def test_every_difference_of_plans_is_named(one: Plan, two: Plan, told: tuple[str, ...]) -> None:
    assert differences(replace(result(1.0, 1.0), plan=one), replace(result(1.0, 1.0), plan=two)) == told


def loaded(*points: tuple[int, float | None, str | None, float]) -> Result:
    made = [
        Point(streams, {"request_rate": rate or "inf", "repeat": label, "output_throughput": tokens_s, "completed": 8})
        for streams, rate, label, tokens_s in points
    ]
    return replace(result(1.0, 1.0), points=tuple(made))


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


@pytest.mark.parametrize(
    ("plan", "figures", "stopped", "title"),
    [
        (Plan(kind="single"), {"output_throughput": 84.6, "completed": 5}, None, "single stream: 84.6 tok/s"),
        (Plan(kind="single", concurrency=(8,)), {"output_throughput": 1084.6, "completed": 32}, None, "8 streams: 1,085 tok/s"),
        (Plan(kind="sweep", concurrency=(1, 8)), {"output_throughput": 99.96, "completed": 9}, None, "sweep: 100.0 tok/s"),
        (Plan(kind="single"), {"output_throughput": 0.0, "completed": 0}, None, "single stream: no request was completed"),
        (
            Plan(kind="single"),
            {"output_throughput": 55.3, "cut": True},
            "stopped by the user",
            "single stream: no whole point (stopped by the user)",
        ),
    ],
)
def test_a_benchmarks_headline(tmp_path: Path, plan: Plan, figures: dict[str, Any], stopped: str | None, title: str) -> None:
    done = Result("u", "m", Vantage.HOST, plan, (Point(1, figures),), stopped=stopped, started_at=1.0)
    record = RunStore(tmp_path / "record.sqlite")
    record.save_benchmark("kimi", done)
    assert record.runs()[0].title == title
