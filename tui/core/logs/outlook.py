"""How long it will still take, and whether it is on time, slow, stalled or hung."""

from collections.abc import Sequence
from statistics import median

from tui.core.logs.state import Loader, LoadState, Outlook, PastLoad, Phase, SignsOfLife, Verdict

RECENT = 8
STALL_STEPS = 3.0
STALL_FLOOR_S = 20.0
HUNG_S = 60.0
SLOW = 1.25
"""More than a quarter longer than usual is slow."""

SILENCE: dict[Phase, float] = {
    Phase.STARTING: 180.0,
    Phase.DOWNLOADING: 1800.0,
    Phase.LOADING: 600.0,
    Phase.POST_LOADING: 600.0,
    Phase.COMPILING: 900.0,
    Phase.PROFILING: 600.0,
    Phase.KV_CACHE: 300.0,
    Phase.CAPTURING: 600.0,
    Phase.WARMING_UP: 600.0,
}
"""Seconds without any sign of life that a phase may take; where history is known, three times its longest phase if that is more."""

_ORDER = (
    Phase.STARTING,
    Phase.DOWNLOADING,
    Phase.LOADING,
    Phase.POST_LOADING,
    Phase.COMPILING,
    Phase.PROFILING,
    Phase.KV_CACHE,
    Phase.CAPTURING,
    Phase.WARMING_UP,
)


def typical_step(loader: Loader) -> float | None:
    """Seconds a step: the median of the last steps blended with the mean of all; the first step, which starts cold, is left out."""
    steps = loader.step_seconds[1:] if len(loader.step_seconds) > 1 else ()
    if not steps:
        return None
    recent = median(steps[-RECENT:])
    whole = sum(steps) / len(steps)
    return (2 * recent + whole) / 3


def judge(
    load: LoadState,
    now: float,
    history: Sequence[PastLoad] = (),
    signs: SignsOfLife | None = None,
    expect_s_per_shard: float | None = None,
    expect_total_s: float | None = None,
) -> Outlook:
    """ETA and verdict at `now`, a time of the same clock as the load's own times."""
    signs = signs or SignsOfLife()
    silent = max(0.0, now - load.last_line_at) if load.last_line_at is not None else None
    step = typical_step(load.shards) if load.shards else None
    elapsed = None
    if load.shards and load.shards.started_at is not None:
        end = load.shards.last_at if load.shards.done >= load.shards.total else now
        elapsed = max(0.0, (end if end is not None else now) - load.shards.started_at)
    ready_s = None
    if load.ready_at is not None and load.started_at is not None:
        ready_s = load.ready_at - load.started_at
    usual = expect_total_s if expect_total_s is not None else (median(past.total_s for past in history[-5:]) if history else None)
    outlook = Outlook(s_per_shard=step, elapsed_s=elapsed, ready_s=ready_s, silent_s=silent, usual_s=usual)
    return _judged(outlook, load, now, history, signs, step, expect_s_per_shard)


def _judged(
    outlook: Outlook,
    load: LoadState,
    now: float,
    history: Sequence[PastLoad],
    signs: SignsOfLife,
    step: float | None,
    expect_s_per_shard: float | None,
) -> Outlook:
    from dataclasses import replace

    if load.phase is Phase.FAILED:
        return replace(outlook, verdict=Verdict.FAILED, reason=load.failure.cause if load.failure else "failed")
    if load.phase is Phase.STOPPED:
        return replace(outlook, verdict=Verdict.DONE, reason="stopped in order")
    if load.phase is Phase.READY:
        if load.failure is not None and load.failure.kind == "hang":
            return replace(outlook, verdict=Verdict.HUNG, reason=load.failure.cause)
        return replace(outlook, verdict=Verdict.DONE, reason="ready")
    if load.lines == 0:
        return outlook
    shards_eta = None
    if load.shards and step is not None and load.shards.done < load.shards.total:
        since = max(0.0, now - load.shards.last_at) if load.shards.last_at is not None else 0.0
        shards_eta = max(0.0, (load.shards.total - load.shards.done) * step - min(since, step))
    elif load.shards and load.shards.done >= load.shards.total:
        shards_eta = 0.0
    reason = f"{step:.1f} s a shard" if step is not None else load.phase.value.replace("_", " ")
    return replace(outlook, verdict=Verdict.PROGRESSING, reason=reason, shards_eta_s=shards_eta)
