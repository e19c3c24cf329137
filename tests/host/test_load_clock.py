"""A wall clock that is set while a load runs: the run goes on as it would have, and is marked."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loads import load
from scripted_server import SSE, Exchange, scripted

from tui.probe.load_schedule import STEP_S, LoadOutcome, WallClock
from tui.wire.request_record import COMPLETED, FAILED, INCOMPLETE
from tui.wire.summary import summary

DAY = 86_400.0


class Settable:
    """The machine's wall clock, which can be set. Over a Unix socket all stamps are its."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._real = time.time
        self.off = 0.0
        monkeypatch.setattr(time, "time", lambda: self._real() + self.off)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Settable:
    return Settable(monkeypatch)


def run(tmp_path: Path, script: Callable[[Exchange], object], order: dict[str, Any]) -> tuple[LoadOutcome, float]:
    """Return what the loop recorded, and how long it ran by a clock that wasn't set."""
    with scripted(script, unix=str(tmp_path / "api.sock")) as server:
        began = time.monotonic()
        outcome = load(server.url, order)
        return outcome, time.monotonic() - began


@pytest.mark.parametrize("step", [-DAY, 3.0])
@pytest.mark.parametrize(
    ("order", "at_least"),
    [
        ({"concurrency": 2, "duration_s": 1.0}, 5),
        ({"concurrency": 2, "at_least": 4, "at_least_s": 1.0, "at_most_s": 30.0}, 5),
        ({"schedule": [0.04 * (i + 1) for i in range(25)]}, 25),
        ({"schedule": [0.04 * (i + 1) for i in range(25)], "gate": 2, "duration_s": 1.0}, 20),
    ],
    ids=["duration", "enough", "open loop", "gate and duration"],
)
def test_a_run_lasts_as_long_as_it_was_to(
    tmp_path: Path, clock: Settable, step: float, order: dict[str, Any], at_least: int
) -> None:
    def script(exchange: Exchange) -> None:
        if exchange.number == 3:
            clock.off = step
        exchange.reply()

    outcome, took = run(tmp_path, script, order)
    assert 0.9 < took < 10.0
    assert outcome.end - outcome.begin == pytest.approx(took, abs=1.0)
    assert outcome.health.wall_s == pytest.approx(outcome.end - outcome.begin, abs=0.1)
    assert outcome.health.clock_step_s == pytest.approx(step, abs=0.05)
    assert {r.state for r in outcome.records} <= {COMPLETED, INCOMPLETE}
    assert len(outcome.records) >= at_least
    assert outcome.stopped == ""
    figures = summary(outcome.records, outcome.begin, outcome.end, dispatch_end=outcome.dispatch_end)
    assert figures["duration"] == pytest.approx(took, abs=1.0)
    assert figures["request_throughput"] == pytest.approx(figures["completed"] / took, rel=0.5)
    if "schedule" in order:  # those that follow the step by more than a tick are due by the clock as it is then
        slips = [abs(r.start - r.due) for r in outcome.records[-5:] if r.due is not None]
        assert len(slips) == 5
        assert max(slips) < 1.0


@pytest.mark.parametrize("step", [-DAY, DAY])
def test_a_silent_server_is_given_up_as_before(tmp_path: Path, clock: Settable, step: float) -> None:
    """Silence counts anew from the step: nothing fails by it, and nothing waits for ever."""

    def silent(exchange: Exchange) -> str:
        clock.off = step
        exchange.wait_closed(20.0)
        return "close"

    outcome, took = run(tmp_path, silent, {"concurrency": 1, "requests": 1, "stall_s": 1.0})
    assert [(r.state, r.kind) for r in outcome.records] == [(FAILED, "stalled")]
    assert 1.0 <= took < 10.0


def test_a_long_request_is_given_up_by_the_steady_clock(tmp_path: Path, clock: Settable) -> None:
    def drip(exchange: Exchange) -> str:
        clock.off = -DAY
        exchange.send(SSE)
        exchange.token()
        exchange.wait_closed(20.0)
        return "close"

    outcome, took = run(tmp_path, drip, {"concurrency": 1, "requests": 1, "stall_s": 15.0, "timeout_s": 1.0})
    assert [(r.state, r.kind) for r in outcome.records] == [(FAILED, "timeout")]
    assert 1.0 <= took < 10.0


def test_progress_and_stops_go_on(tmp_path: Path, clock: Settable) -> None:
    ticks = 0

    def stopping() -> bool:
        nonlocal ticks
        ticks += 1
        if ticks == 3:
            clock.off = -DAY
        return ticks > 6

    def endless(exchange: Exchange) -> str:
        exchange.wait_closed(20.0)
        return "close"

    with scripted(endless, unix=str(tmp_path / "api.sock")) as server:
        began = time.monotonic()
        outcome = load(server.url, {"concurrency": 1, "duration_s": 60.0}, stopping=stopping)
    assert outcome.stopped == "stopped"
    assert time.monotonic() - began < 10.0


@pytest.mark.parametrize(
    ("looks", "stepped"),
    [
        ([0.0, 0.0], 0.0),
        ([STEP_S / 2, STEP_S, STEP_S * 1.5], 0.0),  # slewed
        ([5.0, 5.0, 5.0], 5.0),
        ([-5.0, -5.0, 2.0], 2.0),
        ([0.001, -3600.0], -3600.001),
    ],
)
def test_a_step_is_told_from_a_slewed_clock(looks: list[float], stepped: float) -> None:
    clock = WallClock()
    ahead = clock.ahead
    for number, off in enumerate(looks):
        clock.look(1000.0 + number + ahead + off, 1000.0 + number)
    assert clock.stepped == pytest.approx(stepped, abs=1e-6)
    assert clock.ahead == pytest.approx(ahead + looks[-1], abs=1e-6)
