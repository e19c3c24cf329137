"""A sweep as one figure: the curves stand on the columns of their table, so that no axis has to be read."""

from collections.abc import Callable, Sequence
from math import log

from textual.content import Content

from tui.core.bench_metrics import OPTIONAL, Metric, View, in_view
from tui.core.bench_result import BenchProgress, Plan, Point
from tui.core.presentation import three
from tui.widgets.draw import BE, BP, QUIET, RULE, B, P, Part, S, W, curve, fit, label, line

TTFT_LIMIT_MS = 2000.0
"""From here on the wait for the first token is felt as a wait; marked in the curve, and counted in the head."""
CELL = 6
CELL_LOW = 7
"""Columns a point takes at least; a little more if there is room."""
CELL_MOST = 13
THROUGHPUT, WAIT, FAILED = "output_throughput", "p99_ttft_ms", "failed"
STYLES = {THROUGHPUT: BP, WAIT: S}
"""Rows in the colour of their curve."""


def columns_of(points: Sequence[Point], plan: Plan | None, running: bool) -> list[tuple[int, Point | None]]:
    """Return a column each for the measured points without their repetitions, and while it runs for those still to come."""
    out: list[tuple[int, Point | None]] = [(point.concurrency, point) for point in points if not point.figures.get("repeat")]
    if running and plan is not None:
        out += [(concurrency, None) for concurrency in plan.concurrency[len(out) :]]
    return out


def fitting(width: int) -> int:
    """Return how many columns the figure holds in that width."""
    side = 13 if width < 100 else 16
    return max(1, (width - side) // (CELL_LOW if width >= 76 and side == 13 else CELL))


def sweep(
    points: Sequence[Point],
    plan: Plan | None,
    progress: BenchProgress | None,
    running: bool,
    width: int,
    height: int,
    first: int | None = None,
) -> list[Content]:
    """Draw the figure in that size. `first` is the leftmost column if not all fit; None keeps the newest in sight."""
    columns = columns_of(points, plan, running)
    if not columns or height < 3 or width < 24:
        return []
    side = 13 if width < 100 else 16
    room = fitting(width)
    begin = max(0, len(columns) - room) if first is None else min(max(0, first), max(0, len(columns) - room))
    if first is None and running:
        live = sum(1 for _, point in columns if point is not None)
        begin = min(begin, max(0, live + 1 - room))
    seen = columns[begin : begin + room]
    cell = min(CELL_MOST, (width - side) // max(len(seen), min(room, 4)))
    chosen = _rows(height, seen)
    ruled = height >= len(chosen) + 8
    spare = height - len(chosen) - 1 - ruled
    low = spare * 2 // 5 if spare >= 11 else 0
    out = _curves(seen, side, cell, spare - low, low)
    heads: list[Part] = [
        (f"{_head(concurrency, point):>{cell}}", _head_style(concurrency, point, running, progress)) for concurrency, point in seen
    ]
    rest = len(columns) - begin - len(seen)
    what = "req/s asked" if any(point is not None and point.asked_rate is not None for _, point in columns) else "concurrency"
    name = f"‹{begin}  streams" if begin else what
    out.append(line(label(fit(name, side)), *heads, label(f" {rest}›" if rest else "")))
    if ruled:
        out.append(line(("─" * (side + cell * len(seen)), RULE)))
    out += [_row(row, seen, side, cell, progress) for row in chosen]
    return out


def _head(concurrency: int, point: Point | None) -> str:
    rate = point.asked_rate if point is not None else None
    name = str(concurrency) if rate is None else f"{rate:g}"
    return f"▲{name}" if _is_cut(point) else name


def _head_style(concurrency: int, point: Point | None, running: bool, progress: BenchProgress | None) -> str:
    if _is_cut(point):
        return W
    return BP if running and point is None and _in_hand(progress, concurrency) else B


def _is_cut(point: Point | None) -> bool:
    """Return whether a point was cut before its end: it holds time without tokens, and belongs on no curve."""
    return point is not None and bool(point.figures.get("cut"))


def _in_hand(progress: BenchProgress | None, concurrency: int) -> bool:
    return progress is not None and progress.concurrency == concurrency


def _rows(height: int, seen: Sequence[tuple[int, Point | None]]) -> list[Metric]:
    """Return the rows that fit: the six that matter beside one curve, more of them only beside two.

    A row that only some benchmarks have is left out if no point has it.
    """
    known = [
        metric
        for metric in in_view(View.SCREEN)
        if (metric.rank < OPTIONAL and not metric.open_loop)
        or any(point is not None and metric.raw(point) is not None and _fits(metric, point) for _, point in seen)
    ]
    for most in (5, 4, 3, 2, 1):
        chosen = [metric for metric in known if metric.rank <= most]
        if len(chosen) + 1 + (16 if most >= 3 else 5) <= height:
            return chosen
    return [metric for metric in known if metric.rank == 0][: max(1, height - 1)]


def _fits(metric: Metric, point: Point) -> bool:
    """Return whether a metric belongs to the kind of load that made the point."""
    return metric.open_loop is None or metric.open_loop is (point.asked_rate is not None)


def _row(metric: Metric, seen: Sequence[tuple[int, Point | None]], side: int, cell: int, progress: BenchProgress | None) -> Content:
    parts: list[Part] = [label(fit(metric.heading, side))]
    live = True
    for concurrency, point in seen:
        if point is None:
            here = live and _in_hand(progress, concurrency) and metric.key == THROUGHPUT
            live = live and not _in_hand(progress, concurrency)
            parts.append((f"{'◐' if here else '—':>{cell}}", P if here else QUIET))
            continue
        value = metric.value(point)
        style = STYLES.get(metric.key, "")
        if metric.key == FAILED:
            style = BE if value else QUIET
        elif value is None or _is_cut(point):
            style = QUIET
        elif metric.key == THROUGHPUT and point.figures.get("client_limited"):
            style = W
        parts.append((f"{three(value if metric.digits or value is None else int(value)):>{cell}}", style))
    return line(*parts)


def _curves(seen: Sequence[tuple[int, Point | None]], side: int, cell: int, high: int, low: int) -> list[Content]:
    def drawn(
        title: str, name: str, height: int, style: str, scale: Callable[[float, float, float], float], limit: float | None
    ) -> list[Content]:
        known = [
            (cell * i + cell - 1, value)
            for i, (_, point) in enumerate(seen)
            if point is not None and not _is_cut(point) and (value := point.get(name)) is not None and value > 0
        ]
        if height < 3:
            return [Content("")] * max(0, height)
        if not known:
            return [line(label(title)), *[Content("")] * (height - 1)]
        least, most = min(value for _, value in known), max(value for _, value in known)
        ys = [scale(value, least, most) for _, value in known]
        peak = max(range(len(known)), key=lambda i: known[i][1])
        marks = {0: three(known[0][1]), len(known) - 1: three(known[-1][1]), peak: three(known[peak][1])}
        shown = None
        if limit is not None and least <= limit * 4:
            shown = (scale(limit, least, most), "2 s")
        if limit is not None and shown is not None and not 0 <= shown[0] <= 1:
            shown = None
        lines = curve([x for x, _ in known], ys, cell * len(seen), height, style, marks, shown)
        return [line(label(fit(title if i == 0 else "", side)), row) for i, row in enumerate(lines)]

    out = drawn("tok/s", "output_throughput", high, P, lambda v, least, most: v / most, None)
    if low:

        def logarithmic(value: float, least: float, most: float) -> float:
            bottom, top = least * 0.88, max(most, TTFT_LIMIT_MS if most * 4 > TTFT_LIMIT_MS else most) * 1.12
            return log(value / bottom) / log(top / bottom)

        out += drawn("TTFT p99, log", "p99_ttft_ms", low, S, logarithmic, TTFT_LIMIT_MS)
    return out
