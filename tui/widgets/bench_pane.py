"""The benchmark: big figures, what is being measured now, and the sweep as curves on their table."""

import re
from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from tui.core.bench_compare import change_of
from tui.core.bench_conclusions import conclusions
from tui.core.bench_documents import SOURCES, what_was_sent
from tui.core.bench_metrics import ANSWER, LATENCIES, View, in_view, metric
from tui.core.bench_remarks import who
from tui.core.bench_result import BenchProgress, Plan, Point, Result
from tui.core.presentation import change, clock, counted, three, whole
from tui.core.text import clean
from tui.widgets.canvas import Canvas, drawn
from tui.widgets.draw import BE, BP, B, E, G, Part, W, big, fit, label, line, meter, rows, spread
from tui.widgets.key_bar import key_of
from tui.widgets.sweep import TTFT_LIMIT_MS, columns_of, fitting, sweep

WAITING_S = 2.0
"""A first reply that takes longer is waited for in words."""


def how(plan: Plan | None, result: Result | None) -> Content:
    """Return how it was measured: `on the host · 512 in, 256 out · unique prompts · vLLM definitions`."""
    plan = result.plan if result is not None else plan
    if plan is None:
        return Content("")
    vantage = result.vantage if result is not None else plan.vantage
    parts = [SOURCES[vantage]] if vantage is not None else []
    return line(label(" · ".join([*parts, *what_was_sent(plan), "vLLM definitions"])))


def measured(points: Sequence[Point]) -> list[Point]:
    """Return the points without repetitions of the first one, and without one that was cut before its end."""
    return [point for point in points if not point.figures.get("repeat") and not point.figures.get("cut")]


def single_of(points: Sequence[Point]) -> Point | None:
    return next((point for point in measured(points) if point.concurrency == 1), None)


def hero(points: Sequence[Point], previous: Result | None, running: bool, width: int, *, several: bool = True) -> list[Content]:
    """Return five lines of big figures: peak, single stream with its change, the most streams within the TTFT limit.

    `several`: more than one point is planned.
    """
    known = [(rate, point) for point in measured(points) if (rate := point.get("output_throughput")) is not None]
    cells: list[tuple[str, str, Content, str]] = []
    if len(known) > 1 or (several and not (known and known[0][1].concurrency == 1)):
        most, at = max(known, key=lambda rated: rated[0]) if known else (None, None)
        streams = " stream" if at is not None and at.concurrency == 1 else " streams"
        foot = line(label("tok/s at "), (str(at.concurrency), B), label(streams)) if at is not None else line(label("tok/s"))
        cells.append(("peak so far" if running else "peak", three(most), foot, BP))
    single = single_of(points)
    rate = single.get("output_throughput") if single else None
    cells.append(("single stream", three(rate), _single_foot(single, previous, width // 3 - 1), B))
    if len(known) > 1:
        within = [(p.concurrency, r) for r, p in known if (wait := p.get("p99_ttft_ms")) is not None and wait <= TTFT_LIMIT_MS]
        best = max(within, default=None)
        foot = line(label("streams, "), (three(best[1]), B), label(" tok/s")) if best else line(label("streams"))
        cells.append(("TTFT p99 under 2 s", str(best[0]) if best else "0", foot, B))
    elif single is not None:
        cells += [(shown.title, three(shown.value(single)), line(label(shown.unit)), B) for shown in in_view(View.BIG)]
    each = max(1, width // len(cells))
    rows: list[list[Part]] = [[] for _ in range(5)]
    for title, text, foot, style in cells:
        for row, part in enumerate([line(label(title)), *big(text, style), foot]):
            shown = part.truncate(each - 1, ellipsis=True) if part.cell_length >= each else part
            rows[row] += [shown, " " * (each - shown.cell_length)]
    return [line(*row) for row in rows]


def _single_foot(single: Point | None, previous: Result | None, room: int) -> Content:
    before = single_of(previous.points) if previous is not None else None
    if single is None or before is None:
        return line(label("tok/s"))
    found = change_of(metric("output_throughput"), before, single)
    if found.share is None or found.before is None:
        return line(label("tok/s"))
    words = f"{change(found.after, found.before)} {found.sign}".rstrip()
    told: Part = label(words) if found.better is None else (words, G if found.better else W)
    full = line(label("tok/s "), told, label(" vs the run before"))
    return full if full.cell_length <= room else line(label("tok/s "), told, label(" vs last"))


def progress_line(progress: BenchProgress, width: int) -> Content:
    """Return `◐ 128 streams  312 of 512 requests  3,598 tok/s   ▊▊▊▌▏▏  1:10 left`."""
    left: list[Part] = [("◐ ", BP), (counted(progress.concurrency, "stream"), B)]
    if progress.work:
        since = line(label(clock(progress.elapsed_s)))
        told = line(*left, label(f"  {progress.work}"))
        return spread(width, told.truncate(max(1, width - since.cell_length - 2), ellipsis=True), since)
    if progress.stage and progress.stage != "measuring":
        left.append(label(f"  {progress.stage}"))
    if progress.waiting_s is not None and progress.waiting_s >= WAITING_S:
        if progress.failed:
            left.append((f"  ✗ {progress.failed:,} failed", BE))
        told = line(*left, label(f"  waiting for the first reply, {clock(progress.waiting_s)}"))
        return told if told.cell_length <= width else line(*left, label(f"  no reply, {clock(progress.waiting_s)}"))
    done = f"{progress.done:,} of {counted(progress.planned, 'request')}" if progress.planned else counted(progress.done, "request")
    left.append(label(f"  {done}"))
    if progress.failed:
        left.append((f"  ✗ {progress.failed:,} failed", BE))
    rate: list[Part] = (
        [label("  "), (three(progress.tokens_s), B), label(" tok/s")]
        if progress.tokens_s is not None and progress.waiting_s is None
        else []
    )
    after = f"  {clock(progress.left_s)} left" if progress.left_s is not None else f"  {clock(progress.elapsed_s)}"
    share = _share(progress)
    bar = meter(round(share * 20), 20, 20) if share is not None else Content("")
    end = line(label(after.strip()))
    whole_right = line(bar, label(after))
    full = line(*left, *rate)
    if full.cell_length + whole_right.cell_length + 2 <= width:
        return spread(width, full, whole_right)
    return spread(width, full if full.cell_length + end.cell_length + 2 <= width else line(*left), end)


def _share(progress: BenchProgress) -> float | None:
    if progress.stage in ("preparing", "warm-up"):
        return None
    if progress.left_s is not None and progress.elapsed_s + progress.left_s > 0:
        return progress.elapsed_s / (progress.elapsed_s + progress.left_s)
    # its time is over, and nobody knows when the rest has come: the bar stays where it stands
    return progress.done / progress.planned if progress.planned else 1.0


def one_point(point: Point, width: int, height: int) -> list[Content]:
    """Return the spread of a single point, which has no curve."""
    cell = min(12, max(8, (width - 14) // 5))
    statistics = {"mean": "mean", "p50": "median", "p90": "p90", "p99": "p99", "std": "std"}
    shown = list(statistics)[: max(0, (width - 14) // cell)]
    out = [line(label(fit("", 14)), *((f"{name:>{cell}}", B) for name in shown))]
    for latency in LATENCIES:
        values = [metric(latency.key(statistics[name])).value(point) for name in shown]
        if latency is not ANSWER or point.get(ANSWER.key("median")) is not None:
            out.append(line(label(fit(f"{latency.title} {latency.unit}", 14)), *(f"{three(value):>{cell}}" for value in values)))
    failed = point.get("failed")
    out += [
        Content(""),
        line(
            label(fit("requests", 14)),
            (whole(point.get("completed")), B),
            label(" completed"),
            (f", ✗ {whole(failed)} failed", BE) if failed else label(", 0 failed" if failed is not None else ""),
            label("  in "),
            clock(point.get("duration")),
            label(f", {three(good)} good/s" if (good := point.get("request_goodput")) is not None else ""),
        ),
        line(
            label(fit("tokens", 14)),
            (whole(point.get("total_input_tokens")), B),
            label(" in, "),
            (whole(point.get("total_output_tokens")), B),
            label(" out"),
            label(f", {three(point.get('tokens_per_chunk'))} a chunk" if point.get("tokens_per_chunk") else ""),
        ),
    ]
    return out[:height]


def remarks(result: Result | None, points: Sequence[Point], problem: str | None) -> list[Content]:
    """Return what to know beside the figures: why it ended early, conclusions, failures with their first words, warnings."""
    out: list[Content] = []
    if problem:
        out.append(line(("✗ ", BE), (problem, E)))
    if result is not None and result.stopped:
        cut = [_name(point) for point in points if point.figures.get("cut")]
        told = f" (▲{', '.join(cut)} was cut short: not plotted)" if cut else ""
        out.append(line(("▲ ", W), f"incomplete: {result.stopped}{told}"))
    concluded = conclusions(result) if result is not None else []
    out += [line(("▲ ", W), words) for words, bad in concluded if bad]
    for point in points:
        examples = point.figures.get("error_examples")
        if point.get("failed") and isinstance(examples, list) and examples and isinstance(examples[0], dict):
            out.append(line(("✗ ", BE), (f"{who(point)}: ", B), clean(str(examples[0].get("message") or examples[0].get("kind")))))
    out += _warnings(points)
    out += [line(label("· "), words) for words, bad in concluded if not bad]
    return out


def _name(point: Point) -> str:
    """Return the name above the column of a point."""
    return str(point.concurrency) if point.asked_rate is None else f"{point.asked_rate:g}/s"


def _names(points: Sequence[Point]) -> str:
    """Return the names of points in a sentence, without repetitions: `1, 2, 4 streams`, `1 to 64 streams`, `4 requests/s`."""
    ordered = sorted(points, key=lambda point: point.concurrency)
    if ordered[0].asked_rate is not None:
        return who(ordered[0])
    names = list(dict.fromkeys(map(_name, ordered)))
    shown = ", ".join(names) if len(names) < 4 else f"{names[0]} to {names[-1]}"
    return f"{shown} {'stream' if names == ['1'] else 'streams'}"


def _warnings(points: Sequence[Point]) -> list[Content]:
    """Return the points' warnings, those of one kind in one line: `▲ 1, 2, 4 streams: too few requests for a p99`."""
    at: dict[str, list[Point]] = {}
    first: dict[str, str] = {}
    for point in points:
        warnings = point.figures.get("warnings")
        for warning in warnings if isinstance(warnings, list) else ():
            words = clean(str(warning))
            kind = re.sub(r"\b\d[\d,.]*\s+", "", words.partition(":")[0]).strip() or words
            at.setdefault(kind, []).append(point)
            first.setdefault(kind, words)
    return [line(("▲ ", W), (f"{_names(where)}: ", B), first[kind] if len(where) == 1 else kind) for kind, where in at.items()]


TALL = 24
"""Rows from which there is air between the parts."""
REMARKS = 2


class BenchPane(Canvas, can_focus=True):
    """While a benchmark runs `points` grow and `progress` describes the current one; `result` is compared with `previous`.

    Left and right move along the columns if they don't all fit.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1)", "earlier points", show=False),
        Binding("right", "move(1)", "later points", show=False),
        Binding("home", "move(-999)", "first points", show=False),
        Binding("end", "move(999)", "last points", show=False),
    ]

    points: drawn[tuple[Point, ...]] = drawn(())
    progress: drawn[BenchProgress | None] = drawn(None)
    plan: drawn[Plan | None] = drawn(None)
    result: drawn[Result | None] = drawn(None)
    running: drawn[bool] = drawn(False)
    problem: drawn[str | None] = drawn(None)
    previous: drawn[Result | None] = drawn(None)
    first: drawn[int | None] = drawn(None)
    """The leftmost column; None keeps the newest in sight."""
    told_below: drawn[bool] = drawn(False)
    """Whether the last row says how it was measured (if the pane has no lower border to say it in)."""

    def watch_plan(self) -> None:
        self.first = None

    def note(self) -> Content | None:
        """Return how it was measured, for the pane's border."""
        told = how(self.plan, self.result)
        return told if told.plain else None

    @property
    def shown_points(self) -> tuple[Point, ...]:
        return self.points or (self.result.points if self.result is not None and not self.running else ())

    def action_move(self, step: int) -> None:
        columns = columns_of(self.shown_points, self.plan, self.running)
        last = max(0, len(columns) - fitting(self.size.width))
        now = last if self.first is None else self.first
        wanted = min(max(0, now + step), last)
        self.first = None if wanted == last else wanted

    def draw(self, width: int, height: int) -> Content:
        points = self.shown_points
        if not points and not self.running:
            return self._nothing(width)
        airy = height >= TALL
        below: list[Content] = []
        if self.told_below and (told := self.note()) is not None and height >= 16:
            below = [told]
        marks = remarks(self.result, points, self.problem)
        kept = marks[: REMARKS if height >= 18 else 1]
        if len(marks) > len(kept) and kept:
            more = line(label(f"   and {len(marks) - len(kept)} more"))
            kept[-1] = line(kept[-1].truncate(max(1, width - more.cell_length), ellipsis=True), more)
        above: list[Content] = []
        if height >= 14:
            plan = self.result.plan if self.result is not None else self.plan
            several = plan is None or plan.concurrency != (1,)
            figures = hero(points, self.previous, self.running, width, several=several)
            above += [Content("")] * airy + figures + [Content("")] * airy
        if self.running:
            now = progress_line(self.progress, width) if self.progress else line(("◐ ", BP), label("preparing"))
            above += [now, *[Content("")] * airy]
        above += [*kept, *[Content("")] * (airy and bool(kept))]
        room = height - len(above) - len(below)
        figure: list[Content]
        single = measured(points)
        if len(columns_of(points, self.plan, self.running)) == 1 and single:
            figure = one_point(single[0], width, room)
        else:
            figure = sweep(points, self.plan, self.progress, self.running, width, room, self.first)
        filled = [*above, *figure]
        return rows(*filled, *[Content("")] * max(0, height - len(filled) - len(below)), *below)

    def _nothing(self, width: int) -> Content:
        lines: list[Content | str] = ["", line(label("No benchmark yet." if self.result is None else "Nothing was measured."))]
        problem = self.problem or (self.result.stopped if self.result is not None else None)
        if problem:
            lines += [
                line(("▲ ", W), row) if i == 0 else line("  ", row)
                for i, row in enumerate(Content(problem).wrap(max(8, width - 2)))
            ]
        single, curve = key_of(self, "bench-single"), key_of(self, "bench-sweep")
        lines += [
            line((single, BP), label("  single stream: a few requests one after the other")),
            line((curve, BP), label("  sweep: 1, 2, 4 … streams at once; throughput and latency over concurrency")),
        ]
        return rows(*lines)
