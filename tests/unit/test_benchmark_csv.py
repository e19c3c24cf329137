"""The columns of `bench --csv`: the same whatever was measured, and with everything that a point holds."""

import csv
import io
from typing import Any

import pytest

from tui.core.bench_documents import csv_columns, csv_of, heading
from tui.core.bench_result import Plan, Point, Result, Vantage
from tui.core.bench_server import server_figures
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
    figures.update(server_figures([one.replace("4.0", "1.0") for one in lines], lines, {}, 2, 0))
    figures.update(heading(Plan(), "m", 1, 1.8e9))
    assert {"median_first_answer_ms", "median_schedule_slip_ms", "spec_decode_acceptance_rate", "median_ttft_ms_ci95"} <= set(
        figures
    )
    lists = {"errors_by_kind", "error_examples", "warnings", "spec_decode_per_position_acceptance_rates"}
    for name in set(figures) - lists:
        assert (f"{name}_low" if name.endswith("_ci95") else name) in csv_columns(), name
