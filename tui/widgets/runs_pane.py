"""The record: what was run, newest first, and below it the run that is open, or two side by side."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from rich.cells import cell_len
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.coordinate import Coordinate
from textual.reactive import var
from textual.widgets import DataTable, Static

from tui.core.bench_compare import LEGEND, Change, compare, differences, headlines, left_out
from tui.core.bench_result import Result
from tui.core.presentation import DASH, clock, name_of, three, whole
from tui.core.smoke_prompts import Outcome, SmokeResult, SmokeRun
from tui.core.text import clean
from tui.messages import CompareRequested, ReportRequested, RunOpened
from tui.widgets.bench_pane import how, remarks
from tui.widgets.draw import BE, BP, QUIET, B, G, Part, W, fit, label, line, middle, rows, short
from tui.widgets.key_bar import key_of
from tui.widgets.smoke_panel import smoke_report
from tui.widgets.sweep import columns_of, sweep


class StoredRun(Protocol):
    """A run as the record keeps it: `at` is wall clock, `document` JSON values."""

    @property
    def id(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def deployment(self) -> str: ...
    @property
    def at(self) -> float: ...
    @property
    def title(self) -> str: ...
    @property
    def document(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Compared:
    """Two stored benchmarks; `before` is the older one, or the one that the user marked."""

    before: StoredRun
    after: StoredRun
    before_result: Result
    after_result: Result


def when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def heading(run: StoredRun) -> Content:
    return line((f"{_told(run.kind)} {run.id}", B), label("  "), short(_told(run.deployment), 40), label(f"  {when(run.at)}"))


def run_view(run: StoredRun, result: Result | None, width: int) -> Content:
    """Draw a run in full; `result` is the benchmark that its document holds."""
    if run.kind == "benchmark" and result is not None:
        body = _benchmark(result, width)
    elif run.kind == "smoke":
        body = [smoke_report(_smoke(run.document), width)]
    elif run.kind == "load":
        body = _load(run.document, width)
    else:
        body = [line(("▲ ", W), "this run can't be read: was it written by another version?")]
    return rows(heading(run), "", *body)


def _benchmark(result: Result, width: int) -> list[Content]:
    room = max(24, width)
    count = len(columns_of(result.points, result.plan, False))
    return [
        how(result.plan, result),
        *remarks(result, result.points, None),
        Content(""),
        *sweep(result.points, result.plan, None, False, room, 24 if count > 1 else 13, 0),
        *[line(label(f"· {note}")) for note in result.deviations],
    ]


def _smoke(document: Mapping[str, Any]) -> SmokeRun:
    results = []
    for result in document.get("results") or ():
        if isinstance(result, Mapping):
            outcome = result.get("outcome")
            results.append(
                SmokeResult(
                    name=_told(result.get("name")),
                    outcome=Outcome(outcome) if outcome in list(Outcome) else Outcome.INCONCLUSIVE,
                    says=_told(result.get("says")),
                    reply=_told(result.get("reply") or ""),
                    seconds=_number(result.get("seconds")),
                    asked=_told(result.get("asked") or ""),
                )
            )
    return SmokeRun(model=_told(document.get("model")), planned=len(results), results=tuple(results), finished=True)


def _load(document: Mapping[str, Any], width: int) -> list[Content]:
    failure = document.get("failure")
    told: list[tuple[str, str]] = [
        ("engine", " ".join(_told(word) for word in (document.get("engine"), document.get("version")) if word) or DASH),
        ("model", _told(document.get("model") or DASH)),
        ("ready after", clock(_number(document.get("total_s")))),
        ("KV cache", whole(_number(document.get("kv_tokens")), " tokens")),
    ]
    out = [line(label(fit(name, 14)), value) for name, value in told]
    if isinstance(failure, Mapping):
        served = _number(document.get("served_s"))
        if _number(document.get("total_s")) is None:
            failed_s = _number(document.get("failed_after_s"))
            when_words = f"  failed to start, in {_told(name_of(str(failure.get('phase'))))}"
            when_words += f", after {clock(failed_s)}" if failed_s is not None else ""
        else:
            when_words = "  died while serving" + (f", after {clock(served)}" if served is not None else "")
        out += [
            Content(""),
            line(("✗ ", BE), (_told(failure.get("kind")).replace("_", " "), B), label(when_words)),
            *[line("  ", part) for part in Content(_told(failure.get("cause"))).wrap(max(8, width - 2))],
        ]
    phases = [phase for phase in document.get("phases") or () if isinstance(phase, list | tuple) and len(phase) == 2]
    if phases:
        most = max((_number(seconds) or 0.0 for _, seconds in phases), default=0.0) or 1.0
        out.append(Content(""))
        for name, seconds in phases:
            value = _number(seconds)
            bar = "▆" * round((value or 0.0) / most * max(0, min(40, width - 24)))
            out.append(line(label(fit(_told(name_of(str(name))), 14)), f"{clock(value):>8}  ", (bar, "$primary 70%")))
    return out


def _told(value: object) -> str:
    """Clean a text of the record, which is a file that others may have written."""
    return clean(str(value))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def compared_view(compared: Compared, width: int) -> Content:
    """Draw point by point the figure after, the change from before with its sign, and whether that is for the better."""
    both = compared.before_result, compared.after_result
    out: list[Content | str] = [
        line(label("before  "), heading(compared.before)),
        line(label("after   "), heading(compared.after)),
        *[line(("▲ ", W), words) for words in differences(*both)],
        *[line(("▲ ", W), words) for words in left_out(*both).words],
        "",
    ]
    points = compare(*both)
    if not points:
        return rows(*out, line(("▲ ", W), "the two have no completed load in common"))
    shown = headlines(points)
    cell = 20
    side = max(7, *(len(point.name) for point in points)) + 2
    head = "streams" if all(point.rate is None for point in points) else "load"
    fits = max(1, min(len(shown), (width - side) // cell))
    for start in range(0, len(shown), fits):
        chosen = shown[start : start + fits]
        out.append(line(label(fit(head, side)), *((f"{metric.heading:>{cell}}", B) for metric in chosen)))
        for point in points:
            parts: list[Part] = [(f"{point.name:>{side - 2}}  ", B)]
            for metric in chosen:
                parts += _change(point.change(metric.key), cell)
            out.append(line(*parts))
        out.append("")
    out += (line(("✓", G), label(" better  "), ("▲", W), label(" worse")), line(label(LEGEND)))
    return rows(*out)


def _change(change: Change | None, cell: int) -> list[Part]:
    if change is None or change.after is None:
        return [(f"{DASH:>{cell}}", QUIET)]
    style = {True: G, False: W, None: QUIET}[change.better]
    mark = change.sign or " "
    if change.share is None:
        words = f"from {three(change.metric.shown(change.before))}" if change.before is not None else ""
    else:
        words = f"{'+' if change.share >= 0 else '−'}{abs(change.share) * 100:.0f} %"
    return [f"{three(change.metric.shown(change.after)):>{cell - 11}}", (f"{words:>9} {mark}", style)]


KINDS = {"benchmark": "bench"}
"""Kinds that go by a shorter name in the list."""
LEAST = 8
"""Cells of a text below which cutting it more tells nothing."""
NARROW = 100
YEAR = len("2026-")
"""What goes of the date on narrow screens, so that the result of a run has room; the run itself tells it."""


def columns(runs: Sequence[StoredRun], width: int) -> dict[str, int]:
    """Return the columns of the list and their widths, without the padding of a cell at both sides of each.

    The result of a run is shown whole as long as there is room; the deployment gives way, and is left out if there is only one.
    """
    several = len({run.deployment for run in runs}) > 1
    made = {
        "run": 2 + max(3, 0, *(len(str(run.id)) for run in runs)),
        "when": len(when(0.0)) - (YEAR if width < NARROW else 0),
        **({"deployment": 0} if several else {}),
        "kind": max(len("kind"), 0, *(cell_len(_kind(run)) for run in runs)),
        "what": 0,
    }
    room = width - sum(made.values()) - 2 * len(made) - 1  # a scroll bar
    wanted = max((cell_len(clean(run.title)) for run in runs), default=0)
    if several:
        longest = max(len("deployment"), *(cell_len(clean(run.deployment)) for run in runs))
        made["deployment"] = max(LEAST, min(longest, 40, room - min(wanted, room - LEAST)))
        room -= made["deployment"]
    return {**made, "what": max(LEAST, room)}


def _kind(run: StoredRun) -> str:
    return short(KINDS.get(run.kind, clean(run.kind)), 9)


class RunsPane(Vertical):
    """`opened` is shown in full, with `result` if it is a benchmark; `compared` takes its place when set.

    Enter opens; space marks a benchmark as the one to compare with; the screen's own keys call `compare` and `export`.
    """

    DEFAULT_CSS = """
    RunsPane {
        height: 1fr;
        & > DataTable {
            height: auto; max-height: 40%; background: $background; scrollbar-size: 1 1; overflow-x: hidden;
        }
        & > #run-open { height: 1fr; border-top: solid $rule; padding: 0 1; scrollbar-size: 0 1; }
        & > #run-open > Static { height: auto; }
        & > #runs-none { height: 1fr; padding: 1 1; display: none; }
        &.-empty > #runs-none { display: block; }
        &.-empty > DataTable, &.-empty > #run-open { display: none; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "mark", "mark", show=False)]

    runs: var[tuple[StoredRun, ...]] = var((), init=False)
    opened: var[StoredRun | None] = var(None, init=False)
    result: var[Result | None] = var(None, init=False)
    compared: var[Compared | None] = var(None, init=False)
    marked: var[int | None] = var(None, init=False)

    def compose(self) -> ComposeResult:
        table: DataTable[Text] = DataTable(cursor_type="row", zebra_stripes=False, header_height=1, cell_padding=1)
        yield table
        with VerticalScroll(id="run-open"):
            yield Static(markup=False)
        yield Static(id="runs-none", markup=False)

    @property
    def table(self) -> DataTable[Text]:
        return self.query_one(DataTable)

    def on_mount(self) -> None:
        empty = line(label("No runs are recorded yet. Finished loads, smoke runs and benchmarks appear here."))
        self.query_one("#runs-none", Static).update(empty)
        self._fill()
        self._show()

    def on_resize(self) -> None:
        self._fill()
        self._show()

    def focus_list(self) -> None:
        self.table.focus()

    # -- values --------------------------------------------------------------------------------------------------------------------

    def watch_runs(self) -> None:
        if self.is_mounted:
            self._fill()

    def watch_marked(self) -> None:
        if self.is_mounted:
            self._fill()

    def watch_opened(self) -> None:
        self._show(home=True)

    def watch_result(self) -> None:
        self._show(home=True)

    def watch_compared(self) -> None:
        self._show(home=True)

    def _fill(self) -> None:
        """Fill the rows by key, and keep the cursor on its run."""
        table, selected = self.table, self.selected
        wide = columns(self.runs, self.size.width)
        self.set_class(not self.runs, "-empty")
        table.clear(columns=True)
        for name, width in wide.items():
            table.add_column(Text("  run" if name == "run" else name), key=name, width=width)
        for run in self.runs:
            mark = "▸ " if run.id == self.marked else "  "
            cells = {
                "run": Text(f"{mark}{run.id}", "bold" if run.id == self.marked else ""),
                "when": Text(when(run.at)[-wide["when"] :]),
                "deployment": Text(middle(clean(run.deployment), wide.get("deployment", 0))),
                "kind": Text(_kind(run)),
                "what": Text(short(clean(run.title), wide["what"])),
            }
            table.add_row(*(cells[name] for name in wide), key=str(run.id))
        place = next((i for i, run in enumerate(self.runs) if selected is not None and run.id == selected.id), 0)
        if self.runs:
            table.cursor_coordinate = Coordinate(place, 0)

    def _show(self, *, home: bool = False) -> None:
        if not self.is_mounted:
            return
        scroll = self.query_one("#run-open", VerticalScroll)
        width = max(24, self.size.width - 3)
        if self.compared is not None:
            content = compared_view(self.compared, width)
        elif self.opened is not None:
            content = run_view(self.opened, self.result, width)
        else:
            compare, report = key_of(self, "compare"), key_of(self, "export")
            marked = (("space", "marks one, "), (compare, "compares with it   "))
            keys = (("enter", "opens a run   "), *marked, (report, "writes a report"))
            content = line(*(part for key, does in keys for part in ((key, BP), label(f" {does}"))))
        scroll.query_one(Static).update(content)
        if home:
            scroll.scroll_home(animate=False)

    # -- what the user wants -------------------------------------------------------------------------------------------------------

    @property
    def selected(self) -> StoredRun | None:
        """Return the run under the cursor."""
        row = self.table.cursor_row
        keys = list(self.table.rows)
        key = keys[row].value if 0 <= row < len(keys) else None
        return next((run for run in self.runs if str(run.id) == key), None)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        if event.row_key.value is not None:
            self.post_message(RunOpened(event.row_key.value))

    def action_mark(self) -> None:
        run = self.selected
        if run is None or run.kind != "benchmark":
            self.notify("Only benchmarks can be compared.", markup=False)
            return
        self.marked = None if self.marked == run.id else run.id

    def compare(self) -> None:
        """Ask for the selected benchmark beside the marked one; without a mark, beside the one before it."""
        run = self.selected
        if run is None or run.kind != "benchmark":
            self.notify("Select a benchmark to compare.", markup=False)
            return
        other = self.marked if self.marked is not None and self.marked != run.id else None
        self.post_message(CompareRequested(str(run.id), None if other is None else str(other)))

    def export(self) -> None:
        """Ask for a report of the selected run."""
        run = self.selected
        if run is not None:
            self.post_message(ReportRequested(str(run.id)))

    def note(self) -> Content | None:
        """Return for the pane's border how many runs there are, and which one is marked."""
        if not self.runs:
            return None
        marked = line(label(", compare with "), (str(self.marked), B)) if self.marked is not None else Content("")
        return line((f"{len(self.runs):,}", B), label(" run" if len(self.runs) == 1 else " runs"), marked)
