"""The points of a benchmark as CSV: one row each, under columns that are the same for every benchmark.

The columns and their order are stable: new ones come at the end. What a point doesn't have is an empty cell.
"""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

from tui.core.benchmark import Point, Result
from tui.core.benchmark_plan import LONGEST, LONGEST_OUTPUT

FIGURES = """
    date endpoint_type backend label model_id tokenizer_id num_prompts request_rate burstiness max_concurrency
    duration completed failed total_input_tokens total_output_tokens request_throughput request_goodput
    output_throughput total_token_throughput max_output_tokens_per_s max_concurrent_requests peak_tokens_per_s rtfx
    mean_ttft_ms median_ttft_ms std_ttft_ms p50_ttft_ms p90_ttft_ms p95_ttft_ms p99_ttft_ms mean_tpot_ms
    median_tpot_ms std_tpot_ms p50_tpot_ms p90_tpot_ms p95_tpot_ms p99_tpot_ms mean_itl_ms median_itl_ms std_itl_ms
    p50_itl_ms p90_itl_ms p95_itl_ms p99_itl_ms mean_e2el_ms median_e2el_ms std_e2el_ms p50_e2el_ms p90_e2el_ms
    p95_e2el_ms p99_e2el_ms incomplete stopped_early without_usage tokens_per_chunk cached_prompt_tokens
    reasoning_tokens peak_concurrency connections mean_connect_ms max_connect_ms retried arrived_output_tokens
    steady_output_throughput steady_window_s p99_supported foreign_requests server_running_before
    server_waiting_before server_mean_queue_ms server_mean_prefill_ms server_mean_ttft_ms server_preemptions
    server_generation_tokens server_prefix_cache_hit_rate server_peak_running server_peak_waiting server_peak_kv_cache
    client_limited client_workers client_open_files client_cpu client_cpu_s client_us_per_event client_events
    client_lag_p50_ms client_lag_p99_ms client_lag_max_ms client_stamps client_unstamped client_chunks_read_together
    clock_step_ms summary_cpu_s host_cores host_busy_cores host_idle_cores api_server_cpu_cores foreign_running repeat
"""
"""Of a point, by the names that they have in `bench --json`."""
LATER_FIGURES = """
    cut median_ttft_after_burst_ms mean_first_answer_ms median_first_answer_ms std_first_answer_ms p50_first_answer_ms
    p90_first_answer_ms p95_first_answer_ms p99_first_answer_ms mean_schedule_slip_ms median_schedule_slip_ms
    std_schedule_slip_ms p50_schedule_slip_ms p90_schedule_slip_ms p95_schedule_slip_ms p99_schedule_slip_ms
    unsent_requests expected_tokens_per_s max_num_batched_tokens spec_decode_acceptance_rate
    spec_decode_acceptance_length spec_decode_num_drafts spec_decode_draft_tokens spec_decode_accepted_tokens
"""
"""Those that only some points have."""
INTERVALS = (
    "steady_output_throughput",
    "median_ttft_ms",
    "p99_ttft_ms",
    "median_tpot_ms",
    "p99_tpot_ms",
    "median_e2el_ms",
)
"""Figures with a 95 % interval: two columns each, NAME_ci95_low and NAME_ci95_high."""
GPU = ("count", "mean_power_w", "tokens_per_s_per_gpu", "tokens_per_joule")


def _planned_input(result: Result, point: Point) -> int | None:
    """What was asked for; None for the prompts of a file and for the longest ones, which are as long as they are."""
    given = result.plan.prompts_file is not None or point.figures.get("repeat") == LONGEST
    return None if given else result.plan.input_tokens


def _planned_output(result: Result, point: Point) -> int:
    return LONGEST_OUTPUT if point.figures.get("repeat") == LONGEST else result.plan.output_tokens


def _gpu(point: Point) -> dict[str, Any]:
    found = point.figures.get("gpu")
    return found if isinstance(found, dict) else {}


def _fullest(point: Point) -> float | None:
    return max((one for one in _gpu(point).get("memory_used_mib") or () if one is not None), default=None)


Cell = Callable[[Result, Point], Any]


def _figure(name: str) -> Cell:
    return lambda _, point: point.figures.get(name)


def _bound(name: str, which: int) -> Cell:
    def cell(_: Result, point: Point) -> float | None:
        bounds = point.interval(name)
        return None if bounds is None else bounds[which]

    return cell


def _of_gpus(name: str) -> Cell:
    return lambda _, point: _gpu(point).get(name)


COLUMNS: dict[str, Cell] = {
    **{name: _figure(name) for name in (FIGURES + LATER_FIGURES).split()},
    **{f"{name}_ci95_{end}": _bound(name, which) for name in INTERVALS for which, end in enumerate(("low", "high"))},
    "errors_by_kind": lambda _, point: json.dumps(point.figures.get("errors_by_kind") or {}, sort_keys=True),
    "warnings": lambda _, point: "; ".join(map(str, point.figures.get("warnings") or ())),
    **{f"gpu_{name}": _of_gpus(name) for name in GPU},
    "gpu_fullest_mib": lambda _, point: _fullest(point),
    "planned_input_tokens": _planned_input,
    "planned_output_tokens": _planned_output,
    "shared_prefix_tokens": lambda result, _: result.plan.shared_prefix_tokens,
    "benchmark": lambda result, _: result.plan.kind,
    "vantage": lambda result, _: str(result.vantage),
}
"""What stands in each column, in their order."""


def csv_of(result: Result, *, heads: bool = True) -> str:
    """One row a point, below the names of the columns. `heads`: with those."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    if heads:
        writer.writerow(COLUMNS)
    for point in result.points:
        values = (cell(result, point) for cell in COLUMNS.values())
        writer.writerow(["" if value is None else value for value in values])
    return target.getvalue()
