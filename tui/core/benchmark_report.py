"""A benchmark as documents: `bench --json`, the files of `vllm bench serve`, and the words that say what the figures mean."""

import time
from dataclasses import asdict, replace
from typing import Any

from tui.core.benchmark import Plan, Point, Result, Vantage
from tui.core.benchmark_knee import knee_in
from tui.core.benchmark_soak import soak_verdict
from tui.core.counted import counted
from tui.core.text import clean

DEFINITIONS = "vllm-0.33"

MEANINGS = (
    ("TTFT", "first token-bearing chunk − send (the role chunk is none; reasoning is one)"),
    ("ITL", "gap between chunks, pooled over all requests"),
    ("TPOT", "(last − first) / (tokens − 1), one value a request"),
    ("tok/s", "output tokens of completed requests / whole run, ramp and drain included"),
    ("steady", "the same while all streams were busy"),
)
"""What the figures of a closed loop mean; an open one has no time in which all streams were busy."""


def meanings(plan: Plan) -> str:
    """What the figures mean, in one sentence."""
    told = (f"{name}: {meaning}" for name, meaning in MEANINGS if name != "steady" or plan.request_rate is None)
    return "; ".join(told) + " (definitions of vLLM 0.33)"


BASE_DEVIATIONS = (
    "tokens are the server's own counts (usage), no local tokenizer",
    "reasoning_content counts as a token",
    "an error object after the first token, an aborted or a cut stream is a failure",
    "the warm-up at each point's own concurrency is excluded",
)
KERNEL_STAMPS = "arrival times are the kernel's stamps where it gives them"
PROCESS_STAMPS = "arrival times are those at which the client's own process read them"


def base_deviations(vantage: Vantage) -> tuple[str, ...]:
    """What is so in every benchmark with a load from there."""
    return (*BASE_DEVIATIONS, PROCESS_STAMPS if vantage is Vantage.TUNNEL else KERNEL_STAMPS)


def notes_in(result: Result) -> list[str]:
    """What must be known of the figures of this one benchmark: its deviations without those of every one."""
    always = base_deviations(result.vantage)
    return [one for one in result.deviations if one not in always]


def too_few(plan: Plan) -> str | None:
    """Says that there are fewer requests than streams, where it is so."""
    most = max(plan.concurrency, default=1)
    if plan.request_rate is not None or plan.requests is None or plan.requests >= most:
        return None
    return f"{most} streams but {counted(plan.requests, 'request')}: at most {plan.requests} run at once"


def notes_of(plan: Plan) -> list[str]:
    """What must be known of the figures of such a plan."""
    notes = []
    if (fewer := too_few(plan)) is not None:
        notes.append(fewer)
    if plan.request_rate is None and max(plan.concurrency, default=1) > 1 and not plan.stagger_s:
        notes.append("all streams begin at once, as vLLM's do: TTFT holds that burst (median_ttft_after_burst_ms is without it)")
    if plan.duration_s is not None:
        where = ": see the steady throughput, which has their tokens" if plan.request_rate is None else " but arrived_output_tokens"
        notes.append(f"requests cut off by the end of the duration are in no sum{where}")
    if plan.prompts_file is not None:
        notes.append("prompts of a file are sent as they are, again and again: a prefix cache may help")
        if plan.kind == "soak":
            notes.append("no prompt near the server's longest length was tried: the prompts are those of the file")
    notes += plan.prompts_notes
    if plan.seed is not None:
        notes.append("the prompts are those of every run with this seed: a prefix cache may help")
    if plan.shared_prefix_tokens:
        notes.append(f"all prompts share {plan.shared_prefix_tokens} tokens, as asked: the prefix cache helps")
    return notes


def what_was_sent(plan: Plan) -> list[str]:
    """The requests in words, with what lets a prefix cache help: `512 in, 256 out` and `unique prompts`."""
    source = "prompts of a file" if plan.prompts_file is not None else f"{plan.input_tokens:,} in"
    words = [f"{source}, {plan.prompts_out or format(plan.output_tokens, ',')} out"]
    if plan.endpoint != "chat":
        words.append(plan.endpoint)
    if plan.shared_prefix_tokens:
        words.append(f"{plan.shared_prefix_tokens:,} tokens shared")
    if plan.prompts_file is not None:
        return words  # a seed makes none of them
    if plan.seed is not None:
        words.append(f"prompts of seed {plan.seed}")
    elif not plan.shared_prefix_tokens:
        words.append("unique prompts")
    return words


def against(expected_tokens_s: float, point: Point) -> dict[str, Any]:
    """The figures of a single stream that say how it stands to what is expected of one."""
    found: dict[str, Any] = {"expected_tokens_per_s": expected_tokens_s}
    measured = point.get("output_throughput")
    if measured is not None and measured < expected_tokens_s:
        words = f"slower than expected: {measured:.1f} tok/s in a single stream, {expected_tokens_s:g} are expected"
        found["warnings"] = [*(point.figures.get("warnings") or ()), words]
    return found


def backend_of(endpoint: str) -> str:
    """vLLM's name for an endpoint."""
    return "openai-chat" if endpoint == "chat" else "openai"


def heading(plan: Plan, model: str, concurrency: int, at: float) -> dict[str, Any]:
    """The keys with which vLLM's object of a point begins. `at` is the wall clock's time of its beginning."""
    backend = backend_of(plan.endpoint)
    return {
        "date": time.strftime("%Y%m%d-%H%M%S", time.localtime(at)),
        "endpoint_type": backend,
        "backend": backend,
        "label": None,
        "model_id": model,
        "tokenizer_id": model,
        "num_prompts": None,
        "request_rate": plan.request_rate if plan.request_rate is not None else "inf",
        "burstiness": plan.burstiness,
        "max_concurrency": concurrency or None,
    }


def document(result: Result, saved: tuple[str, ...] = ()) -> dict[str, Any]:
    """The one JSON document of `bench --json`."""
    return {
        "schema": 1,
        "endpoint": result.endpoint,
        "model": result.model,
        "vantage": str(result.vantage),
        "definitions": DEFINITIONS,
        "deviations": list(result.deviations),
        "plan": plan_document(result.plan),
        "points": [dict(point.figures) for point in result.points],
        **conclusions(result),
        "saved": list(saved),
        "stopped": result.stopped,
        "started_at": None
        if result.started_at is None
        else time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(result.started_at)),
    }


def conclusions(result: Result) -> dict[str, Any]:
    """What the points come to: streams at the knee of a sweep that has one, the verdict of a soak."""
    knee = knee_in(result)
    return {"knee": None if knee is None else knee.streams, "soak": soak_verdict(result)}


def plain(result: Result, *, detailed: bool = True) -> dict[str, Any]:
    """A result as plain objects, as it is kept. Its per-request arrays are not copied, but the point's own: they may be large.

    `detailed`: with them.
    """
    points = [dict(asdict(replace(point, detail=None)), detail=point.detail if detailed else None) for point in result.points]
    return dict(asdict(replace(result, points=())), points=points)


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan without what may be secret: header values are left out."""
    fields = asdict(plan)
    fields["headers"] = sorted(plan.headers)
    fields["model"] = None if plan.model is None else clean(plan.model)
    fields["vantage"] = str(plan.vantage) if isinstance(plan.vantage, Vantage) else None
    return fields


LONGEST_NAME = 60
"""Characters of the model in a file's name: no more of 4 bytes each fit with the rest into the 255 bytes that a name may have."""


def saved_name(point: Point) -> str:
    """The file name that `vllm bench serve --save-result` would give this point."""
    figures = point.figures
    model = str(figures["model_id"]).rstrip("/").split("/")[-1]
    model = "".join(c if c.isalnum() or c in "._-" else "_" for c in model)[:LONGEST_NAME] or "model"
    gate = figures.get("max_concurrency")
    middle = f"-concurrency{gate}" if gate is not None else ""
    label = str(figures.get("label") or figures["backend"]).replace("/", "_").replace(" ", "_")
    rate = figures["request_rate"]
    return f"{label}-{rate}qps{middle}-{model}-{figures['date']}.json"


def saved_document(point: Point) -> dict[str, Any]:
    """One vLLM-shaped object, with the per-request arrays that are there."""
    return {**point.figures, **(point.detail or {})}
