"""The load through the connection, for a host that can't run the load generator: from this process, so capped, and said so.

It costs some 120 microseconds a token in the screen's event loop, and arrivals are stamped when that loop gets to them. The rules
for tokens, failures and figures are the load generator's own.
"""

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import AsyncExitStack, aclosing
from typing import Any

import httpx

from tui.aio import ended
from tui.core.bench_plan import Step
from tui.core.bench_result import Plan, Vantage
from tui.core.text import clean
from tui.host.base import Host, HostError
from tui.probe.load_http import Target, target_of
from tui.probe.load_preflight import Patient, fit, fitted
from tui.probe.load_prompts import PATHS, Lengths, Prompts, Refused, settle_fields, settle_lengths, settle_model
from tui.probe.load_records import Pace, a_chunk_of
from tui.probe.load_schedule import WallClock
from tui.probe.load_server import LEAVING_S, MAX_REPLY_BYTES, METRICS_S, Caller, metrics_lines, note_peaks
from tui.probe.load_stream import Failure, Stream
from tui.services.bench_generator import MEASURED, BenchmarkRefused, LoadSource, Measured, Server, Tell, what_is_asked
from tui.wire.request_record import INCOMPLETE, Record
from tui.wire.summary import detail, summary
from tui.wire.urls import authorized, merged, socket_of


class Bridge(Caller):
    """The load generator's single requests, made through httpx: called from a worker thread, carried by the event loop."""

    def __init__(self, client: httpx.AsyncClient, base: str, target: Target) -> None:
        self._client = client
        self._target = target
        self._base = base
        self._loop = asyncio.get_running_loop()
        self._asked: set[Future[tuple[int, bytes]]] = set()
        """What threads wait for."""

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None, within_s: float | None = None) -> tuple[int, bytes]:
        asked = asyncio.run_coroutine_threadsafe(self._request(method, path, body, within_s), self._loop)
        self._asked.add(asked)
        try:
            return asked.result()
        except CancelledError:
            raise OSError("let go") from None
        finally:
            self._asked.discard(asked)

    def let_go(self) -> None:
        """Waits for no answer any more: a thread that does would hold up the end of the program."""
        for asked in tuple(self._asked):
            asked.cancel()

    async def _request(self, method: str, path: str, body: dict[str, Any] | None, within_s: float | None) -> tuple[int, bytes]:
        try:
            data = None if body is None else json.dumps(body)
            async with asyncio.timeout(within_s), self._client.stream(method, self._base + path, content=data) as reply:
                pieces = bytearray()
                async for piece in reply.aiter_raw():
                    pieces += piece
                    if len(pieces) > MAX_REPLY_BYTES:
                        raise ValueError(f"the reply to {path} is larger than {MAX_REPLY_BYTES} bytes")
        except httpx.HTTPError as error:
            cause = error.__cause__
            raise OSError(cause.cause if isinstance(cause, HostError) else str(error) or type(error).__name__) from None
        return reply.status_code, bytes(pieces)

    def close(self) -> None:
        pass


MOST_STREAMS = 32
PROGRESS_S = 0.25
WARM_UP_TOKENS = 32
GAUGES_S = 1.0
CAVEAT = (
    "measured through the connection from the client's own process{why}: at most {most} streams, "
    "and TTFT and ITL include the link and the client's event loop"
)
NO_GENERATOR = " (the load generator can't run on the host)"


async def open_tunnel(
    host: Host,
    server: Server,
    plan: Plan,
    prompts: list[dict[str, Any]] | None,
    version: str,
    stack: AsyncExitStack,
    tell: Tell = lambda words: None,
) -> LoadSource:
    """A load source behind the host's transport; `tell` is told, in a thread, what is waited for. Raises BenchmarkRefused;
    ValueError for a bad URL or header."""
    verify: Any = server.ca_file or plan.verify_tls
    own = {"User-Agent": f"readyroom/{version}", "Content-Type": "application/json", "Accept-Encoding": "identity"}
    headers = authorized(server.url, None, merged(server.headers, plan.headers, own))
    limits = httpx.Timeout(30.0, read=plan.stall_s)
    client = await stack.enter_async_context(
        httpx.AsyncClient(transport=host.transport(verify=verify, uds=socket_of(server.url)), headers=headers, timeout=limits)
    )
    made = _Tunnel(client, server, plan, prompts)
    await made.prepare(tell)
    return made


class _Tunnel:
    """See `LoadSource`."""

    def __init__(self, client: httpx.AsyncClient, server: Server, plan: Plan, prompts: list[dict[str, Any]] | None) -> None:
        target = target_of(server.url)
        self._base = f"{'https' if target.tls else 'http'}://{target.host_header}{target.prefix}"
        self._client = client
        self._bridge = Bridge(client, self._base, target)
        self._plan = plan
        self._fields = what_is_asked(server, plan, prompts)
        self.vantage = Vantage.TUNNEL
        self.model = ""
        self.notes: tuple[str, ...] = ()
        self.server: tuple[str, ...] = ()
        self.longest: int | None = None
        self._lengths: dict[str, Any] = {}
        """What is known of the server's tokenizer."""
        self._settled: dict[str, Any] = {}
        """The fields of a request that the server takes."""
        self._prompts: Prompts
        """Those of the point in progress."""
        self._number = 0
        self.a_chunk: float | None = None
        """Tokens in a chunk of this server, from the newest load."""
        self._stopping = asyncio.Event()

    async def prepare(self, tell: Tell) -> None:
        left = threading.Event()
        try:
            await asyncio.to_thread(self._settle, Patient(self._bridge, wait=lambda seconds: not left.wait(seconds), tell=tell))
        except Refused as error:
            raise BenchmarkRefused(error.kind, clean(str(error))) from None
        except OSError as error:
            raise BenchmarkRefused("connect", clean(str(error))) from None
        except ValueError as error:
            raise BenchmarkRefused("bad_http", clean(str(error))) from None
        finally:
            left.set()  # a thread that still waits would hold up the end of the program

    def _settle(self, patient: Patient) -> None:
        settle_model(patient, self._fields)
        self.longest, unlisted = fit(patient, self._fields)
        fields, notes, _ = settle_fields(patient, self._fields)
        lengths, more = settle_lengths(self._bridge, self._fields, fields)
        self._lengths, self._settled = lengths.known, fields
        self._prompts = self._made(None, None)
        self.model = clean(str(self._fields["model"]))
        caveat = CAVEAT.format(why="" if self._plan.vantage is Vantage.TUNNEL else NO_GENERATOR, most=MOST_STREAMS)
        self.notes = (caveat, *(clean(note) for note in (*unlisted, *notes, *more)))
        self.server = tuple(metrics_lines(self._bridge)[1])

    def _made(self, input_tokens: int | None, output_tokens: int | None) -> Prompts:
        """Prompts of a point, of the plan's lengths or of such ones instead: none passes `input_tokens`, so one of about that many
        is counted by the server first (called from a worker thread)."""
        plan, lengths = dict(self._fields), self._lengths
        if output_tokens:
            plan["output_tokens"] = output_tokens
        if input_tokens:
            lengths, plan["input_tokens"] = fitted(self._bridge, plan, self._settled, lengths, input_tokens)
        return Prompts(plan, Lengths(lengths), self._settled)

    async def _prompts_of(self, input_tokens: int | None, output_tokens: int | None) -> Prompts:
        """See `_made`; a stop lets go of a server that doesn't get round to counting."""
        making = asyncio.create_task(asyncio.to_thread(self._made, input_tokens, output_tokens))
        try:
            while not (await asyncio.wait([making], timeout=PROGRESS_S))[0]:
                if self._stopping.is_set():
                    self._bridge.let_go()
            return making.result()
        finally:
            self._bridge.let_go()
            await ended(making)

    async def measure(
        self,
        number: int,
        step: Step,
        *,
        limits: Mapping[str, float],
        arrays: Sequence[str],
        workers: int,
        warmup: bool = True,
        input_tokens: int | None = None,
    ) -> AsyncGenerator[dict[str, Any] | Measured]:
        """See `LoadSource`."""
        self._stopping.clear()
        self._prompts = await self._prompts_of(input_tokens, step.output_tokens)
        order = dict(step.order)
        asked = int(order.get("concurrency") or order.get("gate") or MOST_STREAMS)
        order["concurrency" if order.get("concurrency") else "gate"] = min(asked, MOST_STREAMS)
        streams = min(asked, MOST_STREAMS)
        if warmup:
            tokens = min(WARM_UP_TOKENS, step.output_tokens or self._plan.output_tokens)
            warm = _Run(self, {"concurrency": streams, "requests": streams}, tokens)
            async with aclosing(warm.carry()) as news:
                async for progress in news:
                    yield {**progress, "stage": "warm-up"}
        before: tuple[str, ...] = ()
        if not self._stopping.is_set():
            before = tuple((await asyncio.to_thread(metrics_lines, self._bridge))[1])
        if self._stopping.is_set():
            yield Measured(None, {}, before, before, {}, "stopped", time.time(), None)
            return
        run = _Run(self, order, None)
        cpu = time.process_time()
        peaks: dict[str, float] = {}
        looking = asyncio.create_task(self._look(peaks))
        try:
            async with aclosing(run.carry()) as news:
                async for progress in news:
                    yield progress
        finally:
            await ended(looking)
            self._bridge.let_go()
        cpu = time.process_time() - cpu
        yield {"stage": MEASURED}
        patience = LEAVING_S if self._stopping.is_set() else METRICS_S
        after = tuple((await asyncio.to_thread(metrics_lines, self._bridge, patience))[1])
        figures = await asyncio.to_thread(
            summary,
            run.records,
            run.begin,
            run.end,
            concurrency=order.get("concurrency"),
            dispatch_end=run.dispatch_end,
            limits=dict(limits),
        )
        busy = cpu / (run.end - run.begin) if run.end > run.begin else 0.0
        client = {
            "client_limited": busy > 0.5 or asked > MOST_STREAMS,
            "client_most_streams": MOST_STREAMS,
            "client_workers": 0,
            "client_cpu": busy,
            "client_cpu_s": cpu,
            "client_stamps": "process",
            "clock_step_ms": run.clock_step_s * 1000.0,
        }
        found = detail(run.records, arrays, asked_input=self._prompts.asked_input)
        yield Measured(figures, client, before, after, peaks, run.stopped, run.begin, found or None)

    async def _look(self, peaks: dict[str, float]) -> None:
        """Keeps the peaks of the server's gauges, once a second, until it is cancelled."""
        while True:
            await asyncio.sleep(GAUGES_S)
            there, lines = await asyncio.to_thread(metrics_lines, self._bridge)
            if there:
                note_peaks(peaks, lines)

    async def stop(self) -> None:
        self._stopping.set()

    async def close(self) -> None:
        self._stopping.set()

    def body(self, number: int, output: int | None) -> tuple[bytes, int]:
        return self._prompts.body(number, output)

    def next_number(self) -> int:
        self._number += 1
        return self._number


class _Run:
    """One run of requests: warm-up or measurement."""

    def __init__(self, tunnel: _Tunnel, order: dict[str, Any], output: int | None) -> None:
        self._tunnel = tunnel
        self._order = order
        self._output = output
        self.records: list[Record] = []
        self.begin = self.end = time.time()
        self._began = time.monotonic()
        """The beginning by a clock that can't be set: what is waited for is counted by it, stamps are of the wall clock."""
        self._clock = WallClock()
        self.dispatch_end: float | None = None
        self.stopped = ""
        self._sent = 0
        self._in_a_row = 0
        """Requests that failed one after the other, over all streams."""
        self._streams: set[Record] = set()
        self._pace = Pace(tunnel.a_chunk)

    async def carry(self) -> AsyncGenerator[dict[str, Any]]:
        """Runs to its end, yielding progress."""
        order = self._order
        wall, self._began = time.time(), time.monotonic()
        self._clock = WallClock()
        self.begin = wall
        if order.get("schedule"):
            work = [asyncio.create_task(self._open_loop(order["schedule"], order.get("gate")))]
        else:
            work = [asyncio.create_task(self._stream(delay)) for delay in self._delays()]
        deadline = self._began + order["duration_s"] if order.get("duration_s") else None
        try:
            while True:
                done, waiting = await asyncio.wait(work, timeout=PROGRESS_S)
                for task in done:
                    task.result()
                now = time.monotonic()
                self._clock.look(time.time(), now)
                yield self._progress(now)
                if not waiting:
                    break
                if self._tunnel._stopping.is_set():
                    self.stopped = "stopped"
                    self.dispatch_end = now
                    break
                most = order.get("max_failures")
                if most is not None and self._in_a_row > most:
                    self.stopped = f"{self._in_a_row} requests failed one after the other"
                    self.dispatch_end = now
                    break
                if deadline is not None and now >= deadline:
                    self.dispatch_end = deadline
                    break
        finally:
            await ended(*work)
            self.end, now = time.time(), time.monotonic()
            self._clock.look(self.end, now)
            # all of the clock as it is at the end: see `tui.probe.load_loop`
            self.begin = wall + self._clock.stepped
            if self.dispatch_end is not None:
                self.dispatch_end += self._clock.ahead
            for record in self._streams:
                record.end = self.end
                record.state = INCOMPLETE
            self.records.sort(key=lambda record: record.index)
            self._tunnel.a_chunk = a_chunk_of(self.records) or self._tunnel.a_chunk

    @property
    def clock_step_s(self) -> float:
        """By how much the wall clock was set meanwhile."""
        return self._clock.stepped

    def _wants_more(self) -> bool:
        order = self._order
        elapsed = time.monotonic() - self._began
        if order.get("requests") is not None:
            return self._sent < int(order["requests"])
        if order.get("duration_s"):
            return elapsed < float(order["duration_s"])
        if elapsed >= float(order.get("at_most_s") or 1e9):
            return False
        return self._sent < int(order["at_least"]) or elapsed < float(order["at_least_s"])

    def _delays(self) -> list[float]:
        """Seconds after the beginning at which each stream sends its first request."""
        streams = int(self._order["concurrency"])
        return [float(self._order.get("stagger_s") or 0.0) * i / streams for i in range(streams)]

    async def _stream(self, delay: float) -> None:
        await asyncio.sleep(delay)
        while self._wants_more():
            ok = await self._request(None)
            if not ok:
                await asyncio.sleep(0.1)

    async def _open_loop(self, schedule: list[float], gate: int | None) -> None:
        limit = asyncio.Semaphore(gate or MOST_STREAMS)

        async def one(due: float) -> None:
            try:
                await self._request(due)
            finally:
                limit.release()

        async with asyncio.TaskGroup() as tasks:
            for offset in schedule:
                due = self._began + offset
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await limit.acquire()
                tasks.create_task(one(due + self._clock.ahead))

    async def _request(self, due: float | None) -> bool:
        """One request from its sending to its end; whether it succeeded."""
        tunnel = self._tunnel
        body, asked = tunnel.body(tunnel.next_number(), self._output)
        record = Record(self._sent, asked, due)
        self._sent += 1
        self.records.append(record)
        self._streams.add(record)
        stream = Stream(None, record, b"", tunnel._plan.endpoint, bool(self._order.get("keep_text")))
        record.start = time.time()
        try:
            url = tunnel._base + PATHS[tunnel._plan.endpoint]
            async with tunnel._client.stream("POST", url, content=body) as reply:
                stream.response.status = reply.status_code
                stream.response.reason = reply.reason_phrase
                stream.response.headers = {name.lower(): value for name, value in reply.headers.items()}
                async for piece in reply.aiter_raw():
                    stream.feed_body(piece, time.time())
            stream.judge()
            self._pace.completed(record)
        except Failure as failure:
            stream.fail(failure.kind, str(failure))
        except httpx.ReadTimeout:
            stream.fail("stalled", f"no byte for {tunnel._plan.stall_s:g} s")
        except httpx.HTTPError as error:
            cause = error.__cause__
            words = cause.cause if isinstance(cause, HostError) else str(error) or type(error).__name__
            kind = "connect" if isinstance(error, httpx.ConnectError) else "cut" if record.chunks else "closed"
            stream.fail(kind, words)
        record.end = time.time()
        self._streams.discard(record)
        self._in_a_row = self._in_a_row + 1 if record.kind else 0
        return not record.kind

    def _progress(self, now: float) -> dict[str, Any]:
        chunks = sum(len(record.chunks) for record in self.records)
        elapsed = now - self._began
        return {
            "stage": "measuring" if self._order.get("schedule") or self._wants_more() else "draining",
            "in_flight": len(self._streams),
            "done": len(self.records) - len(self._streams) - sum(bool(record.kind) for record in self.records),
            "failed": sum(bool(record.kind) for record in self.records),
            "elapsed_s": elapsed,
            "chunks": chunks,
            "tokens_s": self._pace.look(now, chunks),
        }
