"""The columns of CSV, the same whatever was measured, and the report of a stored benchmark."""

import csv
import io
import json
from typing import Any

import pytest

from tui.core.bench_documents import csv_columns, csv_of, heading, plain
from tui.core.bench_result import Plan, Point, Result, Vantage
from tui.core.bench_server import server_figures
from tui.record.markdown import markdown
from tui.record.store import Run
from tui.wire.request_record import COMPLETED, RequestRecord
from tui.wire.summary import summary

FIRST = ["date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts", "request_rate", "burstiness"]


def rows(*points: Point, plan: Plan | None = None) -> list[dict[str, str]]:
    result = Result("/v1/chat/completions", "m", Vantage.DIRECT, plan or Plan(kind="single", input_tokens=64), points)
    return list(csv.DictReader(io.StringIO(csv_of(result))))


@pytest.mark.parametrize(
    "points", [(), (Point(1, {}),), (Point(8, {"p99_ttft_ms_ci95": None, "new": 1}), Point(1, {"gpu": {"count": 8}}))]
)
def test_the_columns_are_the_same_for_every_benchmark(points: tuple[Point, ...]) -> None:
    result = Result("/v1/chat/completions", "m", Vantage.DIRECT, Plan(), points)
    heads, *body = list(csv.reader(io.StringIO(csv_of(result))))
    assert heads == list(csv_columns())
    assert heads[: len(FIRST)] == FIRST
    assert len(set(heads)) == len(heads)
    assert [len(row) for row in body] == [len(heads)] * len(points)


@pytest.mark.parametrize(
    ("figures", "cells"),
    [
        (
            {"p99_ttft_ms": 9.5, "p99_ttft_ms_ci95": [9.0, 11.25], "median_ttft_ms_ci95": None},
            {"p99_ttft_ms": "9.5", "p99_ttft_ms_ci95_low": "9.0", "p99_ttft_ms_ci95_high": "11.25", "median_ttft_ms_ci95_low": ""},
        ),
        ({"errors_by_kind": {"http_500": 3}, "failed": 3}, {"errors_by_kind": '{"http_500": 3}', "failed": "3"}),
        ({"warnings": ["one, two", "three"], "cut": True}, {"warnings": "one, two; three", "cut": "True", "errors_by_kind": "{}"}),
        (
            {"gpu": {"count": 2, "memory_used_mib": [70000.0, None, 90000.5], "mean_power_w": None, "tokens_per_joule": 0.25}},
            {"gpu_count": "2", "gpu_fullest_mib": "90000.5", "gpu_mean_power_w": "", "gpu_tokens_per_joule": "0.25"},
        ),
        ({"gpu": None}, {"gpu_count": "", "gpu_fullest_mib": ""}),
        ({}, {"planned_input_tokens": "64", "planned_output_tokens": "512", "benchmark": "single", "vantage": "direct"}),
        ({"repeat": "longest prompt"}, {"planned_input_tokens": "", "planned_output_tokens": "16", "repeat": "longest prompt"}),
    ],
)
def test_cells(figures: dict[str, Any], cells: dict[str, str]) -> None:
    (row,) = rows(Point(4, figures))
    assert {name: row[name] for name in cells} == cells


def test_every_figure_that_is_a_number_has_its_column() -> None:
    """Of the longest point there is: an open loop with reasoning, of a server that speculates."""
    record = RequestRecord(0, 3)
    record.start, record.due, record.answer, record.state = 10.0, 9.9, 10.6, COMPLETED
    record.chunks.extend([10.5, 10.6, 10.7])
    record.end, record.reasoning = 10.7, 1
    figures = summary([record, record], 10.0, 12.0, concurrency=1, limits={"ttft": 500.0})
    lines = [f"vllm:spec_decode_num_{name}_total 4.0" for name in ("drafts", "draft_tokens", "accepted_tokens")]
    figures.update(server_figures([line.replace("4.0", "1.0") for line in lines], lines, {}, 2, 0))
    figures.update(heading(Plan(), "m", 1, 1.8e9))
    assert {"median_first_answer_ms", "median_schedule_slip_ms", "spec_decode_acceptance_rate", "median_ttft_ms_ci95"} <= set(
        figures
    )
    lists = {"errors_by_kind", "error_examples", "warnings", "spec_decode_per_position_acceptance_rates"}
    for name in set(figures) - lists:
        assert (f"{name}_low" if name.endswith("_ci95") else name) in csv_columns(), name


def reported(plan: Plan, *points: Point, stopped: str | None = None) -> str:
    """Return the report of a benchmark that was stored."""
    result = Result("/v1", "m", Vantage.HOST, plan, points, stopped=stopped, deviations=("a *note*",), started_at=5.0)
    return markdown(Run(1, "benchmark", "kimi", 5.0, "sweep", json.loads(json.dumps(plain(result, detailed=False)))))


def test_a_report_has_what_qualifies_its_figures() -> None:
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
    text = reported(plan, Point(4, good), Point(8, bad), stopped="stopped by the user")
    for words in (
        "**Incomplete:** stopped by the user.",
        "- ✗ 8 streams: 3 × http_500: EngineCore died \\<b\\>",
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


def test_a_report_of_a_soak_has_its_verdict_and_names_its_longest_prompts() -> None:
    longest = Point(3, {"output_throughput": 50.0, "completed": 3, "failed": 0, "duration": 5.0, "repeat": "longest prompt"})
    rates = (1000.0, 1002.0, 999.0, 850.0, 852.0, 849.0)
    slices = [Point(3, {"output_throughput": rate, "completed": 9, "failed": 0, "duration": 120.0}) for rate in rates]
    text = reported(Plan(kind="soak", concurrency=(3,), duration_s=720.0), longest, *slices)
    assert "- ▲ observed for 12 min: 57 requests completed, none failed" in text
    assert "(-15 %, it decays)" in text
    assert "| 3 (longest prompt) | 50.0 |" in text


def test_a_report_of_a_sweep_names_its_knee() -> None:
    plan = Plan(concurrency=(1, 2, 4, 8), stop_at_knee=True)
    figures = [Point(at, {"output_throughput": 100.0, "median_e2el_ms": 10.0 * at, "completed": 9}) for at in (1, 2, 4)]
    assert "- knee at 1 stream: 2 and 4 gained nothing but waiting, more were not tried" in reported(plan, *figures)


def test_the_report_names_an_open_loop_by_its_rate() -> None:
    text = reported(
        Plan(kind="rate", request_rate=8.0), Point(0, {"output_throughput": 40.0, "request_rate": 8.0, "burstiness": 1.0})
    )
    assert "| load | tok/s |" in text
    assert "| 8 req/s, Poisson | 40.0 |" in text


@pytest.mark.parametrize(
    ("plan", "words"),
    [(Plan(), "512 in, 512 out, unique prompts"), (Plan(prompts_file="p.jsonl"), "prompts of a file, 512 out")],
)
def test_the_report_says_what_the_prompts_were(plan: Plan, words: str) -> None:
    assert f"Tokens: {words}" in reported(plan)
