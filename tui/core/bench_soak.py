"""A soak: a sustained load for a chosen time, and a verdict that says what was observed, for how long, and no more."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from statistics import fmean, median
from typing import Any

from tui.core.bench_result import Point, Result
from tui.core.gpu import Gpu, GpuSample
from tui.core.presentation import counted

SLICE_S = 120.0
"""A soak is measured in slices, so that its memory stays bounded however long it lasts."""
IN_USE_MIB = 1024.0
END_SLICES = 3
"""Slices at either end whose median is compared, or a third of them: one that was slow, or fast, moves it little."""
LEAST_SHARE = 0.03
"""A smaller change of throughput is none."""
NOISE_FACTOR = 7.0
"""Of the mean difference of neighbouring slices: chance alone makes a change that looks like a decay in one of forty soaks of six
slices, in one of two thousand of fifteen."""


def slices(seconds: float) -> list[float]:
    """Lengths of the slices that make up a soak."""
    count = max(1, round(seconds / SLICE_S))
    return [seconds / count] * count


def engine_gpus(sample: GpuSample, wanted: str = "all") -> tuple[Gpu, ...]:
    """The GPUs that the engine uses: those that the configuration names ("0-3", "0,2", UUIDs), or all that hold something."""
    if wanted.strip() not in ("", "all"):
        names = _names(wanted)
        return tuple(gpu for gpu in sample.gpus if str(gpu.index) in names or gpu.uuid in names)
    used = tuple(gpu for gpu in sample.gpus if (gpu.memory_used_mib or 0.0) >= IN_USE_MIB)
    return used or sample.gpus


def _names(wanted: str) -> set[str]:
    names: set[str] = set()
    for word in wanted.replace(" ", "").split(","):
        first, dash, last = word.partition("-")
        if dash and first.isdigit() and last.isdigit():
            names.update(str(i) for i in range(int(first), int(last) + 1))
        else:
            names.add(word)
    return names


def _sum(points: Sequence[Point], name: str) -> float:
    return sum(point.get(name) or 0.0 for point in points)


def _peak(points: Sequence[Point], name: str) -> float | None:
    values = [value for point in points if (value := point.get(name)) is not None]
    return max(values) if values else None


def _longest_words(point: Point) -> str:
    """What was seen of the longest prompts, and whether one filled a step of the engine."""
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
class Course:
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
        """Whether it changed by more than its slices do anyway."""
        return abs(self.last - self.first) > max(self.noise, LEAST_SHARE * self.first)


def rates_of(points: Sequence[Point]) -> list[float]:
    """Throughput of each whole slice: while all streams were busy, where that is known."""
    whole = [point for point in points if not point.figures.get("repeat") and not point.figures.get("cut")]
    return [rate for point in whole if (rate := point.get("steady_output_throughput") or point.get("output_throughput"))]


def course_of(rates: Sequence[float]) -> Course | None:
    """How throughput went from slice to slice; None where there are too few to tell a course from chance.

    Neighbours tell the noise, less their common drift, since a decay is none; the largest difference is left out, since a first
    slice with cold caches is none either.
    """
    size = max(END_SLICES, len(rates) // 3)
    if len(rates) < 2 * size:
        return None
    steps = [b - a for a, b in pairwise(rates)]
    drift = median(steps)
    apart = sorted(abs(step - drift) for step in steps)[:-1]
    return Course(median(rates[:size]), median(rates[-size:]), NOISE_FACTOR * fmean(apart) / sqrt(size))


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """What it was at first and at the end: medians where there are enough."""
    size = max(END_SLICES, len(values) // 3)
    return (values[0], values[-1]) if len(values) < 2 * size else (median(values[:size]), median(values[-size:]))


def _memory(points: Sequence[Point]) -> tuple[float, float] | None:
    """MiB of the fullest GPU at first and at the end; None where they were not read."""
    fullest = [
        max((x for x in point.figures["gpu"]["memory_used_mib"] if x is not None), default=None)
        for point in points
        if point.figures.get("gpu")
    ]
    seen = [x for x in fullest if x is not None]
    return _ends(seen) if seen else None


def decays(result: Result) -> bool:
    """Whether throughput fell in a soak by more than its slices differ."""
    course = course_of(rates_of(result.points)) if result.plan.kind == "soak" else None
    return course is not None and course.moved and course.share < 0


def soak_verdict(result: Result) -> dict[str, Any] | None:
    """What the soak saw as an object of `bench --json`; None of another benchmark. What is not known is null.

    `verdict`: "decays", "grows" or "holds" as throughput goes from slice to slice; None where there are too few to tell.
    """
    if result.plan.kind != "soak":
        return None
    points = result.points
    rates = rates_of(points)
    course = course_of(rates)
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


def _course_words(course: Course) -> str:
    how = ("it decays" if course.share < 0 else "it grows") if course.moved else "no more than its slices differ"
    return f": {course.first:,.0f} at first and {course.last:,.0f} at the end ({course.share * 100:+.0f} %, {how})"


def soak_words(result: Result) -> str:
    """What the soak saw."""
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
        course = course_of(rates)
        told = _course_words(course) if course is not None else ""
        words.append(f"throughput between {min(rates):,.0f} and {max(rates):,.0f} tok/s{told}")
    return ", ".join(words)
