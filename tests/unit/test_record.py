"""The record: what is kept comes back, and a damaged or unwritable file loses nothing and stops nobody."""

import json
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tui.core.bench_result import Plan, Point, Result, Vantage
from tui.core.logs.load_state import Failure, Loader, LoadState, PhaseSpan, ServerStart
from tui.core.logs.load_state import Phase as P
from tui.record.markdown import escaped, markdown, write_report
from tui.record.store import RecordError, RunStore, benchmark_of

KIMI = ServerStart("kimi", "gpu-8x", 8000, models=("/models/kimi", "kimi"))
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
    number = record.save_load(KIMI, LOAD, at=3160.0)
    assert number is not None
    assert record.save_load(KIMI, LOAD, at=3170.0) == number  # the same start, read again
    (past,) = record.loads(KIMI)
    assert (past.total_s, past.step_seconds, past.version) == (2160.0, (40.0, 32.0, 31.5), "0.24.0")
    assert past.phases == ((P.STARTING, 21.0), (P.LOADING, 2046.0))
    assert record.loads(KIMI, 1000.0) == ()  # no start is compared with itself
    assert record.loads(KIMI, 5000.0) == (past,)
    for changes in ({"port": 8001}, {"host": "gpu-9"}, {"models": ("/models/glm",)}):
        assert record.loads(structs.replace(KIMI, **changes)) == ()
    assert record.loads(structs.replace(KIMI, deployment="kimi-prod")) == (past,)  # it was given another name


def test_a_failed_load_is_kept_but_is_no_history(tmp_path: Path) -> None:
    record = RunStore(tmp_path / "record.sqlite")
    failed = LoadState(
        phase=P.FAILED, started_at=1.0, failure=Failure("cuda_oom", P.LOADING, "CUDA out of memory", advice="free it")
    )
    assert record.save_load(KIMI, failed) is not None
    assert record.loads(KIMI) == ()
    assert record.runs()[0].title == "failed to start: cuda oom"


@pytest.mark.parametrize(("page_cache_mib", "cold"), [(300_000.0, True), (900_000.0, False), (None, None)])
def test_a_start_keeps_whether_its_weights_were_in_the_page_cache(
    tmp_path: Path, page_cache_mib: float | None, cold: bool | None
) -> None:
    record = RunStore(tmp_path / "record.sqlite")
    record.save_load(KIMI, structs.replace(LOAD, checkpoint_gib=508.4), page_cache_mib=page_cache_mib)
    assert record.loads(KIMI)[0].cold is cold
    assert record.loads(KIMI)[0].checkpoint_gib == 508.4


def died(load: LoadState, after_s: float) -> LoadState:
    """Return the same start, whose server died this long after it was ready."""
    assert load.ready_at is not None
    phases = (*load.phases[:-1], PhaseSpan(P.READY, load.ready_at, after_s), PhaseSpan(P.FAILED, load.ready_at + after_s, None))
    failure = Failure("host_oom_or_killed", P.READY, "killed", advice="look at dmesg")
    return structs.replace(load, phase=P.FAILED, ready=False, was_ready=True, phases=phases, failure=failure)


def test_a_server_that_dies_later_is_the_same_start_and_no_failed_one(tmp_path: Path) -> None:
    record = RunStore(tmp_path / "record.sqlite")
    ready = structs.replace(LOAD, started_at=984.0, first_line_at=1000.0, process_started_at=984.0)
    number = record.save_load(structs.replace(KIMI, boot="a", process_started_at=984.0), ready)
    # read again by another session under another name, from the process and then from the log alone
    for start in (
        structs.replace(KIMI, deployment="kimi", boot="a", process_started_at=984.4),
        structs.replace(KIMI, deployment="gpu-8x"),
    ):
        late = structs.replace(died(ready, 960.0), shards=None)  # what was read as it happened was read best
        assert record.save_load(start, late) == number
    assert record.save_load(KIMI, ready) == number  # read by a session that has not heard of its death yet
    (run,) = record.runs()
    assert run.title == "ready after 36:16, died after 16 min: host oom or killed"
    assert (run.document["outcome"], run.document["total_s"], run.document["served_s"]) == ("died", 2176.0, 960.0)
    assert [past.total_s for past in record.loads(KIMI)] == [2176.0]
    assert record.loads(KIMI)[0].step_seconds == (40.0, 32.0, 31.5)
    text = markdown(run)
    assert "**Died after serving 16:00 (host oom or killed):** killed" in text
    assert "Failed in" not in text


@pytest.mark.parametrize(
    ("start", "same"),
    [
        (ServerStart("kimi", "gpu-8x", 8000, "a", 984.6, ("/models/kimi",)), True),
        (ServerStart("kimi", "gpu-8x", 8000, "b", 984.0, ("/models/kimi",)), False),  # the host was started anew
        (ServerStart("kimi", "gpu-8x", 8000, "a", 990.0, ("/models/kimi",)), False),  # it was started again at once
        (ServerStart("kimi", "gpu-8x", 8001, "a", 984.0, ("/models/kimi",)), False),  # its neighbour
        (ServerStart("kimi", "gpu-8x", 8000, None, None, ("/models/kimi",)), True),  # the process is gone, the log is there
    ],
)
def test_a_start_is_known_by_host_boot_process_and_port(tmp_path: Path, start: ServerStart, same: bool) -> None:
    record = RunStore(tmp_path / "record.sqlite")
    load = structs.replace(LOAD, started_at=984.0, first_line_at=1000.0)
    first = record.save_load(ServerStart("kimi", "gpu-8x", 8000, "a", 984.0, ("/models/kimi",)), load)
    assert (record.save_load(start, load) == first) is same


def test_the_start_of_a_process_that_is_gone_is_known_from_when_it_was_seen(tmp_path: Path) -> None:
    record = RunStore(tmp_path / "record.sqlite")
    seen = structs.replace(KIMI, boot="a", process_started_at=984.0)
    record.save_load(seen, structs.replace(LOAD, started_at=984.0, first_line_at=1000.0))
    assert record.process_start(structs.replace(KIMI, deployment="renamed"), 1001.0) == 984.0
    assert record.process_start(KIMI, 1100.0) is None
    assert record.process_start(structs.replace(KIMI, port=8001), 1000.0) is None


FIRST_SCHEMA = """
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('load', 'smoke', 'benchmark')),
    deployment TEXT NOT NULL,
    at REAL NOT NULL,
    title TEXT NOT NULL,
    document TEXT NOT NULL
);
CREATE INDEX run_of_deployment ON run (deployment, kind, at);
PRAGMA user_version = 1;
"""


def first_record(path: Path) -> None:
    """Write a record as the first version did: by names, the first line's time as the start, one start twice."""
    document: dict[str, Any] = {"model": "/models/kimi", "started_at": 1000.0, "total_s": 2160.0, "phases": [["loading", 2046.0]]}
    failed = {**document, "failure": {"kind": "worker_died", "phase": "ready", "cause": "gone", "advice": "look"}}
    with closing(sqlite3.connect(path)) as db:
        db.executescript(FIRST_SCHEMA)
        for id, (name, what) in enumerate((("gpu-8x", document), ("gpu-8x", failed), ("another", document)), 1):
            db.execute("INSERT INTO run VALUES (?, 'load', ?, ?, 'ready', ?)", (id, name, 3160.0 + id, json.dumps(what)))
        db.commit()


def test_a_record_of_the_first_version_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    first_record(path)
    record = RunStore(path)
    assert [(run.id, run.deployment, run.title) for run in record.runs()] == [
        (3, "another", "ready"),
        (2, "gpu-8x", "ready"),
        (1, "gpu-8x", "ready"),
    ]
    assert [past.total_s for past in record.loads(KIMI)] == [2160.0]  # kept under the host's name, once
    newer = structs.replace(LOAD, started_at=984.0, first_line_at=1000.0)
    assert record.save_load(structs.replace(KIMI, process_started_at=984.0), newer) == 2
    assert len(record.runs()) == 3
    assert [past.total_s for past in RunStore(path).loads(structs.replace(KIMI, deployment="renamed"))] == [2160.0]
    assert "**Died while serving (worker died):** gone" in markdown(record.runs()[1])


def test_a_record_of_the_first_version_that_may_only_be_read_is_read(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    first_record(path)
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        record = RunStore(path)
        record._db = record._prepared(db)
        assert len(record.runs()) == 3
        assert [past.total_s for past in record.loads(KIMI)] == [2160.0]
        with pytest.raises(RecordError, match="can't be written"):
            record.save_load(structs.replace(KIMI, process_started_at=1.0), structs.replace(LOAD, started_at=9000.0))


def test_a_load_without_times_is_not_kept(tmp_path: Path) -> None:
    assert RunStore(tmp_path / "r").save_load(KIMI, LoadState(phase=P.LOADING)) is None


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("host_oom_or_killed", "host_oom_or_killed"),
        ("_so_ and __init__.py", "\\_so\\_ and \\_\\_init\\_\\_.py"),
        ("a*b [c](d)", "a\\*b \\[c\\](d)"),
    ],
)
def test_only_what_markdown_would_read_is_escaped(text: str, shown: str) -> None:
    assert escaped(text) == shown


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
        kept = list(threads.map(lambda at: record.save_load(KIMI, LOAD, at=at), map(float, range(40))))
        measured = list(
            threads.map(lambda tokens_s: record.save_benchmark("kimi", result(tokens_s, 1.0)), map(float, range(1, 41)))
        )
    assert len(set(kept)) == 1
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
