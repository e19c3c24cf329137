"""Make the points of a benchmark: from the load generator's measurement, and from what the engine's GPUs drew meanwhile."""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from tui.aio import ended
from tui.core.bench_documents import heading
from tui.core.bench_plan import Step
from tui.core.bench_remarks import client_words, late_words, never_sent
from tui.core.bench_result import BenchProgress, Plan, Point
from tui.core.bench_server import foreign_running, sequences_of, server_figures
from tui.core.gpu import GpuSample, mean_power_w
from tui.core.gpu_findings import engine_gpus
from tui.core.gpu_frames import gpus_from_frame
from tui.core.presentation import counted
from tui.core.text import clean, hide
from tui.host.base import Host, HostError
from tui.services.bench_generator import Measurement

ENERGY_S = 2.0
"""Seconds between readings of the energy counters: eight of them take 30 ms of a core."""


class GpuSampling:
    """Sample the host's GPUs once a second in the background; a host without GPUs or Python has no samples."""

    def __init__(self, host: Host, wanted: str = "all", hz: float = 1.0) -> None:
        self._host = host
        self._wanted = wanted
        self._hz = hz
        self._sample: GpuSample | None = None
        self._work: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._work = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._work is not None:
            await ended(self._work)

    def newest(self) -> GpuSample | None:
        """Return the newest sample, of the engine's GPUs only; None if there is none."""
        return self._sample

    async def _watch(self) -> None:
        with contextlib.suppress(HostError):
            probe = await self._host.start_probe("watch", {"hz": self._hz, "pids": None, "paths": [], "energy_s": ENERGY_S})
            try:
                async for frame in probe:
                    if frame.get("f") == "gpus":
                        self._take(frame)
            finally:
                await probe.close()

    def _take(self, frame: Mapping[str, Any]) -> None:
        sample = gpus_from_frame(frame, time.monotonic())
        chosen = engine_gpus(sample, self._wanted)
        self._sample = replace(sample, gpus=chosen) if chosen else None


class PowerMeter:
    """Measure what the GPUs draw between `begin` and `end`, by their energy counters.

    `own` gives the samples whose counters are read often; `other` those that tell of the memory if there are none.
    """

    def __init__(self, own: Callable[[], GpuSample | None], other: Callable[[], GpuSample | None]) -> None:
        self._own = own
        self._other = other
        self._begun = False
        self._read_before: float | None = None
        """When the counters were read last before it began."""
        self._first: GpuSample | None = None
        self._last: GpuSample | None = None
        self._over = False

    def begin(self) -> None:
        """Note that the load runs; to be called again and again.

        What counts is the first sample whose counters were read since the first call: those that it finds are of a time before, in
        which the GPUs may have idled.
        """
        own = self._own()
        read = None if own is None else _read_at(own)
        if not self._begun:
            self._begun = True
            self._read_before = read
        elif self._first is None and read is not None and (self._read_before is None or read > self._read_before):
            self._first = own

    def end(self) -> None:
        """Note that the load is over, at the first call: what the GPUs draw while they idle afterwards is not the load's."""
        if not self._over:
            self._over = True
            self._last = self._own()

    def figures(self) -> dict[str, Any] | None:
        """Return the point's "gpu", up to now if `end` was not called; None if no GPU was seen."""
        self.end()
        own = self._last
        last = own if own is not None else self._other()
        if last is None:
            return None
        return {
            "count": len(last.gpus),
            "memory_used_mib": [gpu.memory_used_mib for gpu in last.gpus],
            "mean_power_w": mean_power_w(self._first, own) if self._first is not None and own is not None else None,
        }


def _read_at(sample: GpuSample) -> float | None:
    """Return when the last of its energy counters was read, in seconds of the host's clock; None if there is none."""
    return max((gpu.energy_at for gpu in sample.gpus if gpu.energy_at is not None), default=None)


def point_of(
    plan: Plan, model: str, step: Step, measured: Measurement, gpu: dict[str, Any] | None, secrets: tuple[str, ...] = ()
) -> Point:
    """Return a point as it is shown and kept, without the `secrets`: vLLM's keys first, ours behind them.

    `gpu` is what `PowerMeter.figures` gives.
    """
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
        whose = counted(figures["foreign_requests"], "request from others was", "requests from others were")
        figures["warnings"] = [*figures["warnings"], f"{whose} served meanwhile"]
    figures["foreign_running"] = foreign_running(figures, sequences_of(plan.extra_body))
    if figures["foreign_running"] and not figures["foreign_requests"]:
        whose = counted(figures["foreign_running"], "request from others was", "requests from others were")
        figures["warnings"] = [*figures["warnings"], f"{whose} still running beside ours"]
    figures["warnings"] = [*figures["warnings"], *client_words(figures)]
    if abs(figures.get("clock_step_ms") or 0.0) > 5.0:
        figures["warnings"] = [
            *figures["warnings"],
            "the machine's clock was changed during the run: latencies around that moment are wrong",
        ]
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
        detail = {**detail, "errors": [hide(clean(str(error)), secrets) for error in detail["errors"]]}
    return Point(step.concurrency, figures, detail)


def _per_joule(found: dict[str, Any], mean_power_w: float | None) -> float | None:
    """Return the tokens that arrived for each joule of the whole run, ramp and drain included; None if that is not known."""
    tokens, seconds = found.get("arrived_output_tokens"), found["duration"]
    return tokens / (mean_power_w * seconds) if tokens and mean_power_w and seconds else None


def _open_ended(order: dict[str, Any], elapsed: float, done: int) -> float | None:
    """Return the seconds left of a point that lasts for a least time and a least number of requests; None if that can't be told."""
    by_time = float(order["at_least_s"]) - elapsed
    missing = int(order.get("at_least") or 0) - done
    if missing <= 0 or not done:
        return by_time if by_time > 0 else None  # then what is in flight is left, or nobody knows how fast it goes
    most = float(order.get("at_most_s") or math.inf) - elapsed
    left = min(max(by_time, elapsed / done * missing), most)
    return left if left > 0 else None


def progress_of(frame: dict[str, Any], number: int, points: int, step: Step) -> BenchProgress:
    """Read a progress frame of the load generator about point `number` (from 0) of `points`."""
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
    return BenchProgress(
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
