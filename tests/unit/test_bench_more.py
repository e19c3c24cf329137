"""The figures that stand beside the table of a benchmark: shown where they are known and say something, at any width."""

from typing import Any

import pytest
from rich.console import Console

from tui.cli.bench_tables import more
from tui.core.bench_result import Plan, Point, Result, Vantage
from tui.widgets.bench_pane import one_point
from tui.widgets.sweep import sweep

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
    assert "—" in rows[1]


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
