"""Estimate how long a start takes until it is ready: from this deployment's earlier starts, else from recorded starts of others.

With history the medians of each phase count. At the very first start each recorded start (`recorded_starts.py`) tells what would
still come if this one went on like it: the shards as they come here, later phases stretched by how long this host took for the
phases that are done. Starts of like size, flags and hardware weigh most; the weighted median is the estimate, and the range holds
the middle 90 % of the weight.
"""

import math
import re
from collections.abc import Iterable, Sequence
from statistics import median

from msgspec.structs import replace

from tui.core.logs.load_state import LoadState, PastLoad, Phase
from tui.core.logs.recorded_starts import RecordedStart

ORDER = (
    Phase.STARTING,
    Phase.DOWNLOADING,
    Phase.LOADING,
    Phase.POST_LOADING,
    Phase.PROFILING,
    Phase.COMPILING,
    Phase.KV_CACHE,
    Phase.CAPTURING,
    Phase.WARMING_UP,
)


# -- this deployment's history -----------------------------------------------------------------------------------------------------


def usual_step(past: Sequence[PastLoad]) -> float | None:
    steps = [median(past_load.step_seconds[1:]) for past_load in past if len(past_load.step_seconds) > 1]
    return median(steps) if steps else None


def seconds_of(past: Sequence[PastLoad], phase: Phase) -> float | None:
    """Return what a phase usually takes, over all its spans, in seconds; None if no start had it."""
    sums = [
        total
        for past_load in past
        if (total := sum(seconds for name, seconds in past_load.phases if name is phase)) or _has(past_load, phase)
    ]
    return median(sums) if sums else None


def _has(past_load: PastLoad, phase: Phase) -> bool:
    return any(name is phase for name, _ in past_load.phases)


def tails_after_loading(past: Sequence[PastLoad]) -> list[float]:
    """Return what each start took from its last shard until it was ready, in seconds."""
    tails = []
    for past_load in past:
        names = [name for name, _ in past_load.phases]
        if Phase.LOADING in names:
            last = max(at for at, name in enumerate(names) if name is Phase.LOADING)
            tails.append(sum(seconds for name, seconds in past_load.phases[last + 1 :] if name not in (Phase.READY, Phase.STOPPED)))
    return tails


def after_phase(load: LoadState, now: float, past: Sequence[PastLoad]) -> float | None:
    """Return the seconds left of this phase and of those that usually follow."""
    known = [(phase, seconds) for phase in ORDER if (seconds := seconds_of(past, phase)) is not None]
    if not known:
        return None
    spent = spent_in_phase(load, now)
    done = {span.name for span in load.phases if span.seconds is not None and span.name is not load.phase}
    left = 0.0
    reached = False
    for phase, seconds in known:
        if phase is load.phase:
            reached = True
            left += max(0.0, seconds - spent)
        elif phase not in done and (reached or ORDER.index(phase) > ORDER.index(load.phase)):
            left += seconds
    return left


def spent_in_phase(load: LoadState, now: float) -> float:
    """Return the seconds of the phase that runs now, over all its spans."""
    mine = [span for span in load.phases if span.name is load.phase]
    return sum(
        span.seconds if span.seconds is not None else max(0.0, now - (span.started_at if span.started_at is not None else now))
        for span in mine
    )


# -- the first start ---------------------------------------------------------------------------------------------------------------

# Chosen with `tests/benchmarks/first_ready.py`, each start estimated without itself.
PACE_FLOOR_S = 2.0
"""Added to both sides of a pace, so that logs of whole seconds do not make one out of nothing."""
PACE_LIMIT = 3.0
LATE_SHARES = (0.1, 0.4, 1.0, 2.5)
"""A phase that takes longer than recorded may need so many times what it has taken too long."""
LATE_WEIGHT = 0.4
TAIL = 0.05
"""The share of the weight beyond each end of the range."""
LEAST_SPREAD = 0.2
"""The least half of a range, as a share of the estimate."""
CACHED_SHARE = 0.5
"""What compilation takes if compiled code comes from a cache."""
OTHER_DEVICE, OTHER_ENGINE, OTHER_FLAGS, OTHER_BACKEND = 0.001, 0.2, 0.2, 0.6
"""What a recorded start weighs that differs in this."""
SIZE_POWER, RANKS_POWER, GRAPHS_POWER, RELEASE_POWER = 0.5, 0.5, 0.3, 0.1
"""How fast weight falls off for each e-fold of size and graphs, each doubling of ranks, each minor release."""
RELEASES = 10
"""Minor releases apart from which on it makes no difference any more."""
NOT_PACED = (Phase.DOWNLOADING, Phase.LOADING, Phase.POST_LOADING)
"""Phases that depend on the size of the weights and on the storage, not on the host's pace."""


def first_start(
    load: LoadState, now: float, shards: float | None, error: float | None, recorded: Sequence[RecordedStart]
) -> tuple[float, float, float] | None:
    """Return (low, middle, high) of the seconds until ready; None if nothing recorded is like this start.

    `shards` are the seconds left of the shards, `error` half the width of their range, both None while unknown. After the shards
    the range is also kept to what each earlier phase let expect, so that it narrows as phases end.
    """
    if load.phase not in ORDER:
        return None
    like = [(start, weight) for start in recorded if (weight := _likeness(load, start)) > 0]
    if not like:
        return None
    low, middle, high = _range(load, now, shards, error, like)
    names = [span.name for span in load.phases]
    first = max((place + 1 for place, name in enumerate(names) if name is Phase.LOADING), default=len(names))
    for place, span in list(enumerate(load.phases))[first:]:
        if span.started_at is None or span.name not in ORDER:
            continue
        then = replace(load, phase=span.name, phases=(*load.phases[:place], replace(span, seconds=None)))
        lowest, _, highest = (seconds - (now - span.started_at) for seconds in _range(then, span.started_at, None, None, like))
        if lowest <= high and middle <= highest:  # otherwise the start went another way than expected then
            low, high = max(low, lowest), min(high, highest)
    return low, min(max(middle, low), high), high


def _range(
    load: LoadState, now: float, shards: float | None, error: float | None, like: Sequence[tuple[RecordedStart, float]]
) -> tuple[float, float, float]:
    """Return the range that follows from this moment alone; `like` are recorded starts and what each weighs."""
    known = shards if load.phase is Phase.LOADING else None
    samples = [(*_left(load, now, start, None if known is None else 0.0), weight) for start, weight in like]
    weighed = sorted(
        (left + share * late, weight * (LATE_WEIGHT / len(LATE_SHARES) if late else 1.0))
        for left, late, weight in samples
        for share in (LATE_SHARES if late else (0.0,))
    )
    low, middle, high = (_quantile(weighed, share) for share in (TAIL, 0.5, 1 - TAIL))
    below, above = middle - low, high - middle
    if known is not None:
        middle += known
        below, above = math.hypot(below, error or 0.0), math.hypot(above, error or 0.0)
    below, above = max(below, LEAST_SPREAD * middle), max(above, LEAST_SPREAD * middle)
    return max(0.0, middle - below), middle, middle + above


def _left(load: LoadState, now: float, start: RecordedStart, current: float | None) -> tuple[float, float]:
    """Return the seconds left if this start goes on like the recorded one, and by how many its phase is late already.

    `current` replaces what is left of the running phase if that is known otherwise.
    """
    done = {span.name for span in load.phases if span.seconds is not None} - {load.phase}
    pace = _pace(load, start, done)
    here = ORDER.index(load.phase)
    left, late = current or 0.0, 0.0
    for phase, recorded in start.phases.items():
        seconds = recorded if phase in NOT_PACED else recorded * pace
        if phase in (Phase.LOADING, Phase.POST_LOADING) and (ratio := _size_ratio(load, start)) is not None:
            seconds *= ratio
        if phase is Phase.COMPILING and load.compile_cached and not start.compile_cached:
            seconds *= CACHED_SHARE
        if phase in (Phase.COMPILING, Phase.CAPTURING) and load.eager:
            seconds = 0.0
        if phase is load.phase:
            if current is None:
                over = _spent(load, now) - seconds
                late = max(0.0, over)
                left += max(0.0, -over)
        elif phase not in done and ORDER.index(phase) > here:
            left += seconds
    if current is None and load.phase not in start.phases:
        late = _spent(load, now)
    return left, late


def _spent(load: LoadState, now: float) -> float:
    """Return the seconds spent in the running phase, counted from the first line, as recorded starts are."""
    if load.phase is Phase.STARTING and load.first_line_at is not None:
        return max(0.0, now - load.first_line_at)
    return spent_in_phase(load, now)


def _pace(load: LoadState, start: RecordedStart, done: Iterable[Phase]) -> float:
    """Return how many times as long as the recorded start this one took for the phases that are done."""
    mine = theirs = 0.0
    for span in load.phases:
        if span.name not in done or span.name in NOT_PACED or span.seconds is None or span.name not in start.phases:
            continue
        seconds = span.seconds
        if span.name is Phase.STARTING and load.first_line_at is not None and span.started_at is not None:
            seconds -= max(0.0, load.first_line_at - span.started_at)
        mine += seconds
    theirs = sum(seconds for phase, seconds in start.phases.items() if phase in done and phase not in NOT_PACED)
    return min(PACE_LIMIT, max(1 / PACE_LIMIT, (mine + PACE_FLOOR_S) / (theirs + PACE_FLOOR_S)))


def _size_ratio(load: LoadState, start: RecordedStart) -> float | None:
    """Return how many times as large the weights of a GPU are; None if either is unknown."""
    mine, theirs = _gib(load), start.gib
    return min(10.0, max(0.1, mine / theirs)) if mine and theirs else None


def _gib(load: LoadState) -> float | None:
    """Return the GiB of weights on each device, estimated from the checkpoint or the model's name before the engine tells."""
    if load.gib_per_gpu is not None:
        return load.gib_per_gpu
    split = (load.tensor_parallel or 1) * (load.pipeline_parallel or 1)
    if load.checkpoint_gib:
        return load.checkpoint_gib / split
    billions = [float(number) for number in _BILLIONS.findall(load.model or "")]
    if not billions:
        return None
    bits = next((bits for words, bits in _BITS if words.search(f"{load.model} {load.quantization}")), 16)
    return max(billions) * bits / 8 / 1.074 / split


_BILLIONS = re.compile(r"(?i)(?<![a-z0-9.])(\d+(?:\.\d+)?)b(?![a-z0-9])")
_BITS = (
    (re.compile(r"(?i)awq|gptq|bnb|bitsandbytes|int4|w4a|fp4|4bit"), 4.5),
    (re.compile(r"(?i)fp8|int8|w8a|8bit"), 8),
)
"""Bits a weight takes if the model's name or its quantisation holds the words."""


def _likeness(load: LoadState, start: RecordedStart) -> float:
    """Return how much a recorded start has to say about this one, 0 to 1."""
    weight = 1.0
    if load.device is not None and start.device is not None and (load.device == "cpu") != (start.device == "cpu"):
        weight *= OTHER_DEVICE
    if load.engine != start.engine:
        weight *= OTHER_ENGINE
    elif (mine_release := release_of(load.version)) is not None and start.release is not None:
        weight *= math.exp(-RELEASE_POWER * min(RELEASES, abs(mine_release[1] - start.release[1])))
    if load.attention_backend is not None and start.backend is not None and load.attention_backend != start.backend:
        weight *= OTHER_BACKEND
    if load.eager is not None and start.eager is not None and load.eager != start.eager:
        weight *= OTHER_FLAGS
    mine = _gib(load)
    if mine and start.gib:
        weight *= math.exp(-SIZE_POWER * abs(math.log(mine / start.gib)))
    ranks = (load.tensor_parallel or 1) * (load.pipeline_parallel or 1) * (load.data_parallel or 1)
    weight *= math.exp(-RANKS_POWER * abs(math.log2(ranks / start.ranks)))
    if load.graph_sizes is not None and start.graph_sizes is not None:
        weight *= math.exp(-GRAPHS_POWER * abs(math.log((1 + load.graph_sizes) / (1 + start.graph_sizes))))
    return weight


def release_of(version: str | None) -> tuple[int, int] | None:
    """Return major and minor of a version; None if there is none."""
    match = re.match(r"v?(\d+)\.(\d+)", version or "")
    return (int(match[1]), int(match[2])) if match else None


def _quantile(weighed: Sequence[tuple[float, float]], share: float) -> float:
    """Return a quantile of (value, weight) in ascending order, interpolated between the middles of the weights."""
    total = sum(weight for _, weight in weighed)
    before, reached = weighed[0][0], 0.0
    place = 0.0
    for value, weight in weighed:
        middle = (reached + weight / 2) / total
        if middle >= share:
            return before + (value - before) * (share - place) / (middle - place) if middle > place else value
        before, place = value, middle
        reached += weight
    return weighed[-1][0]
