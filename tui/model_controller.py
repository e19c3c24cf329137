"""What the control room has the model do: replies, smoke runs, benchmarks. Services do the work; the screen gets each new value."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from textual.message import Message
from textual.worker import Worker, WorkerError

from tui import __version__
from tui.core.api_status import Reach
from tui.core.presentation import clock, counted
from tui.fleet_controller import FleetController
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
from tui.screens.room_app import RoomApp
from tui.settings import Settings

if TYPE_CHECKING:
    from tui.core.bench_result import Plan, Result
    from tui.core.conversation import Turn
    from tui.record.store import RunStore
    from tui.services.bench_run import Benchmarks
    from tui.services.deployment_watch import Session


KEEPING_S = 8.0
"""So long leaving waits for a benchmark that was stopped: its last frame comes through the connection."""


class ModelController:
    """One reply, one smoke run and one benchmark at a time. Leaving the app ends each of them, on the server too."""

    def __init__(self, app: RoomApp, open: FleetController, settings: Settings, record: "RunStore | None") -> None:
        self._app = app
        self._open = open
        self._settings = settings
        self._record = record
        self._reply: Worker[None] | None = None
        self._smoke: Worker[None] | None = None
        self._benchmarks: Benchmarks | None = None
        """The benchmarks that run now, to stop them."""
        self._measuring: Worker[None] | None = None
        self._benchmark_asked = False
        """From the key until the benchmark has ended, or was not begun."""

    async def take(self, request: Message) -> None:
        """Do what a screen asks for, if the model is to do it."""
        main, model = self._open.main, self.model()
        match request:
            case PromptSubmitted() if model is not None and not main.streaming:
                self._reply = self._app.start(partial(self._converse, request.text, model), "chat")
            case GenerationStopped():
                self._stop_reply()
            case ConversationCleared():
                self._stop_reply()
                main.conversation = replace(main.conversation, turns=())
            case SystemPromptChanged():
                main.conversation = replace(main.conversation, system=request.text)
            case SmokeRequested() if model is not None and not main.smoking:
                self._smoke = self._app.start(partial(self._run_smoke, model), "smoke")
            case SmokeStopped() if self._smoke is not None:
                self._smoke.cancel()
            case BenchmarkRequested() if not self._open.session.deployment.allow_bench:
                self._app.complain("Benchmarks are switched off for this deployment (allow_bench = false).")
            case BenchmarkRequested() if not self._benchmark_asked:
                self._benchmark_asked = True
                self._measuring = self._app.start(partial(self._run_benchmark, request.kind), "bench")
            case BenchmarkStopped():
                await self._stop_benchmark()

    def model(self) -> str | None:
        """Return the model to ask, as requests name it: the configured one, else the first that the server lists."""
        return self._open.session.state.api.asked(self._open.session.deployment.model)

    async def _keep(self, what: str, save: "Callable[[RunStore], object]") -> None:
        """Keep a run in the record, in a thread: it may wait for another process that writes. Say so if that fails."""
        if self._record is None:
            return
        from tui.record.store import RecordError

        try:
            await asyncio.to_thread(save, self._record)
        except RecordError as error:
            self._app.complain(f"{what} is not in the record: {error}")

    # -- chat ----------------------------------------------------------------------------------------------------------------------

    async def _converse(self, asked: str, model: str) -> None:
        from tui.services.chat_turn import converse

        main, before = self._open.main, self._open.main.conversation
        main.streaming = True
        turn: Turn | None = None
        try:
            async with aclosing(converse(self._open.session.api, before, asked, model=model)) as turns:
                async for turn in turns:
                    main.conversation = replace(main.conversation, turns=(*before.turns, turn))
        except asyncio.CancelledError:
            # stopped by the user; a conversation begun anew meanwhile stays new
            if turn is not None and turn.streaming and self._app.is_running and main.conversation.turns[-1:] == (turn,):
                main.conversation = replace(main.conversation, turns=(*before.turns, turn.stopped()))
            raise
        finally:
            if self._app.is_running:
                main.streaming = False

    def _stop_reply(self) -> None:
        if self._reply is not None:
            self._reply.cancel()

    # -- smoke ---------------------------------------------------------------------------------------------------------------------

    async def _run_smoke(self, model: str) -> None:
        from tui.host.api import ApiError
        from tui.services.smoke_run import run_smoke

        main, name = self._open.main, self._open.session.name
        main.smoking = True
        try:
            async with aclosing(run_smoke(self._open.session.api, model=model, settings=self._settings.smoke)) as runs:
                async for run in runs:
                    main.smoke = run
        except ApiError as error:
            self._app.complain(f"The smoke prompts could not be sent: {error}")
        else:
            if (done := main.smoke) is not None:
                await self._keep("This smoke run", lambda record: record.save_smoke(name, done))
        finally:
            if self._app.is_running:
                main.smoking = False

    # -- benchmarks ----------------------------------------------------------------------------------------------------------------

    def plan(self, kind: str) -> "Plan":
        """Return the plan of a key: single stream, or a sweep up to the configured top."""
        from tui.core.bench_plan import single_stream, sweep

        bench, model = self._settings.bench, self.model()
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

    async def _run_benchmark(self, kind: str) -> None:
        try:
            main, session, plan = self._open.main, self._open.session, self.plan(kind)
            if await self._may_begin(main, session, plan):
                await self._measure(main, session, plan)
        finally:
            self._benchmark_asked = False

    async def _may_begin(self, main: MainScreen, session: "Session", plan: "Plan") -> bool:
        """Ask first if the server works for others, or doesn't say. Return False also if another deployment was gone to since."""
        status = await session.api.poll()  # the watch's last poll may still count what has just ended
        counts = (status.metrics.running, status.metrics.waiting) if status.metrics is not None else ()
        known = [count for count in counts if count is not None]
        others = round(sum(known)) - main.streaming - main.smoking
        # of one that isn't reached the benchmark will say what is wrong
        unsaid = not known and status.reach is Reach.UP
        if self._open.main is not main or not (others > 0 or unsaid):
            return self._open.main is main
        from tui.core.bench_plan import estimate
        from tui.screens.dialogs import ConfirmDialog

        cost = estimate(plan)
        takes = f"It takes about {clock(cost.seconds)} and {cost.tokens:,} tokens."
        if unsaid:
            title = "Is the server busy?"
            question = f"The server does not say whether it is serving others: a benchmark would slow them down. {takes}"
        else:
            title = "The server is busy"
            whose = f"{counted(others, 'request')} from others"
            question = f"The server is serving {whose}. A benchmark slows them down, and they distort its results. {takes}"
        return await self._app.push_screen_wait(ConfirmDialog(title, question, "benchmark anyway"))

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
                            await self._keep("This benchmark", partial(_save_benchmark, session.name, item))
        except (BenchmarkRefused, HostError) as error:
            main.bench_problem = f"{error.cause}. {error.advice}".strip(". ") + "."
        except (BenchmarkRunning, ValueError, OSError) as error:
            main.bench_problem = str(error)
        finally:
            self._benchmarks = None
            if self._app.is_running:
                main.end_benchmark()

    async def _stop_benchmark(self) -> None:
        if self._benchmarks is not None:
            await self._benchmarks.stop()

    async def end_benchmark(self) -> None:
        """Stop the benchmark that runs, and wait until what it has is kept, for a while."""
        await self._stop_benchmark()
        if self._measuring is not None:
            with suppress(TimeoutError, WorkerError):
                async with asyncio.timeout(KEEPING_S):
                    await self._measuring.wait()


def _save_benchmark(deployment: str, result: "Result", record: "RunStore") -> None:
    record.save_benchmark(deployment, result)
