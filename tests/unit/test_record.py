"""The record: what is kept comes back, and a damaged or unwritable file loses nothing and stops nobody."""

import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

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
    done = result(81.4, 187.0)
    detailed = replace(done, points=tuple(replace(point, detail={"errors": [""]}) for point in done.points))
    number = record.save_benchmark("kimi", detailed)
    assert number is not None
    run = record.run(number)
    assert run is not None
    assert benchmark_of(run) == done  # the arrays of its requests are in the file of the benchmark alone
    assert run.document["points"][0]["detail"] is None
    assert run.title == "sweep: 81.4 tok/s"
    text = markdown(run)
    assert "| 8 | 81.4 |" in text
    assert "—" in text  # what was not measured is not 0


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
    assert [path.read_bytes()[:7] for path in tmp_path.glob("*.damaged-*")] == [b"this is"]
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
    assert [path.name for path in written] == ["report-2.md", "report-3.md"]
    assert path.read_text() == "mine"
    for path in written:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert "81.4" in path.read_text()
        assert not {"\x1b", "\u202e"} & set(path.read_text())
    with pytest.raises(OSError, match="No such file"):
        write_report(run, tmp_path / "nowhere" / "report.md")


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
