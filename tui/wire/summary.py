"""The figures made of a load generator's records (`record`), by the definitions of `vllm bench serve` (0.33).

Times are seconds of one clock; figures are named as vLLM names them (`mean_ttft_ms`, ...), ours bear names that vLLM doesn't use.

    st      just before the request is sent, after the concurrency gate and on an open connection
    TTFT    first token-bearing chunk - st
    ITL     gaps between consecutive token-bearing chunks, pooled over all requests
    E2EL    last token-bearing chunk - st
    TPOT    (E2EL - TTFT) / (n - 1), one value a request with n > 1; n = usage.completion_tokens
    duration             from before the first request is scheduled until the last one is done, failures included
    output_throughput    sum of n over the completed requests / duration

Percentiles interpolate linearly, std is the population's (numpy's defaults). A failed or incomplete request is in no latency and
no sum of tokens. A figure that the records do not settle is None. Python 3.8: this runs on the GPU host.
"""

import math
from array import array
from bisect import bisect_left, bisect_right
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from tui.wire.request_record import COMPLETED, FAILED, INCOMPLETE, RequestRecord

PERCENTILES = (50.0, 90.0, 95.0, 99.0)
EXAMPLES = 10
PLAIN_ARRAYS = ("latencies", "queue_times")
"""Of vLLM's per-request arrays those that its files hold in any case."""
ARRAYS = ("input_lens", "output_lens", "start_times", "ttfts", "itls", *PLAIN_ARRAYS, "generated_texts", "errors")
"""All of them, as `--save-detailed` leaves them in."""

SLICES = 10
T_975_9 = 2.262
"""Student's t for a 95 % interval with SLICES - 1 degrees of freedom."""

P99_SAMPLES = 368
"""With fewer samples even the largest is no 95 % upper bound of the 99th percentile (1 - 0.99^n < 0.975)."""


def percentile(ordered: Sequence[float], p: float) -> float:
    """Return the p-th percentile (0 to 100) of values in ascending order, interpolated linearly as numpy does.

    Raises ValueError if there are no values.
    """
    if not ordered:
        raise ValueError("no values")
    position = (len(ordered) - 1) * (p / 100.0)
    low = math.floor(position)
    fraction = position - low
    if fraction == 0.0 or low + 1 >= len(ordered):
        return float(ordered[low])
    a, b = ordered[low], ordered[low + 1]
    # numpy's own order of operations, so that the last bit agrees too
    return b - (b - a) * (1.0 - fraction) if fraction >= 0.5 else a + (b - a) * fraction


def spread(name: str, seconds: Iterable[float], percentiles: Sequence[float] = PERCENTILES) -> Dict[str, Optional[float]]:
    """Return mean, median, std and percentiles of a latency in ms under vLLM's names; None each if there are no values."""
    ordered = sorted(seconds)
    figures: Dict[str, Optional[float]] = {}
    n = len(ordered)
    mean = math.fsum(ordered) / n if n else 0.0
    figures["mean_%s_ms" % name] = mean * 1000.0 if n else None
    figures["median_%s_ms" % name] = percentile(ordered, 50.0) * 1000.0 if n else None
    figures["std_%s_ms" % name] = math.sqrt(math.fsum((x - mean) ** 2 for x in ordered) / n) * 1000.0 if n else None
    for p in percentiles:
        word = str(int(p)) if int(p) == p else str(p)
        figures["p%s_%s_ms" % (word, name)] = percentile(ordered, p) * 1000.0 if n else None
    return figures


def quantile_interval(ordered: Sequence[float], p: float) -> Optional[List[float]]:
    """Return a distribution-free 95 % confidence interval of the p-th percentile; None if there are too few values for a bound.

    By order statistics (binomial, normal approximation).
    """
    n = len(ordered)
    q = p / 100.0
    half = 1.96 * math.sqrt(n * q * (1.0 - q))
    low = math.floor(n * q - half) - 1
    high = math.ceil(n * q + half)
    if low < 0 or high >= n:
        return None
    return [ordered[low], ordered[high]]


def _edges(records: Sequence[RequestRecord]) -> List[Tuple[float, int, RequestRecord]]:
    """Return when requests came into flight (1) and left it (-1), in order of time: one that ends when another starts ends first.

    Those that could not be sent, or that a clock set back made end before they began, were in flight at no time.
    """
    sent = [r for r in records if r.start and r.end > r.start]
    return sorted([(r.end, -1, r) for r in sent] + [(r.start, 1, r) for r in sent], key=lambda edge: edge[:2])


def steady_window(records: Sequence[RequestRecord], concurrency: int, stop: float) -> Optional[Tuple[float, float]]:
    """Return the time in which all `concurrency` streams were busy; None if there was none.

    It begins once each of the requests that first made that many in flight has its first token (or has failed without), and ends
    with the first end after which there were never that many again, or at `stop` (when dispatching ended by time). There is none
    with fewer requests than streams, or if the streams never overlapped.
    """
    flying: Dict[int, RequestRecord] = {}
    begin: Optional[float] = None
    end: Optional[float] = None
    for at, step, r in _edges(records):
        if step > 0:
            flying[id(r)] = r
            if len(flying) >= concurrency:
                end = None
                if begin is None:
                    begin = max(flown.chunks[0] if flown.chunks else flown.end for flown in flying.values())
        else:
            flying.pop(id(r), None)
            if end is None and r.state != INCOMPLETE:
                end = at
    if begin is None:
        return None
    end = stop if end is None else min(end, stop)
    return (begin, end) if end > begin else None


def _weights(records: Sequence[RequestRecord]) -> Tuple[float, List[Tuple[RequestRecord, float]]]:
    """Return tokens per chunk over all, and of each request that delivered any; without a count of its own it has the mean."""
    known = [r for r in records if r.state == COMPLETED and r.chunks]
    chunks = sum(len(r.chunks) for r in known)
    mean = sum(r.tokens for r in known) / chunks if chunks else 1.0
    pairs = [
        (r, r.n_out / len(r.chunks) if r.n_out is not None and r.state == COMPLETED else mean)
        for r in records
        if r.chunks and r.state != FAILED
    ]
    return mean, pairs


def tokens_between(pairs: Sequence[Tuple[RequestRecord, float]], begin: float, end: float) -> float:
    """Return the tokens that arrived in (begin, end]; those of one chunk arrive together."""
    total = 0.0
    for r, weight in pairs:
        total += weight * (bisect_right(r.chunks, end) - bisect_right(r.chunks, begin))
    return total


def _peaks(done: Sequence[RequestRecord], pairs: Sequence[Tuple[RequestRecord, float]]) -> Dict[str, Any]:
    """Per-second peaks as vLLM counts them (chunks; anything active in any part of a second), and in tokens."""
    if not done:
        return {"max_output_tokens_per_s": None, "max_concurrent_requests": None, "peak_tokens_per_s": None}
    first = min(r.start for r in done)
    seconds = math.ceil(max(r.chunks[-1] for r in done) - first) + 1
    if seconds < 1:  # the clock was set back meanwhile, by more than all took
        return _peaks((), ())
    chunks = [0] * seconds
    active = [0] * seconds
    tokens = [0.0] * seconds
    weight_of = {id(r): weight for r, weight in pairs}
    for r in done:
        weight = weight_of[id(r)]
        start = int(r.start - first)
        last = int(r.chunks[-1] - first)
        low = 0
        for second in range(start, last + 1):
            active[second] += 1
            high = bisect_left(r.chunks, first + second + 1, low)
            chunks[second] += high - low
            tokens[second] += (high - low) * weight
            low = high
    return {
        "max_output_tokens_per_s": float(max(chunks)),
        "max_concurrent_requests": max(active),
        "peak_tokens_per_s": max(tokens),
    }


def _peak_concurrency(records: Sequence[RequestRecord]) -> int:
    """Return the most requests that were in flight at one moment."""
    now = peak = 0
    for _, step, _ in _edges(records):
        now += step
        peak = max(peak, now)
    return peak


def errors_by_kind(records: Sequence[RequestRecord]) -> Tuple[Dict[str, int], List[Dict[str, Any]]]:
    """Return how many failed of each kind, and the first examples (one a kind and text)."""
    kinds: Dict[str, int] = {}
    examples: List[Dict[str, Any]] = []
    seen = set()
    for r in records:
        if r.state == FAILED:
            kinds[r.kind] = kinds.get(r.kind, 0) + 1
            if (r.kind, r.error) not in seen and len(examples) < EXAMPLES:
                seen.add((r.kind, r.error))
                examples.append({"kind": r.kind, "status": r.status, "message": r.error[:500], "request": r.index})
    return kinds, examples


def goodput(done: Sequence[RequestRecord], limits: Dict[str, float], duration: float) -> Optional[float]:
    """Completed requests a second that meet every limit (ttft, tpot, e2el in ms). A one-token reply has TPOT 0, as in vLLM."""
    if not limits:
        return None
    good = 0
    for r in done:
        e2el = r.chunks[-1] - r.start
        ttft = r.chunks[0] - r.start
        values = {"ttft": ttft, "e2el": e2el, "tpot": (e2el - ttft) / (r.tokens - 1) if r.tokens > 1 else 0.0}
        good += all(values[name] * 1000.0 <= limit for name, limit in limits.items())
    return good / duration if duration > 0 else None


def summary(
    records: Sequence[RequestRecord],
    begin: float,
    end: float,
    *,
    concurrency: Optional[int] = None,
    dispatch_end: Optional[float] = None,
    limits: Optional[Dict[str, float]] = None,
    percentiles: Sequence[float] = PERCENTILES,
) -> Dict[str, Any]:
    """Return the figures of a point: vLLM's keys and ours.

    `begin` is before the first request was scheduled, `end` when the last one was done; `dispatch_end` when dispatching ended by
    time (None: it ended with the last request). `concurrency` is None for an open loop, which has no steady window.
    """
    duration = end - begin
    done = [r for r in records if r.state == COMPLETED and r.chunks]
    failed = sum(r.state == FAILED for r in records)
    mean_weight, pairs = _weights(records)
    out_tokens = sum(r.tokens for r in done)
    in_tokens = sum(r.n_in or 0 for r in done)
    knows_input = any(r.n_in is not None for r in done)
    rate = (lambda x: x / duration) if duration > 0 else (lambda x: None)
    figures: Dict[str, Any] = {
        "num_prompts": len(records),
        "duration": duration,
        "completed": len(done),
        "failed": failed,
        "total_input_tokens": in_tokens if knows_input or not done else None,
        "total_output_tokens": out_tokens,
        "request_throughput": rate(len(done)),
        "request_goodput": goodput(done, limits or {}, duration),
        "output_throughput": rate(out_tokens),
        "total_token_throughput": rate(in_tokens + out_tokens) if knows_input or not done else None,
    }
    figures.update(_peaks(done, pairs))
    ttfts = sorted(r.chunks[0] - r.start for r in done)
    tpots = sorted((r.chunks[-1] - r.chunks[0]) / (r.tokens - 1) for r in done if r.tokens > 1)
    itls = array("d")
    for r in done:
        chunks = r.chunks
        itls.extend([b - a for a, b in zip(chunks, chunks[1:])])
    e2els = [r.chunks[-1] - r.start for r in done]
    figures["rtfx"] = 0.0
    for name, values in (("ttft", ttfts), ("tpot", tpots), ("itl", itls), ("e2el", e2els)):
        figures.update(spread(name, values, percentiles))
    figures.update(_own(records, done, mean_weight))
    figures["arrived_output_tokens"] = tokens_between(pairs, begin, end)  # those of requests that were cut by the end, too
    answers = [r.answer - r.start for r in done if r.answer is not None]
    if any(r.reasoning or (r.answer is not None and r.answer > r.chunks[0]) for r in done):
        figures.update(spread("first_answer", answers, percentiles))
    if concurrency and concurrency > 1:
        # the first requests of a closed loop are sent at once: their TTFT is that of a burst
        later = sorted(done, key=lambda r: r.start)[concurrency:]
        values = sorted(r.chunks[0] - r.start for r in later)
        figures["median_ttft_after_burst_ms"] = percentile(values, 50.0) * 1000.0 if values else None
    dues = [r.start - r.due for r in records if r.due is not None and r.start]
    if dues:
        figures.update(spread("schedule_slip", dues, percentiles))
    window = steady_window(records, concurrency, end if dispatch_end is None else dispatch_end) if concurrency else None
    if window and e2els and window[1] - window[0] < percentile(sorted(e2els), 50.0):
        window = None  # not even one request's time: a part of a reply without its prefill is no steady state
    figures.update(_steady(pairs, window))
    waits = (
        ("ttft", 50.0, ttfts),
        ("tpot", 50.0, tpots),
        ("e2el", 50.0, sorted(e2els)),
        ("ttft", 99.0, ttfts),
        ("tpot", 99.0, tpots),
    )
    for kind, p, values in waits:
        name = "%s_%s_ms" % ("median" if p == 50.0 else "p99", kind)
        interval = quantile_interval(values, p)
        figures[name + "_ci95"] = [x * 1000.0 for x in interval] if interval else None
    figures["p99_supported"] = len(done) >= P99_SAMPLES
    figures["warnings"] = _warnings(figures, done, window, duration)
    return figures


def _own(records: Sequence[RequestRecord], done: Sequence[RequestRecord], mean_weight: float) -> Dict[str, Any]:
    kinds, examples = errors_by_kind(records)
    cached = [r.cached for r in done if r.cached is not None]
    reasoning = [r.reasoning for r in done if r.reasoning is not None]
    connects = [r.connect_s for r in records if r.connect_s is not None]
    return {
        "incomplete": sum(r.state == INCOMPLETE for r in records),
        "errors_by_kind": kinds,
        "error_examples": examples,
        "stopped_early": sum(r.tokens < r.asked for r in done),
        "without_usage": sum(r.n_out is None for r in done),
        "tokens_per_chunk": mean_weight if done else None,
        "cached_prompt_tokens": sum(cached) if cached else None,
        "reasoning_tokens": sum(reasoning) if reasoning else None,
        "peak_concurrency": _peak_concurrency(records),
        "connections": len(connects),
        "mean_connect_ms": sum(connects) / len(connects) * 1000.0 if connects else None,
        "max_connect_ms": max(connects) * 1000.0 if connects else None,
        "retried": sum(r.retried for r in records),
    }


def _steady(pairs: Sequence[Tuple[RequestRecord, float]], window: Optional[Tuple[float, float]]) -> Dict[str, Any]:
    """Throughput of the steady window with a 95 % interval from the means of SLICES equal slices of it."""
    if window is None:
        return {"steady_output_throughput": None, "steady_window_s": None, "steady_output_throughput_ci95": None}
    begin, end = window
    step = (end - begin) / SLICES
    rates = [tokens_between(pairs, begin + i * step, begin + (i + 1) * step) / step for i in range(SLICES)]
    mean = sum(rates) / SLICES
    half = T_975_9 * math.sqrt(sum((x - mean) ** 2 for x in rates) / (SLICES - 1) / SLICES)
    return {
        "steady_output_throughput": mean,
        "steady_window_s": end - begin,
        "steady_output_throughput_ci95": [mean - half, mean + half],
    }


def _warnings(
    figures: Dict[str, Any], done: Sequence[RequestRecord], window: Optional[Tuple[float, float]], duration: float
) -> List[str]:
    words = []
    if done and len(done) < P99_SAMPLES:
        words.append("too few requests for a p99: %d completed, %d needed" % (len(done), P99_SAMPLES))
    if window and window[1] - window[0] < 0.5 * duration:
        words.append(
            "ramp and drain were %.0f %% of the run: look at the steady throughput"
            % (100 - 100 * (window[1] - window[0]) / duration)
        )
    if figures["stopped_early"]:
        words.append("%s ended before the asked length" % _replies(figures["stopped_early"]))
    if figures["without_usage"]:
        words.append("%s came without usage: chunks were counted as tokens" % _replies(figures["without_usage"]))
    return words


def _replies(count: int) -> str:
    return "1 reply" if count == 1 else "%d replies" % count


def detail(
    records: Sequence[RequestRecord], names: Sequence[str] = ARRAYS, *, texts: bool = True, asked_input: Optional[int] = None
) -> Dict[str, List[Any]]:
    """Those of vLLM's per-request arrays: seconds, in request order, failed ones included with 0, [] and their error.

    A request whose prompt the server didn't count has the `asked_input` tokens: vLLM's client counts its prompts itself.
    """
    ordered = sorted(records, key=lambda r: r.index)

    def values(name: str) -> List[Any]:
        if name == "input_lens":
            return [(asked_input or 0) if r.n_in is None else r.n_in for r in ordered]
        if name == "output_lens":
            return [r.tokens if _whole(r) else 0 for r in ordered]
        if name == "start_times":
            return [r.start for r in ordered]
        if name == "ttfts":
            return [r.chunks[0] - r.start if _whole(r) else 0.0 for r in ordered]
        if name == "itls":
            return [[b - a for a, b in zip(r.chunks, r.chunks[1:])] if _whole(r) else [] for r in ordered]
        if name == "latencies":
            return [r.chunks[-1] - r.start if _whole(r) else 0.0 for r in ordered]
        if name == "queue_times":
            return [max(0.0, r.start - r.due) if r.due is not None and r.start else 0.0 for r in ordered]
        if name == "generated_texts":
            return [r.text if texts else "" for r in ordered]
        return ["" if _whole(r) else (r.error or r.kind or "incomplete: the run ended first") for r in ordered]

    return {name: values(name) for name in ARRAYS if name in names}


def _whole(r: RequestRecord) -> bool:
    return r.state == COMPLETED and bool(r.chunks)
