"""One stored run as Markdown, to paste into a ticket or keep beside the deployment."""

import datetime
import os
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from tui.core.bench_conclusions import conclusions
from tui.core.bench_documents import SOURCES, what_was_sent
from tui.core.bench_metrics import OPTIONAL, Metric, View, in_view
from tui.core.bench_remarks import failures, load_name, remark, warnings
from tui.core.bench_result import Point, Result
from tui.core.presentation import DASH, clock, name_of
from tui.core.text import clean
from tui.record.store import Run, benchmark_of


def escaped(text: str) -> str:
    """Escape text so that Markdown shows it as it is. Underscores within a word (`host_oom`) mean nothing to it."""
    for sign in "\\`*[]<>|":
        text = text.replace(sign, f"\\{sign}")
    text = re.sub(r"(?<!\w)_+|_+(?!\w)", lambda found: "\\_" * len(found[0]), text)
    return text.replace("\n", " ")


def number(value: Any, form: str) -> str:
    """Format a figure; a dash if it is unknown."""
    return form.format(value) if isinstance(value, int | float) else "—"


TOO_FEW = "†"
"""Beside a p99 of fewer requests than one needs."""


def benchmark_lines(result: Result) -> Iterator[str]:
    """Yield the body of the report. Every text in it is escaped."""
    yield f"Model `{result.model}` at {result.endpoint}, load {SOURCES[result.vantage]}."
    yield f"Tokens: {', '.join(what_was_sent(result.plan))}; definitions are vLLM's."
    if result.stopped:
        yield f"**Incomplete:** {escaped(result.stopped)}."
    yield ""
    told = [f"{'▲ ' if bad else ''}{words}" for words, bad in conclusions(result)]
    told += [*(f"✗ {words}" for words in failures(result)), *(f"▲ {words}" for words in warnings(result))]
    yield from (f"- {escaped(words)}" for words in told)
    if told:
        yield ""
    if result.points:
        yield from _table(result)
    yield from (f"- {escaped(note)}" for note in result.deviations)
    yield ""


def _table(result: Result) -> Iterator[str]:
    points = result.points
    columns = [
        metric
        for metric in in_view(View.REPORT)
        if metric.rank < OPTIONAL or any(metric.raw(point) is not None for point in points)
    ]
    remarks = [remark(point) for point in points]
    rated = any(point.asked_rate is not None for point in points)
    heads = ["load" if rated else "concurrency", *(metric.heading for metric in columns), *(["remarks"] if any(remarks) else [])]
    yield f"| {' | '.join(heads)} |"
    yield "| --: |" + " --: |" * len(columns) + (" --- |" if any(remarks) else "")
    for point, words in zip(points, remarks, strict=True):
        cells = [
            escaped(load_name(point)),
            *(_cell(point, metric) for metric in columns),
            *([escaped(words)] if any(remarks) else []),
        ]
        yield f"| {' | '.join(cells)} |"
    yield ""
    notes = []
    if any(metric.range_text(point) for point in points for metric in columns):
        notes.append("ranges in parentheses are 95 % intervals")
    if any(TOO_FEW in _cell(point, metric) for point in points for metric in columns):
        notes.append(f"{TOO_FEW} too few requests for a p99")
    if goals := ", ".join(f"{name} {limit:g} ms" for name, limit in result.plan.goodput.items()):
        notes.append(f"good requests are within {goals}")
    if notes:
        yield from (f"{escaped('; '.join(notes))}.", "")


def _cell(point: Point, metric: Metric) -> str:
    text = metric.text(metric.raw(point))
    if text == DASH:
        return text
    if metric.key.startswith("p99_") and point.figures.get("p99_supported") is False:
        return f"{text} {TOO_FEW}"
    bounds = metric.range_text(point)
    return text if bounds is None else f"{text} ({bounds})"


def write_report(run: Run, path: Path) -> Path:
    """Write the report of a run, readable by its owner only, and return where it was written.

    An existing file stays: the new one gets a number. Raises RecordError if the run can't be read, OSError if the file can't be
    written.
    """
    text = readable(run)
    for copy in count(1):
        free = path if copy == 1 else path.with_name(f"{path.stem}-{copy}{path.suffix}")
        try:
            handle = os.open(free, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        return free
    raise AssertionError("numbers do not end")


def readable(run: Run) -> str:
    """Return the report with nothing in it that a terminal would obey. Raises RecordError as `markdown` does."""
    return clean(markdown(run), keep_newlines=True)


def markdown(run: Run) -> str:
    """Return the report of a run. Raises RecordError if its document can't be read."""
    when = datetime.datetime.fromtimestamp(run.at).astimezone().isoformat(" ", "seconds")
    lines = [f"# {escaped(run.deployment)}: {escaped(run.title)}", "", f"Run {run.id}, {run.kind}, {when}", ""]
    body = {"benchmark": _benchmark, "load": _load, "smoke": _smoke}[run.kind]
    lines += body(run)
    return "\n".join(lines) + "\n"


def _benchmark(run: Run) -> Iterator[str]:
    return benchmark_lines(benchmark_of(run))


def _load(run: Run) -> Iterator[str]:
    document = run.document
    facts: tuple[tuple[str, Any], ...] = (
        ("engine", " ".join(str(word) for word in (document.get("engine"), document.get("version")) if word) or None),
        ("model", document.get("model")),
        ("ready after", _seconds(document.get("total_s"))),
        *([("failed after", _seconds(failed_s))] if (failed_s := document.get("failed_after_s")) is not None else []),
        ("weights per GPU", number(document.get("gib_per_gpu"), "{:.2f} GiB")),
        ("KV cache", number(document.get("kv_tokens"), "{:,.0f} tokens")),
        ("maximum concurrency", number(document.get("max_concurrency"), "{:.2f}x")),
    )
    for name, value in facts:
        yield f"- {name}: {escaped(str(value)) if value else '—'}"
    yield from ("", "| phase | took |", "| --- | --: |")
    for name, seconds in document.get("phases", ()):
        yield f"| {escaped(name_of(str(name)))} | {_seconds(seconds)} |"
    failure = document.get("failure")
    if failure:
        kind = str(failure["kind"]).replace("_", " ")
        served = document.get("served_s")
        if document.get("total_s") is None:
            head = f"Failed to start, in {name_of(failure['phase'])} ({kind}):"
        else:
            head = f"Died after serving {_seconds(served)} ({kind}):" if served is not None else f"Died while serving ({kind}):"
        yield from (
            "",
            f"**{head}** {escaped(failure['cause'])}",
            "",
            escaped(failure["advice"]),
        )


def _smoke(run: Run) -> Iterator[str]:
    yield f"Model `{run.document.get('model')}`."
    yield from ("", "| prompt | verdict | why | seconds |", "| --- | --- | --- | --: |")
    for result in run.document.get("results", ()):
        seconds = number(result.get("seconds"), "{:.1f}")
        yield f"| {escaped(result['name'])} | {result['outcome']} | {escaped(result['says'])} | {seconds} |"


def _seconds(value: Any) -> str:
    if not isinstance(value, int | float):
        return "—"
    return clock(value)
