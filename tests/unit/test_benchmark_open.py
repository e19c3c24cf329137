"""Whether an open loop kept its schedule, and how that is shown."""

from typing import Any

import pytest
from rich.console import Console

from tui.cli.bench_tables import table
from tui.core.bench_remarks import late_words, load_name, never_sent
from tui.core.bench_result import Plan, Point
from tui.widgets.bench_pane import remarks
from tui.widgets.sweep import sweep

LATE = {"median_schedule_slip_ms": 4712.0, "p99_schedule_slip_ms": 9394.4, "peak_concurrency": 2}


@pytest.mark.parametrize(
    ("figures", "gate", "words"),
    [
        ({"median_schedule_slip_ms": 0.8, "p99_schedule_slip_ms": 7.2, "unsent_requests": 0}, 2, None),
        ({"median_schedule_slip_ms": 9.9, "p99_schedule_slip_ms": 99.0, "unsent_requests": None}, None, None),
        ({}, None, None),
        (LATE, 2, "the schedule was not kept: sent late by 4.71 s in the median, 9.39 s at p99 (at most 2 streams were allowed)"),
        (
            {**LATE, "peak_concurrency": 1, "unsent_requests": 1},
            1,
            "the schedule was not kept: sent late by 4.71 s in the median, 9.39 s at p99, 1 request was due and never sent "
            "(only 1 stream was allowed)",
        ),
        (
            {"median_schedule_slip_ms": 2.0, "p99_schedule_slip_ms": 140.2, "peak_concurrency": 2},
            64,
            "the schedule was not kept: sent late by 2 ms in the median, 140 ms at p99 "
            "(the client was the limit: it, or its connections, could not keep up)",
        ),
        (
            {"median_schedule_slip_ms": None, "p99_schedule_slip_ms": None, "unsent_requests": 1204, "peak_concurrency": 32}
            | {"client_most_streams": 32},
            None,
            "the schedule was not kept: 1,204 requests were due and never sent (the client has at most 32 streams)",
        ),
    ],
)
def test_a_schedule_that_was_not_kept(figures: dict[str, Any], gate: int | None, words: str | None) -> None:
    assert late_words(figures, gate) == words


@pytest.mark.parametrize(
    ("duration", "sent", "unsent"),
    [(3.0, 150, 0), (3.0, 149, 0), (3.0, 12, 136), (1.0, 40, 7), (30.0, 150, 0), (30.0, 0, 150)],
)
def test_what_was_due_and_never_sent(duration: float, sent: int, unsent: int) -> None:
    schedule = [0.02 * (i + 1) for i in range(150)]
    figures = {"duration": duration, "num_prompts": sent}
    assert never_sent(schedule, figures) == pytest.approx(unsent, abs=1)  # the last moments count for nothing


@pytest.mark.parametrize(
    ("streams", "figures", "name"),
    [
        (8, {"request_rate": "inf", "burstiness": 1.0, "repeat": None}, "8"),
        (1, {"request_rate": "inf", "burstiness": 1.0, "repeat": "again"}, "1 (again)"),
        (0, {"request_rate": 8.0, "burstiness": 1.0}, "8 req/s, Poisson"),
        (0, {"request_rate": 8.0}, "8 req/s"),
        (1024, {"request_rate": 0.5, "burstiness": 0.2}, "0.5 req/s, burstiness 0.2, at most 1,024 at once"),
    ],
)
def test_a_load_is_named_by_what_drives_it(streams: int, figures: dict[str, Any], name: str) -> None:
    assert load_name(Point(streams, figures)) == name


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


def test_its_remarks_name_the_rate() -> None:
    (told,) = remarks(None, [open_point(0, warnings=["the schedule was not kept: sent late by 1 s"])], None)
    assert told.plain == "▲ 50 requests/s: the schedule was not kept: sent late by 1 s"
