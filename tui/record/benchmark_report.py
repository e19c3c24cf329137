"""A stored benchmark as Markdown: its figures, and beside them what qualifies each."""

from collections.abc import Iterator
from dataclasses import dataclass

from tui.core.benchmark import Point, Result
from tui.core.benchmark_knee import knee_words
from tui.core.benchmark_open import asked_rate, load_name
from tui.core.benchmark_remarks import failures, remark, warnings
from tui.core.benchmark_soak import decays, soak_words
from tui.core.comparison import drift, drift_words
from tui.record.markdown_words import escaped, number

TOO_FEW = "†"
"""Beside a p99 of fewer requests than one needs."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    key: str
    form: str
    always: bool = True
    """False: only where some point has it."""


COLUMNS = (
    Column("output tok/s", "output_throughput", "{:,.1f}"),
    Column("steady tok/s", "steady_output_throughput", "{:,.1f}"),
    Column("requests/s", "request_throughput", "{:,.2f}"),
    Column("good requests/s", "request_goodput", "{:,.2f}", always=False),
    Column("TTFT p50 ms", "median_ttft_ms", "{:,.1f}"),
    Column("TTFT p99 ms", "p99_ttft_ms", "{:,.1f}"),
    Column("TPOT p50 ms", "median_tpot_ms", "{:,.2f}"),
    Column("TPOT p99 ms", "p99_tpot_ms", "{:,.2f}"),
    Column("E2EL p99 ms", "p99_e2el_ms", "{:,.0f}"),
    Column("completed", "completed", "{:,.0f}"),
    Column("failed", "failed", "{:,.0f}"),
)
VANTAGES = {
    "host": "on the GPU host",
    "direct": "on the client, against the URL",
    "tunnel": "on the client, through the SSH connection",
}


def benchmark_lines(result: Result) -> Iterator[str]:
    """The body of the report. Every text in it is escaped."""
    plan = result.plan
    yield f"Model `{result.model}` at {result.endpoint}, load generated {VANTAGES[result.vantage.value]}."
    tokens = "Prompts of a file" if plan.prompts_file else f"{plan.input_tokens} tokens in"
    yield f"{tokens}, {plan.output_tokens} out, {plan.endpoint} endpoint; definitions are vLLM's."
    if result.stopped:
        yield f"**Incomplete:** {escaped(result.stopped)}."
    yield ""
    told = [*_conclusions(result), *(f"✗ {words}" for words in failures(result)), *(f"▲ {words}" for words in warnings(result))]
    yield from (f"- {escaped(one)}" for one in told)
    if told:
        yield ""
    if result.points:
        yield from _table(result)
    yield from (f"- {escaped(one)}" for one in result.deviations)
    yield ""


def _conclusions(result: Result) -> Iterator[str]:
    if result.plan.kind == "soak" and result.points:
        yield f"{'▲ ' if decays(result) else ''}{soak_words(result)}"
    if (knee := knee_words(result)) is not None:
        yield knee
    if (found := drift(result)) is not None and (told := drift_words(result)) is not None:
        yield f"{'▲ ' if found.better is False else ''}{told}"


def _table(result: Result) -> Iterator[str]:
    points = result.points
    columns = [one for one in COLUMNS if one.always or any(point.get(one.key) is not None for point in points)]
    remarks = [remark(point) for point in points]
    rated = any(asked_rate(point) is not None for point in points)
    heads = ["load" if rated else "concurrency", *(one.name for one in columns), *(["remarks"] if any(remarks) else [])]
    yield f"| {' | '.join(heads)} |"
    yield "| --: |" + " --: |" * len(columns) + (" --- |" if any(remarks) else "")
    for point, words in zip(points, remarks, strict=True):
        cells = [escaped(load_name(point)), *(_cell(point, one) for one in columns), *([escaped(words)] if any(remarks) else [])]
        yield f"| {' | '.join(cells)} |"
    yield ""
    notes = []
    if any(point.interval(one.key) is not None for point in points for one in columns):
        notes.append("ranges in parentheses are 95 % intervals")
    if any(TOO_FEW in _cell(point, one) for point in points for one in columns):
        notes.append(f"{TOO_FEW} too few requests for a p99")
    if goals := ", ".join(f"{name} {limit:g} ms" for name, limit in result.plan.goodput.items()):
        notes.append(f"good requests are within {goals}")
    if notes:
        yield from (f"{escaped('; '.join(notes))}.", "")


def _cell(point: Point, column: Column) -> str:
    value = number(point.get(column.key), column.form)
    if value == "—":
        return value
    if column.key.startswith("p99_") and point.figures.get("p99_supported") is False:
        return f"{value} {TOO_FEW}"
    bounds = point.interval(column.key)
    return value if bounds is None else f"{value} ({column.form.format(bounds[0])}–{column.form.format(bounds[1])})"
