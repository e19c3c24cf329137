"""A soak: a sustained load for a chosen time, and a verdict that says what was observed, for how long, and no more."""

from collections.abc import Sequence

from tui.core.benchmark import Point, Result
from tui.core.counted import counted
from tui.core.gpu import Gpu, GpuSample

SLICE_S = 120.0
"""A soak is measured in slices, so that its memory stays bounded however long it lasts."""
IN_USE_MIB = 1024.0


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
    memory = [
        max((x for x in point.figures["gpu"]["memory_used_mib"] if x is not None), default=None)
        for point in points
        if point.figures.get("gpu")
    ]
    seen = [x for x in memory if x is not None]
    if seen:
        change = seen[-1] - seen[0]
        words.append(f"fullest GPU {seen[0]:,.0f} MiB at first and {seen[-1]:,.0f} at the end ({change:+,.0f})")
    rates = [rate for point in points if (rate := point.get("output_throughput")) and not point.figures.get("repeat")]
    if len(rates) > 1:
        words.append(f"throughput between {min(rates):,.0f} and {max(rates):,.0f} tok/s")
    return ", ".join(words)
