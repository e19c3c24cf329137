"""What the control room does with the record: list, open, compare, write reports."""

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

from textual import on, work
from textual.app import App

from tui.messages import CompareRequested, ReportRequested, RunOpened, RunsShown
from tui.screens.main import MainScreen

if TYPE_CHECKING:
    from tui.core.benchmark import Result
    from tui.record.store import Record, Run
    from tui.services.session import Session


class RecordWork(App[str | None], inherit_bindings=False):
    """Reads are milliseconds, but of a file: they happen in a thread all the same."""

    main: MainScreen
    session: "Session"
    record: "Record | None"

    def complain(self, what: str) -> None:
        """Say that something asked for could not be done."""
        self.notify(what, severity="warning", markup=False, timeout=8)

    @on(RunsShown)
    @work(group="record", exclusive=True)
    async def _list(self) -> None:
        if self.record is None:
            return
        self.main.runs = self.record.runs()
        if self.record.problem:
            self.complain(self.record.problem)

    def _found(self, id: str) -> "Run | None":
        run = self.record.run(int(id)) if self.record is not None and id.isdigit() else None
        if run is None:
            self.complain(f"There is no run {id} in the record.")
        return run

    @on(RunOpened)
    def _open(self, opened: RunOpened) -> None:
        if (run := self._found(opened.run)) is not None:
            self.main.compared = None
            self.main.opened_result = self._benchmark(run)
            self.main.opened = run

    @on(CompareRequested)
    def _compare(self, asked: CompareRequested) -> None:
        after = self._found(asked.first)
        if after is None or self.record is None:
            return
        if asked.second is not None:
            before = self._found(asked.second)
        else:
            earlier = [run for run in self.record.runs(kind="benchmark") if run.id < after.id]
            alike = [run for run in earlier if run.title.split(" ")[0] == after.title.split(" ")[0]]
            before = next(iter(alike or earlier), None)
            if before is None:
                self.complain("There is no earlier benchmark to compare with.")
        if before is None:
            return
        one, two = self._benchmark(before), self._benchmark(after)
        if one is not None and two is not None:
            from tui.widgets.runs_view import Compared

            self.main.compared = Compared(before, after, one, two)

    @on(ReportRequested)
    @work(group="record")
    async def _report(self, asked: ReportRequested) -> None:
        if self.record is None:
            return
        from tui.record.report import markdown

        loads = self.record.runs(kind="load", deployment=self.session.name, limit=1)
        run = self._found(asked.run) if asked.run is not None else next(iter(loads), None)
        if run is None:
            if asked.run is None:
                self.complain("This load is not in the record yet: it is kept when it ends.")
            return
        path = Path.cwd() / f"readyroom-{run.kind}-{run.id}-{time.strftime('%Y%m%d-%H%M', time.localtime(run.at))}.md"
        try:
            await asyncio.to_thread(path.write_text, markdown(run), "utf-8")
        except OSError as error:
            self.complain(f"The report could not be written: {error}")
        else:
            self.notify(f"Report written to {path}", markup=False)

    def _benchmark(self, run: "Run") -> "Result | None":
        """The benchmark in a run; None where it is none, or can't be read (which is said)."""
        if run.kind != "benchmark":
            return None
        from tui.record.store import RecordError, benchmark_of

        try:
            return benchmark_of(run)
        except RecordError as error:
            self.complain(str(error))
            return None
