"""One table of the figures of a benchmark: a row of it is in every view."""

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tui.cli import runs as command
from tui.cli.bench_tables import LiveView, report
from tui.core import bench_metrics
from tui.core.bench_documents import csv_of, document
from tui.core.bench_metrics import METRICS, Metric, Section, View, in_view
from tui.core.bench_result import Plan, Point, Result, Vantage
from tui.record.markdown import markdown
from tui.record.store import RunStore
from tui.widgets.bench_pane import hero
from tui.widgets.runs_pane import Compared, compared_view
from tui.widgets.sweep import sweep

NEW = Metric(
    "noise_level",
    "noise",
    "dB",
    digits=1,
    better="lower",
    views=View.CSV | View.SCREEN | View.BIG | View.LINE | View.TABLE | View.SERVER | View.REPORT | View.COMPARISON,
    section=Section.MACHINE,
)
BESIDE = Metric("smell_level", "smell", "ou", digits=2, views=View.FURTHER | View.INTERVAL)


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
    ids = [record.save_benchmark("box", one) for one in (before, after)]
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
    assert all(metric.views and (metric.views == View.CSV or metric.heading) for metric in METRICS)


@pytest.mark.parametrize("view", [view for view in View if view is not View.CSV])
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
