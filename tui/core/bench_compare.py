"""Two benchmarks side by side, point by point: change in percent, and whether it is for the better."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from math import sqrt
from typing import Any

from tui.core.bench_metrics import Metric, View, compared, in_view, metric
from tui.core.bench_plan import LONGEST
from tui.core.bench_result import Plan, Point, Result
from tui.core.presentation import counted
from tui.core.text import clean

STEADY = "steady_output_throughput"
WHOLE_RUN = ("output_throughput", "request_throughput")
"""Rates that hold the ramp, and lose the requests that the end cut off."""
NOISE = 0.03
"""Changes below 3 % are not called better or worse: runs of one server differ by so much."""
SURE = 1.96
"""Standard deviations of a 95 % interval."""
LEGEND = "~ may be chance: too few requests, or the 95 % intervals overlap; below 3 % nothing is said"


@dataclass(frozen=True, slots=True)
class Change:
    """One figure of two runs: `before` and `after` as measured, `share` (after − before) / before, or None if that is unknown."""

    metric: Metric
    before: float | None
    after: float | None
    share: float | None
    better: bool | None
    """None: no difference beyond noise, or not comparable."""
    doubt: str = ""
    """Why a difference beyond NOISE is called neither better nor worse."""

    @property
    def sign(self) -> str:
        """Return ✓ for better, ▲ for worse, ~ for perhaps by chance."""
        return {True: "✓", False: "▲", None: "~" if self.doubt else ""}[self.better]


Key = tuple[float, int, str]
"""Requests a second that were asked for (0: a closed loop), streams (an open loop's gate, or 0), and LONGEST or nothing."""


@dataclass(frozen=True, slots=True)
class ComparedPoint:
    concurrency: int
    changes: tuple[Change, ...]
    rate: float | None = None
    """Requests a second that were asked for; None for a closed loop."""
    label: str = ""
    """LONGEST, or empty."""

    @property
    def name(self) -> str:
        """Return `8`, `40 req/s`, `4 longest prompt`."""
        name = str(self.concurrency) if self.rate is None else f"{self.rate:g} req/s"
        return f"{name} {self.label}" if self.label else name

    def change(self, name: str) -> Change | None:
        return next((change for change in self.changes if change.metric.key == name), None)


def compare(before: Result, after: Result) -> tuple[ComparedPoint, ...]:
    """Compare the loads that both runs measured to their end (the first point of each if one was repeated)."""
    earlier, later = _whole(before), _whole(after)
    return tuple(
        ComparedPoint(
            key[1],
            tuple(change_of(metric, earlier[key], later[key]) for metric in compared()),
            key[0] or None,
            key[2],
        )
        for key in sorted(earlier.keys() & later.keys())
    )


def headlines(points: Iterable[ComparedPoint]) -> list[Metric]:
    """Return the metrics that a comparison shows: the steady throughput first, if both runs have it, then what some point has."""
    changes = [change for point in points for change in point.changes]
    known = {change.metric.key for change in changes if change.after is not None or change.before is not None}
    steady = any(change.metric.key == STEADY and None not in (change.before, change.after) for change in changes)
    shown = [shown for shown in in_view(View.COMPARISON) if shown.key in known and shown.key != STEADY]
    return [metric(STEADY), *shown] if steady else shown


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Loads that are not compared: in one of the runs only, or cut before their end."""

    only_before: tuple[ComparedPoint, ...] = ()
    only_after: tuple[ComparedPoint, ...] = ()
    cut_before: tuple[ComparedPoint, ...] = ()
    cut_after: tuple[ComparedPoint, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """Return `only in the run after: 8 streams`, a line each."""
        told = (
            ("only in the run before", self.only_before),
            ("only in the run after", self.only_after),
            ("cut before its end in the run before, not compared", self.cut_before),
            ("cut before its end in the run after, not compared", self.cut_after),
        )
        return tuple(f"{what}: {_listed(points)}" for what, points in told if points)


def left_out(before: Result, after: Result) -> LeftOut:
    """Return what `compare` leaves out of the two runs."""
    earlier, later = _whole(before).keys(), _whole(after).keys()
    cut_earlier, cut_later = (set(map(_key, result.points)) - _whole(result).keys() for result in (before, after))
    return LeftOut(
        _named(earlier - later - cut_later),
        _named(later - earlier - cut_earlier),
        _named(cut_earlier),
        _named(cut_later),
    )


def loads(result: Result) -> tuple[str, ...]:
    """Return the names of the loads that a run measured to their end."""
    return tuple(point.name for point in _named(_whole(result).keys()))


def _whole(result: Result) -> dict[Key, Point]:
    return {_key(point): point for point in reversed(result.points) if not point.figures.get("cut")}


def _named(keys: Iterable[Key]) -> tuple[ComparedPoint, ...]:
    return tuple(ComparedPoint(streams, (), rate or None, label) for rate, streams, label in sorted(keys))


def _listed(points: tuple[ComparedPoint, ...]) -> str:
    """Return `8 and 16 streams`, `2 streams (longest prompt), 4 req/s`."""
    plain = [point.concurrency for point in points if point.rate is None and not point.label]
    words = []
    if plain:
        *first, last = plain
        words.append(f"{', '.join(map(str, first))} and {last} streams" if first else counted(last, "stream"))
    for point in points:
        if point.rate is not None:
            words.append(point.name)
        elif point.label:
            words.append(f"{counted(point.concurrency, 'stream')} ({point.label})")
    return ", ".join(words)


def _key(point: Point) -> Key:
    label = LONGEST if point.figures.get("repeat") == LONGEST else ""
    return point.asked_rate or 0.0, point.concurrency, label


def change_of(metric: Metric, before: Point, after: Point) -> Change:
    """Return how a figure changed from one point to another."""
    one, other = metric.raw(before), metric.raw(after)
    if one is None or other is None or one == 0:
        worse = one == 0 and metric.key == "failed" and bool(other)
        return Change(metric, one, other, None, False if worse else None)
    share = (other - one) / one
    if abs(share) < NOISE or not metric.better:
        return Change(metric, one, other, share, None)
    doubt = _doubt(metric.key, before, after)
    return Change(metric, one, other, share, None if doubt else (share > 0) == (metric.better == "higher"), doubt)


def _doubt(name: str, one: Point, other: Point) -> str:
    """Return why a change may be chance; empty if it is certain. What older runs don't hold is not asked for."""
    both = (one, other)
    if name.startswith("p99_") and any(point.figures.get("p99_supported") is False for point in both):
        return "too few requests for a p99"
    if all(f"{name}_ci95" in point.figures for point in both):
        a, b = one.interval(name), other.interval(name)
        if a is None or b is None:
            return "too few requests for an interval"
        return "the 95 % intervals overlap" if a[0] <= b[1] and b[0] <= a[1] else ""
    if name in WHOLE_RUN:
        return _doubt_of_whole(name, one, other)
    if name in ("request_goodput", "failed"):
        return _doubt_of_counts(name, one, other)
    return ""


def _doubt_of_whole(name: str, one: Point, other: Point) -> str:
    """Return the doubt about a rate of the whole run, which changes with its length too: the steady one tells if the server did."""
    steady = change_of(metric(STEADY), one, other)
    if steady.share is not None:
        moved = (other.get(name) or 0.0) > (one.get(name) or 0.0)
        return "" if steady.better is moved else "the steady throughput has no such change"
    ramp = min(one.concurrency, other.concurrency) > 1 and one.asked_rate is None
    if ramp and any(STEADY in point.figures for point in (one, other)):
        return "too short for a steady throughput: the ramp may make the difference"
    return ""


def _doubt_of_counts(name: str, one: Point, other: Point) -> str:
    """Return the doubt about counts: they differ by the root of their sum anyway."""
    rates: list[tuple[float, float]] = []
    for point in (one, other):
        seconds = point.get("duration") if name == "request_goodput" else 1.0
        if not seconds:
            return ""
        rates.append((point.get(name) or 0.0, seconds))
    apart = abs(rates[0][0] - rates[1][0])
    return "so few requests can differ by as much" if apart <= SURE * sqrt(sum(rate / seconds for rate, seconds in rates)) else ""


UNTOLD = frozenset(
    {
        "concurrency",  # the points are told apart by it
        "model",  # the served one is compared
        "vantage",  # the one that it came to is compared
        "request_rate",  # said below, and the points are told apart by it
        "headers",
        "max_failures",
        "stop_at_knee",
        "repeat_first",
        "save",
        "save_detailed",
        "verify_tls",
        "stall_s",
    }
)
"""Fields of a plan that do not change what a point measures, or are compared otherwise."""
VALUE_LENGTH = 60


def differences(before: Result, after: Result) -> tuple[str, ...]:
    """Return what makes two runs hard to compare, a line each: whatever differs in their plans, the model, the vantage."""
    found = []
    one, two = before.plan, after.plan
    pairs: list[tuple[str, Any, Any]] = [
        ("request rate", one.request_rate, two.request_rate),
        *(
            (_words(field.name), getattr(one, field.name), getattr(two, field.name))
            for field in fields(Plan)
            if field.name not in UNTOLD
        ),
        ("headers", sorted(one.headers), sorted(two.headers)),
        ("vantage", before.vantage.value, after.vantage.value),
        ("model", before.model, after.model),
    ]
    for what, ours, theirs in pairs:
        if ours != theirs:
            verb = "differ" if what.endswith(("tokens", "ids", "requests", "workers", "headers", "seconds")) else "differs"
            found.append(f"{what} {verb}: {_shown(ours)} and {_shown(theirs)}")
    return tuple(found)


def _words(name: str) -> str:
    """Return a field of a plan in words: `duration in s`, `input tokens`."""
    base, _, unit = name.rpartition("_")
    return f"{base} in s".replace("_", " ") if unit == "s" else name.replace("_", " ")


def _shown(value: Any) -> str:
    if value is None or value in ({}, []):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str))
    return text if len(text) <= VALUE_LENGTH else text[: VALUE_LENGTH - 1] + "…"
