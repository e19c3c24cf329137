"""Runs benchmarks: chooses where the load comes from, measures point after point, keeps what was found.

The load generator is a process of its own (on the GPU host by default), so neither the screen nor the connection disturbs its
figures; what arrives here are progress four times a second and a summary a point. Leaving the iteration, or `stop`, ends every
request at once.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import platformdirs

from tui.aio import ended
from tui.core.bench_conclusions import knee_of
from tui.core.bench_documents import against, base_deviations, conclusion_fields, json_pieces, notes_of, plain, recorded
from tui.core.bench_plan import LONGEST, LONGEST_MARGIN, LONGEST_OUTPUT, Step, steps_of
from tui.core.bench_result import REFUSED, STOPPED_BY_USER, BenchProgress, Plan, Point, Result, Vantage
from tui.core.bench_server import series, serving
from tui.core.gpu import GpuSample
from tui.core.gpu_findings import engine_gpus
from tui.core.presentation import counted
from tui.core.text import clean, hide, secrets_in
from tui.host.base import Host, HostError, NotPermitted, ProbeFailed
from tui.services.bench_generator import MEASURED, BenchmarkRefused, BenchmarkTarget, LoadGenerator, Measurement
from tui.services.bench_point import GpuSampling, PowerMeter, point_of, progress_of
from tui.services.bench_tunnel import Tunnel
from tui.services.deployment_watch import Session
from tui.wire.summary import ARRAYS, PLAIN_ARRAYS
from tui.wire.urls import authorized, secrets_of

__all__ = ["BenchmarkRefused", "BenchmarkRunning", "BenchmarkTarget", "Benchmarks"]


WAITING_S = 1.0
"""How often it is said that the server has yet to answer at all."""
REFUSAL_LIMIT = 500
"""Characters of a server's refusal."""


class BenchmarkRunning(Exception):
    """A benchmark of this server runs already: two would measure each other."""


class ResultFolder:
    """Keep the results of one server's benchmarks in a folder that its owner alone may read."""

    def __init__(self, folder: Path | None, name: str) -> None:
        """`folder` is by default below the state directory of XDG; `name` is the server's, as the user calls it."""
        self._folder = folder if folder is not None else platformdirs.user_state_path("readyroom") / "benchmarks"
        self._name = name

    def lock(self, url: str) -> int | None:
        """Lock the server at `url` against other processes of readyroom; return the file descriptor whose closing unlocks it.

        Returns None if the state can't be written. Raises BenchmarkRunning.
        """
        word = hashlib.sha256(f"{self._name}\n{url}".encode()).hexdigest()[:16]
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(self._folder / f".{word}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise BenchmarkRunning(f"another readyroom is benchmarking {self._name}: wait for it, or stop it there") from None
        return handle

    def keep(self, result: Result) -> Result:
        """Write the result as JSON, 0600; return it with its path, or unchanged if it can't be written."""
        if not result.points:
            return result
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(result.started_at or time.time()))
        name = "".join(c if c.isalnum() or c in "._-" else "_" for c in self._name)[:60] or "server"
        path = self._folder / f"{stamp}-{name}.json"
        kept = replace(result, path=str(path))
        fields = {**plain(kept), **conclusion_fields(kept), "schema": 1}
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.writelines(json_pieces(fields))
        except OSError:
            return result
        return kept


class Benchmarks:
    """Benchmark one server. `running` says whether one runs; a second `run` raises BenchmarkRunning."""

    def __init__(
        self,
        name: str,
        target: BenchmarkTarget,
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
        """Take a server whose `target.url` is as seen from `host`; with `direct`, or without a host, as seen from here.

        `open_local` makes this machine as a host, disconnected. `gpus` gives a sample of the engine's GPUs if the host's can't be
        sampled for the benchmark itself; `wanted_gpus` are the engine's, as configured. A single stream below `expected_tokens_s`
        is warned of; `batched_tokens` gives the most tokens that the engine takes into one step, if known. Results are kept below
        `state`, by default the state directory of XDG.
        """
        self._target = target
        self._host = host
        self._open_local = open_local
        self._direct = direct or host is None
        self._gpus = gpus
        self._wanted_gpus = wanted_gpus
        self._expected_tokens_s = expected_tokens_s
        self._batched_tokens = batched_tokens
        self._watch: GpuSampling | None = None
        self._results = ResultFolder(state, name)
        self._version = version
        self._running = False
        self._stopping = False
        self._waits_for = ""
        """What the source of the load waits for before it begins, in words."""
        self._generator: LoadGenerator | None = None
        self._starting: asyncio.Task[LoadGenerator] | None = None

    @classmethod
    def of_session(cls, session: Session, open_local: Callable[[], Host], version: str = "") -> "Benchmarks":
        """Make the benchmarks of a deployment: its API, its key, its GPUs."""
        deployment = session.deployment
        headers = authorized(deployment.api, session.api_key, deployment.headers)
        return cls(
            session.name,
            BenchmarkTarget(deployment.api, headers, deployment.ca_file, deployment.model),
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
        """End every request now. The benchmark comes to its end with what it has; nothing happens if none runs."""
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
    ) -> AsyncGenerator[BenchProgress | Point | Result]:
        """Measure: yield BenchProgress several times a second, a Point after each one, the Result last.

        `prompts` are given ones (`{"prompt"}` or `{"messages"}`, with `output_tokens` perhaps) instead of made ones. `consent` is
        called before anything is measured, with the requests that run or wait in the server as the load generator sees it, None if
        it doesn't say; BenchProgress goes on meanwhile, `stop` cancels it, and what it raises ends the benchmark. A benchmark that
        is stopped or whose link breaks still ends with a Result, which says why in `stopped`.

        Raises BenchmarkRunning; ValueError for a plan that makes no sense; BenchmarkRefused, HostError or OSError if it could not
        begin.
        """
        if self._running:
            raise BenchmarkRunning("a benchmark is already running: wait for it or stop it")
        steps = steps_of(plan)
        self._running = True
        self._stopping = False
        self._waits_for = ""
        run = _Findings(plan, steps, time.time(), self._vantage(plan))
        lock = None
        try:
            lock = self._results.lock(self._target.url)
            async with contextlib.AsyncExitStack() as stack:
                yield BenchProgress(0, len(steps), steps[0].concurrency, "preparing")
                if self._host is not None:
                    self._watch = await stack.enter_async_context(GpuSampling(self._host, self._wanted_gpus))
                starting = asyncio.create_task(self._start(plan, prompts, consent, stack))
                self._starting = starting
                began = time.monotonic()
                try:
                    if self._stopping:
                        starting.cancel()
                    while not (await asyncio.wait([starting], timeout=WAITING_S))[0]:
                        waited = time.monotonic() - began
                        at = BenchProgress(0, len(steps), steps[0].concurrency, "preparing", elapsed_s=waited, waiting_s=waited)
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
            run.kept = True  # also if this is left meanwhile: the thread goes on
            keeping = asyncio.create_task(asyncio.to_thread(self._results.keep, result))
            began = time.monotonic()
            while not (await asyncio.wait([keeping], timeout=WAITING_S))[0]:
                work = f"writing the records of {counted(recorded(result), 'request')}"
                took = time.monotonic() - began
                yield BenchProgress(len(steps) - 1, len(steps), steps[-1].concurrency, "keeping", elapsed_s=took, work=work)
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
        values = (*self._target.headers.values(), *plan.headers.values(), *secrets_of(self._target.url))
        return secrets_in({str(number): value for number, value in enumerate(values)})

    async def _points(self, run: "_Findings", generator: LoadGenerator) -> AsyncGenerator[BenchProgress | Point]:
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
            meter = PowerMeter(self._watch.newest if self._watch is not None else lambda: None, self._gpus)
            measured: Measurement | None = None
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
                    if isinstance(item, Measurement):
                        measured = item
                        break
                    if item.get("stage") == MEASURED:
                        meter.end()
                        continue
                    if item.get("stage") in ("measuring", "draining"):
                        meter.begin()
                    yield progress_of(item, number, len(run.steps), step)
            assert measured is not None
            if measured.figures is None:
                run.stopped = STOPPED_BY_USER
                return
            if measured.stopped not in ("", "stopped") and not measured.figures["num_prompts"]:
                run.stopped = REFUSED + measured.stopped
                return
            point = point_of(plan, generator.model, step, measured, meter.figures(), self._secrets(plan))
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
        """Return where the load comes from: through the tunnel if the host can't run the load generator."""
        return plan.vantage or (Vantage.DIRECT if self._direct else Vantage.HOST)

    async def _start(
        self,
        plan: Plan,
        prompts: Sequence[dict[str, Any]] | None,
        consent: Callable[[int | None], Awaitable[None]] | None,
        stack: contextlib.AsyncExitStack,
    ) -> LoadGenerator:
        """Start the load generator, entered into `stack`, and ask for consent; see `run`."""
        vantage = self._vantage(plan)
        host = self._host
        if host is None and vantage is not Vantage.DIRECT:
            raise ValueError(f"the vantage '{vantage}' needs a host: name a TARGET instead of a URL")
        given = list(prompts) if prompts is not None else None

        async def start(where: Host, vantage: Vantage, tunnel: str | None = None) -> LoadGenerator:
            generator = await LoadGenerator.start(where, vantage, self._target, plan, given, self._version, self._tell, tunnel)
            stack.push_async_callback(generator.close)
            return generator

        generator: LoadGenerator | None = None
        if host is not None and vantage is Vantage.HOST:
            try:
                generator = await start(host, vantage)
            except (ProbeFailed, NotPermitted):
                if plan.vantage is not None:
                    raise
                vantage = Vantage.TUNNEL
        if generator is None:
            local = await stack.enter_async_context(self._open_local())
            await local.connect()
            tunnel = None
            if host is not None and vantage is Vantage.TUNNEL:
                tunnel = (await stack.enter_async_context(Tunnel(host, self._target.url))).path
            generator = await start(local, vantage, tunnel)
        if consent is not None:
            await consent(serving(series(generator.server)))
        return generator


def _of_engine(session: Session) -> GpuSample | None:
    sample = session.state.gpus
    return None if sample is None else msgspec.structs.replace(sample, gpus=engine_gpus(sample, session.deployment.engines[0].gpus))


class _Findings:
    """What one benchmark has found so far."""

    def __init__(self, plan: Plan, steps: tuple[Step, ...], at: float, vantage: Vantage) -> None:
        """Begin with `vantage`, until `begin` says where the load really comes from."""
        self.plan = plan
        self.steps = steps
        self.points: list[Point] = []
        self.notes: list[str] = []
        self.stopped: str | None = None
        self.kept = False
        self.at = at
        self._model = clean(plan.model or "")
        self._vantage = vantage

    def begin(self, generator: LoadGenerator) -> None:
        self._model = generator.model
        self._vantage = generator.vantage
        self.notes += generator.notes
        self.notes += notes_of(self.plan)
        if busy := serving(series(generator.server)):
            whose = counted(busy, "request from others was", "requests from others were")
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
    """Run a benchmark to its end and return the result only."""
    last: BenchProgress | Point | Result | None = None
    async with contextlib.aclosing(benchmarks.run(plan, prompts)) as news:
        async for last in news:  # noqa: B007 the last one counts
            await asyncio.sleep(0)
    assert isinstance(last, Result)
    return last
