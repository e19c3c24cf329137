"""Plans of benchmarks, and what each point of one asks of the load generator (see `tui.probe.load` for an order's fields)."""

import math
import random
from dataclasses import dataclass, replace
from typing import Any

from tui.core.bench_result import Plan

WAVES = 4
"""At least so many requests a stream: fewer measure the ramp and the drain."""
MIN_SECONDS = 20.0
THOROUGH_SECONDS = 60.0
THOROUGH_REPEATS = 2
LONGEST_FACTOR = 9.0
"""A point of a slow server ends after this many times its least time, even if its waves aren't complete."""
SLICE_S = 120.0
"""A soak is measured in slices, so that its memory stays bounded however long it lasts."""
LONGEST = "longest prompt"
LONGEST_REQUESTS = 4
LONGEST_OUTPUT = 16
LONGEST_MARGIN = 64
"""Tokens by which the longest prompts stay below the limit: templates and special tokens need some."""


@dataclass(frozen=True, slots=True)
class Step:
    """One point to measure."""

    concurrency: int
    """Streams of a closed loop; the gate, or 0 for no gate, of an open one."""
    rate: float | None
    order: dict[str, Any]
    label: str = ""
    """"again" for the repetition that shows drift, "repeat 2" of a thorough run, LONGEST; empty otherwise."""
    output_tokens: int | None = None
    """Instead of the plan's. A step called LONGEST has prompts near the server's longest length too."""


def single_stream(*, requests: int = 5, input_tokens: int = 512, output_tokens: int = 512, **fields: Any) -> Plan:
    """Plan a few requests one after the other: what one user gets."""
    return Plan(kind="single", requests=requests, input_tokens=input_tokens, output_tokens=output_tokens, **fields)


def sweep(top: int = 256, **fields: Any) -> Plan:
    """Plan 1, 2, 4 … `top` streams until the knee, and the first point again at the end."""
    return Plan(kind="sweep", concurrency=powers(top), stop_at_knee=True, repeat_first=True, **fields)


def powers(top: int) -> tuple[int, ...]:
    """Return 1, 2, 4 … and `top` itself. Raises ValueError below 1."""
    if top < 1:
        raise ValueError(f"the top of a sweep must be at least 1, not {top}")
    steps = [1 << i for i in range(top.bit_length())]
    return tuple(steps) if steps[-1] == top else (*steps, top)


def steps_of(plan: Plan) -> tuple[Step, ...]:
    """Return the points of a plan in order, the repetition of the first included. Raises ValueError for a plan without sense."""
    if plan.request_rate is not None:
        return (_open_step(plan),)
    if not plan.concurrency or min(plan.concurrency) < 1:
        raise ValueError("a concurrency must be at least 1")
    if plan.kind == "soak":
        return _soak_steps(plan)
    repeats = THOROUGH_REPEATS if plan.thorough else 1
    steps = [
        _closed_step(plan, concurrency, f"repeat {repeat + 1}" if repeat else "")
        for concurrency in plan.concurrency
        for repeat in range(repeats)
    ]
    if plan.repeat_first and len(plan.concurrency) > 1:
        steps.append(_closed_step(plan, plan.concurrency[0], "again"))
    return tuple(steps)


def _common(plan: Plan) -> dict[str, Any]:
    return {"stall_s": plan.stall_s, "keep_text": plan.save_detailed}


def _closed_step(plan: Plan, concurrency: int, label: str) -> Step:
    order: dict[str, Any] = {**_common(plan), "concurrency": concurrency, "max_failures": max(20, 2 * concurrency)}
    if plan.stagger_s:
        order["stagger_s"] = plan.stagger_s
    if plan.requests is not None:
        order["requests"] = plan.requests
        # fewer requests than streams leave streams idle: vLLM's client starts as many as there are
        order["concurrency"] = min(concurrency, plan.requests)
    elif plan.duration_s is not None:
        order["duration_s"] = plan.duration_s
    else:
        least = plan.min_seconds if plan.min_seconds is not None else (THOROUGH_SECONDS if plan.thorough else MIN_SECONDS)
        order.update(at_least=WAVES * concurrency, at_least_s=least, at_most_s=max(LONGEST_FACTOR * least, 60.0))
    return Step(concurrency, None, order, label)


def slices(seconds: float) -> list[float]:
    """Return the lengths in seconds of the slices that make up a soak."""
    count = max(1, round(seconds / SLICE_S))
    return [seconds / count] * count


def _soak_steps(plan: Plan) -> tuple[Step, ...]:
    """Return the longest prompts first (the worst prefill that the server allows), then slices of sustained load.

    Prompts of a file are sent as they are: then there are no longest ones.
    """
    concurrency = plan.concurrency[0]
    few = min(concurrency, LONGEST_REQUESTS)
    order = {**_common(plan), "concurrency": few, "requests": few}
    longest = Step(few, None, order, LONGEST, output_tokens=LONGEST_OUTPUT)
    sustained = [
        _closed_step(replace(plan, duration_s=seconds, requests=None), concurrency, "")
        for seconds in slices(plan.duration_s or SLICE_S)
    ]
    return tuple(sustained) if plan.prompts_file is not None else (longest, *sustained)


def _open_step(plan: Plan) -> Step:
    rate = plan.request_rate or 0.0
    if rate <= 0 or plan.burstiness <= 0:
        raise ValueError("the request rate and its burstiness must be above 0")
    length = plan.duration_s or plan.min_seconds or (THOROUGH_SECONDS if plan.thorough else MIN_SECONDS * 1.5)
    count = plan.requests if plan.requests is not None else max(1, math.ceil(rate * length))
    order: dict[str, Any] = {**_common(plan), "schedule": schedule(rate, plan.burstiness, count, plan.seed), "max_failures": None}
    if plan.max_concurrency is not None:
        order["gate"] = plan.max_concurrency
    if plan.duration_s is not None:
        order["duration_s"] = plan.duration_s
    return Step(plan.max_concurrency or 0, rate, order)


def schedule(rate: float, burstiness: float, count: int, seed: int | None = None) -> list[float]:
    """Return the seconds at which `count` requests are due.

    The gaps follow a gamma distribution with shape `burstiness` (1 is a Poisson process, less comes in bursts, more is regular),
    scaled so that the whole takes count / rate, as `vllm bench serve` does it.
    """
    rng = random.Random(seed)
    at = 0.0
    due = []
    for _ in range(count):
        at += rng.gammavariate(burstiness, 1.0 / (rate * burstiness))
        due.append(at)
    scale = (count / rate) / due[-1] if due and due[-1] > 0 else 1.0
    return [x * scale for x in due]


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a benchmark will take; told before it begins on a server that serves others."""

    seconds: float
    requests: int
    tokens: int


def estimate(plan: Plan, tokens_s_per_stream: float = 50.0) -> Estimate:
    """Return a rough forecast from the speed of one stream (the last known, or a cautious 50 tokens/s)."""
    seconds = 0.0
    requests = 0
    per_request = plan.output_tokens / tokens_s_per_stream
    for step in steps_of(plan):
        order = step.order
        streams = order.get("concurrency") or 1
        if order.get("schedule"):
            count = len(order["schedule"])
            length = order["schedule"][-1] + per_request
        elif order.get("requests"):
            count = order["requests"]
            length = math.ceil(count / streams) * per_request
        elif order.get("duration_s"):
            length = order["duration_s"]
            count = math.ceil(streams * length / per_request)
        else:
            length = min(order["at_most_s"], max(order["at_least_s"], WAVES * per_request)) + per_request
            count = max(order["at_least"], math.ceil(streams * length / per_request))
        seconds += length + 32 / tokens_s_per_stream + 1.0
        requests += count + streams
    return Estimate(seconds, requests, requests * (plan.input_tokens + plan.output_tokens + plan.shared_prefix_tokens))
