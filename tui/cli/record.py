"""`readyroom runs`, `compare` and `report`: the record, headless."""

import datetime
import json
import time
from pathlib import Path
from typing import Any

import click

from tui.cli.context import Exit, Fail, open_record
from tui.core.text import clean
from tui.record.store import Record, RecordError, Run, benchmark_of


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option("--deployment", metavar="NAME", help="Only this deployment's.")
@click.option("--kind", type=click.Choice(["load", "smoke", "benchmark"]), help="Only this kind.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="The newest so many.")
def runs(as_json: bool, deployment: str | None, kind: str | None, limit: int) -> None:
    """The record of loads, smoke runs and benchmarks, newest first."""
    record = _opened()
    found = record.runs(kind=kind, deployment=deployment, limit=limit)
    if as_json:
        rows = [
            {"id": one.id, "kind": one.kind, "deployment": one.deployment, "at": _iso(one.at), "title": one.title} for one in found
        ]
        click.echo(json.dumps({"schema": 1, "path": str(record.path), "runs": rows}, ensure_ascii=False))
        return
    if not found:
        click.echo(f"no runs are kept yet in {record.path}: watch a start, or run smoke or bench")
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("run", justify="right")
    for name in ("when", "deployment", "kind", "what"):
        table.add_column(name, overflow="fold", no_wrap=name in ("when", "kind"))
    for one in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.at))
        table.add_row(str(one.id), when, Text(clean(one.deployment)), one.kind, Text(clean(one.title)))
    Console(highlight=False).print(table)


@click.command()
@click.argument("a")
@click.argument("b")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def compare(a: str, b: str, as_json: bool) -> None:
    """Two stored benchmarks, point by point: A before, B after. A and B are ids from `readyroom runs`, or deployments' names
    (the newest benchmark of each)."""
    from tui.core import comparison

    record = _opened()
    first, second = _benchmark_run(record, a), _benchmark_run(record, b)
    try:
        before, after = benchmark_of(first), benchmark_of(second)
    except RecordError as error:
        raise Fail(Exit.USAGE, str(error)) from None
    points, remarks = comparison.compare(before, after), comparison.differences(before, after)
    if as_json:
        rows = [
            {
                "concurrency": point.concurrency,
                "request_rate": point.rate,
                "label": point.label or None,
                "changes": {
                    one.name: {"before": one.before, "after": one.after, "share": one.share, "better": one.better}
                    for one in point.changes
                    if one.before is not None or one.after is not None
                },
            }
            for point in points
        ]
        document = {"schema": 1, "before": _named(first), "after": _named(second), "differences": remarks, "points": rows}
        click.echo(json.dumps(document, ensure_ascii=False))
        return
    if not points:
        ours, theirs = (", ".join(comparison.loads(one)) for one in (before, after))
        raise Fail(Exit.NEGATIVE, f"no load was measured by both: {ours} and {theirs}")
    _print_comparison(first, second, points, remarks)


def _print_comparison(first: Run, second: Run, points: Any, remarks: tuple[str, ...]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = (
        ("tok/s", "output_throughput"),
        ("TTFT p50", "median_ttft_ms"),
        ("p99", "p99_ttft_ms"),
        ("TPOT p50", "median_tpot_ms"),
    )
    console = Console(highlight=False)
    console.print(Text(f"before  run {first.id}, {clean(first.deployment)}, {_iso(first.at, ' ')}"))
    console.print(Text(f"after   run {second.id}, {clean(second.deployment)}, {_iso(second.at, ' ')}"))
    for remark in remarks:
        console.print(Text(f"▲ {clean(remark)}", "yellow"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), caption="latencies in ms", caption_justify="left")
    table.add_column("streams" if all(point.rate is None for point in points) else "load", justify="right")
    for name, _ in shown:
        table.add_column(name, justify="right", no_wrap=True)
        table.add_column("", justify="left", no_wrap=True)
    for point in points:
        cells: list[Any] = [point.name]
        for _, key in shown:
            change = point.change(key)
            cells.append("—" if change is None or change.after is None else f"{change.after:,.1f}")
            if change is None or change.share is None:
                cells.append("")
            else:
                mark = {True: " ✓", False: " ▲", None: ""}[change.better]
                style = {True: "green", False: "yellow", None: "dim"}[change.better]
                sign = "+" if change.share >= 0 else "−"
                cells.append(Text(f"{sign}{_percent(change.share)} %{mark}", style))
        table.add_row(*cells)
    console.print(table)


@click.command()
@click.argument("run", type=int)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A new file instead of stdout; where there is one, the name gets a number.",
)
def report(run: int, output: Path | None) -> None:
    """One stored run as Markdown."""
    from tui.record.report import readable, write_report

    record = _opened()
    found = record.run(run)
    if found is None:
        raise Fail(Exit.USAGE, f"there is no run {run} in {record.path}; `readyroom runs` lists them")
    try:
        if output is None:
            click.echo(readable(found), nl=False)
        elif (path := write_report(found, output)) != output:
            click.echo(f"readyroom: {output} is there already: the report was written to {path}", err=True)
    except RecordError as error:
        raise Fail(Exit.NEGATIVE, str(error)) from None
    except OSError as error:
        raise Fail(Exit.NEGATIVE, f"{output} can't be written: {error.strerror}") from None


def _opened() -> Record:
    record = open_record()
    try:
        record.runs(limit=1)
    except RecordError as error:
        raise Fail(Exit.NEGATIVE, str(error)) from None
    if record.problem:
        click.echo(f"readyroom: {record.problem}", err=True)
    return record


def _benchmark_run(record: Record, which: str) -> Run:
    if which.isdigit():
        found = record.run(int(which))
        if found is None:
            raise Fail(Exit.USAGE, f"there is no run {which} in {record.path}; `readyroom runs` lists them")
        return found
    newest = record.runs(kind="benchmark", deployment=which, limit=1)
    if not newest:
        raise Fail(
            Exit.USAGE, f"{which!r} is no run's id, and no benchmark of a deployment of that name is kept; see `readyroom runs`"
        )
    return newest[0]


def _named(run: Run) -> dict[str, Any]:
    return {"id": run.id, "deployment": run.deployment, "at": _iso(run.at), "title": run.title}


def _iso(at: float, between: str = "T") -> str:
    return datetime.datetime.fromtimestamp(at).astimezone().isoformat(between, "seconds")


def _percent(share: float) -> str:
    return f"{abs(share) * 100:.1f}" if abs(share) < 0.0995 else f"{abs(share) * 100:.0f}"
