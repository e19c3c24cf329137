"""What earlier starts of a deployment tell of this one: how long its steps, its phases and what follows usually take."""

from collections.abc import Sequence
from statistics import median

from tui.core.logs.state import LoadState, PastLoad, Phase

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


def usual_step(past: Sequence[PastLoad]) -> float | None:
    steps = [median(one.step_seconds[1:]) for one in past if len(one.step_seconds) > 1]
    return median(steps) if steps else None


def seconds_of(past: Sequence[PastLoad], phase: Phase) -> float | None:
    """What a phase usually takes, over all its spans; None where no start had it."""
    sums = [total for one in past if (total := sum(seconds for name, seconds in one.phases if name is phase)) or _has(one, phase)]
    return median(sums) if sums else None


def _has(one: PastLoad, phase: Phase) -> bool:
    return any(name is phase for name, _ in one.phases)


def tail_after_loading(past: Sequence[PastLoad]) -> float | None:
    tails = []
    for one in past:
        names = [name for name, _ in one.phases]
        if Phase.LOADING in names:
            last = max(at for at, name in enumerate(names) if name is Phase.LOADING)
            tails.append(sum(seconds for name, seconds in one.phases[last + 1 :] if name not in (Phase.READY, Phase.STOPPED)))
    return median(tails) if tails else None


def after_phase(load: LoadState, now: float, past: Sequence[PastLoad]) -> float | None:
    """What is left of this phase and of those that usually follow."""
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
    """Seconds of the phase that runs now, over all its spans."""
    mine = [span for span in load.phases if span.name is load.phase]
    return sum(span.seconds if span.seconds is not None else max(0.0, now - (span.started_at or now)) for span in mine)
