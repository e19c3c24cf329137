"""How `readyroom bench` shows itself on a terminal: a live line, a table, and what the figures mean."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tui.core.bench_compare import drift, drift_words
from tui.core.bench_documents import meanings, notes_in, what_was_sent
from tui.core.bench_knee import knee_words
from tui.core.bench_remarks import asked_rate, failures, remark, streams, warnings, who
from tui.core.bench_result import Plan, Point, Progress, Result, Vantage
from tui.core.bench_soak import decays, soak_words
from tui.core.text import clean

GOODPUT = "good/s"
Column = tuple[str, list[str | None], str]
"""Its name, a value for each point (None: not known), and what it means."""


def more(result: Result, width: int, *, rates: bool = False, definitions: bool = True) -> RenderableType | None:
    """One row a point in each table; None where there is nothing more to tell.

    `rates`: the requests a second of a closed loop are told here. `definitions`: what all the columns mean, not only the limits
    that were given.
    """
    columns = [column for column in _columns(result, rates) if any(value is not None for value in column[1])]
    if not columns:
        return None
    parts: list[RenderableType] = []
    while columns:
        count = len(columns)
        while count > 1 and _table_width(_table(result.points, columns[:count])) > width:
            count -= 1
        parts.append(_table(result.points, columns[:count]))
        columns = columns[count:]
    told = [(name, meaning) for name, values, meaning in _columns(result, rates) if meaning and any(values)]
    meanings = dict.fromkeys(meaning for name, meaning in told if definitions or name == GOODPUT)
    return Group(*parts, *([Text("; ".join(meanings), style="dim")] if meanings else []))


def _columns(result: Result, rates: bool) -> list[Column]:
    points = result.points
    limits = ", ".join(f"{name} {limit:g} ms" for name, limit in result.plan.goodput.items())
    confidence = "95 %: confidence interval, of TTFT and TPOT that of the median"
    host = result.vantage is Vantage.HOST

    def each(get: Callable[[Point], str | None]) -> list[str | None]:
        return [get(point) for point in points]

    return [
        (
            "req/s",
            each(lambda p: _number(p.get("request_throughput"), 2) if rates and asked_rate(p) is None else None),
            "",
        ),
        (GOODPUT, each(lambda p: _number(p.get("request_goodput"), 2)), f"good/s: requests a second within {limits}"),
        ("steady 95 %", each(_half), confidence),
        ("TTFT 95 %", each(lambda p: _between(p, "median_ttft_ms", 1)), confidence),
        ("TTFT p99 95 %", each(lambda p: _between(p, "p99_ttft_ms", 1)), confidence),
        ("TPOT 95 %", each(lambda p: _between(p, "median_tpot_ms", 2)), confidence),
        ("peak", each(lambda p: _number(p.get("peak_tokens_per_s"), 0)), "peak: tokens in the busiest second"),
        ("tok/chunk", each(_per_chunk), ""),
        ("answer", each(lambda p: _number(p.get("median_first_answer_ms"), 1)), "answer: the first token after the reasoning, ms"),
        ("reasoning", each(lambda p: _number(p.get("reasoning_tokens") or None, 0)), "reasoning: its tokens"),
        (
            "idle cores",
            each(lambda p: _number(p.get("host_idle_cores"), 1) if host else None),
            "idle cores: of the host",
        ),
        ("API cores", each(lambda p: _number(p.get("api_server_cpu_cores"), 2)), "API cores: those that the API server used"),
    ]


def _number(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:,.{digits}f}"


def _half(point: Point) -> str | None:
    bounds = point.interval("steady_output_throughput")
    return None if bounds is None else f"±{(bounds[1] - bounds[0]) / 2:,.1f}"


def _between(point: Point, name: str, digits: int) -> str | None:
    bounds = point.interval(name)
    return None if bounds is None else f"{bounds[0]:,.{digits}f}–{bounds[1]:,.{digits}f}"


def _per_chunk(point: Point) -> str | None:
    """Nothing where a token came in each chunk, as usual."""
    value = point.get("tokens_per_chunk")
    return None if value is None or round(value, 2) == 1 else f"{value:.2f}"


def _table(points: Sequence[Point], columns: Sequence[Column]) -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    open_loop = any(asked_rate(point) is not None for point in points)
    made.add_column("asked" if open_loop else "streams", justify="right", no_wrap=True)
    for name, _, _ in columns:
        made.add_column(name, justify="right", no_wrap=True)
    for i, point in enumerate(points):
        asked = asked_rate(point)
        made.add_row(str(point.concurrency) if asked is None else f"{asked:g}", *(values[i] or DASH for _, values, _ in columns))
    return made


def _table_width(table: Table) -> int:
    roomy = Console(width=1000)
    return Measurement.get(roomy, roomy.options, table).maximum


DASH = "—"
PIPED_WIDTH = 200
"""Columns of a table that no terminal shows: its rows stay whole, unless COLUMNS says otherwise."""


def number(value: Any, digits: int = 0) -> str:
    """A figure with its thousands apart; unknown is a dash."""
    return DASH if not isinstance(value, int | float) else f"{value:,.{digits}f}"


def rate(value: Any) -> str:
    """Tokens a second: one decimal below a thousand."""
    return DASH if not isinstance(value, int | float) else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def duration(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


WAITING_FIRST_S = 10.0
WAITING_EVERY_S = 30.0
"""Without a terminal, a server that does not answer is told of after the first time, and then so often."""

WORK_FIRST_S = 2.0
WORK_EVERY_S = 10.0
"""The same for what is done before and after the measuring."""


class LiveView:
    """Progress on stderr: redrawn in place on a terminal, a line a point otherwise, nothing when quiet."""

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
        """Leaves the terminal to a question."""
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

    def progress(self, progress: Progress) -> None:
        if self._aside:
            return
        if self._live is None:
            if not progress.work:
                self._work_told_at = WORK_FIRST_S
            elif not self._quiet and progress.elapsed_s >= self._work_told_at:
                self._work_told_at = progress.elapsed_s + WORK_EVERY_S
                print(status(progress), file=sys.stderr, flush=True)
            if not self._quiet and progress.waiting_s is not None and progress.waiting_s >= self._told_at:
                self._told_at = progress.waiting_s + WAITING_EVERY_S
                print(status(progress), file=sys.stderr, flush=True)
            return
        line = Text(status(progress), style="cyan")
        parts: list[RenderableType] = [table(self._points, self._console.width), line] if self._points else [line]
        self._live.update(Group(*parts), refresh=True)

    def point(self, point: Point) -> None:
        self._points.append(point)
        self._told_at = WAITING_FIRST_S
        if self._live is None and not self._quiet:
            figures = point.figures
            print(
                f"{who(point)}: {rate(point.get('output_throughput'))} tok/s, "
                f"TTFT {number(figures.get('median_ttft_ms'), 1)} ms, TPOT {number(figures.get('median_tpot_ms'), 2)} ms, "
                f"{figures.get('completed')} done, {figures.get('failed')} failed",
                file=sys.stderr,
            )


def status(progress: Progress) -> str:
    """The live line."""
    words = [f"point {progress.point + 1}/{progress.points}"]
    if progress.concurrency:
        words.append(streams(progress.concurrency))
    if progress.work:
        return " · ".join([*words, progress.work, duration(progress.elapsed_s)])
    words.append(progress.stage)
    if progress.waiting_s is not None:
        words.append(waiting(progress))
    elif progress.stage != "preparing":
        done = f"{progress.done}/{progress.planned}" if progress.planned else f"{progress.done}"
        words.append(f"{progress.in_flight} in flight, {done} done" + (f", {progress.failed} failed" if progress.failed else ""))
        words.append(f"{rate(progress.tokens_s)} tok/s")
        words.append(duration(progress.elapsed_s))
        if progress.left_s:
            words.append(f"about {duration(progress.left_s)} left")
    return " · ".join(words)


def waiting(progress: Progress) -> str:
    """`waiting for the first reply, 12 s`."""
    failed = f"{progress.failed} failed, " if progress.failed else ""
    return f"{failed}waiting for the first reply, {duration(progress.waiting_s or 0.0)}"


def table(points: Sequence[Point], width: int, *, rates: bool = False) -> RenderableType:
    """One row a point, with remarks beside it; where the terminal is too narrow for them, a letter and the remarks below.

    `rates`: a closed loop has its requests a second, too.
    """
    remarks = [remark(point) for point in points]
    beside = _rows(points, remarks, rates)
    if not any(remarks) or _width(beside) <= width:
        return beside
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    marks = {words: next(letters, "*") for words in dict.fromkeys(filter(None, remarks))}
    below = [Text(f"{mark}  {words}", style="yellow") for words, mark in marks.items()]
    return Group(_rows(points, [marks.get(words, "") for words in remarks], rates), *below)


def rates_fit(points: Sequence[Point], width: int) -> bool:
    """Whether the requests a second have room in the table."""
    marks = ["a" if remark(point) else "" for point in points]
    return _width(_rows(points, marks, True)) <= width


def _width(made: Table) -> int:
    roomy = Console(width=1000)
    return Measurement.get(roomy, roomy.options, made).maximum


def _rows(points: Sequence[Point], remarks: Sequence[str], rates: bool) -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    open_loop = any(asked_rate(point) is not None for point in points)
    # an open loop has no steady part; the rate that it had stands beside the one that was asked for
    names = ("asked", "req/s", "tok/s") if open_loop else ("streams", "tok/s", "steady")
    rates = rates and not open_loop
    for name in (*names, *(("req/s",) if rates else ()), "TTFT", "p99", "TPOT", "p99", "ITL p99", "E2EL", "done", "failed"):
        made.add_column(name, justify="right", no_wrap=True)
    if any(remarks):
        made.add_column("")
    for point, words in zip(points, remarks, strict=True):
        f = point.figures
        e2el = f.get("median_e2el_ms")
        throughput = rate(point.get("output_throughput"))
        asked = asked_rate(point)
        requests = number(point.get("request_throughput"), 2)
        made.add_row(
            *(
                (DASH if asked is None else f"{asked:g}", requests, throughput)
                if open_loop
                else (str(point.concurrency), throughput, rate(f.get("steady_output_throughput")))
            ),
            *((requests,) if rates else ()),
            number(f.get("median_ttft_ms"), 1),
            number(f.get("p99_ttft_ms"), 1),
            number(f.get("median_tpot_ms"), 2),
            number(f.get("p99_tpot_ms"), 2),
            number(f.get("p99_itl_ms"), 1),
            number(e2el / 1000 if isinstance(e2el, int | float) else None, 2),
            number(f.get("completed")),
            number(f.get("failed")),
            *([Text(words, style="yellow")] if any(remarks) else []),
        )
    return made


def report(result: Result, saved: tuple[str, ...], *, definitions: bool = False, to_stderr: bool = False) -> None:
    """The end: table, reasons of failures, the server's side; with `definitions` what the figures mean, and how they are taken."""
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
    plan = result.plan
    line(console, f"{result.model or DASH} · {result.endpoint} · tokens: {what_was_sent(plan)[0]} · load from {result.vantage}")
    for point in result.points:
        _server_side(console, point)
    for words in failures(result):
        line(console, f"✗ {words}", "red")
    for words in warnings(result):
        line(console, f"▲ {words}", "yellow")
    if (knee := knee_words(result)) is not None:
        line(console, knee)
    if (changed := drift(result)) is not None and (told := drift_words(result)) is not None:
        line(console, told, "" if changed.better is None else "yellow")
    if plan.kind == "soak":
        line(console, ("▲ " if decays(result) else "") + soak_words(result), "yellow" if decays(result) else "")
    if result.stopped and result.points:
        line(console, f"▲ partial: {result.stopped}", "yellow")
    elif result.stopped:
        line(console, f"✗ nothing was measured: {result.stopped}", "red")
    if definitions:
        line(console, meanings(plan), "dim")
    for deviation in result.deviations if definitions else notes_in(result):
        line(console, f"· {deviation}", "dim")
    for path in (*saved, *((result.path,) if result.path else ())):
        # unbroken, however narrow the terminal: the path is for copying
        console.print(Text(f"saved: {clean(path)}", style="dim"), soft_wrap=True)


def line(console: Console, words: str, style: str = "") -> None:
    """Untrusted words on a line of their own: never markup. In a pipe or a file it is one line, which can be searched for."""
    console.print(Text(words, style=style), soft_wrap=not console.is_terminal)


def _server_side(console: Console, point: Point) -> None:
    f = point.figures
    words = []
    if isinstance(f.get("server_mean_queue_ms"), int | float):
        words.append(f"queue {f['server_mean_queue_ms']:.1f} ms")
    if isinstance(f.get("server_mean_prefill_ms"), int | float):
        words.append(f"prefill {f['server_mean_prefill_ms']:.1f} ms")
    if isinstance(f.get("server_peak_kv_cache"), int | float):
        words.append(f"KV cache up to {f['server_peak_kv_cache'] * 100:.0f} %")
    if f.get("server_preemptions"):
        words.append(f"{f['server_preemptions']:.0f} preemptions")
    if f.get("cached_prompt_tokens"):
        words.append(f"{f['cached_prompt_tokens']:,} prompt tokens from the cache")
    if isinstance(f.get("spec_decode_acceptance_rate"), int | float):
        words.append(f"drafts accepted {f['spec_decode_acceptance_rate']:.0f} %")
    gpu = f.get("gpu") or {}
    if gpu.get("tokens_per_s_per_gpu"):
        words.append(f"{rate(gpu['tokens_per_s_per_gpu'])} tok/s a GPU")
    if gpu.get("tokens_per_joule"):
        words.append(f"{gpu['tokens_per_joule']:.2f} tokens a joule")
    if words:
        line(console, f"server, {who(point)}: " + ", ".join(words))
