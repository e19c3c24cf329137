"""What the control room has the model do: replies, smoke runs, benchmarks. Services do the work; the screen gets each new value."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from textual import on, work
from textual.app import App
from textual.worker import Worker, WorkerError

from tui import __version__
from tui.core.api_status import Reach
from tui.core.presentation import clock, counted
from tui.messages import (
    BenchmarkRequested,
    BenchmarkStopped,
    ConversationCleared,
    GenerationStopped,
    PromptSubmitted,
    SmokeRequested,
    SmokeStopped,
    SystemPromptChanged,
)
from tui.screens.main_screen import MainScreen
from tui.settings import Settings

if TYPE_CHECKING:
    from tui.core.bench_result import Plan, Result
    from tui.core.conversation import Turn
    from tui.record.store import RunStore
    from tui.services.bench_run import Benchmarks
    from tui.services.deployment_watch import Session


KEEPING_S = 8.0
"""So long leaving waits for a benchmark that was stopped: its last frame comes through the connection."""


class ModelWork(App[str | None], inherit_bindings=False):
    """One reply, one smoke run and one benchmark at a time. Leaving the app ends each of them, on the server too."""

    main: MainScreen
    session: "Session"
    settings: Settings
    record: "RunStore | None"
    _reply: "Worker[None] | None" = None
    _smoke: "Worker[None] | None" = None
    _benchmarks: "Benchmarks | None" = None
    """The benchmarks that run now, to stop them."""
    _measuring: "Worker[None] | None" = None
    _benchmark_asked: bool = False
    """From the key until the benchmark has ended, or was not begun."""

    def model(self) -> str | None:
        """The model to ask, as requests name it: the configured one, else the first that the server lists."""
        return self.session.state.api.asked(self.session.deployment.model)

    def complain(self, what: str) -> None:
        """Say that something asked for could not be done, in the words of who refused."""
        self.notify(what, severity="warning", markup=False, timeout=8)

    async def keep(self, what: str, save: "Callable[[RunStore], object]") -> None:
        """Has a run kept in the record, in a thread: it may wait for another process that writes. Says so where that fails."""
        if self.record is None:
            return
        from tui.record.store import RecordError

        try:
            await asyncio.to_thread(save, self.record)
        except RecordError as error:
            self.complain(f"{what} is not in the record: {error}")

    # -- chat ----------------------------------------------------------------------------------------------------------------------

    @on(PromptSubmitted)
    def _submitted(self, submitted: PromptSubmitted) -> None:
        model = self.model()
        if self.main.streaming or model is None:
            return
        self._reply = self._converse(submitted.text, model)

    @work(group="chat")
    async def _converse(self, asked: str, model: str) -> None:
        from tui.services.chat_turn import converse

        main, before = self.main, self.main.conversation
        main.streaming = True
        turn: Turn | None = None
        try:
            async with aclosing(converse(self.session.api, before, asked, model=model)) as turns:
                async for turn in turns:
                    main.conversation = replace(main.conversation, turns=(*before.turns, turn))
        except asyncio.CancelledError:
            # stopped by the user; a conversation begun anew meanwhile stays new
            if turn is not None and turn.streaming and self.is_running and main.conversation.turns[-1:] == (turn,):
                main.conversation = replace(main.conversation, turns=(*before.turns, turn.stopped()))
            raise
        finally:
            if self.is_running:
                main.streaming = False

    @on(GenerationStopped)
    def _stop_reply(self) -> None:
        if self._reply is not None:
            self._reply.cancel()

    @on(ConversationCleared)
    def _clear(self) -> None:
        self._stop_reply()
        self.main.conversation = replace(self.main.conversation, turns=())

    @on(SystemPromptChanged)
    def _system(self, changed: SystemPromptChanged) -> None:
        self.main.conversation = replace(self.main.conversation, system=changed.text)

    # -- smoke ---------------------------------------------------------------------------------------------------------------------

    @on(SmokeRequested)
    def _smoke_requested(self) -> None:
        model = self.model()
        if not self.main.smoking and model is not None:
            self._smoke = self._run_smoke(model)

    @work(group="smoke")
    async def _run_smoke(self, model: str) -> None:
        from tui.host.api import ApiError
        from tui.services.smoke_run import run_smoke

        main, name = self.main, self.session.name
        main.smoking = True
        try:
            async with aclosing(run_smoke(self.session.api, model=model, settings=self.settings.smoke)) as runs:
                async for run in runs:
                    main.smoke = run
        except ApiError as error:
            self.complain(f"The smoke prompts could not be asked: {error}")
        else:
            if (done := main.smoke) is not None:
                await self.keep("This smoke run", lambda record: record.save_smoke(name, done))
        finally:
            if self.is_running:
                main.smoking = False

    @on(SmokeStopped)
    def _stop_smoke(self) -> None:
        if self._smoke is not None:
            self._smoke.cancel()

    # -- benchmarks ----------------------------------------------------------------------------------------------------------------

    def plan(self, kind: str) -> "Plan":
        """The plan of a key: single stream, or a sweep up to the configured top."""
        from tui.core.bench_plan import single_stream, sweep

        bench, model = self.settings.bench, self.model()
        if kind == "single":
            return single_stream(
                requests=bench.single_requests,
                min_seconds=bench.min_seconds,
                input_tokens=bench.input_tokens,
                output_tokens=bench.output_tokens,
                endpoint=bench.endpoint,
                model=model,
            )
        return sweep(
            bench.sweep_top,
            min_seconds=bench.min_seconds,
            input_tokens=bench.input_tokens,
            output_tokens=bench.output_tokens,
            endpoint=bench.endpoint,
            model=model,
        )

    @on(BenchmarkRequested)
    def _benchmark_requested(self, asked: BenchmarkRequested) -> None:
        if not self.session.deployment.allow_bench:
            self.complain("Benchmarks are switched off for this deployment (allow_bench = false).")
        elif not self._benchmark_asked:
            self._benchmark_asked = True
            self._measuring = self._run_benchmark(asked.kind)

    @work(group="bench")
    async def _run_benchmark(self, kind: str) -> None:
        try:
            main, session, plan = self.main, self.session, self.plan(kind)
            if await self._may_begin(main, session, plan):
                await self._measure(main, session, plan)
        finally:
            self._benchmark_asked = False

    async def _may_begin(self, main: MainScreen, session: "Session", plan: "Plan") -> bool:
        """Asks first where the server works for others, or doesn't say. False also where another deployment was gone to since."""
        status = await session.api.poll()  # the watch's last poll may still count what has just ended
        counts = (status.metrics.running, status.metrics.waiting) if status.metrics is not None else ()
        known = [count for count in counts if count is not None]
        others = round(sum(known)) - main.streaming - main.smoking
        # of one that isn't reached the benchmark will say what is wrong
        unsaid = not known and status.reach is Reach.UP
        if self.main is not main or not (others > 0 or unsaid):
            return self.main is main
        from tui.core.bench_plan import estimate
        from tui.screens.dialogs import ConfirmDialog

        cost = estimate(plan)
        takes = f"It takes about {clock(cost.seconds)} and {cost.tokens:,} tokens."
        if unsaid:
            title = "Is the server busy?"
            question = f"The server does not say whether it works for others now: a benchmark would slow them down. {takes}"
        else:
            title = "The server is busy"
            whose = f"{counted(others, 'request')} of others"
            question = f"The server works on {whose} now. A benchmark slows them down, and they distort it. {takes}"
        return await self.push_screen_wait(ConfirmDialog(title, question, "benchmark anyway"))

    async def _measure(self, main: MainScreen, session: "Session", plan: "Plan") -> None:
        from tui.core.bench_result import BenchProgress, Point, Result
        from tui.host.base import HostError
        from tui.host.open import open_host
        from tui.services.bench_run import BenchmarkRefused, BenchmarkRunning, Benchmarks

        main.begin_benchmark(plan)
        try:
            # made anew for each run: the server may have been found at another address meanwhile
            self._benchmarks = Benchmarks.of_session(session, lambda: open_host("local"), __version__)
            async with aclosing(self._benchmarks.run(plan)) as news:
                async for item in news:
                    match item:
                        case BenchProgress():
                            main.progress = item
                        case Point():
                            main.points = (*main.points, item)
                        case Result():
                            main.result = item
                            await self.keep("This benchmark", partial(_save_benchmark, session.name, item))
        except (BenchmarkRefused, HostError) as error:
            main.bench_problem = f"{error.cause}. {error.advice}".strip(". ") + "."
        except (BenchmarkRunning, ValueError, OSError) as error:
            main.bench_problem = str(error)
        finally:
            self._benchmarks = None
            if self.is_running:
                main.end_benchmark()

    @on(BenchmarkStopped)
    async def _stop_benchmark(self) -> None:
        if self._benchmarks is not None:
            await self._benchmarks.stop()

    async def end_benchmark(self) -> None:
        """Stops the benchmark that runs, and waits until what it has is kept, for a while."""
        await self._stop_benchmark()
        if self._measuring is not None:
            with suppress(TimeoutError, WorkerError):
                async with asyncio.timeout(KEEPING_S):
                    await self._measuring.wait()


def _save_benchmark(deployment: str, result: "Result", record: "RunStore") -> None:
    record.save_benchmark(deployment, result)
