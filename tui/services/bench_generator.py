"""A load generator in a probe's process, as the benchmark sees it: prepared once, then point after point."""

import asyncio
import base64
import contextlib
import json
import math
import time
import zlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tui.aio import ended
from tui.core.bench_documents import heading
from tui.core.bench_plan import Step
from tui.core.bench_remarks import client_words, late_words, never_sent
from tui.core.bench_result import Plan, Point, Progress, Vantage
from tui.core.bench_server import foreign_running, sequences_of, server_figures
from tui.core.presentation import counted
from tui.core.text import clean, hide
from tui.host.base import Host, HostError, ProbeFailed, ProbeStream
from tui.wire.urls import authorized, merged, shown_url

UNREACHED = ("connect", "connection_refused", "connect_timeout", "name_unknown", "tls", "closed", "reset")
"""Kinds of refusal that mean that no server answered at all."""

MEASURED = "measured"
"""The stage of the frame that tells that a point's last request has ended: what comes after is no load."""

RECORDS_LIMIT = 64 << 20
"""Bytes of unpacked records in one frame: far more than one holds, unless a single request has millions of tokens."""

COLLECTING_S = 1.0
"""How often it is said that records still come; what takes less is not told of."""


Tell = Callable[[str], None]
"""Takes in words what is waited for before anything is measured; empty words when it is over."""


def _nobody(words: str) -> None:
    pass


class BenchmarkRefused(Exception):
    """The server takes no such benchmark. `kind` is a kind of failure (`connection_refused`, `http_404`, …)."""

    def __init__(self, kind: str, cause: str, advice: str = "") -> None:
        super().__init__(cause)
        self.kind = kind
        self.cause = cause
        self.advice = advice

    @property
    def unreachable(self) -> bool:
        return self.kind in UNREACHED


@dataclass(frozen=True, slots=True)
class Server:
    """Where requests go, as seen from where the load generator runs."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    """The API key's header among them: never shown, logged or kept."""
    ca_file: str | None = None
    model: str | None = None


def what_is_asked(server: Server, plan: Plan, prompts: list[dict[str, Any]] | None) -> dict[str, Any]:
    """What the load generator's prompts are made from."""
    return {
        "model": plan.model or server.model,
        "endpoint": plan.endpoint,
        "extra_body": plan.extra_body,
        "input_tokens": plan.input_tokens,
        "output_tokens": plan.output_tokens,
        "shared_prefix": plan.shared_prefix_tokens,
        "style": "tokens" if plan.token_ids else "text",
        "prompts": prompts,
        "ignore_eos": plan.ignore_eos,
        "seed": str(plan.seed) if plan.seed is not None else f"{time.time_ns():x}",
    }


@dataclass(frozen=True, slots=True)
class Measured:
    """A point as the load generator sent it."""

    figures: dict[str, Any] | None
    """None when it was stopped before anything was measured."""
    client: dict[str, Any]
    before: tuple[str, ...]
    after: tuple[str, ...]
    peaks: dict[str, float]
    stopped: str
    begin: float
    detail: dict[str, list[Any]] | None
    lost: str = ""
    """Why there are no per-request arrays although they were asked for."""


class LoadSource(Protocol):
    """Where a load comes from: a process of its own, or (through the connection only) this one."""

    vantage: Vantage
    model: str
    notes: tuple[str, ...]
    server: tuple[str, ...]
    """Lines of the server's metrics before anything was sent."""
    longest: int | None
    """The server's limit for prompt and reply together, in tokens."""

    def measure(
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
        """Measures one point, and brings those `arrays` of its requests (names of `tui.wire.summary.ARRAYS`): progress frames, one
        of stage MEASURED among them, and the point last. Raises ProbeFailed or Unreachable when the source is gone."""

    async def stop(self) -> None:
        """Closes every request; the point in progress comes with what there is."""

    async def close(self) -> None:
        """Ends every request."""


class Generator:
    """The role "load" on a host."""

    def __init__(self, probe: ProbeStream, vantage: Vantage) -> None:
        self._probe = probe
        self._frames = aiter(probe)
        self.vantage = vantage
        self.model = ""
        self.notes: tuple[str, ...] = ()
        self.server: tuple[str, ...] = ()
        self.longest: int | None = None

    @classmethod
    async def start(
        cls,
        host: Host,
        vantage: Vantage,
        server: Server,
        plan: Plan,
        prompts: list[dict[str, Any]] | None,
        version: str,
        tell: Tell = _nobody,
    ) -> "Generator":
        """Ships the load generator and lets it get to know the server; `tell` is told what is waited for meanwhile.

        Raises ProbeFailed or Unreachable where it can't run, BenchmarkRefused where the server doesn't take it.
        """
        arguments = {
            **what_is_asked(server, plan, prompts),
            "url": shown_url(server.url),
            "headers": authorized(server.url, None, merged(server.headers, plan.headers)),
            "verify": plan.verify_tls,
            "ca": _read_ca(server.ca_file),
            "version": version,
        }
        made = cls(await host.start_probe("load", arguments), vantage)
        try:
            await made._get_ready(tell)
        except BaseException:
            await made.close()
            raise
        return made

    async def _get_ready(self, tell: Tell) -> None:
        async for frame in self._frames:
            match frame.get("f"):
                case "work":
                    tell(clean(str(frame.get("work"))))
                case "ready":
                    self.model = clean(str(frame["model"]))
                    self.notes = tuple(clean(str(note)) for note in frame["notes"])
                    self.longest = frame.get("max_model_len")
                    self.server = tuple(str(line) for line in frame["server"])
                    return
                case "refused":
                    kind = clean(str(frame.get("kind")))
                    raise BenchmarkRefused(kind, clean(str(frame.get("why"))))
                case "end":
                    raise ProbeFailed(f"the load generator ended: {clean(str(frame.get('why')))}")
        raise ProbeFailed("the load generator ended before it was ready")

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
        request = {
            "do": "point",
            "id": number,
            "order": step.order,
            "limits": dict(limits),
            "arrays": list(arrays),
            "workers": workers,
            "warmup": warmup,
            "input_tokens": input_tokens,
            "output_tokens": step.output_tokens,
        }
        await self._probe.send(request)
        async for frame in self._frames:
            if frame.get("f") == "end":
                raise ProbeFailed(f"the load generator ended: {clean(str(frame.get('why')))}")
            if frame.get("id") != number:
                continue
            match frame["f"]:
                case "progress":
                    yield frame
                case "point":
                    detail: dict[str, list[Any]] = {}
                    lost = ""
                    try:
                        async with contextlib.aclosing(self._collect(frame, detail)) as news:
                            async for progress in news:
                                yield progress
                    except HostError as error:  # the figures are here: they don't go with the arrays
                        detail, lost = {}, error.cause
                    yield Measured(
                        frame["figures"],
                        dict(frame["client"]),
                        tuple(frame["before"]),
                        tuple(frame["after"]),
                        dict(frame["peaks"]),
                        clean(str(frame["stopped"])),
                        float(frame.get("begin") or 0.0),
                        detail or None,
                        lost,
                    )
                    return
        raise ProbeFailed("the load generator ended in the middle of a point")

    async def _collect(self, point: dict[str, Any], whole: dict[str, list[Any]]) -> AsyncGenerator[dict[str, Any]]:
        """Adds the arrays that follow a point to `whole`, none where none were asked for; yields frames of progress where that
        takes time. Raises HostError when they don't come whole."""
        began = told = time.monotonic()
        count = (point["figures"] or {}).get("num_prompts") or 0
        work = f"collecting the records of {counted(count, 'request')}"
        pieces = int(point.get("pieces") or 0)
        for piece in range(pieces):
            coming = asyncio.ensure_future(self._records(point["id"]))
            try:
                while not coming.done():
                    await asyncio.wait([coming], timeout=COLLECTING_S)
                    if (now := time.monotonic()) - told >= COLLECTING_S:
                        told = now
                        so_far = f"{work}, {100 * piece // pieces} %"
                        yield {"stage": "collecting", "work": so_far, "elapsed_s": now - began}
                arrays = coming.result()
            finally:
                await ended(coming)
            for name, values in arrays.items():
                whole.setdefault(name, []).extend(values)

    async def _records(self, number: int) -> dict[str, list[Any]]:
        """The arrays of the next piece of point `number`. Raises HostError."""
        async for frame in self._frames:
            if frame.get("f") == "end":
                raise ProbeFailed(f"the load generator ended: {clean(str(frame.get('why')))}")
            if frame.get("f") == "records" and frame.get("id") == number:
                return _arrays(str(frame.get("z")))
        raise ProbeFailed("the load generator ended before all of its records were here")

    async def stop(self) -> None:
        """Closes every request; the point in progress comes with what there is."""
        await self._probe.send({"do": "stop"})

    async def close(self) -> None:
        """Ends the process, and every request with it."""
        await self._probe.close()


def _read_ca(path: str | None) -> str | None:
    """The file's text: it travels to where the load generator runs. Raises OSError."""
    if path is None:
        return None
    with open(path, encoding="ascii") as file:
        return file.read()


def _arrays(packed: str) -> dict[str, list[Any]]:
    """The arrays of one frame. Raises ProbeFailed for what is none, or unpacks to more than any real one."""
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(base64.b64decode(packed), RECORDS_LIMIT)
        if unpacking.unconsumed_tail or not unpacking.eof:
            raise ProbeFailed(f"the load generator's records are cut, or larger than {RECORDS_LIMIT >> 20} MiB in one piece")
        arrays = json.loads(data)
    except (zlib.error, ValueError, RecursionError) as error:
        raise ProbeFailed(f"the load generator's records can't be read: {clean(str(error))}") from None
    if not isinstance(arrays, dict) or not all(isinstance(values, list) for values in arrays.values()):
        raise ProbeFailed("the load generator's records are no arrays")
    return arrays


def point_of(
    plan: Plan, model: str, step: Step, measured: Measured, gpu: dict[str, Any] | None, secrets: tuple[str, ...] = ()
) -> Point:
    """A point as it is shown and kept, without the `secrets`: vLLM's keys first, ours behind them. `gpu` is what `Drawn` gives."""
    assert measured.figures is not None
    found = dict(measured.figures)
    examples = found.get("error_examples") or ()
    found["error_examples"] = [{**example, "message": hide(clean(str(example["message"])), secrets)[:300]} for example in examples]
    figures = heading(plan, model, step.concurrency, measured.begin or time.time())
    figures.update(found)
    completed = int(found["completed"])
    others = int(found["failed"]) + int(found["incomplete"])
    figures.update(server_figures(measured.before, measured.after, measured.peaks, completed, others))
    figures.update(measured.client)
    if step.rate is not None:
        # what a stop cut off was not due
        figures["unsent_requests"] = None if measured.stopped else never_sent(step.order["schedule"], figures)
        late = late_words(figures, step.order.get("gate"))
        if late is not None:
            figures["warnings"] = [*figures["warnings"], late]
    if figures["foreign_requests"]:
        whose = counted(figures["foreign_requests"], "request of others was", "requests of others were")
        figures["warnings"] = [*figures["warnings"], f"{whose} served meanwhile"]
    figures["foreign_running"] = foreign_running(figures, sequences_of(plan.extra_body))
    if figures["foreign_running"] and not figures["foreign_requests"]:
        whose = counted(figures["foreign_running"], "request of others was", "requests of others were")
        figures["warnings"] = [*figures["warnings"], f"{whose} running beside ours, and not at an end"]
    figures["warnings"] = [*figures["warnings"], *client_words(figures)]
    if abs(figures.get("clock_step_ms") or 0.0) > 5.0:
        figures["warnings"] = [*figures["warnings"], "the machine's clock was stepped meanwhile: latencies around it are wrong"]
    if measured.lost:
        figures["warnings"] = [*figures["warnings"], f"the arrays of its requests are lost: {measured.lost}"]
    throughput = found.get("steady_output_throughput") or found.get("output_throughput")
    if gpu is not None:
        gpu["tokens_per_s_per_gpu"] = throughput / gpu["count"] if throughput and gpu["count"] else None
        gpu["tokens_per_joule"] = _per_joule(found, gpu["mean_power_w"])
    figures["gpu"] = gpu
    figures["repeat"] = step.label or None
    detail = measured.detail
    if detail is not None and "errors" in detail:
        detail = {**detail, "errors": [hide(clean(str(one)), secrets) for one in detail["errors"]]}
    return Point(step.concurrency, figures, detail)


def _per_joule(found: dict[str, Any], mean_power_w: float | None) -> float | None:
    """Tokens that arrived in the whole run for each joule of it: the power is that of the whole run, ramp and drain included."""
    tokens, seconds = found.get("arrived_output_tokens"), found["duration"]
    return tokens / (mean_power_w * seconds) if tokens and mean_power_w and seconds else None


def _open_ended(order: dict[str, Any], elapsed: float, done: int) -> float | None:
    """Seconds that are left of a point which lasts for a least time and a least number of requests; None where it can't be told."""
    by_time = float(order["at_least_s"]) - elapsed
    missing = int(order.get("at_least") or 0) - done
    if missing <= 0 or not done:
        return by_time if by_time > 0 else None  # then what is in flight is left, or nobody knows how fast it goes
    most = float(order.get("at_most_s") or math.inf) - elapsed
    left = min(max(by_time, elapsed / done * missing), most)
    return left if left > 0 else None


def progress_of(frame: dict[str, Any], number: int, points: int, step: Step) -> Progress:
    """What a progress frame of the load generator says of point `number` (from 0) of `points`."""
    order = step.order
    elapsed = float(frame.get("elapsed_s") or 0.0)
    planned = order.get("requests") or (len(order["schedule"]) if order.get("schedule") else None)
    left = None
    done = int(frame.get("done") or 0)
    if order.get("duration_s"):
        left = max(0.0, order["duration_s"] - elapsed)
    elif planned and done:
        left = max(0.0, elapsed / done * (planned - done))
    elif order.get("at_least_s"):
        left = _open_ended(order, elapsed, done)
    return Progress(
        point=number,
        points=points,
        concurrency=step.concurrency,
        stage=str(frame.get("stage")),
        in_flight=int(frame.get("in_flight") or 0),
        done=done,
        failed=int(frame.get("failed") or 0),
        planned=planned,
        tokens_s=frame.get("tokens_s"),
        elapsed_s=elapsed,
        left_s=left,
        work=clean(str(frame.get("work") or "")),
        waiting_s=elapsed if frame.get("chunks") == 0 and not done else None,
    )
