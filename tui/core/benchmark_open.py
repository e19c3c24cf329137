"""An open loop against its schedule: whether its requests were sent when they were due, and what held them back."""

from collections.abc import Mapping, Sequence
from typing import Any

from tui.core.benchmark import Point
from tui.core.counted import counted

LATE_MEDIAN_MS = 10.0
LATE_P99_MS = 100.0
"""Requests that are sent later than that no longer come as asked; the timers of a busy machine stay below."""
LAST_S = 0.05
"""What was due so shortly before the end may be unsent in a load that kept its schedule."""


def asked_rate(point: Point) -> float | None:
    """Requests a second that were asked for; None for a closed loop."""
    rate = point.figures.get("request_rate")
    return float(rate) if isinstance(rate, int | float) else None


def load_name(point: Point) -> str:
    """`8`, `1 (again)`; of an open loop `8 req/s, Poisson`, `0.5 req/s, burstiness 0.2, at most 16 at once`."""
    rate = asked_rate(point)
    if rate is None:
        name = str(point.concurrency)
    else:
        burstiness = point.get("burstiness")
        name = f"{rate:g} req/s"
        if burstiness is not None:
            name += ", Poisson" if burstiness == 1.0 else f", burstiness {burstiness:g}"
        if point.concurrency:
            name += f", at most {point.concurrency:,} at once"
    return f"{name} ({point.figures['repeat']})" if point.figures.get("repeat") else name


def never_sent(schedule: Sequence[float], figures: Mapping[str, Any]) -> int:
    """How many requests were due before the end and were not sent. `schedule` is in seconds after the beginning."""
    end = float(figures["duration"]) - LAST_S
    return max(0, sum(due <= end for due in schedule) - int(figures["num_prompts"]))


def is_late(figures: Mapping[str, Any]) -> bool:
    """Whether an open loop did not keep its schedule."""
    median, p99 = figures.get("median_schedule_slip_ms"), figures.get("p99_schedule_slip_ms")
    late = (median is not None and median > LATE_MEDIAN_MS) or (p99 is not None and p99 > LATE_P99_MS)
    return late or bool(figures.get("unsent_requests"))


def late_words(figures: Mapping[str, Any], gate: int | None) -> str | None:
    """The warning of a load that did not keep its schedule: by how much, and what held it back. None where it did.

    `gate` is the most requests that it was to have in flight; None is no limit.
    """
    if not is_late(figures):
        return None
    words = []
    if (median := figures.get("median_schedule_slip_ms")) is not None:
        p99 = figures.get("p99_schedule_slip_ms")
        words.append(f"sent late by {seconds(median)} in the median" + (f", {seconds(p99)} at p99" if p99 is not None else ""))
    if unsent := figures.get("unsent_requests"):
        words.append(f"{counted(unsent, 'request was', 'requests were')} due and never sent")
    return "the schedule was not kept: " + ", ".join(words) + f" ({_cause(figures, gate)})"


def _cause(figures: Mapping[str, Any], gate: int | None) -> str:
    peak = figures.get("peak_concurrency") or 0
    most = figures.get("client_most_streams")
    if most is not None and peak >= most and (gate is None or gate > most):
        return f"the client has at most {counted(most, 'stream')}"
    if gate is not None and peak >= gate:
        return f"at most {counted(gate, 'stream')} were allowed" if gate != 1 else "only 1 stream was allowed"
    return "the client was the limit: it, or its connections, could not keep up"


def seconds(milliseconds: float) -> str:
    """`840 ms`, `4.71 s`."""
    return f"{milliseconds:.0f} ms" if milliseconds < 999.5 else f"{milliseconds / 1000:.2f} s"
