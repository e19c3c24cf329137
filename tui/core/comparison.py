"""Two benchmarks side by side, point by point: change in percent, and whether it is for the better."""

import json
from dataclasses import dataclass, fields
from typing import Any

from tui.core.benchmark import Plan, Point, Result
from tui.core.benchmark_open import asked_rate
from tui.core.benchmark_plan import LONGEST
from tui.core.text import clean

HIGHER_IS_BETTER = ("output_throughput", "request_throughput", "request_goodput", "steady_output_throughput")
LOWER_IS_BETTER = ("median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "p99_tpot_ms", "median_itl_ms", "median_e2el_ms", "failed")
NOISE = 0.03
"""Changes below 3 % are not called better or worse: runs of one server differ by so much."""


@dataclass(frozen=True, slots=True)
class Change:
    """One figure of two runs: `before` and `after` as measured, `share` (after − before)/before, None where it can't be told."""

    name: str
    before: float | None
    after: float | None
    share: float | None
    better: bool | None
    """None: no difference beyond noise, or not comparable."""


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
        """`8`, `40 req/s`, `4 longest prompt`."""
        name = str(self.concurrency) if self.rate is None else f"{self.rate:g} req/s"
        return f"{name} {self.label}" if self.label else name

    def change(self, name: str) -> Change | None:
        return next((one for one in self.changes if one.name == name), None)


def compare(before: Result, after: Result) -> tuple[ComparedPoint, ...]:
    """The loads that both runs measured (the first point of each where one was repeated)."""
    earlier = {_key(point): point for point in reversed(before.points)}
    later = {_key(point): point for point in reversed(after.points)}
    return tuple(
        ComparedPoint(
            key[1],
            tuple(
                _change(name, earlier[key].get(name), later[key].get(name), name in HIGHER_IS_BETTER)
                for name in (*HIGHER_IS_BETTER, *LOWER_IS_BETTER)
            ),
            key[0] or None,
            key[2],
        )
        for key in sorted(earlier.keys() & later.keys())
    )


def loads(result: Result) -> tuple[str, ...]:
    """The names of the loads that a run measured."""
    return tuple(
        ComparedPoint(streams, (), rate or None, label).name for rate, streams, label in sorted(set(map(_key, result.points)))
    )


def _key(point: Point) -> Key:
    label = LONGEST if point.figures.get("repeat") == LONGEST else ""
    return asked_rate(point) or 0.0, point.concurrency, label


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
    """What makes two runs hard to compare, one line each: everything that was asked for differently, the model, the vantage."""
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
    """`duration in s`, `input tokens`: a field of a plan."""
    base, _, unit = name.rpartition("_")
    return f"{base} in s".replace("_", " ") if unit == "s" else name.replace("_", " ")


def _shown(value: Any) -> str:
    if value is None or value in ({}, []):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str))
    return text if len(text) <= VALUE_LENGTH else text[: VALUE_LENGTH - 1] + "…"


def _change(name: str, before: float | None, after: float | None, higher: bool) -> Change:
    if before is None or after is None or before == 0:
        worse = before == 0 and name == "failed" and bool(after)
        return Change(name, before, after, None, False if worse else None)
    share = (after - before) / before
    better = None if abs(share) < NOISE else (share > 0) == higher
    return Change(name, before, after, share, better)
