"""The server's own counters beside the load: lines of /metrics that matter, and the peaks of its gauges meanwhile. Python 3.8."""

import math
import threading
from typing import Any, Dict, List, Tuple

from tui.probe.load_ask import Caller
from tui.probe.load_http import target_of
from tui.probe.load_net import Address, tls_context

NAMES = (
    "request_success_total",
    "num_requests_running",
    "num_requests_waiting",
    "num_running_reqs",
    "num_queue_reqs",
    "num_requests_total",
    "num_preemptions_total",
    "kv_cache_usage_perc",
    "gpu_cache_usage_perc",
    "token_usage",
    "request_queue_time_seconds_sum",
    "request_queue_time_seconds_count",
    "request_prefill_time_seconds_sum",
    "request_prefill_time_seconds_count",
    "request_decode_time_seconds_sum",
    "request_decode_time_seconds_count",
    "time_to_first_token_seconds_sum",
    "time_to_first_token_seconds_count",
    "prompt_tokens_total",
    "generation_tokens_total",
    "prefix_cache_hits_total",
    "prefix_cache_queries_total",
    "spec_decode_num_drafts_total",
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total",
    "spec_decode_num_accepted_tokens_per_pos_total",
)
"""Families of interest, without the engine's prefix (`vllm:`, `sglang:`)."""

PREFIXES = ("vllm:", "sglang:")
EVERY_S = 1.0
METRICS_S = 10.0
"""A server that is at work takes its time; one that hangs takes for ever."""

LEAVING_S = 3.0
"""For who has asked to stop: then the server's last counters are worth no longer wait."""


def metrics_lines(caller: Caller, within_s: float = METRICS_S) -> Tuple[bool, List[str]]:
    """Whether there are metrics, and the lines of them that matter, as the server wrote them within so many seconds."""
    try:
        status, body = caller.ask("GET", "/metrics", within_s=within_s)
    except (OSError, ValueError):
        return False, []
    if status != 200:
        return False, []
    found = []
    for line in body.decode("utf-8", "replace").split("\n"):
        if line.startswith(PREFIXES):
            name = line.split("{", 1)[0].split(" ", 1)[0].split(":", 1)[1]
            if name in NAMES:
                found.append(line[:1000])
    return bool(found), found


def values_of(lines: List[str], *names: str) -> List[float]:
    """What each engine says of the first of these families that is there: a value that is no number is not known."""
    for name in names:
        values = []
        for line in lines:
            family, _, word = line.rpartition(" ")
            if family.split("{", 1)[0].split(":", 1)[1] == name:
                try:
                    value = float(word)
                except ValueError:
                    continue
                if math.isfinite(value):
                    values.append(value)
        if values:
            return values
    return []


def note_peaks(peaks: Dict[str, float], lines: List[str]) -> None:
    """Raises the peaks to what these lines say: requests that run and that wait, of all engines together, and the share of the KV
    cache (0 to 1) of the engine where it is the largest, since each has a cache of its own."""
    for key, over, names in (
        ("running", sum, ("num_requests_running", "num_running_reqs")),
        ("waiting", sum, ("num_requests_waiting", "num_queue_reqs")),
        ("kv_cache", max, ("kv_cache_usage_perc", "gpu_cache_usage_perc", "token_usage")),
    ):
        values = values_of(lines, *names)
        if values:
            peaks[key] = max(peaks.get(key, 0.0), over(values))


class Gauges:
    """Looks at the server's gauges once a second, from a thread that sleeps nearly all the time, and keeps their peaks."""

    def __init__(self, plan: Dict[str, Any], address: Address) -> None:
        target = target_of(plan["url"])
        context = tls_context(plan.get("verify", True), plan.get("ca")) if target.tls else None
        self._caller = Caller(target, [address], context, plan.get("headers") or {}, plan.get("version", ""))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gauges", daemon=True)
        self._peaks: Dict[str, float] = {}
        self._samples = 0

    def start(self) -> None:
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(EVERY_S):
            there, lines = metrics_lines(self._caller)
            if not there:
                continue
            self._samples += 1
            note_peaks(self._peaks, lines)
        self._caller.close()

    def end(self) -> Dict[str, float]:
        """Stops looking; the peaks seen. Waits for a sample in progress for a moment only."""
        self._ended.set()
        self._thread.join(0.5)
        return dict(self._peaks, samples=float(self._samples))
