"""The record: what was run, newest first, and below it the run that is open, or two side by side."""

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.coordinate import Coordinate
from textual.reactive import var
from textual.widgets import DataTable, Static

from tui.core.benchmark import Result
from tui.core.text import clean
from tui.messages import CompareRequested, ReportRequested, RunOpened
from tui.widgets.figures import BP, B, label, line, middle, short
from tui.widgets.key_bar import key_of
from tui.widgets.runs_view import Compared, StoredRun, compared_view, run_view, when

KINDS = {"benchmark": "bench"}
"""Kinds that go by a shorter name in the list."""
LEAST = 8
"""Cells of a text below which cutting it more tells nothing."""
NARROW = 100
YEAR = len("2026-")
"""What goes of the date on narrow screens, so that the result of a run has room; the run itself tells it."""


def columns(runs: Sequence[StoredRun], width: int) -> dict[str, int]:
    """The columns of the list and how wide they are, without the padding of a cell at both sides of each.

    What came of a run is told whole as long as there is room. Which deployment it was of gives way, and is left out where there is
    only one.
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
    """`opened` is shown in full, with `result` where it is a benchmark; `compared` takes its place when set.

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
        empty = line(label("No runs are kept yet. Loads that end, smoke runs and benchmarks are recorded here."))
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
        """Rows by key, the cursor on the run where it was."""
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
        """The run under the cursor."""
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
        """Asks for the selected benchmark beside the marked one; without a mark, beside the one before it."""
        run = self.selected
        if run is None or run.kind != "benchmark":
            self.notify("Select a benchmark to compare.", markup=False)
            return
        other = self.marked if self.marked is not None and self.marked != run.id else None
        self.post_message(CompareRequested(str(run.id), None if other is None else str(other)))

    def export(self) -> None:
        """Asks for a report of the selected run."""
        run = self.selected
        if run is not None:
            self.post_message(ReportRequested(str(run.id)))

    def note(self) -> Content | None:
        """For the pane's border: how many runs there are, and which one is marked."""
        if not self.runs:
            return None
        marked = line(label(", compare with "), (str(self.marked), B)) if self.marked is not None else Content("")
        return line((f"{len(self.runs):,}", B), label(" run" if len(self.runs) == 1 else " runs"), marked)
