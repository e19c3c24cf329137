"""The figures of `readyroom bench` that stand in no other table: only those there are, in as many tables as the width needs."""

from collections.abc import Callable, Sequence

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tui.core.benchmark import Point, Result, Vantage
from tui.core.benchmark_open import asked_rate

DASH = "—"
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
        while count > 1 and _width(_table(result.points, columns[:count])) > width:
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


def _width(table: Table) -> int:
    roomy = Console(width=1000)
    return Measurement.get(roomy, roomy.options, table).maximum
