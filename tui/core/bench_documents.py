"""A benchmark as documents: `bench --json`, the files of `vllm bench serve`, and the words that say what the figures mean."""

import csv
import io
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

from tui.core.bench_conclusions import knee_in, soak_verdict
from tui.core.bench_metrics import Metric, in_csv
from tui.core.bench_plan import LONGEST, LONGEST_OUTPUT
from tui.core.bench_result import Plan, Point, Result, Vantage
from tui.core.presentation import counted
from tui.core.text import clean

DEFINITIONS = "vllm-0.33"

BASE_DEVIATIONS = (
    "tokens are the server's own counts (usage), no local tokenizer",
    "reasoning_content counts as a token",
    "an error object after the first token, an aborted or a cut stream is a failure",
    "the warm-up at each point's own concurrency is excluded",
)
KERNEL_STAMPS = "arrival times are the kernel's stamps where it gives them"
PROCESS_STAMPS = "arrival times are those at which the client's own process read them"


def base_deviations(vantage: Vantage) -> tuple[str, ...]:
    """Return what holds for every benchmark with a load from there."""
    return (*BASE_DEVIATIONS, PROCESS_STAMPS if vantage is Vantage.TUNNEL else KERNEL_STAMPS)


def notes_in(result: Result) -> list[str]:
    """Return what to know about the figures of this one benchmark: its deviations without those of every one."""
    always = base_deviations(result.vantage)
    return [note for note in result.deviations if note not in always]


def too_few(plan: Plan) -> str | None:
    """Return the sentence that there are fewer requests than streams; None if there are enough."""
    most = max(plan.concurrency, default=1)
    if plan.request_rate is not None or plan.requests is None or plan.requests >= most:
        return None
    return f"{most} streams but {counted(plan.requests, 'request')}: at most {plan.requests} run at once"


def notes_of(plan: Plan) -> list[str]:
    """Return what to know about the figures of such a plan."""
    notes = []
    if (fewer := too_few(plan)) is not None:
        notes.append(fewer)
    if plan.request_rate is None and max(plan.concurrency, default=1) > 1 and not plan.stagger_s:
        notes.append("all streams begin at once, as vLLM's do: TTFT holds that burst (median_ttft_after_burst_ms is without it)")
    if plan.duration_s is not None:
        where = ": see the steady throughput, which has their tokens" if plan.request_rate is None else " but arrived_output_tokens"
        notes.append(f"requests cut off by the end of the duration are in no total{where}")
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


SOURCES = {Vantage.HOST: "on the host", Vantage.DIRECT: "from here", Vantage.TUNNEL: "from here, through the link"}
"""Where the load was generated."""


def what_was_sent(plan: Plan) -> list[str]:
    """Return the requests in words, with what lets a prefix cache help: `512 in, 256 out` and `unique prompts`."""
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
    """Return the figures of a single stream that tell how it compares with the expected speed."""
    found: dict[str, Any] = {"expected_tokens_per_s": expected_tokens_s}
    measured = point.get("output_throughput")
    if measured is not None and measured < expected_tokens_s:
        words = f"slower than expected: {measured:.1f} tok/s in a single stream, {expected_tokens_s:g} are expected"
        found["warnings"] = [*(point.figures.get("warnings") or ()), words]
    return found


def backend_of(endpoint: str) -> str:
    """Return vLLM's name for an endpoint."""
    return "openai-chat" if endpoint == "chat" else "openai"


def heading(plan: Plan, model: str, concurrency: int, at: float) -> dict[str, Any]:
    """Return the keys with which vLLM's object of a point begins. `at` is the wall clock's time of its beginning."""
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
    """Return the one JSON document of `bench --json`."""
    return {
        "schema": 1,
        "endpoint": result.endpoint,
        "model": result.model,
        "vantage": str(result.vantage),
        "definitions": DEFINITIONS,
        "deviations": list(result.deviations),
        "plan": plan_document(result.plan),
        "points": [dict(point.figures) for point in result.points],
        **conclusion_fields(result),
        "saved": list(saved),
        "stopped": result.stopped,
        "started_at": None
        if result.started_at is None
        else time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(result.started_at)),
    }


def conclusion_fields(result: Result) -> dict[str, Any]:
    """Return what the points come to: streams at the knee of a sweep that has one, the verdict of a soak."""
    knee = knee_in(result)
    return {"knee": None if knee is None else knee.streams, "soak": soak_verdict(result)}


def plain(result: Result, *, detailed: bool = True) -> dict[str, Any]:
    """Return a result as plain objects, as it is kept.

    Its per-request arrays (left out unless `detailed`) are the point's own, not copies: they may be large.
    """
    points = [dict(asdict(replace(point, detail=None)), detail=point.detail if detailed else None) for point in result.points]
    return dict(asdict(replace(result, points=())), points=points)


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return the plan without what may be secret: header values are left out."""
    fields = asdict(plan)
    fields["headers"] = sorted(plan.headers)
    fields["model"] = None if plan.model is None else clean(plan.model)
    fields["vantage"] = str(plan.vantage) if isinstance(plan.vantage, Vantage) else None
    return fields


LONGEST_NAME = 60
"""Characters of the model in a file's name: no more of 4 bytes each fit with the rest into the 255 bytes that a name may have."""


def saved_name(point: Point) -> str:
    """Return the file name that `vllm bench serve --save-result` would give this point."""
    figures = point.figures
    model = str(figures["model_id"]).rstrip("/").split("/")[-1]
    model = "".join(c if c.isalnum() or c in "._-" else "_" for c in model)[:LONGEST_NAME] or "model"
    gate = figures.get("max_concurrency")
    middle = f"-concurrency{gate}" if gate is not None else ""
    label = str(figures.get("label") or figures["backend"]).replace("/", "_").replace(" ", "_")
    rate = figures["request_rate"]
    return f"{label}-{rate}qps{middle}-{model}-{figures['date']}.json"


def saved_document(point: Point) -> dict[str, Any]:
    """Return one vLLM-shaped object, with the per-request arrays that are there."""
    return {**point.figures, **(point.detail or {})}


SLICE = 64
"""Entries of an array in one piece: those of as many requests, some tens of milliseconds of work."""
MUCH = 300_000
"""So many gaps between tokens take about a second to write."""


def json_pieces(value: Any) -> Iterator[str]:
    """Yield the pieces of what `json.dumps` would return; the keys of objects must be strings."""
    if isinstance(value, dict):
        yield "{"
        for number, (key, item) in enumerate(value.items()):
            yield f"{', ' if number else ''}{json.dumps(key)}: "
            yield from json_pieces(item)
        yield "}"
    elif isinstance(value, list | tuple) and any(isinstance(entry, dict) for entry in value):
        yield "["
        for number, item in enumerate(value):
            if number:
                yield ", "
            yield from json_pieces(item)
        yield "]"
    elif isinstance(value, list | tuple) and len(value) > SLICE:
        yield "["
        for at in range(0, len(value), SLICE):
            yield (", " if at else "") + json.dumps(value[at : at + SLICE])[1:-1]
        yield "]"
    else:
        yield json.dumps(value)


def recorded(result: Result) -> int:
    """Return how many requests of a result have their arrays."""
    return sum(len(point.detail["latencies"]) for point in result.points if point.detail)


def is_much(result: Result) -> bool:
    """Return whether writing those arrays takes so long that it should be announced."""
    return sum(len(gaps) for point in result.points if point.detail for gaps in point.detail.get("itls", ())) > MUCH


def _planned_input(result: Result, point: Point) -> int | None:
    """Return what was asked for; None for the prompts of a file and for the longest ones, which are as long as they are."""
    given = result.plan.prompts_file is not None or point.figures.get("repeat") == LONGEST
    return None if given else result.plan.input_tokens


def _planned_output(result: Result, point: Point) -> int:
    return LONGEST_OUTPUT if point.figures.get("repeat") == LONGEST else result.plan.output_tokens


Cell = Callable[[Result, Point], Any]
PLAN_COLUMNS: dict[str, Cell] = {
    "planned_input_tokens": _planned_input,
    "planned_output_tokens": _planned_output,
    "shared_prefix_tokens": lambda result, _: result.plan.shared_prefix_tokens,
    "benchmark": lambda result, _: result.plan.kind,
    "vantage": lambda result, _: str(result.vantage),
}
BEFORE_PLAN = "gpu_fullest_mib"
"""The figure after which the plan's columns stand; figures that were added later come after them."""


def _figure(metric: Metric) -> Cell:
    return lambda _, point: point.figures.get(metric.key) if metric.read is None else metric.read(point)


def csv_columns() -> dict[str, Cell]:
    """Return what stands in each column of `bench --csv`, in their stable order."""
    columns: dict[str, Cell] = {}
    for metric in in_csv():
        columns[metric.key] = _figure(metric)
        if metric.key == BEFORE_PLAN:
            columns |= PLAN_COLUMNS
    return columns


def csv_of(result: Result, *, heads: bool = True) -> str:
    """Return one row a point, below the names of the columns if `heads`."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    columns = csv_columns()
    if heads:
        writer.writerow(columns)
    for point in result.points:
        values = (cell(result, point) for cell in columns.values())
        writer.writerow(["" if value is None else value for value in values])
    return target.getvalue()
