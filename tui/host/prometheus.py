"""Read a server's /metrics as one `ServerMetrics`: sums over engines, rates between two readings, names of every engine and era.

A page of 64 engines has ten thousand lines, comes every second, and two thousand of its lines count: one pattern picks these out in
6 ms, where prometheus_client's parser takes 150 ms for them. Of their labels only `le` is looked at.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tui.core.api_status import ServerMetrics
from tui.engines.registry import metric_names

RUNNING = metric_names("running")
WAITING = metric_names("waiting")
KV_CACHE = metric_names("kv_cache")
PROMPT_TOKENS = metric_names("prompt_tokens")
GENERATION_TOKENS = metric_names("generation_tokens")
PREEMPTIONS = metric_names("preemptions")
FINISHED = metric_names("finished")
PREFIX_QUERIES = metric_names("prefix_queries")
PREFIX_HITS = metric_names("prefix_hits")
PREFIX_RATE = metric_names("prefix_rate")
TTFT = metric_names("ttft")

_ALL = (
    RUNNING,
    WAITING,
    KV_CACHE,
    PROMPT_TOKENS,
    GENERATION_TOKENS,
    PREEMPTIONS,
    FINISHED,
    PREFIX_QUERIES,
    PREFIX_HITS,
    PREFIX_RATE,
    TTFT,
)
_NAMES = sorted({name for names in _ALL for name in names}, key=len, reverse=True)
_SAMPLE = re.compile(
    rb"^((?:%s)(?:_total|_bucket)?)(?:\{([^\n]{0,4096})\})?[ \t]+([^\s]{1,40})(?:[ \t]+-?\d{1,20})?[ \t]*\r?$"
    % "|".join(_NAMES).encode(),
    re.M,
)
"""A line of the text format: name, labels, value, perhaps a time."""
_LE = re.compile(rb'(?:^|,)\s*le="([^"]*)"')
MOST = 1e15
"""No count of a server is larger; what is, negative, infinite or no number at all is not known."""
MOST_SAMPLES = 20_000

Samples = Mapping[str, list[tuple[str, float]]]
"""Of each name the upper bounds (empty if the sample is no bucket) and values."""


class MetricsReader:
    """Reads successive pages of one server; remembers the reading before for the rates."""

    def __init__(self) -> None:
        self._before: tuple[float, dict[str, float]] | None = None
        self._buckets: dict[float, float] = {}
        self._ttft_p50_ms: float | None = None
        self._ttft_between_ms: tuple[float, float | None] | None = None

    def read(self, page: bytes, at: float) -> ServerMetrics | None:
        """`at` is the client's monotonic clock. None when the page has nothing that is known here."""
        return self.take(samples_of(page), at)

    def take(self, samples: Samples, at: float) -> ServerMetrics | None:
        """Read a page as `read` does, one that `samples_of` has read."""
        if not samples:
            return None
        counters = {
            "prompt": _total(samples, PROMPT_TOKENS),
            "generation": _total(samples, GENERATION_TOKENS),
            "hits": _total(samples, PREFIX_HITS),
            "queries": _total(samples, PREFIX_QUERIES),
        }
        known = {name: value for name, value in counters.items() if value is not None}
        rates: dict[str, float] = {}
        gained: dict[str, float] = {}
        if self._before is not None:
            seconds = at - self._before[0]
            for name, value in known.items():
                gain = value - self._before[1].get(name, value)
                # A counter that fell is a server that started again: no rate can be told this time.
                if gain >= 0 and seconds > 0:
                    gained[name] = gain
                    rates[name] = gain / seconds
        self._before = (at, known)
        self._see_ttft(samples)
        return ServerMetrics(
            running=_total(samples, RUNNING),
            waiting=_total(samples, WAITING),
            kv_cache_share=_fullest(samples, KV_CACHE),
            prompt_tokens=counters["prompt"],
            generation_tokens=counters["generation"],
            prompt_tokens_s=rates.get("prompt"),
            generation_tokens_s=rates.get("generation"),
            preemptions=_total(samples, PREEMPTIONS),
            requests_finished=_total(samples, FINISHED),
            prefix_hit_share=_hit_share(counters, gained, samples),
            ttft_p50_ms=self._ttft_p50_ms,
            ttft_p50_between_ms=self._ttft_between_ms,
        )

    def _see_ttft(self, samples: Samples) -> None:
        """Update the median of the requests that got their first token since the page before; kept while there are none."""
        buckets: dict[float, float] = {}
        for name in TTFT:
            for le, value in samples.get(name + "_bucket", ()):
                try:
                    bound = float(le)
                except ValueError:
                    continue
                buckets[bound] = buckets.get(bound, 0.0) + value
        fresh = {bound: count - self._buckets.get(bound, 0.0) for bound, count in buckets.items()}
        if any(count < 0 for count in fresh.values()):
            fresh = buckets
        self._buckets = buckets
        median = _median(fresh)
        if median is not None:
            at, low, high = median
            self._ttft_p50_ms = at * 1000.0
            self._ttft_between_ms = low * 1000.0, None if high == float("inf") else high * 1000.0


def samples_of(page: bytes) -> Samples:
    """Return the samples that are known here, by name; none when the page is no Prometheus text, or has more of them than any
    server.

    Needs nothing of the reader: a large page can be read in a thread.
    """
    found: dict[str, list[tuple[str, float]]] = {}
    for number, line in enumerate(_SAMPLE.finditer(page)):
        if number >= MOST_SAMPLES:
            return {}
        name, labels, written = line.groups()
        try:
            value = float(written)
        except ValueError:
            return {}
        bound = _LE.search(labels) if labels and name.endswith(b"_bucket") else None
        found.setdefault(name.decode(), []).append((bound[1].decode("ascii", "replace") if bound else "", value))
    return found


def _values(samples: Samples, names: Iterable[str]) -> list[float]:
    for name in names:
        for key in (name, name + "_total"):
            values = [value for _, value in samples.get(key, ()) if 0.0 <= value <= MOST]
            if values:
                return values
    return []


def _total(samples: Samples, names: Iterable[str]) -> float | None:
    values = _values(samples, names)
    return sum(values) if values else None


def _fullest(samples: Samples, names: Iterable[str]) -> float | None:
    values = _values(samples, names)
    return max(values) if values else None


def _hit_share(counters: Mapping[str, Any], gained: Mapping[str, float], samples: Samples) -> float | None:
    if gained.get("queries"):
        return gained.get("hits", 0.0) / gained["queries"]
    if counters["queries"]:
        return float((counters["hits"] or 0.0) / counters["queries"])
    rate = _fullest(samples, PREFIX_RATE)
    return rate if rate is not None and rate >= 0 else None


def _median(cumulative: Mapping[float, float]) -> tuple[float, float, float] | None:
    """Return the median by linear interpolation inside its bucket, as Prometheus' histogram_quantile does it, and the bucket's
    bounds."""
    bounds = sorted(cumulative)
    total = cumulative[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return None
    low, below = 0.0, 0.0
    for bound in bounds:
        count = cumulative[bound]
        if count >= total / 2:
            if bound == float("inf"):
                return low, low, bound
            return low + (bound - low) * ((total / 2 - below) / (count - below) if count > below else 1.0), low, bound
        low, below = bound, count
    return low, low, low
