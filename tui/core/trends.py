"""What is kept of values over time: recent samples for drawing, and how memory in use has grown since the server became ready."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median_low
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tui.core.api_status import ApiStatus
from tui.core.gpu import GpuSample

T = TypeVar("T")

TREND = 240


class Trends(Struct, frozen=True):
    """One value a sample, the last TREND of them; None if nothing was known."""

    gpu_memory: tuple[tuple[float | None, ...], ...] = ()
    """One tuple a sample, a share (0 to 1) a GPU."""
    gpu_utilisation: tuple[tuple[float | None, ...], ...] = ()
    """Percent."""
    disk_read_mb_s: tuple[float | None, ...] = ()
    generation_tokens_s: tuple[float | None, ...] = ()
    kv_cache_share: tuple[float | None, ...] = ()


def appended(values: tuple[T, ...], value: T) -> tuple[T, ...]:
    return (*values, value)[-TREND:]


def with_gpus(trends: Trends, sample: GpuSample) -> Trends:
    """Add a sample. One of a driver that does not answer repeats the one before it and adds nothing."""
    if sample.late:
        return trends
    return replace(
        trends,
        gpu_memory=appended(trends.gpu_memory, tuple(gpu.memory_share for gpu in sample.gpus)),
        gpu_utilisation=appended(trends.gpu_utilisation, tuple(gpu.utilisation for gpu in sample.gpus)),
    )


def with_api(trends: Trends, status: ApiStatus) -> Trends:
    metrics = status.metrics
    return replace(
        trends,
        generation_tokens_s=appended(trends.generation_tokens_s, metrics.generation_tokens_s if metrics else None),
        kv_cache_share=appended(trends.kv_cache_share, metrics.kv_cache_share if metrics else None),
    )


POINTS: Final = 180
"""So many are kept at most: half an hour ten seconds apart, thinned to six hours two minutes apart."""
EVERY_S: Final = 10.0
RAREST_S: Final = 120.0
WINDOWS_S: Final = (RAREST_S * POINTS, 3600.0, 1200.0)
"""Growth is looked for over all that is kept, and over less: it may have begun late."""
NOISE_MIB: Final = 64.0
"""What memory of a steady server may change by."""
FULL_WITHIN_S: Final = 24 * 3600.0
"""Growth that fills a GPU later than this is no alarm."""
PARTS: Final = 4
"""Growth is real if each quarter holds more than the one before it: a step, or what comes to rest, is none."""

Used = tuple[tuple[int, float], ...]
"""GPU index and MiB."""


class Growth(Struct, frozen=True):
    """How one GPU's memory changes. `real`: above the noise, and all the time."""

    gpu: int
    mib_per_hour: float
    real: bool
    changed_mib: float
    """Over the time that was looked at."""

    @property
    def steady(self) -> bool:
        return abs(self.changed_mib) < NOISE_MIB


class MemoryCourse(Struct, frozen=True):
    """Memory on each GPU since the server was first seen ready; `at` is the client's monotonic clock."""

    points: tuple[tuple[float, Used], ...] = ()
    every_s: float = EVERY_S
    peaks: Used = ()
    growths: tuple[Growth, ...] = ()
    """As of the last point; empty before ten minutes."""


class Outgrowth(Struct, frozen=True):
    """The GPU that fills up first, or else grows most. `full_s` is known if the growth is an alarm: the GPU is full after it."""

    growth: Growth
    full_s: float | None = None


def followed(course: MemoryCourse | None, sample: GpuSample) -> MemoryCourse | None:
    """Return the trend with this sample added. A late sample, or one without a stamp, adds nothing."""
    used = tuple((gpu.index, gpu.memory_used_mib) for gpu in sample.gpus if gpu.memory_used_mib is not None)
    at = sample.received_at
    if sample.late or at is None or not used:
        return course
    course = course or MemoryCourse()
    before = dict(course.peaks)
    if any(mib > before.get(gpu, -1.0) for gpu, mib in used):
        course = replace(
            course, peaks=tuple(sorted({**before, **{gpu: max(mib, before.get(gpu, mib)) for gpu, mib in used}}.items()))
        )
    if course.points and at - course.points[-1][0] < course.every_s:
        return course
    points, every = (*course.points, (at, used)), course.every_s
    if len(points) > POINTS:
        if every < RAREST_S:
            points, every = points[::2], every * 2
        else:
            points = points[1:]
    return replace(course, points=points, every_s=every, growths=_growths(points))


def _growths(points: Sequence[tuple[float, Used]]) -> tuple[Growth, ...]:
    out = []
    for gpu, _ in points[-1][1]:
        own = [(at, mib) for at, used in points for index, mib in used if index == gpu]
        found = [one for window in WINDOWS_S if (one := _growth(gpu, [(at, mib) for at, mib in own if own[-1][0] - at <= window]))]
        if found:
            real = [growth for growth in found if growth.real]
            out.append(max(real, key=lambda one: one.mib_per_hour) if real else found[0])
    return tuple(out)


def _growth(gpu: int, points: Sequence[tuple[float, float]]) -> Growth | None:
    rate = growth_mib_per_hour(points)
    if rate is None:
        return None
    changed = rate * (points[-1][0] - points[0][0]) / 3600.0
    return Growth(gpu, rate, changed >= NOISE_MIB and _all_the_time([mib for _, mib in points]), changed)


def growth_mib_per_hour(points: Sequence[tuple[float, float]]) -> float | None:
    """Return how fast memory grows, in MiB an hour: the slope of a straight line through (seconds, MiB), by least squares.

    None for less than ten minutes, which say nothing of an hour.
    """
    if len(points) < 3 or points[-1][0] - points[0][0] < 600.0:
        return None
    mean_at = sum(at for at, _ in points) / len(points)
    mean_used = sum(used for _, used in points) / len(points)
    spread = sum((at - mean_at) ** 2 for at, _ in points)
    return sum((at - mean_at) * (used - mean_used) for at, used in points) / spread * 3600.0 if spread else None


def _all_the_time(values: Sequence[float]) -> bool:
    """Tell whether each part of the samples lies above the one before, by a fair share of the whole rise."""
    if len(values) < 2 * PARTS:
        return False
    edges = [len(values) * part // PARTS for part in range(PARTS + 1)]
    levels = [median_low(values[first:end]) for first, end in pairwise(edges)]
    fair = (levels[-1] - levels[0]) / (PARTS - 1) / 4
    return fair > 0 and all(after - before >= fair for before, after in pairwise(levels))


def outgrowth(course: MemoryCourse | None, sample: GpuSample | None) -> Outgrowth | None:
    """Return what to say of growth; None before ten minutes, and while the driver does not answer."""
    if course is None or sample is None or sample.late or not course.growths:
        return None
    free = {gpu.index: gpu.free_mib for gpu in sample.gpus}
    soon = []
    for growth in course.growths:
        left = free.get(growth.gpu)
        if growth.real and left is not None and left / growth.mib_per_hour * 3600.0 <= FULL_WITHIN_S:
            soon.append(Outgrowth(growth, max(0.0, left) / growth.mib_per_hour * 3600.0))
    if soon:
        return min(soon, key=lambda found: found.full_s or 0.0)
    return Outgrowth(max(course.growths, key=lambda one: one.mib_per_hour))


def peak_mib(course: MemoryCourse | None, sample: GpuSample | None) -> float | None:
    """Return the most memory that was in use on the GPU that came nearest to being full, in MiB."""
    peaks = dict(course.peaks) if course is not None else {}
    near = [
        (gpu.memory_total_mib - peaks[gpu.index], peaks[gpu.index])
        for gpu in (sample.gpus if sample is not None else ())
        if gpu.memory_total_mib is not None and gpu.index in peaks
    ]
    return min(near)[1] if near else None
