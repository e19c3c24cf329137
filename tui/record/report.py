"""One stored run as Markdown, to paste into a ticket or keep beside the deployment."""

import datetime
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from tui.core.benchmark_open import asked_rate, load_name
from tui.core.durations import clock
from tui.core.logs.phase_names import name_of
from tui.core.text import clean
from tui.record.store import Run, benchmark_of

FIGURES = (
    ("output tok/s", "output_throughput", "{:,.1f}"),
    ("steady tok/s", "steady_output_throughput", "{:,.1f}"),
    ("requests/s", "request_throughput", "{:,.2f}"),
    ("TTFT p50 ms", "median_ttft_ms", "{:,.1f}"),
    ("TTFT p99 ms", "p99_ttft_ms", "{:,.1f}"),
    ("TPOT p50 ms", "median_tpot_ms", "{:,.2f}"),
    ("TPOT p99 ms", "p99_tpot_ms", "{:,.2f}"),
    ("E2EL p99 ms", "p99_e2el_ms", "{:,.0f}"),
    ("completed", "completed", "{:,.0f}"),
    ("failed", "failed", "{:,.0f}"),
)


def write_report(run: Run, path: Path) -> Path:
    """Writes the report of a run, readable by its owner only; where it was written.

    A file that is there already stays: the new one gets a number. Raises RecordError when the run can't be read, OSError when the
    file can't be written.
    """
    text = readable(run)
    for number in count(1):
        free = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        try:
            handle = os.open(free, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        return free
    raise AssertionError("numbers do not end")


def readable(run: Run) -> str:
    """The report with nothing in it that a terminal would obey. Raises RecordError as `markdown` does."""
    return clean(markdown(run), keep_newlines=True)


def markdown(run: Run) -> str:
    """The report of a run. Raises RecordError when its document can't be read."""
    when = datetime.datetime.fromtimestamp(run.at).astimezone().isoformat(" ", "seconds")
    lines = [f"# {_escaped(run.deployment)}: {_escaped(run.title)}", "", f"Run {run.id}, {run.kind}, {when}", ""]
    body = {"benchmark": _benchmark, "load": _load, "smoke": _smoke}[run.kind]
    lines += body(run)
    return "\n".join(lines) + "\n"


def _benchmark(run: Run) -> Iterator[str]:
    result = benchmark_of(run)
    plan = result.plan
    yield f"Model `{result.model}` at {result.endpoint}, load generated {_VANTAGE[result.vantage.value]}."
    source = f"{plan.input_tokens} tokens in" if plan.prompts_file is None else "Prompts of a file"
    yield f"{source}, {plan.output_tokens} out, {plan.endpoint} endpoint; definitions are vLLM's."
    if result.stopped:
        yield f"**Incomplete:** {_escaped(result.stopped)}."
    yield from ("", *(f"- {_escaped(one)}" for one in result.deviations), "")
    if not result.points:
        return
    rated = any(asked_rate(point) is not None for point in result.points)
    yield f"| {'load' if rated else 'concurrency'} | " + " | ".join(name for name, _, _ in FIGURES) + " |"
    yield "| --: |" + " --: |" * len(FIGURES)
    for point in result.points:
        cells = (_number(point.get(key), form) for _, key, form in FIGURES)
        yield f"| {_escaped(load_name(point))} | " + " | ".join(cells) + " |"


_VANTAGE = {
    "host": "on the GPU host",
    "direct": "on the client, against the URL",
    "tunnel": "on the client, through the SSH connection",
}


def _load(run: Run) -> Iterator[str]:
    document = run.document
    facts: tuple[tuple[str, Any], ...] = (
        ("engine", " ".join(str(one) for one in (document.get("engine"), document.get("version")) if one) or None),
        ("model", document.get("model")),
        ("ready after", _seconds(document.get("total_s"))),
        ("weights per GPU", _number(document.get("gib_per_gpu"), "{:.2f} GiB")),
        ("KV cache", _number(document.get("kv_tokens"), "{:,.0f} tokens")),
        ("maximum concurrency", _number(document.get("max_concurrency"), "{:.2f}x")),
    )
    for name, value in facts:
        yield f"- {name}: {_escaped(str(value)) if value else '—'}"
    yield from ("", "| phase | took |", "| --- | --: |")
    for name, seconds in document.get("phases", ()):
        yield f"| {_escaped(name_of(str(name)))} | {_seconds(seconds)} |"
    failure = document.get("failure")
    if failure:
        yield from (
            "",
            f"**Failed in {name_of(failure['phase'])} ({failure['kind']}):** {_escaped(failure['cause'])}",
            "",
            _escaped(failure["advice"]),
        )


def _smoke(run: Run) -> Iterator[str]:
    yield f"Model `{run.document.get('model')}`."
    yield from ("", "| prompt | verdict | why | seconds |", "| --- | --- | --- | --: |")
    for one in run.document.get("results", ()):
        seconds = _number(one.get("seconds"), "{:.1f}")
        yield f"| {_escaped(one['name'])} | {one['outcome']} | {_escaped(one['says'])} | {seconds} |"


def _number(value: Any, form: str) -> str:
    return form.format(value) if isinstance(value, int | float) else "—"


def _seconds(value: Any) -> str:
    if not isinstance(value, int | float):
        return "—"
    return clock(value)


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    for sign in "\\`*_[]<>|":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", " ")
