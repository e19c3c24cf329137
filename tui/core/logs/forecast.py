"""Estimate how long a start will still take, and judge whether it is on time, slow, stalled or hung.

The estimate for the shards is the median of the last steps blended with the mean of all, the first step left out, since it pays for
cold caches and CUDA's start. What comes after the shards, and the whole, is estimated by `ready_estimate.py`.
Silence is judged by phase: it is normal for minutes while weights are downloaded, post-processed, compiled and captured.
"""

from collections.abc import Sequence
from statistics import median

from msgspec.structs import replace

from tui.core.logs.load_state import Forecast, Loader, LoadState, PastLoad, Phase, SignsOfLife, Verdict
from tui.core.logs.ready_estimate import (
    ORDER,
    after_phase,
    first_start,
    release_of,
    seconds_of,
    spent_in_phase,
    tails_after_loading,
    usual_step,
)
from tui.core.logs.recorded_starts import RecordedStart, recorded_starts
from tui.core.presentation import about, against, counted, doing_now, name_of, one_of, pace, steadiness
from tui.engines.registry import engine_named

RECENT_STEPS = 8
FIRST_STEP_SHARE = 0.5
"""What a later step takes of the first, if only that is known."""
STALL_STEPS = 2.8
"""Typical steps without a sign of life that make a stall: it is to be seen within three."""
STALL_FLOOR_S = 1.4
"""Shorter pauses are the jitter of delivery."""
HUNG_S = 60.0
SLOW_SHARE = 1.25
"""More than a quarter above the usual is slow."""
SLOW_FLOOR_S = 20.0
LONG_PHASE = 3.0
"""A phase after the shards is slow from so many times its usual on, and LONG_PHASE_FLOOR_S above it, however fast those before."""
LONG_PHASE_FLOOR_S = 45.0
HISTORY = 5
"""Earlier starts that count: settings and storage change."""
ONE_START = 0.25
"""How much of what is left may differ from the only start that is known; several tell by how much they differ."""

SILENCE_S: dict[Phase, float] = {
    Phase.STARTING: 300.0,
    Phase.DOWNLOADING: 1800.0,
    Phase.LOADING: 900.0,
    Phase.POST_LOADING: 900.0,
    Phase.COMPILING: 900.0,
    Phase.PROFILING: 900.0,
    Phase.KV_CACHE: 600.0,
    Phase.CAPTURING: 900.0,
    Phase.WARMING_UP: 900.0,
}
"""How long each phase may show nothing at all if its steps are unknown (a model may download in `loading`, silently)."""


def typical_step(loader: Loader) -> float | None:
    """Return the seconds a step of a bar takes; None until a step after the first is known."""
    steps = loader.step_seconds[1:]
    if not steps:
        return None
    recent, whole = median(steps[-RECENT_STEPS:]), sum(steps) / len(steps)
    # With few steps the mean knows as much as the median; with many the last ones tell how the storage is doing now.
    weight = min(1.0, len(steps) / RECENT_STEPS) * 0.7
    return weight * recent + (1 - weight) * whole


def comparable(history: Sequence[PastLoad], cold: bool | None) -> tuple[PastLoad, ...]:
    """Return the newest starts, oldest first: those that found the page cache as this one does, if there are any."""
    known = sorted(history, key=lambda past_load: past_load.at or 0.0)
    alike = [past_load for past_load in known if past_load.cold is cold] if cold is not None else []
    return tuple(alike or known)[-HISTORY:]


def make_forecast(
    load: LoadState,
    now: float,
    history: Sequence[PastLoad] = (),
    signs: SignsOfLife | None = None,
    expect_s_per_shard: float | None = None,
    expect_total_s: float | None = None,
    ready_timeout_s: float | None = None,
    ends_at: float | None = None,
    ends_by: str = "",
    cold: bool | None = None,
    recorded: Sequence[RecordedStart] | None = None,
    gpus: bool = False,
) -> Forecast:
    """Return ETA and verdict at `now`, in seconds of the same clock as the load's own times.

    `history` are earlier starts of this server; the expectations are the user's, and go before history. `cold` tells whether the
    page cache was too small to hold the weights when this start began.
    `ready_timeout_s` is the one that the server's environment sets, if it does; `ends_at` is when something else will
    end the start (a probe, a job's time limit), named in `ends_by`. `recorded` are other servers' starts, those of the
    table by default, which tell when it is ready as long as there is no history; `gpus` tells that the host has some, which
    the log does not tell at first.
    """
    if load.device is None and gpus:
        load = replace(load, device="gpu")
    signs = signs or SignsOfLife()
    past = comparable(history, cold)
    forecast = Forecast(
        s_per_shard=typical_step(load.shards) if load.shards else None,
        elapsed_s=_elapsed(load, now),
        ready_s=load.ready_at - load.started_at if load.ready_at is not None and load.started_at is not None else None,
        silent_s=max(0.0, now - heard) if (heard := load.heard_at) is not None else None,
        usual_s=expect_total_s
        if expect_total_s is not None
        else (median(past_load.total_s for past_load in past) if past else None),
    )
    if load.phase is Phase.FAILED:
        return replace(forecast, verdict=Verdict.FAILED, reason=load.failure.cause if load.failure else "failed")
    if load.phase is Phase.STOPPED:
        return replace(forecast, verdict=Verdict.DONE, reason="stopped cleanly")
    if load.phase is Phase.READY:
        return _serving(forecast, load, signs)
    if not load.recognised:
        return replace(forecast, reason="nothing of a server in the log yet")
    forecast = _estimated(forecast, load, now, past, signs, expect_s_per_shard, recorded)
    forecast = replace(forecast, ends=_ending(forecast, load, now, ready_timeout_s, ends_at, ends_by))
    return _compared(forecast, load, now, past, signs, expect_s_per_shard)


def _elapsed(load: LoadState, now: float) -> float | None:
    bar = load.shards
    if bar is None or bar.started_at is None:
        return None
    end = now if bar.done < bar.total or bar.last_at is None else bar.last_at
    return max(0.0, end - bar.started_at)


# -- serving -----------------------------------------------------------------------------------------------------------------------


def _serving(forecast: Forecast, load: LoadState, signs: SignsOfLife) -> Forecast:
    running = signs.requests_running
    if running and signs.tokens_s is not None and signs.tokens_s >= HUNG_S:
        reason = f"{counted(running, 'request is', 'requests are')} running and no token has come for {about(signs.tokens_s)}"
        return replace(forecast, verdict=Verdict.HUNG, reason=reason)
    if load.failure is not None and load.failure.kind == "hang" and not (signs.tokens_s is not None and signs.tokens_s < HUNG_S):
        return replace(forecast, verdict=Verdict.HUNG, reason=load.failure.cause)
    if forecast.ready_s is not None and forecast.usual_s is not None:
        behind = forecast.ready_s - forecast.usual_s
        reason = f"ready after {about(forecast.ready_s)}, {against(behind)}"
        return replace(forecast, verdict=Verdict.DONE, reason=reason, behind_s=behind)
    reason = f"ready after {about(forecast.ready_s)}" if forecast.ready_s is not None else "ready"
    return replace(forecast, verdict=Verdict.DONE, reason=reason)


# -- estimates ---------------------------------------------------------------------------------------------------------------------


def _estimated(
    forecast: Forecast,
    load: LoadState,
    now: float,
    past: Sequence[PastLoad],
    signs: SignsOfLife,
    expect_s_per_shard: float | None,
    recorded: Sequence[RecordedStart] | None,
) -> Forecast:
    shards, error = _shards_left(load, now, forecast.s_per_shard, past, expect_s_per_shard)
    shards = _with_bytes(shards, load, signs)
    if not past:
        left, spread = (shards, error) if shards is not None else _cold_shards(load, now, signs)
        known = first_start(load, now, left, spread, recorded_starts() if recorded is None else recorded)
        low, middle, high = known if known is not None else (None, None, None)
        return replace(forecast, shards_eta_s=shards, ready_eta_s=middle, ready_low_s=low, ready_high_s=high)
    ready: float | None = None
    if load.started_at is not None:
        in_shards = load.phase in (Phase.STARTING, Phase.DOWNLOADING, Phase.LOADING)
        if in_shards and shards is not None:
            lefts = [shards + tail for tail in tails_after_loading(past)]
        else:
            lefts = [left for past_load in past if (left := after_phase(load, now, (past_load,))) is not None]
        if not lefts and forecast.usual_s is not None:
            lefts = [max(0.0, forecast.usual_s - (now - load.started_at))]
        if lefts:
            ready = median(lefts)
            unsure = (max(lefts) - min(lefts)) / 2 if len(lefts) > 1 else ONE_START * (ready - (shards or 0.0))
            error = (error or 0.0) + max(0.1 * ready, unsure) + _overdue(load, now, past)
    behind = None
    if ready is not None and forecast.usual_s is not None and load.started_at is not None:
        behind = (now - load.started_at) + ready - forecast.usual_s
    return replace(
        forecast,
        shards_eta_s=shards,
        ready_eta_s=ready,
        ready_eta_error_s=error if ready is not None else None,
        ready_low_s=max(0.0, ready - (error or 0.0)) if ready is not None else None,
        ready_high_s=ready + (error or 0.0) if ready is not None else None,
        from_history=ready is not None,
        behind_s=behind,
    )


def _overdue(load: LoadState, now: float, past: Sequence[PastLoad]) -> float:
    """Return by how many seconds the present phase is longer than usual: what follows may be as well."""
    usual = seconds_of(past, load.phase)
    return max(0.0, spent_in_phase(load, now) - usual) if usual is not None and load.phase is not Phase.LOADING else 0.0


def _shards_left(
    load: LoadState, now: float, step: float | None, past: Sequence[PastLoad], expect: float | None
) -> tuple[float | None, float | None]:
    """Return the seconds until the last shard, and half the width of the range."""
    bar = load.shards
    if bar is None or not bar.total:
        return None, None
    left = bar.total - bar.done
    if left <= 0:
        return 0.0, 0.0
    if bar.unit == "bytes":
        if bar.started_at is None or bar.last_at is None or not bar.done or bar.last_at <= bar.started_at:
            return None, None
        rate = bar.done / (bar.last_at - bar.started_at)
        return max(0.0, left / rate - (now - bar.last_at)), 0.15 * left / rate
    if step is None:
        step = expect if expect is not None else usual_step(past)
    if step is None:
        return None, None
    since = max(0.0, now - bar.last_at) if bar.last_at is not None else 0.0
    # The running step has used up part of its time; how much is left of a late one nobody knows: it is taken as about to end.
    eta = max(left * step - min(since, step), 0.0)
    steps = bar.step_seconds[1:][-2 * RECENT_STEPS :]
    spread = median(abs(past_load - step) for past_load in steps) if steps else step
    return eta, spread * left**0.5 + 0.05 * eta


def _cold_shards(load: LoadState, now: float, signs: SignsOfLife) -> tuple[float | None, float | None]:
    """Return the same before a second shard is there: from the first one, which pays for cold caches, or from the reads."""
    bar = load.shards
    if load.phase is not Phase.LOADING or bar is None or not bar.total:
        return None, None
    if load.checkpoint_gib and signs.read_gib_s:
        eta = load.checkpoint_gib * (1 - bar.done / bar.total) / signs.read_gib_s
        return eta, 0.4 * eta
    if bar.step_seconds and bar.last_at is not None:
        most = (bar.total - bar.done) * max(bar.step_seconds[0], now - bar.last_at)
        return FIRST_STEP_SHARE * most, 0.5 * most
    return None, None


def _with_bytes(eta: float | None, load: LoadState, signs: SignsOfLife) -> float | None:
    """Blend in what the bytes say: shards differ in size, and the last is often small.

    Several ranks may read the same files, and a page cache spares reads: where bytes and steps disagree by more than twice, the
    bytes are of something else.
    """
    bar = load.shards
    if not eta or bar is None or not load.checkpoint_gib or not signs.read_gib_s:
        return eta
    by_bytes = load.checkpoint_gib * (1 - bar.done / bar.total) / signs.read_gib_s
    return (eta + by_bytes) / 2 if 0.5 <= by_bytes / eta <= 2 else eta


def _ending(
    forecast: Forecast, load: LoadState, now: float, ready_timeout_s: float | None, ends_at: float | None, ends_by: str
) -> str:
    """Say what ends the start before it is ready; "" if nothing does."""
    # Other servers' starts are no ground for an alarm: at the first start only the shards count.
    left = forecast.ready_eta_s if forecast.from_history else forecast.shards_eta_s
    if left is None:
        return ""
    if ends_at is not None and now + left > ends_at:
        return f"ETA {about(left)}, but {ends_by or 'a time limit'} ends it in {about(max(0.0, ends_at - now))}"
    began = load.engine_started_at
    engine = engine_named(load.engine)
    timeout = engine.ready_timeout if engine is not None else None
    if timeout is None or began is None:
        return ""
    known = ready_timeout_s is not None
    if not known and (release_of(load.version) or (0, 0)) < timeout.since:
        return ""
    limit = ready_timeout_s if ready_timeout_s is not None else timeout.default_s
    spent = max(0.0, now - began)
    if spent + left <= limit or spent > limit:
        return ""  # in time; or the limit has passed and it lives, so it is another one
    if known:
        return f"ETA {about(left)}, but {timeout.variable}={limit:.0f} ends it in {about(limit - spent)}"
    return (
        f"ETA {about(left)}, but unless {timeout.variable} was raised, its default of {limit:.0f} s ends it in "
        f"{about(limit - spent)}"
    )


# -- the verdict -------------------------------------------------------------------------------------------------------------------


def _compared(
    forecast: Forecast,
    load: LoadState,
    now: float,
    past: Sequence[PastLoad],
    signs: SignsOfLife,
    expect_s_per_shard: float | None,
) -> Forecast:
    stalled = _stalled(load, now, forecast, past, signs, expect_s_per_shard)
    if stalled is not None:
        return replace(forecast, verdict=Verdict.STALLED, reason=stalled)
    step = forecast.s_per_shard
    usual = expect_s_per_shard if expect_s_per_shard is not None else usual_step(past)
    speed = f"{pace(step)} a {one_of(load.shards)}" if step is not None and load.shards is not None else ""
    in_shards = load.phase is Phase.LOADING and load.shards is not None and load.shards.done < load.shards.total
    if in_shards and step is not None and usual is not None:
        if step > usual * SLOW_SHARE:
            return replace(forecast, verdict=Verdict.SLOW, reason=f"{speed}, usually {pace(usual)}")
        if forecast.behind_s is None or forecast.usual_s is None or forecast.behind_s <= _tolerance(forecast.usual_s):
            late = forecast.behind_s is not None and abs(forecast.behind_s) >= 10
            tail = f"; the start is {against(forecast.behind_s)}" if late else ""
            return replace(forecast, verdict=Verdict.ON_TIME, reason=f"{speed}, usually {pace(usual)}{tail}")
    if long := _long_phase(load, now, forecast, past):
        return replace(forecast, verdict=Verdict.SLOW, reason=long)
    if forecast.usual_s is not None and load.started_at is not None:
        behind = forecast.behind_s if forecast.behind_s is not None else (now - load.started_at) - forecast.usual_s
        reason = f"a start usually takes {about(forecast.usual_s)}; so far {against(behind)}"
        if behind > _tolerance(forecast.usual_s):
            return replace(forecast, verdict=Verdict.SLOW, behind_s=behind, reason=reason)
        if forecast.behind_s is None:
            reason = doing_now(load)
        return replace(forecast, verdict=Verdict.ON_TIME, reason=reason)
    if in_shards and step is not None and load.shards is not None:
        return replace(forecast, verdict=Verdict.PROGRESSING, reason=f"{speed}, {steadiness(load.shards, step)}")
    return replace(forecast, verdict=Verdict.PROGRESSING, reason=doing_now(load))


def _tolerance(usual: float) -> float:
    return max(SLOW_FLOOR_S, (SLOW_SHARE - 1) * usual)


def _long_phase(load: LoadState, now: float, forecast: Forecast, past: Sequence[PastLoad]) -> str:
    """Say why the phase is slow that runs now, if earlier starts had it: a rank that hangs shows here long before in the whole."""
    usual = seconds_of(past, load.phase)
    if usual is None or load.phase not in ORDER[ORDER.index(Phase.LOADING) + 1 :]:
        return ""
    spent = spent_in_phase(load, now)
    if spent < max(LONG_PHASE * usual, usual + LONG_PHASE_FLOOR_S):
        return ""
    silent = (
        f"; no line for {about(forecast.silent_s)}" if forecast.silent_s is not None and forecast.silent_s >= SLOW_FLOOR_S else ""
    )
    return f"{name_of(load.phase)} has taken {about(spent)}, usually {about(usual)}{silent}"


def _stalled(
    load: LoadState,
    now: float,
    forecast: Forecast,
    past: Sequence[PastLoad],
    signs: SignsOfLife,
    expect_s_per_shard: float | None,
) -> str | None:
    """Say why it counts as stalled; None while anything shows life or silence is normal."""
    silent = forecast.silent_s
    if signs.process_alive is False:
        return "no process of the server is left, and the log does not say why"
    if silent is None:
        return None
    bar = load.shards
    steps_known = load.phase is Phase.LOADING and bar is not None and 0 < bar.done < bar.total and bar.last_at is not None
    if steps_known and bar is not None and bar.last_at is not None:
        still = min(silent, now - bar.last_at)
        limit = _stall_limit(bar, forecast.s_per_shard, expect_s_per_shard, past)
    else:
        still = silent
        usual = seconds_of(past, load.phase)
        limit = max(SILENCE_S.get(load.phase, 900.0), 3 * usual if usual is not None else 0.0)
    if still < limit or _lives(signs, limit):
        return None
    what = f"shard {int(bar.done) + 1} of {int(bar.total)}" if steps_known and bar is not None else name_of(load.phase)
    usual_words = f"; a step takes {pace(forecast.s_per_shard)}" if steps_known and forecast.s_per_shard is not None else ""
    if load.connecting:
        return f"waiting for the other ranks to connect (NCCL or its like) for {about(still)}{_looked_at(signs)}"
    return f"no sign of life for {about(still)} in {what}{usual_words}{_looked_at(signs)}"


def _stall_limit(bar: Loader, step: float | None, expect: float | None, past: Sequence[PastLoad]) -> float:
    """Return after how many seconds a pause is a stall: it shows within three typical steps, yet a storage whose steps vary gets
    the slack that they show."""
    typical = step if step is not None else expect if expect is not None else usual_step(past)
    if typical is None:
        # Only the cold first step is known: the second may be as cold.
        first = bar.step_seconds[0] if bar.step_seconds else SILENCE_S[Phase.LOADING]
        return max(10 * STALL_FLOOR_S, 4 * first)
    # Where steps vary, a pause that was seen before is no stall yet.
    worst = max(bar.step_seconds[1:][-2 * RECENT_STEPS :], default=typical)
    return max(STALL_FLOOR_S, STALL_STEPS * typical, 1.2 * worst)


def _lives(signs: SignsOfLife, limit: float) -> bool:
    """Tell whether anything moved within the limit, which vetoes a stall."""
    window = max(10.0, min(limit, 120.0))
    clues = (signs.gpu_memory_s, signs.engine_read_s, signs.disk_read_s, signs.network_s)
    return any(since is not None and since < window for since in clues)


def _looked_at(signs: SignsOfLife) -> str:
    """Say what else stood still, so that the reader knows how sure this is."""
    seen = [
        name
        for name, since in (
            ("GPU memory", signs.gpu_memory_s),
            ("the engine's reads", signs.engine_read_s),
            ("the disk", signs.disk_read_s),
            ("the network", signs.network_s),
        )
        if since is not None
    ]
    return f"; {', '.join(seen)} still" if seen else ""
