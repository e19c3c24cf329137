"""One stored run as Markdown, to paste into a ticket or keep beside the deployment."""

import datetime
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from tui.core.durations import clock
from tui.core.logs.phase_names import name_of
from tui.core.text import clean
from tui.record.benchmark_report import benchmark_lines
from tui.record.markdown_words import escaped, number
from tui.record.store import Run, benchmark_of


def write_report(run: Run, path: Path) -> Path:
    """Writes the report of a run, readable by its owner only; where it was written.

    A file that is there already stays: the new one gets a number. Raises RecordError when the run can't be read, OSError when the
    file can't be written.
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
    """The report with nothing in it that a terminal would obey. Raises RecordError as `markdown` does."""
    return clean(markdown(run), keep_newlines=True)


def markdown(run: Run) -> str:
    """The report of a run. Raises RecordError when its document can't be read."""
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
        ("engine", " ".join(str(one) for one in (document.get("engine"), document.get("version")) if one) or None),
        ("model", document.get("model")),
        ("ready after", _seconds(document.get("total_s"))),
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
        yield from (
            "",
            f"**Failed in {name_of(failure['phase'])} ({failure['kind']}):** {escaped(failure['cause'])}",
            "",
            escaped(failure["advice"]),
        )


def _smoke(run: Run) -> Iterator[str]:
    yield f"Model `{run.document.get('model')}`."
    yield from ("", "| prompt | verdict | why | seconds |", "| --- | --- | --- | --: |")
    for one in run.document.get("results", ()):
        seconds = number(one.get("seconds"), "{:.1f}")
        yield f"| {escaped(one['name'])} | {one['outcome']} | {escaped(one['says'])} | {seconds} |"


def _seconds(value: Any) -> str:
    if not isinstance(value, int | float):
        return "—"
    return clock(value)
