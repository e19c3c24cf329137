"""From what a load source measured to the figures of a point, and from its frames to progress."""

import math
import time
from typing import Any

from tui.core.benchmark import Plan, Point, Progress
from tui.core.benchmark_client import client_words
from tui.core.benchmark_open import late_words, never_sent
from tui.core.benchmark_plan import Step
from tui.core.benchmark_report import heading
from tui.core.benchmark_server import foreign_running, sequences_of, server_figures
from tui.core.counted import counted
from tui.core.text import clean, hide
from tui.services.benchmark_probe import Measured


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
