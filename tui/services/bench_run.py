"""Runs benchmarks: chooses where the load comes from, measures point after point, keeps what was found.

The load generator is a process of its own (on the GPU host by default), so neither the screen nor the connection disturbs its
figures; what arrives here are progress four times a second and a summary a point. Leaving the iteration, or `stop`, ends every
request at once.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from tui.aio import ended
from tui.core.bench_documents import against, base_deviations, notes_of, recorded
from tui.core.bench_knee import knee_of
from tui.core.bench_plan import LONGEST, LONGEST_MARGIN, LONGEST_OUTPUT, Step, steps_of
from tui.core.bench_result import REFUSED, STOPPED_BY_USER, Plan, Point, Progress, Result, Vantage
from tui.core.bench_server import series, serving
from tui.core.bench_soak import engine_gpus
from tui.core.gpu import GpuSample
from tui.core.presentation import counted
from tui.core.text import clean, hide, secrets_in
from tui.host.base import Host, HostError, NotPermitted, ProbeFailed
from tui.services.bench_generator import MEASURED, BenchmarkRefused, Generator, LoadSource, Measured, Server, point_of, progress_of
from tui.services.bench_gpus import Drawn, GpuWatch
from tui.services.bench_results import BenchmarkRunning, Results
from tui.services.deployment_watch import Session
from tui.wire.summary import ARRAYS, PLAIN_ARRAYS
from tui.wire.urls import authorized, secrets_of

__all__ = ["BenchmarkRefused", "BenchmarkRunning", "Benchmarks", "Server"]


WAITING_S = 1.0
"""How often it is said that the server has yet to answer at all."""
REFUSAL_LIMIT = 500
"""Characters of a server's refusal."""


class Benchmarks:
    """The benchmarks of one server. `running` says whether one runs; a second `run` raises BenchmarkRunning."""

    def __init__(
        self,
        name: str,
        server: Server,
        *,
        host: Host | None,
        open_local: Callable[[], Host],
        direct: bool = False,
        gpus: Callable[[], GpuSample | None] = lambda: None,
        wanted_gpus: str = "all",
        expected_tokens_s: float | None = None,
        batched_tokens: Callable[[], int | None] = lambda: None,
        state: Path | None = None,
        version: str = "",
    ) -> None:
        """`server.url` is as seen from `host`; with `direct`, or without a host, as seen from here. `open_local` makes this machine
        as a host, disconnected. `gpus` gives a sample of the engine's GPUs where the host's can't be sampled for the benchmark
        itself; `wanted_gpus` are the engine's, as configured. A single stream below `expected_tokens_s` is warned
        of; `batched_tokens` gives the most tokens that the engine takes into one step, where that is known. Results are kept below
        `state`, by default the state directory of XDG."""
        self._server = server
        self._host = host
        self._open_local = open_local
        self._direct = direct or host is None
        self._gpus = gpus
        self._wanted_gpus = wanted_gpus
        self._expected_tokens_s = expected_tokens_s
        self._batched_tokens = batched_tokens
        self._watch: GpuWatch | None = None
        self._results = Results(state, name)
        self._version = version
        self._running = False
        self._stopping = False
        self._waits_for = ""
        """What the source of the load waits for before it begins, in words."""
        self._generator: LoadSource | None = None
        self._starting: asyncio.Task[LoadSource] | None = None

    @classmethod
    def of_session(cls, session: Session, open_local: Callable[[], Host], version: str = "") -> "Benchmarks":
        """The benchmarks of a deployment: its API, its key, its GPUs."""
        deployment = session.deployment
        headers = authorized(deployment.api, session.api_key, deployment.headers)
        return cls(
            session.name,
            Server(deployment.api, headers, deployment.ca_file, deployment.model),
            host=session.host,
            open_local=open_local,
            direct=deployment.direct,
            gpus=lambda: _of_engine(session),
            wanted_gpus=deployment.engines[0].gpus,
            expected_tokens_s=deployment.expect.tokens_per_s,
            batched_tokens=lambda: session.batched_tokens,
            version=version,
        )

    @property
    def running(self) -> bool:
        return self._running

    async def stop(self) -> None:
        """Ends every request now. The benchmark comes to its end with what it has; nothing happens when none runs."""
        if self._running and not self._stopping:
            self._stopping = True
            if self._starting is not None:
                self._starting.cancel()
            if self._generator is not None:
                with contextlib.suppress(HostError):
                    await self._generator.stop()

    async def run(
        self,
        plan: Plan,
        prompts: Sequence[dict[str, Any]] | None = None,
        consent: Callable[[int | None], Awaitable[None]] | None = None,
    ) -> AsyncGenerator[Progress | Point | Result]:
        """Measures: Progress several times a second, a Point after each one, the Result last.

        `prompts` are given ones (`{"prompt"}` or `{"messages"}`, with `output_tokens` perhaps) instead of made ones. `consent` is
        called before anything is measured, with the requests that run or wait in the server as the source of the load sees it, None
        where it doesn't say; Progress goes on meanwhile, `stop` cancels it, and what it raises ends the benchmark. A benchmark
        that is stopped or whose link breaks still ends with a Result, which says why in `stopped`. Raises BenchmarkRunning;
        ValueError for a plan that makes no sense; BenchmarkRefused, HostError or OSError when it could not begin.
        """
        if self._running:
            raise BenchmarkRunning("a benchmark runs already: wait for it or stop it")
        steps = steps_of(plan)
        self._running = True
        self._stopping = False
        self._waits_for = ""
        run = _Run(plan, steps, time.time(), self._vantage(plan))
        lock = None
        try:
            lock = self._results.lock(self._server.url)
            async with contextlib.AsyncExitStack() as stack:
                yield Progress(0, len(steps), steps[0].concurrency, "preparing")
                if self._host is not None:
                    self._watch = await stack.enter_async_context(GpuWatch(self._host, self._wanted_gpus))
                starting = asyncio.create_task(self._agreed(plan, list(prompts) if prompts is not None else None, consent, stack))
                self._starting = starting
                began = time.monotonic()
                try:
                    if self._stopping:
                        starting.cancel()
                    while not (await asyncio.wait([starting], timeout=WAITING_S))[0]:
                        waited = time.monotonic() - began
                        at = Progress(0, len(steps), steps[0].concurrency, "preparing", elapsed_s=waited, waiting_s=waited)
                        yield replace(at, work=self._waits_for)
                    self._generator = None if starting.cancelled() else starting.result()
                except BenchmarkRefused as error:
                    cause = hide(error.cause, self._secrets(plan))[:REFUSAL_LIMIT]  # not the other way: half a secret isn't found
                    raise BenchmarkRefused(error.kind, cause, error.advice) from None
                finally:
                    self._starting = None
                    await ended(starting)
                if self._generator is None:
                    run.stopped = STOPPED_BY_USER
                else:
                    run.begin(self._generator)
                    try:
                        async with contextlib.aclosing(self._points(run, self._generator)) as measuring:
                            async for news in measuring:
                                yield news
                    except HostError as error:
                        run.stopped = error.cause
            result = run.result()
            run.kept = True  # also where this is left meanwhile: the thread goes on
            keeping = asyncio.create_task(asyncio.to_thread(self._results.keep, result))
            began = time.monotonic()
            while not (await asyncio.wait([keeping], timeout=WAITING_S))[0]:
                work = f"writing the records of {counted(recorded(result), 'request')}"
                took = time.monotonic() - began
                yield Progress(len(steps) - 1, len(steps), steps[-1].concurrency, "keeping", elapsed_s=took, work=work)
            yield keeping.result()
        finally:
            self._generator = None
            self._watch = None
            self._running = False
            if lock is not None:
                os.close(lock)
            if not run.kept and run.points:
                run.stopped = run.stopped or STOPPED_BY_USER
                self._results.keep(run.result())

    def _secrets(self, plan: Plan) -> tuple[str, ...]:
        values = (*self._server.headers.values(), *plan.headers.values(), *secrets_of(self._server.url))
        return secrets_in({str(number): value for number, value in enumerate(values)})

    async def _points(self, run: "_Run", generator: LoadSource) -> AsyncGenerator[Progress | Point]:
        plan = run.plan
        skip = False
        for number, step in enumerate(run.steps):
            if self._stopping:
                run.stopped = STOPPED_BY_USER
                return
            if skip and step.label != "again":
                continue
            longest = None
            if step.label == LONGEST:
                if generator.longest is None:
                    run.notes.append("the server doesn't say its longest length: no prompt near it was tried")
                    continue
                longest = max(1, generator.longest - LONGEST_OUTPUT - LONGEST_MARGIN - plan.shared_prefix_tokens)
            drawn = Drawn(self._watch.newest if self._watch is not None else lambda: None, self._gpus)
            measured: Measured | None = None
            async with contextlib.aclosing(
                generator.measure(
                    number,
                    step,
                    limits=plan.goodput,
                    arrays=ARRAYS if plan.save_detailed else PLAIN_ARRAYS if plan.save else (),
                    workers=plan.workers,
                    # slices of a sustained load follow one another
                    warmup=plan.kind != "soak" or not run.points or run.points[-1].figures["repeat"] == LONGEST,
                    input_tokens=longest,
                )
            ) as news:
                async for item in news:
                    if isinstance(item, Measured):
                        measured = item
                        break
                    if item.get("stage") == MEASURED:
                        drawn.end()
                        continue
                    if item.get("stage") in ("measuring", "draining"):
                        drawn.begin()
                    yield progress_of(item, number, len(run.steps), step)
            assert measured is not None
            if measured.figures is None:
                run.stopped = STOPPED_BY_USER
                return
            if measured.stopped not in ("", "stopped") and not measured.figures["num_prompts"]:
                run.stopped = REFUSED + measured.stopped
                return
            point = point_of(plan, generator.model, step, measured, drawn.figures(), self._secrets(plan))
            if step.label == LONGEST:
                point.figures["max_num_batched_tokens"] = self._batched_tokens()
            if measured.stopped:
                point.figures["cut"] = True  # whole-run figures of a point that was cut hold time without its tokens
            elif self._expected_tokens_s is not None and (step.concurrency, step.rate) == (1, None) and step.label != LONGEST:
                point.figures.update(against(self._expected_tokens_s, point))
            run.points.append(point)
            yield point
            if measured.stopped:
                run.stopped = STOPPED_BY_USER if measured.stopped == "stopped" else measured.stopped
                return
            repeated = any(later.concurrency == step.concurrency for later in run.steps[number + 1 : number + 2])
            if plan.stop_at_knee and not repeated and knee_of(run.points) is not None:
                skip = True

    def _tell(self, words: str) -> None:
        self._waits_for = words

    # -- where the load comes from -------------------------------------------------------------------------------------------------

    def _vantage(self, plan: Plan) -> Vantage:
        """Where the load is to come from; a host that can't run the load generator has it come through the tunnel."""
        return plan.vantage or (Vantage.DIRECT if self._direct else Vantage.HOST)

    async def _agreed(
        self,
        plan: Plan,
        prompts: list[dict[str, Any]] | None,
        consent: Callable[[int | None], Awaitable[None]] | None,
        stack: contextlib.AsyncExitStack,
    ) -> LoadSource:
        """The source of the load, ready to measure; see `run`."""
        source = await self._start(plan, prompts, stack)
        if consent is not None:
            await consent(serving(series(source.server)))
        return source

    async def _start(self, plan: Plan, prompts: list[dict[str, Any]] | None, stack: contextlib.AsyncExitStack) -> LoadSource:
        vantage = self._vantage(plan)
        if vantage is Vantage.HOST and self._host is None:
            raise ValueError("the vantage 'host' needs a host: name a TARGET instead of a URL")
        if vantage is Vantage.HOST and self._host is not None:
            try:
                return await self._enter(self._host, vantage, plan, prompts, stack)
            except (ProbeFailed, NotPermitted):
                if plan.vantage is not None:
                    raise
                vantage = Vantage.TUNNEL
        if vantage is Vantage.TUNNEL:
            if self._host is None:
                raise ValueError("the vantage 'tunnel' needs a host: name a TARGET instead of a URL")
            from tui.services.bench_tunnel import open_tunnel

            return await open_tunnel(self._host, self._server, plan, prompts, self._version, stack, self._tell)
        local = await stack.enter_async_context(self._open_local())
        await local.connect()
        return await self._enter(local, Vantage.DIRECT, plan, prompts, stack)

    async def _enter(
        self, host: Host, vantage: Vantage, plan: Plan, prompts: list[dict[str, Any]] | None, stack: contextlib.AsyncExitStack
    ) -> LoadSource:
        generator = await Generator.start(host, vantage, self._server, plan, prompts, self._version, self._tell)
        stack.push_async_callback(generator.close)
        return generator


def _of_engine(session: Session) -> GpuSample | None:
    sample = session.state.gpus
    return None if sample is None else msgspec.structs.replace(sample, gpus=engine_gpus(sample, session.deployment.engines[0].gpus))


class _Run:
    """What one benchmark has found so far."""

    def __init__(self, plan: Plan, steps: tuple[Step, ...], at: float, vantage: Vantage) -> None:
        """`vantage` counts until `begin` says from where the load comes indeed."""
        self.plan = plan
        self.steps = steps
        self.points: list[Point] = []
        self.notes: list[str] = []
        self.stopped: str | None = None
        self.kept = False
        self.at = at
        self._model = clean(plan.model or "")
        self._vantage = vantage

    def begin(self, generator: LoadSource) -> None:
        self._model = generator.model
        self._vantage = generator.vantage
        self.notes += generator.notes
        self.notes += notes_of(self.plan)
        if busy := serving(series(generator.server)):
            whose = counted(busy, "request of others was", "requests of others were")
            self.notes.append(f"{whose} running or waiting when it began")

    def result(self) -> Result:
        return Result(
            endpoint="/v1/chat/completions" if self.plan.endpoint == "chat" else "/v1/completions",
            model=self._model,
            vantage=self._vantage,
            # the values of headers may be secret: a result is shown and kept
            plan=replace(self.plan, headers=dict.fromkeys(self.plan.headers, "…")),
            points=tuple(self.points),
            deviations=(*base_deviations(self._vantage), *self.notes),
            stopped=self.stopped,
            started_at=self.at,
        )


async def collect(benchmarks: Benchmarks, plan: Plan, prompts: Sequence[dict[str, Any]] | None = None) -> Result:
    """Runs a benchmark to its end and returns the result only."""
    last: Progress | Point | Result | None = None
    async with contextlib.aclosing(benchmarks.run(plan, prompts)) as news:
        async for last in news:  # noqa: B007 the last one counts
            await asyncio.sleep(0)
    assert isinstance(last, Result)
    return last
