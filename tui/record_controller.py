"""What the control room does with the record: list, open, compare, write reports."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual.message import Message

from tui.fleet_controller import FleetController
from tui.messages import CompareRequested, ReportRequested, RunOpened, RunsShown
from tui.screens.room_app import RoomApp

if TYPE_CHECKING:
    from tui.core.bench_result import Result
    from tui.record.store import Run, RunStore


class RecordController:
    """Reads take milliseconds, but may wait for another process that writes: they happen in threads."""

    def __init__(self, app: RoomApp, open: FleetController, record: "RunStore") -> None:
        self._app = app
        self._open = open
        self._record = record

    async def take(self, request: Message) -> None:
        """Do what a screen asks for, if it is about the record."""
        match request:
            case RunsShown():
                self._app.start(self._list, "list the record", exclusive=True)
            case RunOpened():
                self._app.start(partial(self._show, request.run), "open a run", exclusive=True)
            case CompareRequested():
                self._app.start(partial(self._compare, request), "open a run", exclusive=True)
            case ReportRequested():
                self._app.start(partial(self._report, request.run), "report")

    async def _list(self) -> None:
        main = self._open.main
        with self._complaints():
            main.runs = await asyncio.to_thread(self._record.runs)
            if self._record.problem:
                self._app.complain(self._record.problem)

    @contextmanager
    def _complaints(self) -> Iterator[None]:
        """Show what the record can't do just now, and go on without it."""
        from tui.record.store import RecordError

        try:
            yield
        except RecordError as error:
            self._app.complain(str(error))

    async def _found(self, id: str) -> "Run | None":
        run = await asyncio.to_thread(self._record.run, int(id)) if id.isdigit() else None
        if run is None:
            self._app.complain(f"There is no run {id} in the record.")
        return run

    async def _show(self, id: str) -> None:
        main = self._open.main
        with self._complaints():
            if (run := await self._found(id)) is not None:
                main.compared = None
                main.opened_result = self._benchmark(run)
                main.opened = run

    async def _compare(self, asked: CompareRequested) -> None:
        record, main = self._record, self._open.main
        with self._complaints():
            after = await (self._newest() if asked.first is None else self._found(asked.first))
            if after is None:
                return
            if asked.second is not None:
                before = await self._found(asked.second)
            else:
                benchmarks = await asyncio.to_thread(lambda: record.runs(kind="benchmark"))
                earlier = [run for run in benchmarks if run.id < after.id]
                earlier = [run for run in earlier if run.deployment == after.deployment] or earlier
                alike = [run for run in earlier if run.title.split(" ")[0] == after.title.split(" ")[0]]
                before = next(iter(alike or earlier), None)
                if before is None:
                    self._app.complain("There is no earlier benchmark to compare with.")
            if before is None:
                return
            one, two = self._benchmark(before), self._benchmark(after)
            if one is not None and two is not None:
                from tui.widgets.runs_pane import Compared

                main.compared = Compared(before, after, one, two)

    async def _newest(self) -> "Run | None":
        """Return the newest benchmark of the deployment on the screen; if there is none, say so and return None."""
        record, name = self._record, self._open.session.name
        runs = await asyncio.to_thread(lambda: record.runs(kind="benchmark", deployment=name, limit=1))
        if not runs:
            self._app.complain(f"The record has no benchmark of {name} to compare: one that measured nothing is not kept.")
        return next(iter(runs), None)

    async def _report(self, id: str | None) -> None:
        session = self._open.session
        from tui.record.markdown import write_report

        with self._complaints():
            if id is None and session.recorded_load is None:
                self._app.complain("This load is not in the record yet: it is kept when it ends.")
                return
            run = await self._found(id if id is not None else str(session.recorded_load))
            if run is None:
                return
            when = time.strftime("%Y%m%d-%H%M", time.localtime(run.at))
            try:
                path = await asyncio.to_thread(write_report, run, Path.cwd() / f"readyroom-{run.kind}-{run.id}-{when}.md")
            except OSError as error:
                self._app.complain(f"The report could not be written: {error}")
            else:
                self._app.notify(f"Report written to {path}", markup=False)

    def _benchmark(self, run: "Run") -> "Result | None":
        """Return the benchmark in a run, or None if it holds none. Raises RecordError if it can't be read."""
        if run.kind != "benchmark":
            return None
        from tui.record.store import benchmark_of

        return benchmark_of(run)
