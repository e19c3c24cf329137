"""The benchmark: big figures, what is being measured now, and the sweep as curves on their table."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.reactive import var

from tui.core.benchmark import Plan, Point, Progress, Result
from tui.widgets.bench_view import hero, how, measured, one_point, progress_line, remarks
from tui.widgets.figure import Figure
from tui.widgets.figures import BP, W, label, line, rows
from tui.widgets.key_bar import key_of
from tui.widgets.sweep import columns_of, fitting, sweep

TALL = 24
"""Rows from which there is air between the parts."""
REMARKS = 2


class BenchPane(Figure, can_focus=True):
    """While it runs `points` grow and `progress` tells of the one in hand; `result` is what came of it, compared with `previous`.

    Left and right move along the columns where they don't all fit.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1)", "earlier points", show=False),
        Binding("right", "move(1)", "later points", show=False),
        Binding("home", "move(-999)", "first points", show=False),
        Binding("end", "move(999)", "last points", show=False),
    ]

    points: var[tuple[Point, ...]] = var((), init=False)
    progress: var[Progress | None] = var(None, init=False)
    plan: var[Plan | None] = var(None, init=False)
    result: var[Result | None] = var(None, init=False)
    running: var[bool] = var(False, init=False)
    problem: var[str | None] = var(None, init=False)
    previous: var[Result | None] = var(None, init=False)
    first: var[int | None] = var(None, init=False)
    """The leftmost column; None keeps the newest in sight."""
    told_below: var[bool] = var(False, init=False)
    """Whether the last row says how it was measured (where the pane has no lower border to say it in)."""

    def watch_points(self) -> None:
        self.redraw()

    def watch_progress(self) -> None:
        self.redraw()

    def watch_plan(self) -> None:
        self.first = None
        self.redraw()

    def watch_result(self) -> None:
        self.redraw()

    def watch_running(self) -> None:
        self.redraw()

    def watch_problem(self) -> None:
        self.redraw()

    def watch_previous(self) -> None:
        self.redraw()

    def watch_first(self) -> None:
        self.redraw()

    def watch_told_below(self) -> None:
        self.redraw()

    def note(self) -> Content | None:
        """How it was measured, for the pane's border."""
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
                line(("▲ ", W), one) if i == 0 else line("  ", one)
                for i, one in enumerate(Content(problem).wrap(max(8, width - 2)))
            ]
        single, curve = key_of(self, "bench-single"), key_of(self, "bench-sweep")
        lines += [
            line((single, BP), label("  single stream: a few requests one after the other")),
            line((curve, BP), label("  sweep: 1, 2, 4 … streams at once; throughput and latency over concurrency")),
        ]
        return rows(*lines)
