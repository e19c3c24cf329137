"""What a benchmark's points come to: the knee of a sweep, the verdict of a soak, and drift between beginning and end."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import hypot, sqrt
from statistics import fmean, median
from typing import Any, NamedTuple

from tui.core.bench_compare import Change, change_of
from tui.core.bench_metrics import metric
from tui.core.bench_result import Point, Result
from tui.core.presentation import counted

KNEE_GAIN = 0.05
"""A doubling that gains less throughput than this is flat."""
MOST_FLAT = 0.10
"""So is one that gains up to this much if its 95 % interval reaches down to KNEE_GAIN."""
WAITS_LONGER = 0.10
"""By so much a latency must grow to count as waiting, else its noise would. Where streams double and throughput stays, Little's law
has the whole request take about twice as long, whichever of its parts holds the wait: TTFT if requests queue, TPOT if they
share a batch."""
FLAT_STEPS = 2
LATENCIES = ("median_ttft_ms", "median_tpot_ms", "median_e2el_ms")
STEADY = "steady_output_throughput"
WHOLE_RUN = "output_throughput"


@dataclass(frozen=True, slots=True)
class Knee:
    """Where a sweep bends; `beyond` are the numbers of streams that were measured after it and gained nothing."""

    streams: int
    beyond: tuple[int, ...]

    @property
    def words(self) -> str:
        """Return `knee at 4 streams: 8 and 16 gained nothing but waiting`."""
        return f"knee at {counted(self.streams, 'stream')}: {_listed(self.beyond)} gained nothing but waiting"


def _listed(numbers: Sequence[int]) -> str:
    *first, last = (str(number) for number in numbers)
    return f"{', '.join(first)} and {last}" if first else last


def knee_of(points: Iterable[Point]) -> Knee | None:
    """Return the point before two steps in a row that gained less than 5 % in throughput while requests waited longer, if any.

    A number of streams counts once, with the mean of its repeats. The repetition that shows drift and points that were cut are left
    out.
    """
    by_streams: dict[int, list[Point]] = {}
    for point in points:
        if point.figures.get("repeat") != "again" and not point.figures.get("cut"):
            by_streams.setdefault(point.concurrency, []).append(point)
    found = list(by_streams.items())
    flat = 0
    for i in range(1, len(found)):
        flat = flat + 1 if _is_flat(found[i - 1][1], found[i][1]) else 0
        if flat == FLAT_STEPS:
            at = i - FLAT_STEPS
            return Knee(found[at][0], tuple(streams for streams, _ in found[at + 1 : i + 1]))
    return None


def knee_in(result: Result) -> Knee | None:
    """Return the knee of a run that looked for one."""
    return knee_of(result.points) if result.plan.stop_at_knee else None


def knee_words(result: Result) -> str | None:
    """Return the sentence about the knee, and about what was not measured because of it; None if there is no knee."""
    knee = knee_in(result)
    if knee is None:
        return None
    ended = max(result.plan.concurrency, default=0) > knee.beyond[-1]
    return f"{knee.words}, more were not tried" if ended else knee.words


def _is_flat(before: Sequence[Point], after: Sequence[Point]) -> bool:
    a, b = _mean(before, STEADY), _mean(after, STEADY)
    if not a or not b:  # one of the whole run holds its ramp: only like is compared with like
        a, b = _mean(before, WHOLE_RUN), _mean(after, WHOLE_RUN)
        return a is not None and a > 0 and b is not None and b < a * (1.0 + KNEE_GAIN) and _waits_longer(before, after)
    beyond = b - a * (1.0 + KNEE_GAIN)
    unsure = beyond <= hypot(_half(after), _half(before) * (1.0 + KNEE_GAIN)) and b < a * (1.0 + MOST_FLAT)
    return (beyond < 0 or unsure) and _waits_longer(before, after)


def _half(points: Sequence[Point]) -> float:
    """Return half of the 95 % interval of the steady throughput; 0 if it is unknown."""
    found = [(bounds[1] - bounds[0]) / 2 for point in points if (bounds := point.interval(STEADY)) is not None]
    return sum(found) / len(found) if found else 0.0


def _waits_longer(before: Sequence[Point], after: Sequence[Point]) -> bool:
    for name in LATENCIES:
        a, b = _mean(before, name), _mean(after, name)
        if a and b is not None and b > a * (1.0 + WAITS_LONGER):
            return True
    queued, queue = _mean(before, "server_peak_waiting"), _mean(after, "server_peak_waiting")
    # that others wait is no sign of ours waiting: as many more as there are streams more, or nearly
    more = after[0].concurrency - before[0].concurrency
    return queue is not None and more > 0 and queue - (queued or 0.0) >= more / 2


def _mean(points: Sequence[Point], name: str) -> float | None:
    known = [value for point in points if (value := point.get(name)) is not None]
    return sum(known) / len(known) if known else None


END_SLICES = 3
"""Slices at either end whose median is compared, or a third of them: one that was slow, or fast, moves it little."""
LEAST_SHARE = 0.03
"""A smaller change of throughput is none."""
NOISE_FACTOR = 7.0
"""Of the mean difference of neighbouring slices: chance alone makes a change that looks like a decay in one of forty soaks of six
slices, in one of two thousand of fifteen."""


def _sum(points: Sequence[Point], name: str) -> float:
    return sum(point.get(name) or 0.0 for point in points)


def _peak(points: Sequence[Point], name: str) -> float | None:
    values = [value for point in points if (value := point.get(name)) is not None]
    return max(values) if values else None


def _longest_words(point: Point) -> str:
    """Return what was seen of the longest prompts, and whether one filled a step of the engine."""
    done = point.get("completed") or 0.0
    tokens = point.get("total_input_tokens")
    if not done:
        return "no prompt near the longest length was answered"
    if tokens is None:
        return f"{counted(done, 'prompt')} near the longest length among them (how long, the server doesn't tell)"
    each = tokens / done
    words = f"{counted(done, 'prompt')} of about {each:,.0f} tokens among them"
    batch = point.get("max_num_batched_tokens")
    if batch is None:
        return words
    return f"{words} ({'more than' if each > batch else 'within'} one batch of prefill, {batch:,.0f} tokens)"


@dataclass(frozen=True, slots=True)
class ThroughputTrend:
    """Throughput at the beginning and at the end of a soak, tokens a second."""

    first: float
    last: float
    noise: float
    """As much as the two differ by chance, by how neighbouring slices differ."""

    @property
    def share(self) -> float:
        return (self.last - self.first) / self.first

    @property
    def moved(self) -> bool:
        """Return whether throughput changed by more than its slices differ anyway."""
        return abs(self.last - self.first) > max(self.noise, LEAST_SHARE * self.first)


def rates_of(points: Sequence[Point]) -> list[float]:
    """Return the throughput of each whole slice: the steady one if it is known."""
    whole = [point for point in points if not point.figures.get("repeat") and not point.figures.get("cut")]
    return [rate for point in whole if (rate := point.get("steady_output_throughput") or point.get("output_throughput"))]


def trend_of(rates: Sequence[float]) -> ThroughputTrend | None:
    """Return how throughput went from slice to slice; None if there are too few to tell a trend from chance.

    Neighbours tell the noise, less their common drift, since a decay is no noise. The largest difference is left out, since a first
    slice with cold caches is none either.
    """
    size = max(END_SLICES, len(rates) // 3)
    if len(rates) < 2 * size:
        return None
    steps = [b - a for a, b in pairwise(rates)]
    drift = median(steps)
    apart = sorted(abs(step - drift) for step in steps)[:-1]
    return ThroughputTrend(median(rates[:size]), median(rates[-size:]), NOISE_FACTOR * fmean(apart) / sqrt(size))


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Return the values at the beginning and at the end: medians if there are enough."""
    size = max(END_SLICES, len(values) // 3)
    return (values[0], values[-1]) if len(values) < 2 * size else (median(values[:size]), median(values[-size:]))


def _memory(points: Sequence[Point]) -> tuple[float, float] | None:
    """Return the MiB of the fullest GPU at the beginning and at the end; None if they were not read."""
    fullest = [
        max((x for x in point.figures["gpu"]["memory_used_mib"] if x is not None), default=None)
        for point in points
        if point.figures.get("gpu")
    ]
    seen = [x for x in fullest if x is not None]
    return _ends(seen) if seen else None


def decays(result: Result) -> bool:
    """Return whether throughput fell in a soak by more than its slices differ."""
    course = trend_of(rates_of(result.points)) if result.plan.kind == "soak" else None
    return course is not None and course.moved and course.share < 0


def soak_verdict(result: Result) -> dict[str, Any] | None:
    """Return what a soak observed as an object of `bench --json`; None for another benchmark. What is unknown is null.

    `verdict`: "decays", "grows" or "holds" as throughput goes from slice to slice; None if there are too few slices to tell.
    """
    if result.plan.kind != "soak":
        return None
    points = result.points
    rates = rates_of(points)
    course = trend_of(rates)
    verdict = None
    if course is not None:
        verdict = "holds" if not course.moved else "decays" if course.share < 0 else "grows"
    memory = _memory(points)
    return {
        "verdict": verdict,
        "words": soak_words(result),
        "observed_s": _sum(points, "duration"),
        "completed": int(_sum(points, "completed")),
        "failed": int(_sum(points, "failed")),
        "slices": len(rates),
        "first_tokens_per_s": None if course is None else course.first,
        "last_tokens_per_s": None if course is None else course.last,
        "chance_tokens_per_s": None if course is None else course.noise,
        "least_tokens_per_s": min(rates, default=None),
        "most_tokens_per_s": max(rates, default=None),
        "peak_kv_cache": _peak(points, "server_peak_kv_cache"),
        "preemptions": _sum(points, "server_preemptions") if _peak(points, "server_preemptions") is not None else None,
        "first_fullest_gpu_mib": None if memory is None else memory[0],
        "last_fullest_gpu_mib": None if memory is None else memory[1],
    }


def _trend_words(course: ThroughputTrend) -> str:
    how = ("it decays" if course.share < 0 else "it grows") if course.moved else "no more than its slices differ"
    return f": {course.first:,.0f} at first and {course.last:,.0f} at the end ({course.share * 100:+.0f} %, {how})"


def soak_words(result: Result) -> str:
    """Return what a soak observed, in one sentence."""
    points = result.points
    if not points:
        return "nothing was observed"
    seconds = _sum(points, "duration")
    length = f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
    failed = _sum(points, "failed")
    words = [
        f"observed for {length}: {counted(_sum(points, 'completed'), 'request')} completed, "
        + (f"{failed:,.0f} failed" if failed else "none failed")
    ]
    longest = [point for point in points if point.figures.get("repeat") == "longest prompt"]
    if longest:
        words.append(_longest_words(longest[0]))
    kv = _peak(points, "server_peak_kv_cache")
    if kv is not None:
        words.append(f"KV cache up to {kv * 100:.0f} %")
    if points[0].figures.get("server_preemptions") is not None:
        words.append(f"{_sum(points, 'server_preemptions'):,.0f} preemptions")
    if (memory := _memory(points)) is not None:
        first, last = memory
        words.append(f"fullest GPU {first:,.0f} MiB at first and {last:,.0f} at the end ({last - first:+,.0f})")
    rates = rates_of(points)
    if len(rates) > 1:
        course = trend_of(rates)
        told = _trend_words(course) if course is not None else ""
        words.append(f"throughput between {min(rates):,.0f} and {max(rates):,.0f} tok/s{told}")
    return ", ".join(words)


# -- all of them ---------------------------------------------------------------------------------------------------------------


def drift(result: Result) -> Change | None:
    """Return how throughput at the first load changed between the beginning and the end of a run; None without a repetition.

    It is the steady throughput if both points have it.
    """
    whole = [point for point in result.points if not point.figures.get("cut")]
    again = [point for point in whole[1:] if point.figures.get("repeat") == "again"]
    if not again:
        return None
    steady, rate = (change_of(metric(key), whole[0], again[-1]) for key in (STEADY, "output_throughput"))
    found = rate if steady.share is None else steady
    return None if found.share is None else found


def drift_words(result: Result) -> str | None:
    """Return `1 stream at the end against the beginning: -4.7 %`, with a doubt about it; None without a repetition."""
    found = drift(result)
    if found is None or found.share is None:
        return None
    doubt = f" (may be chance: {found.doubt})" if found.doubt else ""
    streams = counted(result.points[0].concurrency, "stream")
    return f"{streams} at the end against the beginning: {found.share * 100:+.1f} %{doubt}"


class Conclusion(NamedTuple):
    """A sentence about all points of a benchmark."""

    words: str
    bad: bool
    """Whether it takes something from the figures: throughput that decayed, or drifted."""


def conclusions(result: Result) -> list[Conclusion]:
    """Return what the points of a benchmark come to, in sentences."""
    told = []
    if result.plan.kind == "soak" and result.points:
        told.append(Conclusion(soak_words(result), decays(result)))
    if (words := knee_words(result)) is not None:
        told.append(Conclusion(words, False))
    if (change := drift(result)) is not None and (words := drift_words(result)) is not None:
        told.append(Conclusion(words, change.better is not None))
    return told
