"""What the control room does with the record: list, open, compare, write reports."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from textual import on, work
from textual.app import App

from tui.messages import CompareRequested, ReportRequested, RunOpened, RunsShown
from tui.screens.main_screen import MainScreen

if TYPE_CHECKING:
    from tui.core.bench_result import Result
    from tui.record.store import Run, RunStore
    from tui.services.deployment_watch import Session


class RecordWork(App[str | None], inherit_bindings=False):
    """Reads are milliseconds, but may wait for another process that writes: they happen in threads."""

    main: MainScreen
    session: "Session"
    record: "RunStore | None"

    def complain(self, what: str) -> None:
        """Say that something asked for could not be done."""
        self.notify(what, severity="warning", markup=False, timeout=8)

    @on(RunsShown)
    @work(group="list the record", exclusive=True)
    async def _list(self) -> None:
        record, main = self.record, self.main
        if record is None:
            return
        with self._complaints():
            main.runs = await asyncio.to_thread(record.runs)
            if record.problem:
                self.complain(record.problem)

    @contextmanager
    def _complaints(self) -> Iterator[None]:
        """Says what the record can't do just now, and goes on without it."""
        from tui.record.store import RecordError

        try:
            yield
        except RecordError as error:
            self.complain(str(error))

    async def _found(self, record: "RunStore", id: str) -> "Run | None":
        run = await asyncio.to_thread(record.run, int(id)) if id.isdigit() else None
        if run is None:
            self.complain(f"There is no run {id} in the record.")
        return run

    @on(RunOpened)
    @work(group="open a run", exclusive=True)
    async def _open(self, opened: RunOpened) -> None:
        record, main = self.record, self.main
        if record is None:
            return
        with self._complaints():
            if (run := await self._found(record, opened.run)) is not None:
                main.compared = None
                main.opened_result = self._benchmark(run)
                main.opened = run

    @on(CompareRequested)
    @work(group="open a run", exclusive=True)
    async def _compare(self, asked: CompareRequested) -> None:
        record, main = self.record, self.main
        if record is None:
            return
        with self._complaints():
            after = await self._found(record, asked.first)
            if after is None:
                return
            if asked.second is not None:
                before = await self._found(record, asked.second)
            else:
                benchmarks = await asyncio.to_thread(lambda: record.runs(kind="benchmark"))
                earlier = [run for run in benchmarks if run.id < after.id]
                alike = [run for run in earlier if run.title.split(" ")[0] == after.title.split(" ")[0]]
                before = next(iter(alike or earlier), None)
                if before is None:
                    self.complain("There is no earlier benchmark to compare with.")
            if before is None:
                return
            one, two = self._benchmark(before), self._benchmark(after)
            if one is not None and two is not None:
                from tui.widgets.runs_pane import Compared

                main.compared = Compared(before, after, one, two)

    @on(ReportRequested)
    @work(group="report")
    async def _report(self, asked: ReportRequested) -> None:
        record, name = self.record, self.session.name
        if record is None:
            return
        from tui.record.markdown import write_report

        with self._complaints():
            if asked.run is not None:
                run = await self._found(record, asked.run)
            else:
                loads = await asyncio.to_thread(lambda: record.runs(kind="load", deployment=name, limit=1))
                run = next(iter(loads), None)
                if run is None:
                    self.complain("This load is not in the record yet: it is kept when it ends.")
            if run is None:
                return
            when = time.strftime("%Y%m%d-%H%M", time.localtime(run.at))
            try:
                path = await asyncio.to_thread(write_report, run, Path.cwd() / f"readyroom-{run.kind}-{run.id}-{when}.md")
            except OSError as error:
                self.complain(f"The report could not be written: {error}")
            else:
                self.notify(f"Report written to {path}", markup=False)

    def _benchmark(self, run: "Run") -> "Result | None":
        """The benchmark in a run; None where it is none. Raises RecordError where it can't be read."""
        if run.kind != "benchmark":
            return None
        from tui.record.store import benchmark_of

        return benchmark_of(run)
