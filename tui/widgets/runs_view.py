"""What the record's pane draws of a run: a load, a smoke run, a benchmark, or two benchmarks side by side."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from textual.content import Content

from tui.core.benchmark import Result
from tui.core.comparison import LEGEND, Change, compare, headlines, left_out
from tui.core.comparison_plans import differences
from tui.core.logs.phase_names import name_of
from tui.core.smoke import Outcome, SmokeResult, SmokeRun
from tui.core.text import clean
from tui.widgets.bench_view import how, remarks
from tui.widgets.figures import BE, QUIET, B, G, Part, W, fit, label, line, rows, short
from tui.widgets.numbers import DASH, clock, three, whole
from tui.widgets.smoke_panel import smoke_report
from tui.widgets.sweep import columns_of, sweep


class StoredRun(Protocol):
    """A run as the record keeps it: `at` is wall clock, `document` JSON values."""

    @property
    def id(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def deployment(self) -> str: ...
    @property
    def at(self) -> float: ...
    @property
    def title(self) -> str: ...
    @property
    def document(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Compared:
    """Two stored benchmarks; `before` is the older one, or the one that the user marked."""

    before: StoredRun
    after: StoredRun
    before_result: Result
    after_result: Result


def when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def heading(run: StoredRun) -> Content:
    return line((f"{_told(run.kind)} {run.id}", B), label("  "), short(_told(run.deployment), 40), label(f"  {when(run.at)}"))


def run_view(run: StoredRun, result: Result | None, width: int) -> Content:
    """A run in full; `result` is the benchmark that its document holds."""
    if run.kind == "benchmark" and result is not None:
        body = _benchmark(result, width)
    elif run.kind == "smoke":
        body = [smoke_report(_smoke(run.document), width)]
    elif run.kind == "load":
        body = _load(run.document, width)
    else:
        body = [line(("▲ ", W), "this run can't be read: was it written by another version?")]
    return rows(heading(run), "", *body)


def _benchmark(result: Result, width: int) -> list[Content]:
    room = max(24, width)
    count = len(columns_of(result.points, result.plan, False))
    return [
        how(result.plan, result),
        *remarks(result, result.points, None),
        Content(""),
        *sweep(result.points, result.plan, None, False, room, 24 if count > 1 else 13, 0),
        *[line(label(f"· {one}")) for one in result.deviations],
    ]


def _smoke(document: Mapping[str, Any]) -> SmokeRun:
    results = []
    for one in document.get("results") or ():
        if isinstance(one, Mapping):
            outcome = one.get("outcome")
            results.append(
                SmokeResult(
                    name=_told(one.get("name")),
                    outcome=Outcome(outcome) if outcome in list(Outcome) else Outcome.INCONCLUSIVE,
                    says=_told(one.get("says")),
                    reply=_told(one.get("reply") or ""),
                    seconds=_number(one.get("seconds")),
                    asked=_told(one.get("asked") or ""),
                )
            )
    return SmokeRun(model=_told(document.get("model")), planned=len(results), results=tuple(results), finished=True)


def _load(document: Mapping[str, Any], width: int) -> list[Content]:
    failure = document.get("failure")
    told: list[tuple[str, str]] = [
        ("engine", " ".join(_told(one) for one in (document.get("engine"), document.get("version")) if one) or DASH),
        ("model", _told(document.get("model") or DASH)),
        ("ready after", clock(_number(document.get("total_s")))),
        ("KV cache", whole(_number(document.get("kv_tokens")), " tokens")),
    ]
    out = [line(label(fit(name, 14)), value) for name, value in told]
    if isinstance(failure, Mapping):
        out += [
            Content(""),
            line(("✗ ", BE), (_told(failure.get("kind")), B), label(f" in {_told(name_of(str(failure.get('phase'))))}")),
            *[line("  ", one) for one in Content(_told(failure.get("cause"))).wrap(max(8, width - 2))],
        ]
    phases = [one for one in document.get("phases") or () if isinstance(one, list | tuple) and len(one) == 2]
    if phases:
        most = max((_number(seconds) or 0.0 for _, seconds in phases), default=0.0) or 1.0
        out.append(Content(""))
        for name, seconds in phases:
            value = _number(seconds)
            bar = "▆" * round((value or 0.0) / most * max(0, min(40, width - 24)))
            out.append(line(label(fit(_told(name_of(str(name))), 14)), f"{clock(value):>8}  ", (bar, "$primary 70%")))
    return out


def _told(value: object) -> str:
    """A text of the record, which is a file that others may have written."""
    return clean(str(value))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def compared_view(compared: Compared, width: int) -> Content:
    """Point by point: the figure after, the change from before with its sign, and whether that is for the better."""
    both = compared.before_result, compared.after_result
    out: list[Content | str] = [
        line(label("before  "), heading(compared.before)),
        line(label("after   "), heading(compared.after)),
        *[line(("▲ ", W), one) for one in differences(*both)],
        *[line(("▲ ", W), one) for one in left_out(*both).words],
        "",
    ]
    points = compare(*both)
    if not points:
        return rows(*out, line(("▲ ", W), "no load was measured to its end by both"))
    shown = headlines(points)
    cell = 20
    side = max(7, *(len(point.name) for point in points)) + 2
    head = "streams" if all(point.rate is None for point in points) else "load"
    fits = max(1, min(len(shown), (width - side) // cell))
    for start in range(0, len(shown), fits):
        chosen = shown[start : start + fits]
        out.append(line(label(fit(head, side)), *((f"{name:>{cell}}", B) for name, _ in chosen)))
        for point in points:
            parts: list[Part] = [(f"{point.name:>{side - 2}}  ", B)]
            for _, key in chosen:
                parts += _change(point.change(key), cell)
            out.append(line(*parts))
        out.append("")
    out += (line(("✓", G), label(" better  "), ("▲", W), label(" worse")), line(label(LEGEND)))
    return rows(*out)


def _change(change: Change | None, cell: int) -> list[Part]:
    if change is None or change.after is None:
        return [(f"{DASH:>{cell}}", QUIET)]
    style = {True: G, False: W, None: QUIET}[change.better]
    mark = change.sign or " "
    if change.share is None:
        words = f"from {three(change.before)}" if change.before is not None else ""
    else:
        words = f"{'+' if change.share >= 0 else '−'}{abs(change.share) * 100:.0f} %"
    return [f"{three(change.after):>{cell - 11}}", (f"{words:>9} {mark}", style)]
