"""How `readyroom bench` shows itself on a terminal: a live line, tables, and what the figures mean."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tui.core.bench_conclusions import conclusions
from tui.core.bench_documents import SOURCES, notes_in, what_was_sent
from tui.core.bench_metrics import Section, View, in_view, metric
from tui.core.bench_remarks import failures, remark, streams, warnings, who
from tui.core.bench_result import BenchProgress, Plan, Point, Result, Vantage
from tui.core.presentation import DASH, about
from tui.core.text import clean

ColumnT = TypeVar("ColumnT")
PIPED_WIDTH = 200
"""Columns of a table that no terminal shows: its rows stay whole, unless COLUMNS says otherwise."""
WAITING_FIRST_S = 10.0
WAITING_EVERY_S = 30.0
"""Without a terminal, a server that does not answer is told of after the first time, and then so often."""
WORK_FIRST_S = 2.0
WORK_EVERY_S = 10.0
"""The same for what is done before and after the measuring."""


class LiveView:
    """Progress on stderr: redrawn in place on a terminal, a line a point otherwise, nothing if quiet."""

    def __init__(self, plan: Plan, *, live: bool, quiet: bool) -> None:
        self._plan = plan
        self._console = Console(stderr=True)
        self._quiet = quiet and not live
        self._points: list[Point] = []
        self._told_at = WAITING_FIRST_S
        self._work_told_at = WORK_FIRST_S
        self._live = self._line() if live else None
        self._aside = False

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def _line(self) -> Live:
        return Live(console=self._console, auto_refresh=False, transient=True)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave the terminal to a question."""
        if self._live is None:
            yield
            return
        self._live.stop()
        self._aside = True
        try:
            yield
        finally:
            self._aside = False
            self._live = self._line()  # the one before would begin above the question
            self._live.start()

    def progress(self, progress: BenchProgress) -> None:
        if self._aside:
            return
        if self._live is None:
            self._tell_rarely(progress)
            return
        line = Text(status(progress), style="cyan")
        parts: list[RenderableType] = [table(self._points, self._console.width), line] if self._points else [line]
        self._live.update(Group(*parts), refresh=True)

    def _tell_rarely(self, progress: BenchProgress) -> None:
        """Print the status now and then while there is nothing else to tell."""
        if not progress.work:
            self._work_told_at = WORK_FIRST_S
        elif not self._quiet and progress.elapsed_s >= self._work_told_at:
            self._work_told_at = progress.elapsed_s + WORK_EVERY_S
            print(status(progress), file=sys.stderr, flush=True)
        if not self._quiet and progress.waiting_s is not None and progress.waiting_s >= self._told_at:
            self._told_at = progress.waiting_s + WAITING_EVERY_S
            print(status(progress), file=sys.stderr, flush=True)

    def point(self, point: Point) -> None:
        self._points.append(point)
        self._told_at = WAITING_FIRST_S
        if self._live is None and not self._quiet:
            words = [words for metric in in_view(View.LINE) if (words := metric.words(point)) is not None]
            print(f"{who(point)}: {', '.join(words)}", file=sys.stderr)


def status(progress: BenchProgress) -> str:
    """Return the live line."""
    words = [f"point {progress.point + 1}/{progress.points}"]
    if progress.concurrency:
        words.append(streams(progress.concurrency))
    if progress.work:
        return " · ".join([*words, progress.work, about(progress.elapsed_s)])
    words.append(progress.stage)
    if progress.waiting_s is not None:
        words.append(waiting(progress))
    elif progress.stage != "preparing":
        done = f"{progress.done}/{progress.planned}" if progress.planned else f"{progress.done}"
        words.append(f"{progress.in_flight} in flight, {done} done" + (f", {progress.failed} failed" if progress.failed else ""))
        words.append(f"{metric('output_throughput').text(progress.tokens_s)} tok/s")
        words.append(about(progress.elapsed_s))
        if progress.left_s:
            words.append(f"about {about(progress.left_s)} left")
    return " · ".join(words)


def waiting(progress: BenchProgress) -> str:
    """Return `waiting for the first reply, 12 s`."""
    failed = f"{progress.failed} failed, " if progress.failed else ""
    return f"{failed}waiting for the first reply, {about(progress.waiting_s or 0.0)}"


# -- tables ------------------------------------------------------------------------------------------------------------------------


class TableColumn(NamedTuple):
    """Hold a heading, a cell for each point, and what the figures mean."""

    heading: str
    cells: list[str]
    meaning: str = ""


def table(points: Sequence[Point], width: int, *, rates: bool = False) -> RenderableType:
    """Return a table of one row a point with its remark beside it, or if that is too wide a letter, and the remarks below.

    `rates`: a closed loop has its requests a second, too.
    """
    columns = _main_columns(points, rates)
    remarks = [remark(point) for point in points]
    beside = _grid(points, columns, remarks)
    if not any(remarks) or _width(beside) <= width:
        return beside
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    marks = {words: next(letters, "*") for words in dict.fromkeys(filter(None, remarks))}
    below = [Text(f"{mark}  {words}", style="yellow") for words, mark in marks.items()]
    return Group(_grid(points, columns, [marks.get(words, "") for words in remarks]), *below)


def rates_fit(points: Sequence[Point], width: int) -> bool:
    """Return whether the requests a second have room in the table."""
    return _width(_grid(points, _main_columns(points, True), ["a" if remark(point) else "" for point in points])) <= width


def more(result: Result, width: int, *, rates: bool = False, definitions: bool = True) -> RenderableType | None:
    """Return tables of the further figures, as many as the width needs; None if there is nothing more to tell.

    `rates`: the requests a second of a closed loop are told here. `definitions`: what all the columns mean, not only the limits
    that were given.
    """
    columns = list(_further_columns(result, rates))
    if not columns:
        return None
    meanings = dict.fromkeys(column.meaning for column in columns if column.meaning and (definitions or LIMITS in column.meaning))
    limits = ", ".join(f"{name} {limit:g} ms" for name, limit in result.plan.goodput.items())
    parts = in_parts(columns, width, lambda columns: _grid(result.points, columns))
    return Group(*parts, *([Text("; ".join(meanings).replace(LIMITS, limits), style="dim")] if meanings else []))


def in_parts(columns: Sequence[ColumnT], width: int, build: Callable[[Sequence[ColumnT]], Table]) -> Iterator[Table]:
    """Yield as many tables as it takes to show all columns in that width."""
    while columns:
        count = len(columns)
        while count > 1 and _width(build(columns[:count])) > width:
            count -= 1
        yield build(columns[:count])
        columns = columns[count:]


RATE = "request_throughput"
"""Beside the rate that was asked for in an open loop; of a closed one only if there is room."""
LIMITS = "{limits}"
CONFIDENCE = "95 %: confidence interval, of TTFT and TPOT that of the median"


def _is_open(points: Sequence[Point]) -> bool:
    return any(point.asked_rate is not None for point in points)


def _main_columns(points: Sequence[Point], rates: bool) -> list[TableColumn]:
    asked = _is_open(points)
    shown = [metric for metric in in_view(View.TABLE) if metric.open_loop in (None, asked) or (rates and metric.key == RATE)]
    if asked:
        shown.sort(key=lambda metric: metric.key != RATE)
    return [TableColumn(metric.column, [metric.text(metric.raw(point)) for point in points]) for metric in shown]


def _further_columns(result: Result, rates: bool) -> Iterator[TableColumn]:
    """Yield the columns of further figures, without those of which no point has anything to tell."""
    points = result.points
    shown = [metric(RATE)] if rates and not _is_open(points) else []
    for figure in (*shown, *in_view(View.FURTHER | View.INTERVAL)):
        ranges = [figure.range_text(point) for point in points] if View.INTERVAL in figure.views else []
        if any(ranges):
            yield TableColumn(figure.interval_heading, [words or DASH for words in ranges], CONFIDENCE)
        values = [figure.raw(point) for point in points]
        told = View.INTERVAL not in figure.views or View.FURTHER in figure.views
        of_host = figure.section is not Section.MACHINE or result.vantage is Vantage.HOST
        if told and of_host and any(map(figure.says_something, values)):
            yield TableColumn(figure.column, list(map(figure.text, values)), figure.meaning)


def _grid(points: Sequence[Point], columns: Sequence[TableColumn], remarks: Sequence[str] = ()) -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("asked" if _is_open(points) else "streams", *(column.heading for column in columns)):
        made.add_column(heading, justify="right", no_wrap=True)
    if any(remarks):
        made.add_column("")
    for i, point in enumerate(points):
        load = str(point.concurrency) if point.asked_rate is None else f"{point.asked_rate:g}"
        beside = [Text(remarks[i], style="yellow")] if any(remarks) else []
        made.add_row(load, *(column.cells[i] for column in columns), *beside)
    return made


def _width(table: Table) -> int:
    roomy = Console(width=1000)
    return Measurement.get(roomy, roomy.options, table).maximum


def _meanings(plan: Plan) -> str:
    """Return what the figures of the table mean, in one sentence."""
    shown = [metric for metric in in_view(View.TABLE) if metric.open_loop in (None, plan.request_rate is not None)]
    told = dict.fromkeys(metric.meaning for metric in shown if metric.meaning)
    return "; ".join(told) + " (definitions of vLLM 0.33)"


# -- the end -----------------------------------------------------------------------------------------------------------------------


def report(result: Result, saved: tuple[str, ...], *, definitions: bool = False, to_stderr: bool = False) -> None:
    """Print the result: table, reasons of failures, the server's side; with `definitions` also what the figures mean."""
    piped = not (sys.stderr if to_stderr else sys.stdout).isatty() and not os.environ.get("COLUMNS")
    console = Console(highlight=False, stderr=to_stderr, width=PIPED_WIDTH if piped else None)
    if result.points:
        rates = rates_fit(result.points, console.width)
        console.print(table(result.points, console.width, rates=rates))
        if definitions:
            line(console, "latencies are medians, with 99th percentiles beside them: TTFT, TPOT and ITL in ms, E2EL in s", "dim")
        else:
            line(console, "medians with p99 beside them, in ms, E2EL in s · vLLM's terms (--definitions)", "dim")
        if (further := more(result, console.width, rates=not rates, definitions=definitions)) is not None:
            console.print(further)
    line(
        console,
        f"{result.model or DASH} · {result.endpoint} · tokens: {what_was_sent(result.plan)[0]} · load {SOURCES[result.vantage]}",
    )
    for point in result.points:
        _server_side(console, point)
    for words in failures(result):
        line(console, f"✗ {words}", "red")
    for words in warnings(result):
        line(console, f"▲ {words}", "yellow")
    for words, bad in conclusions(result):
        line(console, f"▲ {words}" if bad else words, "yellow" if bad else "")
    if result.stopped and result.points:
        line(console, f"▲ partial: {result.stopped}", "yellow")
    elif result.stopped:
        line(console, f"✗ nothing was measured: {result.stopped}", "red")
    if definitions:
        line(console, _meanings(result.plan), "dim")
    for deviation in result.deviations if definitions else notes_in(result):
        line(console, f"· {deviation}", "dim")
    for path in (*saved, *((result.path,) if result.path else ())):
        # unbroken, however narrow the terminal: the path is for copying
        console.print(Text(f"saved: {clean(path)}", style="dim"), soft_wrap=True)


def line(console: Console, words: str, style: str = "") -> None:
    """Print untrusted words, never as markup; one line in a pipe or a file, so that it can be searched for."""
    console.print(Text(words, style=style), soft_wrap=not console.is_terminal)


def _server_side(console: Console, point: Point) -> None:
    words = [words for metric in in_view(View.SERVER) if (words := metric.words(point)) is not None]
    if words:
        line(console, f"server, {who(point)}: " + ", ".join(words))
