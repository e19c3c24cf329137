"""The figures of a benchmark: a row of their one table is in every view, and each view has its own rules."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from tui.cli import runs as command
from tui.cli.bench_tables import LiveView, more, report, table
from tui.core import bench_metrics
from tui.core.bench_documents import csv_of, document
from tui.core.bench_metrics import METRICS, Metric, Section, View, in_view
from tui.core.bench_result import Plan, Point, Result, Vantage
from tui.record.markdown import markdown
from tui.record.store import RunStore
from tui.widgets.bench_pane import hero, one_point
from tui.widgets.runs_pane import Compared, compared_view
from tui.widgets.sweep import sweep

NEW = Metric(
    "noise_level",
    "noise",
    "dB",
    digits=1,
    better="lower",
    views=View.SCREEN | View.BIG | View.LINE | View.TABLE | View.SERVER | View.REPORT | View.COMPARISON,
    section=Section.MACHINE,
)


BESIDE = Metric("smell_level", "smell", "ou", digits=2, views=View.FURTHER | View.INTERVAL, csv=False)


def result(noise: float) -> Result:
    figures = {"completed": 400, "failed": 0, "output_throughput": 80.0, "noise_level": noise, "smell_level_ci95": [1.0, 2.5]}
    return Result("/v1/chat/completions", "m", Vantage.HOST, Plan(kind="single"), (Point(1, figures),), started_at=1.8e9)


@pytest.fixture
def _new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_metrics, "METRICS", (*METRICS, NEW, BESIDE))


@pytest.mark.usefixtures("_new")
def test_a_row_of_the_table_is_in_every_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = result(61.26), result(30.0)
    (row,) = csv.DictReader(io.StringIO(csv_of(before)))
    assert list(row)[-2:] == ["vantage", "noise_level"]
    assert row["noise_level"] == "61.26"
    assert document(before)["points"][0]["noise_level"] == 61.26
    assert ["noise", "dB", "61.3"] in [shown.plain.split() for shown in sweep(before.points, None, None, False, 80, 40)]
    assert "noise" in hero(before.points, None, False, 120, several=False)[0].plain
    LiveView(before.plan, live=False, quiet=False).point(before.points[0])
    assert ", noise 61.3 dB" in capsys.readouterr().err
    monkeypatch.setenv("COLUMNS", "160")
    report(before, ())
    heads, figures, *rest = capsys.readouterr().out.splitlines()
    assert heads.split()[-3:] == ["noise", "done", "failed"]
    assert figures.split()[-3:] == ["61.3", "400", "0"]
    assert "server, 1 stream: noise 61.3 dB" in rest
    beside = rest.index("streams smell 95 %")
    assert rest[beside + 1].split() == ["1", "1.00–2.50"]
    record = RunStore(tmp_path / "record.sqlite")
    ids = [record.save_benchmark("box", result) for result in (before, after)]
    runs = record.runs()
    assert "| noise dB |" in markdown(runs[0])
    monkeypatch.setattr(command, "open_record", lambda: record)
    shown = CliRunner().invoke(command.compare, [str(id) for id in ids]).output
    assert "noise dB" in shown
    assert "30.0 −51 % ✓" in " ".join(shown.split())
    told = json.loads(CliRunner().invoke(command.compare, [*(str(id) for id in ids), "--json"]).output)
    assert told["points"][0]["changes"]["noise_level"]["better"] is True
    assert "noise dB" in compared_view(Compared(runs[1], runs[0], before, after), 160).plain


def test_no_key_is_there_twice_and_every_row_has_a_view() -> None:
    keys = [metric.key for metric in METRICS]
    assert len(set(keys)) == len(keys)
    assert all(metric.heading if metric.views else metric.csv for metric in METRICS)


@pytest.mark.parametrize("view", list(View))
def test_a_view_has_no_heading_twice(view: View) -> None:
    headings = [metric.heading for metric in in_view(view)]
    assert len(set(headings)) == len(headings)


@pytest.mark.parametrize(
    ("key", "raw", "text"),
    [
        ("output_throughput", 999.94, "999.9"),
        ("output_throughput", 4012.4, "4,012"),
        ("output_throughput", None, "—"),
        ("median_tpot_ms", 12.125, "12.12"),
        ("median_e2el_ms", 1250.0, "1.25"),
        ("server_peak_kv_cache", 0.431, "43"),
        ("failed", 0.0, "0"),
    ],
)
def test_a_figure_has_its_unit_and_decimals(key: str, raw: float | None, text: str) -> None:
    assert bench_metrics.metric(key).text(raw) == text


FIGURES: dict[str, Any] = {
    "request_rate": "inf",
    "completed": 60,
    "request_goodput": 13.304,
    "steady_output_throughput_ci95": [363.7, 386.9],
    "median_ttft_ms_ci95": [47.8, 54.94],
    "p99_ttft_ms_ci95": None,
    "median_tpot_ms_ci95": [19.9, 20.34],
    "peak_tokens_per_s": 1372.0,
    "tokens_per_chunk": 2.4,
    "median_first_answer_ms": 1320.5,
    "reasoning_tokens": 12345,
    "host_idle_cores": 11.53,
    "api_server_cpu_cores": 0.12,
}


def shown(points: list[dict[str, Any]], width: int, vantage: Vantage = Vantage.HOST, **plan: Any) -> list[str]:
    made = tuple(Point(8 << i, {**FIGURES, **figures}) for i, figures in enumerate(points))
    console = Console(width=width)
    found = more(Result("x", "m", vantage, Plan(**plan), made), width)
    with console.capture() as said:
        console.print(found)
    return [line.rstrip() for line in said.get().splitlines()]


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_all_there_is_at_any_width(width: int) -> None:
    lines = shown([{}], width, goodput={"ttft": 60.0, "tpot": 50.0})
    assert all(len(line) <= width for line in lines)
    words = " ".join(lines)
    for value in ("13.30", "363.7–386.9", "47.8–54.9", "19.90–20.34", "1,372", "2.40", "1,320", "12,345", "11.5", "0.12"):
        assert f" {value}" in words
    assert "good/s: requests a second within ttft 60 ms, tpot 50 ms" in words
    assert "TTFT p99 95 %" not in words
    tables = 1 if width >= 120 else 2
    assert sum(line.startswith("streams") for line in lines) >= tables


@pytest.mark.parametrize(
    ("figures", "column"),
    [
        ({"request_goodput": None}, "good/s"),
        ({"tokens_per_chunk": 1.001}, "tok/chunk"),
        ({"tokens_per_chunk": None}, "tok/chunk"),
        ({"median_first_answer_ms": None}, "answer"),
        ({"reasoning_tokens": 0}, "reasoning"),
        ({"host_idle_cores": None}, "idle cores"),
        ({"api_server_cpu_cores": None}, "API cores"),
        ({"steady_output_throughput_ci95": None}, "steady 95 %"),
    ],
)
def test_what_is_not_known_of_one_is_a_dash_and_of_all_no_column(figures: dict[str, Any], column: str) -> None:
    assert column in shown([{}], 200)[0]
    assert column not in shown([figures], 200)[0]
    head, *rows = shown([{}, figures], 200)[:3]
    assert column in head
    assert "—" not in rows[0]
    assert ("—" in rows[1]) is (None in figures.values())  # what is known and usual is no unknown


def test_idle_cores_are_those_of_the_gpu_host_only() -> None:
    assert "idle cores" not in shown([{}], 200, Vantage.DIRECT)[0]


def test_the_rate_that_has_no_room_in_the_table_is_told_here() -> None:
    result = Result("x", "m", Vantage.HOST, Plan(), (Point(8, {"request_rate": "inf", "completed": 4, "request_throughput": 1.5}),))
    assert more(result, 80) is None
    console = Console(width=80)
    with console.capture() as said:
        console.print(more(result, 80, rates=True))
    assert [line.split() for line in said.get().splitlines()] == [["streams", "req/s"], ["8", "1.50"]]


def test_nothing_more_is_nothing() -> None:
    assert more(Result("x", "m", Vantage.HOST, Plan(), (Point(1, {"request_rate": "inf"}),)), 80) is None
    assert more(Result("x", "m", Vantage.HOST, Plan()), 80) is None


def test_the_control_room_has_goodput_and_the_first_answer() -> None:
    one = "\n".join(line.plain for line in one_point(Point(1, {**FIGURES, "duration": 9.0}), 80, 20))
    assert "answer ms" in one
    assert "13.3 good/s" in one
    several = [Point(at, FIGURES) for at in (1, 2)]
    rows = [line.plain.split() for line in sweep(several, None, None, False, 120, 40, 0)]
    assert ["good", "req/s", "13.3", "13.3"] in rows
    assert ["idle", "cores", "11.5", "11.5"] in rows
    plain = "\n".join(line.plain for line in one_point(Point(1, {"completed": 5}), 80, 20))
    assert "answer" not in plain
    assert "good" not in plain


LATE = {"median_schedule_slip_ms": 4712.0, "p99_schedule_slip_ms": 9394.4, "peak_concurrency": 2}


def open_point(concurrency: int = 2, **more: Any) -> Point:
    figures = {"request_rate": 50.0, "request_throughput": 3.7234, "output_throughput": 93.0, "completed": 60, "failed": 0}
    return Point(concurrency, {**figures, "median_ttft_ms": 52.2, **LATE, **more})


def lines(points: list[Point], width: int) -> list[str]:
    console = Console(width=width)
    with console.capture() as said:
        console.print(table(points, width))
    return [line.rstrip() for line in said.get().splitlines()]


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_has_the_rate_that_was_reached(width: int) -> None:
    head, row = lines([open_point()], width)
    assert head.split()[:3] == ["asked", "req/s", "tok/s"]
    assert row.split()[:4] == ["50", "3.72", "93.0", "52.2"]
    assert row.endswith("sent late")


def test_remarks_that_have_no_room_stand_below() -> None:
    closed = {"request_rate": "inf", "output_throughput": 12345.0, "steady_output_throughput": 12999.0, "median_ttft_ms": 1234.5}
    closed |= {"p99_ttft_ms": 12345.6, "median_tpot_ms": 45.67, "p99_tpot_ms": 99.12, "completed": 1024, "failed": 0}
    limited = {**closed, "client_limited": True}
    points = [
        Point(1, closed),
        Point(256, {**limited, "incomplete": 12}),
        Point(1, {**limited, "repeat": "again"}),
        Point(2, limited),
    ]
    wide = lines(points, 120)
    assert wide[2].endswith("client was the limit, 12 incomplete")
    narrow = lines(points, 80)
    assert [row.split()[-1] for row in narrow[2:5]] == ["a", "b", "c"]
    assert narrow[5:] == ["a  client was the limit, 12 incomplete", "b  again, client was the limit", "c  client was the limit"]
    assert lines(points[:1], 80) == lines(points[:1], 120)


@pytest.mark.parametrize("height", [3, 12, 24, 40, 60])
def test_the_control_room_has_it_too(height: int) -> None:
    plan = Plan(kind="rate", request_rate=50.0, max_concurrency=2)
    shown = [line.plain for line in sweep([open_point(warnings=["the schedule was not kept"])], plan, None, False, 80, height, 0)]
    if height > 3:
        assert any(line.split() == ["req/s", "asked", "50"] for line in shown)
        assert any(line.split() == ["req/s", "3.72"] for line in shown)
        assert any(line.split() == ["late", "p99", "ms", "9,394"] for line in shown)
    assert sweep([open_point(0)], plan, None, False, 80, height, 0)  # without a gate: no streams to divide by
    assert not any("late" in line.plain for line in sweep([Point(4, {"output_throughput": 1.0})], None, None, False, 80, height, 0))
