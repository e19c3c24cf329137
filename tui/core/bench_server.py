"""The server's side of a point, from what its counters did meanwhile (lines of /metrics)."""

from collections.abc import Iterable, Mapping
from typing import Any

from tui.engines.registry import metric_names

Series = Mapping[tuple[str, str], float]

RUNNING = metric_names("running", prefixed=False)
WAITING = metric_names("waiting", prefixed=False)
"""Gauges of the requests that a server works on and that wait, without the prefix of the engine."""
GENERATED = metric_names("generation_tokens", prefixed=False)
MOST = 1e15
"""No count of a server is larger; what is, negative or no number at all is not known."""


def series(lines: Iterable[str]) -> dict[tuple[str, str], float]:
    """Return (family without the engine's prefix, labels) -> value; lines that are no samples are skipped."""
    found: dict[tuple[str, str], float] = {}
    for line in lines:
        head, _, number = line.strip().rpartition(" ")
        name, _, labels = head.partition("{")
        try:
            value = float(number)
        except ValueError:
            continue
        family = name.rpartition(":")[2].strip()
        if family:
            found[(family, labels.rstrip("}"))] = value
    return found


def _total(values: Series, family: str, only: str = "", without: str = "") -> float | None:
    chosen = [
        value
        for (name, labels), value in values.items()
        if name == family and only in labels and not (without and without in labels)
    ]
    return sum(chosen) if chosen else None


def _gauge(values: Series, families: Iterable[str]) -> float | None:
    """Return the sum over engines of the first of these families that is present; None if none is."""
    for family in families:
        known = [value for (name, _), value in values.items() if name == family and 0.0 <= value <= MOST]
        if known:
            return sum(known)
    return None


def serving(values: Series) -> int | None:
    """Return how many requests run or wait in the server now; None if it doesn't say."""
    counts = [count for families in (RUNNING, WAITING) if (count := _gauge(values, families)) is not None]
    return round(sum(counts)) if counts else None


def _delta(before: Series, after: Series, family: str, only: str = "", without: str = "") -> float | None:
    """Return how much a counter grew, summed over engines; None if it is absent or went back (the server was restarted)."""
    a = _total(before, family, only, without)
    b = _total(after, family, only, without)
    if b is None:
        return None
    grown = b - (a or 0.0)
    return grown if grown >= 0 else None


def _mean_ms(before: Series, after: Series, family: str) -> float | None:
    total = _delta(before, after, family + "_sum")
    count = _delta(before, after, family + "_count")
    return total / count * 1000.0 if total is not None and count else None


def server_figures(
    before: Iterable[str], after: Iterable[str], peaks: Mapping[str, float], ours_completed: int, ours_other: int
) -> dict[str, Any]:
    """Return what the server's counters say of the time between two looks at its metrics; None is what they don't tell.

    `ours_completed` requests of ours completed in that time, `ours_other` failed or were cut off (they may or may not have been
    counted by the server: only a surplus above both is put down to others).
    """
    a, b = series(before), series(after)
    finished = _delta(a, b, "request_success_total", without='finished_reason="abort"')
    if finished is None:
        finished = _delta(a, b, "num_requests_total")
    foreign = None
    if finished is not None:
        surplus = round(finished) - ours_completed
        foreign = max(0, surplus - ours_other) if surplus > 0 else 0
    hits = _delta(a, b, "prefix_cache_hits_total")
    queries = _delta(a, b, "prefix_cache_queries_total")
    figures: dict[str, Any] = {
        "foreign_requests": foreign,
        "server_running_before": _gauge(a, RUNNING),
        "server_waiting_before": _gauge(a, WAITING),
        "server_mean_queue_ms": _mean_ms(a, b, "request_queue_time_seconds"),
        "server_mean_prefill_ms": _mean_ms(a, b, "request_prefill_time_seconds"),
        "server_mean_ttft_ms": _mean_ms(a, b, "time_to_first_token_seconds"),
        "server_preemptions": _delta(a, b, "num_preemptions_total"),
        "server_generation_tokens": next(
            (grown for name in GENERATED if (grown := _delta(a, b, f"{name}_total")) is not None), None
        ),
        "server_prefix_cache_hit_rate": hits / queries if hits is not None and queries else None,
        "server_peak_running": peaks.get("running"),
        "server_peak_waiting": peaks.get("waiting"),
        "server_peak_kv_cache": peaks.get("kv_cache"),
    }
    figures.update(_speculation(a, b))
    return figures


def foreign_running(figures: Mapping[str, Any], sequences: int) -> int | None:
    """Return how many requests from others ran beside ours, as far as the figures of a point tell; None if they don't.

    Requests that neither began nor ended meanwhile are in no counter, but among those that run. `sequences` is how many one request
    of ours makes.
    """
    peak, ours = figures.get("server_peak_running"), figures.get("peak_concurrency")
    if peak is not None and ours is not None:
        return max(0, round(float(peak)) - int(ours) * max(1, sequences))
    # no look in so short a point: what was there when it began
    before: list[float] = [
        figures[name] for name in ("server_running_before", "server_waiting_before") if figures.get(name) is not None
    ]
    return int(sum(before)) if before else None


def sequences_of(extra_body: Mapping[str, Any]) -> int:
    """Return how many sequences the server runs for a request with these fields."""
    return max([1, *(value for name in ("n", "best_of") if isinstance(value := extra_body.get(name), int))])


def _speculation(a: Series, b: Series) -> dict[str, Any]:
    """Return the figures of speculative decoding under vLLM's key names; empty if the server doesn't speculate."""
    drafts = _delta(a, b, "spec_decode_num_drafts_total")
    drafted = _delta(a, b, "spec_decode_num_draft_tokens_total")
    accepted = _delta(a, b, "spec_decode_num_accepted_tokens_total")
    if not drafts or not drafted or accepted is None:
        return {}
    positions: dict[int, float] = {}
    for (family, labels), value in b.items():
        if family == "spec_decode_num_accepted_tokens_per_pos_total":
            for label in labels.split(","):
                name, _, text = label.partition("=")
                if name.strip() == "position" and text.strip('"').isdigit():
                    grown = value - a.get((family, labels), 0.0)
                    position = int(text.strip('"'))
                    positions[position] = positions.get(position, 0.0) + grown
    return {
        "spec_decode_acceptance_rate": accepted / drafted * 100.0,
        "spec_decode_acceptance_length": 1.0 + accepted / drafts,
        "spec_decode_num_drafts": int(drafts),
        "spec_decode_draft_tokens": int(drafted),
        "spec_decode_accepted_tokens": int(accepted),
        "spec_decode_per_position_acceptance_rates": [positions[i] / drafts for i in sorted(positions)],
    }
