"""`readyroom runs`, `compare` and `report`: the record, headless."""

import datetime
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tui.cli.context import config_checked_option, open_record
from tui.cli.exit_message import ExitCode, Fail
from tui.core.text import clean
from tui.record.store import RecordError, Run, RunStore, benchmark_of

if TYPE_CHECKING:
    from rich.table import Table

    from tui.core.bench_compare import ComparedPoint
    from tui.core.bench_metrics import Metric


LONGEST_WORD = 30
BETWEEN = 11
"""Columns of the terminal that the padding and the edges of that table take."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--deployment", metavar="NAME", help="Only this deployment's.")
@click.option("--kind", type=click.Choice(["load", "smoke", "benchmark"]), help="Only this kind.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Only the newest N.")
@config_checked_option
def runs(as_json: bool, deployment: str | None, kind: str | None, limit: int) -> None:
    """List the recorded loads, smoke runs and benchmarks, newest first."""
    record = _opened()
    found = record.runs(kind=kind, deployment=deployment, limit=limit)
    if as_json:
        rows = [
            {"id": run.id, "kind": run.kind, "deployment": run.deployment, "at": _iso(run.at), "title": run.title} for run in found
        ]
        click.echo(json.dumps({"schema": 1, "path": str(record.path), "runs": rows}, ensure_ascii=False))
        return
    if not found:
        click.echo(f"no runs are recorded yet in {record.path}: watch a start, or run smoke or bench")
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    # a kind of failure is one word, to search for: rather the deployment's name is broken
    longest = min(LONGEST_WORD, max((len(word) for run in found for word in clean(run.title).split()), default=0))
    others = len(str(max(run.id for run in found)).rjust(3)) + len("2026-01-01 00:00") + len("benchmark") + longest + BETWEEN
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("run", justify="right")
    for name in ("when", "deployment", "kind", "what"):
        most = max(len(name), console.width - others) if name == "deployment" else None
        table.add_column(name, overflow="fold", no_wrap=name in ("when", "kind"), max_width=most)
    for run in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.at))
        table.add_row(str(run.id), when, Text(clean(run.deployment)), run.kind, Text(clean(run.title)))
    console.print(table)


@click.command()
@click.argument("a")
@click.argument("b")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@config_checked_option
def compare(a: str, b: str, as_json: bool) -> None:
    """Compare two stored benchmarks point by point: A before, B after. A and B are ids from `readyroom runs`, or deployments' names
    (the newest benchmark of each).
    """
    from tui.core import bench_compare
    from tui.core.bench_compare import differences

    record = _opened()
    first, second = _benchmark_run(record, a), _benchmark_run(record, b)
    try:
        before, after = benchmark_of(first), benchmark_of(second)
    except RecordError as error:
        raise Fail(ExitCode.USAGE, str(error)) from None
    points, remarks = bench_compare.compare(before, after), differences(before, after)
    left_out = bench_compare.left_out(before, after)
    if as_json:
        rows = [
            {
                **_load(point),
                "changes": {
                    change.metric.key: {
                        "before": change.before,
                        "after": change.after,
                        "share": change.share,
                        "better": change.better,
                        "doubt": change.doubt or None,
                    }
                    for change in point.changes
                    if change.before is not None or change.after is not None
                },
            }
            for point in points
        ]
        document = {
            "schema": 1,
            "before": _named(first),
            "after": _named(second),
            "differences": remarks,
            "points": rows,
            **{name: [_load(point) for point in getattr(left_out, name)] for name in LEFT_OUT},
        }
        click.echo(json.dumps(document, ensure_ascii=False))
        return
    if not points:
        ours, theirs = (", ".join(bench_compare.loads(result)) for result in (before, after))
        raise Fail(ExitCode.NEGATIVE, f"the two have no completed load in common: {ours or 'none'} and {theirs or 'none'}")
    _print_comparison(first, second, points, (*remarks, *left_out.words))


LEFT_OUT = ("only_before", "only_after", "cut_before", "cut_after")


def _load(point: "ComparedPoint") -> dict[str, Any]:
    return {"concurrency": point.concurrency, "request_rate": point.rate, "label": point.label or None}


def _print_comparison(first: Run, second: Run, points: "Sequence[ComparedPoint]", remarks: tuple[str, ...]) -> None:
    """Print as many tables as the width needs: on 80 columns some four figures each."""
    from rich.console import Console
    from rich.text import Text

    from tui.cli.bench_tables import in_parts
    from tui.core.bench_compare import LEGEND, headlines

    console = Console(highlight=False)
    console.print(Text(f"before  run {first.id}, {clean(first.deployment)}, {_iso(first.at, ' ')}"))
    console.print(Text(f"after   run {second.id}, {clean(second.deployment)}, {_iso(second.at, ' ')}"))
    for remark in remarks:
        console.print(Text(f"▲ {clean(remark)}", "yellow"))
    for table in in_parts(headlines(points), console.width, lambda shown: _table(points, shown)):
        console.print(table)
    console.print(Text(LEGEND, "dim"))


def _table(points: "Sequence[ComparedPoint]", shown: "Sequence[Metric]") -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("streams" if all(point.rate is None for point in points) else "load", justify="right")
    for metric in shown:
        table.add_column(metric.heading, justify="right", no_wrap=True)
        table.add_column("", justify="left", no_wrap=True)
    for point in points:
        cells: list[Any] = [point.name]
        for metric in shown:
            change = point.change(metric.key)
            cells.append(metric.text(None if change is None else change.after))
            if change is None or (change.share is None and change.better is None):
                cells.append("")
                continue
            style = {True: "green", False: "yellow", None: "dim"}[change.better]
            if change.share is None:
                words = f"from {metric.text(change.before)}"
            else:
                words = f"{'+' if change.share >= 0 else '−'}{_percent(change.share)} %"
            cells.append(Text(f"{words} {change.sign}".rstrip(), style))
        table.add_row(*cells)
    return table


@click.command()
@click.argument("run", type=int)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file instead of stdout; if it exists, to a new one with a number.",
)
@config_checked_option
def report(run: int, output: Path | None) -> None:
    """Print one stored run as Markdown."""
    from tui.record.markdown import readable, write_report

    record = _opened()
    found = record.run(run)
    if found is None:
        raise Fail(ExitCode.USAGE, f"there is no run {run} in {record.path}; `readyroom runs` lists them")
    try:
        if output is None:
            click.echo(readable(found), nl=False)
        elif (path := write_report(found, output)) != output:
            click.echo(f"readyroom: {output} already exists: the report was written to {path}", err=True)
    except RecordError as error:
        raise Fail(ExitCode.NEGATIVE, str(error)) from None
    except OSError as error:
        raise Fail(ExitCode.NEGATIVE, f"{output} can't be written: {error.strerror}") from None


def _opened() -> RunStore:
    record = open_record()
    try:
        record.runs(limit=1)
    except RecordError as error:
        raise Fail(ExitCode.NEGATIVE, str(error)) from None
    if record.problem:
        click.echo(f"readyroom: {record.problem}", err=True)
    return record


def _benchmark_run(record: RunStore, which: str) -> Run:
    if which.isdigit():
        found = record.run(int(which))
        if found is None:
            raise Fail(ExitCode.USAGE, f"there is no run {which} in {record.path}; `readyroom runs` lists them")
        return found
    newest = record.runs(kind="benchmark", deployment=which, limit=1)
    if not newest:
        raise Fail(
            ExitCode.USAGE, f"{which!r} is neither a run's id nor a deployment with a recorded benchmark; see `readyroom runs`"
        )
    return newest[0]


def _named(run: Run) -> dict[str, Any]:
    return {"id": run.id, "deployment": run.deployment, "at": _iso(run.at), "title": run.title}


def _iso(at: float, between: str = "T") -> str:
    return datetime.datetime.fromtimestamp(at).astimezone().isoformat(between, "seconds")


def _percent(share: float) -> str:
    return f"{abs(share) * 100:.1f}" if abs(share) < 0.0995 else f"{abs(share) * 100:.0f}"
