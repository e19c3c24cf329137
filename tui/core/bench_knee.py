"""The knee of a sweep: the number of streams from which on more of them gain no throughput, and only wait."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import hypot

from tui.core.bench_result import Point, Result
from tui.core.presentation import counted

KNEE_GAIN = 0.05
"""A doubling that gains less throughput than this is flat."""
MOST_FLAT = 0.10
"""So is one that gains up to this much where its 95 % interval reaches down to KNEE_GAIN."""
WAITS_LONGER = 0.10
"""By so much a latency must grow to count as waiting, else its noise would. Where streams double and throughput stays, Little's law
has the whole request take about twice as long, whichever of its parts holds the wait: TTFT where requests queue, TPOT where they
share a batch."""
FLAT_STEPS = 2
LATENCIES = ("median_ttft_ms", "median_tpot_ms", "median_e2el_ms")
STEADY = "steady_output_throughput"
WHOLE_RUN = "output_throughput"


@dataclass(frozen=True, slots=True)
class Knee:
    """Where a sweep bends. `beyond` are the numbers of streams after it that were measured and gained nothing."""

    streams: int
    beyond: tuple[int, ...]

    @property
    def words(self) -> str:
        """`knee at 4 streams: 8 and 16 gained nothing but waiting`."""
        return f"knee at {counted(self.streams, 'stream')}: {_listed(self.beyond)} gained nothing but waiting"


def _listed(numbers: Sequence[int]) -> str:
    *first, last = (str(number) for number in numbers)
    return f"{', '.join(first)} and {last}" if first else last


def knee_of(points: Iterable[Point]) -> Knee | None:
    """The point before two steps in a row that gained less than 5 % in throughput while requests waited longer; None without.

    A number of streams counts once, with the mean of its repeats. The repetition that shows drift and what was cut are no points.
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
    """The knee of a run that looked for one."""
    return knee_of(result.points) if result.plan.stop_at_knee else None


def knee_words(result: Result) -> str | None:
    """What is said of the knee, and of what was left out for it."""
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
    """Half of the 95 % interval of the steady throughput; 0 where it is not known."""
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
