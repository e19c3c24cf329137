"""Drive the load generator, a probe's process: prepare it for a server once, then have it measure point after point."""

import asyncio
import base64
import contextlib
import json
import time
import zlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tui.aio import ended
from tui.core.bench_plan import Step
from tui.core.bench_result import Plan, Vantage
from tui.core.presentation import counted
from tui.core.text import clean
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

TUNNEL_STREAMS = 32
"""The most streams through a tunnel: every byte of them passes the client's event loop."""

TUNNEL_BUSY = 0.5
"""A client that uses so much of its core while it passes the bytes on has delayed them."""

TUNNEL_NOTE = (
    "measured through the connection from the client's side{why}: at most {most} streams, "
    "and TTFT and ITL include the link and the client's event loop"
)
NO_GENERATOR = " (the load generator can't run on the host)"

Tell = Callable[[str], None]
"""Takes in words what is waited for before anything is measured; empty words when it is over."""


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
class BenchmarkTarget:
    """Where requests go. The URL is as seen from the machine that the benchmark is of."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    """The API key's header among them: never shown, logged or kept."""
    ca_file: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """A point as the load generator sent it."""

    figures: dict[str, Any] | None
    """None if it was stopped before anything was measured."""
    client: dict[str, Any]
    before: tuple[str, ...]
    """Lines of the server's metrics."""
    after: tuple[str, ...]
    peaks: dict[str, float]
    stopped: str
    begin: float
    detail: dict[str, list[Any]] | None
    lost: str = ""
    """Why there are no per-request arrays although they were asked for."""


class LoadGenerator:
    """The probe's role "load", on the host or on this machine; from here it may reach the server through a tunnel."""

    def __init__(self, probe: ProbeStream, vantage: Vantage) -> None:
        self._probe = probe
        self._frames = aiter(probe)
        self.vantage = vantage
        self.model = ""
        self.notes: tuple[str, ...] = ()
        self.server: tuple[str, ...] = ()
        """Lines of the server's metrics before anything was sent."""
        self.longest: int | None = None
        """The server's limit for prompt and reply together, in tokens."""

    @classmethod
    async def start(
        cls,
        host: Host,
        vantage: Vantage,
        target: BenchmarkTarget,
        plan: Plan,
        prompts: list[dict[str, Any]] | None,
        version: str,
        tell: Tell = lambda words: None,
        tunnel: str | None = None,
    ) -> Self:
        """Ship the load generator to `host` and let it get to know the server, through the socket `tunnel` if one is given.

        `tell` is told what is waited for meanwhile. Raises ProbeFailed or Unreachable if it can't run, BenchmarkRefused if the
        server doesn't take it, OSError if the file of authorities can't be read.
        """
        arguments = {
            "url": shown_url(target.url),
            "tunnel": tunnel,
            "headers": authorized(target.url, None, merged(target.headers, plan.headers)),
            "verify": plan.verify_tls,
            "ca": _read_ca(target.ca_file),
            "version": version,
            "model": plan.model or target.model,
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
        generator = cls(await host.start_probe("load", arguments), vantage)
        try:
            await generator._get_ready(tell)
        except BaseException:
            await generator.close()
            raise
        if vantage is Vantage.TUNNEL:
            why = "" if plan.vantage is Vantage.TUNNEL else NO_GENERATOR
            generator.notes = (TUNNEL_NOTE.format(why=why, most=TUNNEL_STREAMS), *generator.notes)
        return generator

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
                    raise _ended_early(frame)
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
    ) -> AsyncGenerator[dict[str, Any] | Measurement]:
        """Measure one point: yield progress frames, one of stage MEASURED among them, and the measurement last.

        `arrays` are those of its requests to bring along (names of `tui.wire.summary.ARRAYS`). No prompt is longer than
        `input_tokens`, if given. Raises ProbeFailed or Unreachable if the load generator is gone.
        """
        request = {
            "do": "point",
            "id": number,
            "order": self._within_limits(step.order),
            "limits": dict(limits),
            "arrays": list(arrays),
            "workers": workers,
            "warmup": warmup,
            "input_tokens": input_tokens,
            "output_tokens": step.output_tokens,
        }
        await self._probe.send(request)
        meter = _CpuMeter()
        async for frame in self._frames:
            if frame.get("f") == "end":
                raise _ended_early(frame)
            if frame.get("id") != number:
                continue
            match frame["f"]:
                case "progress":
                    meter.see(str(frame.get("stage")))
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
                    yield Measurement(
                        frame["figures"],
                        self._client_figures(frame["client"], step.order, meter.busy),
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

    def _within_limits(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Return the order with at most TUNNEL_STREAMS streams if they pass a tunnel."""
        if self.vantage is not Vantage.TUNNEL:
            return dict(order)
        name = "concurrency" if order.get("concurrency") else "gate"
        return {**order, name: min(order.get(name) or TUNNEL_STREAMS, TUNNEL_STREAMS)}

    def _client_figures(self, told: Mapping[str, Any], order: Mapping[str, Any], busy: float) -> dict[str, Any]:
        """Return what the load generator says of itself, and of a tunnel what this process has to do with it."""
        if self.vantage is not Vantage.TUNNEL or not told:
            return dict(told)
        asked = int(order.get("concurrency") or order.get("gate") or TUNNEL_STREAMS)
        return {
            **told,
            "client_limited": bool(told["client_limited"]) or busy > TUNNEL_BUSY or asked > TUNNEL_STREAMS,
            "client_most_streams": TUNNEL_STREAMS,
            "client_cpu": max(float(told["client_cpu"]), busy),
        }

    async def _collect(self, point: dict[str, Any], whole: dict[str, list[Any]]) -> AsyncGenerator[dict[str, Any]]:
        """Add the arrays that follow a point to `whole`; yield frames of progress if that takes time.

        Raises HostError if they don't come whole.
        """
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
        """Return the arrays of the next piece of point `number`. Raises HostError."""
        async for frame in self._frames:
            if frame.get("f") == "end":
                raise _ended_early(frame)
            if frame.get("f") == "records" and frame.get("id") == number:
                return _arrays(str(frame.get("z")))
        raise ProbeFailed("the load generator ended before all of its records arrived")

    async def stop(self) -> None:
        """Close every request; the point in progress comes with what there is."""
        await self._probe.send({"do": "stop"})

    async def close(self) -> None:
        """End the process, and every request with it."""
        await self._probe.close()


class _CpuMeter:
    """Measure how much of a core this process uses while a point's requests are in flight."""

    def __init__(self) -> None:
        self.busy = 0.0
        self._begun: tuple[float, float] | None = None

    def see(self, stage: str) -> None:
        """Take the stage of a progress frame."""
        now, cpu = time.monotonic(), time.process_time()
        if stage in ("measuring", "draining"):
            self._begun = self._begun or (now, cpu)
        elif stage == MEASURED and self._begun is not None and now > self._begun[0]:
            self.busy = (cpu - self._begun[1]) / (now - self._begun[0])


def _ended_early(frame: Mapping[str, Any]) -> ProbeFailed:
    return ProbeFailed(f"the load generator ended: {clean(str(frame.get('why')))}")


def _read_ca(path: str | None) -> str | None:
    """Return the file's text, which is sent to the host that runs the load generator. Raises OSError."""
    if path is None:
        return None
    with open(path, encoding="ascii") as file:
        return file.read()


def _arrays(packed: str) -> dict[str, list[Any]]:
    """Unpack the arrays of one frame. Raises ProbeFailed if they can't be read or unpack to more than RECORDS_LIMIT."""
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
