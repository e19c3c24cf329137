"""The tab Load before a start: what is watched, what is waited for, and why there is no connection where there is none."""

from statistics import median

from textual.content import Content

from tui.core.api_status import Reach
from tui.core.deployment import DeploymentState
from tui.core.logs.load_state import Loader, LoadState, Phase
from tui.core.presentation import NORMAL_SILENCE_S, amounts, clock, doing, gigabytes_s, one_of, silence_text, three
from tui.core.status import process_gone_unheard, process_unheard
from tui.widgets.draw import BW, QUIET, TRACK, B, P, Part, W, area, edges, facts, label, line, meter, resample, rows, spread
from tui.widgets.phases import last_time


def _no_link(state: DeploymentState, width: int) -> list[Content | str]:
    """Connecting; or why there is no connection, and what to do, in full."""
    link = state.connection
    host = link.host or state.target
    if not link.cause:
        return [line((f"Connecting to {host}", B))]
    out: list[Content | str] = [line((f"No connection to {host}", B)), ""]
    for name, text in (("because", link.cause), ("next", link.advice)):
        wrapped = Content(text or "").wrap(max(8, width - 10)) if text else []
        out += [line(label(f"{name if i == 0 else '':<10}"), one) for i, one in enumerate(wrapped)]
    return out


def before(state: DeploymentState, width: int, height: int) -> Content:
    """Nothing has started yet: what is watched, and what would make it start to show."""
    reach = {
        Reach.UNKNOWN: "not asked yet",
        Reach.CLOSED: "port closed: not yet",
        Reach.SICK: f"answers, /health says {state.api.health}",
        Reach.UP: "up",
        Reach.ERROR: state.api.error or "does not answer properly",
    }[state.api.reach]
    source = state.log.source or "looking for it"
    lines: list[Content | str] = []
    if state.connection.online:
        title, words = "No start in the log yet.", "It shows here as soon as the server writes its first line."
        if process_gone_unheard(state):
            title, words = "The server's process is gone.", "It left no line to read: look at what started it, and at dmesg."
        elif process_unheard(state):
            title = f"The server's process {state.server_pid} is there."
            words = (
                "Its log is not at hand: the API and the GPUs will tell of it."
                if state.log.unread
                else "No line of it yet: the imports before the first one take 10 to 60 s, longer from a slow disk."
            )
        lines += [
            line((title, B)),
            *Content(words).stylize(QUIET).wrap(max(8, width)),
        ]
    else:
        lines += _no_link(state, width)
    lines += ["", *facts(width, ("host", state.connection.host or state.target), ("log", source), ("API", reach), column=10)]
    if state.log.problem:
        lines += [
            "",
            *[line(("▲ ", W) if i == 0 else "  ", one) for i, one in enumerate(Content(state.log.problem).wrap(max(8, width - 2)))],
        ]
    if past := last_time(state):
        lines += ["", line(label("last time   "), (clock(past.total_s), B))]
    return rows(*lines[:height])


QUIET_S = 8.0
"""Shorter silences are not worth a word."""


def past_loading(load: LoadState) -> bool:
    """Whether the weights are loaded and it still has to come up: a bar at its end says nothing any more."""
    return load.phase in NORMAL_SILENCE_S and load.phase is not Phase.STARTING


def phase_seconds(state: DeploymentState) -> float | None:
    """How long the phase of now has lasted."""
    load, now = state.load, state.host_now
    if load is None or now is None or not load.phases:
        return None
    span = load.phases[-1]
    return max(0.0, now - span.started_at) if span.name is load.phase and span.started_at is not None else None


def _busy(state: DeploymentState) -> str:
    known = [gpu.utilisation for gpu in state.gpus.gpus if gpu.utilisation is not None] if state.gpus else []
    if not known:
        return ""
    mean = sum(known) / len(known)
    return f"the GPUs are {mean:.0f} % busy" if mean >= 1 else "the GPUs are idle"


def current_step(state: DeploymentState, width: int) -> Content | None:
    """One line; None in phases that a bar tells of. What the GPUs do goes first where it does not fit."""
    load, silent = state.load, state.forecast.silent_s
    if load is None or load.phase not in NORMAL_SILENCE_S or load.failure is not None or not state.connection.online:
        return None
    normal = NORMAL_SILENCE_S[load.phase]
    if load.phase is Phase.CAPTURING and load.capture is not None and load.capture.done < load.capture.total:
        return None
    limit = f"{normal / 60:.0f} min"
    head = line(label("now  "), (doing(load.phase), B), label("; "))
    if silent is None or silent < QUIET_S:
        return line(head, label(silence_text(normal)))
    told = [line(label("silent for "), (clock(silent), B if silent <= normal else BW))]
    told.append(line(label(f"normal up to {limit}")) if silent <= normal else line((f"longer than the usual {limit}", W)))
    whole = line(head, Content(", ").join([*told, line(label(_busy(state)))]))
    return whole if _busy(state) and whole.cell_length <= width else line(head, Content(", ").join(told))


SLOW_STEP = 1.3
"""A shard that took this many times the median is marked, if it is SLOW_S longer, too: a tenth more of nothing is no news."""
SLOW_S = 1.0
MOST_STEPS = 10_000
"""A bar of more is no count of files."""


def shards(state: DeploymentState, loader: Loader, width: int, height: int, beat: bool) -> list[Content]:
    """The seconds of each shard stand on the shard's own cell; what is to come is the ghost of the last load."""
    total, done = round(loader.total), int(loader.done)
    took = list(loader.step_seconds)
    past = last_time(state)
    ghost = (
        list(past.step_seconds) if past and len(past.step_seconds) == total and loader is (state.load and state.load.shards) else []
    )
    live = done < total and state.connection.online
    thick = 2 if height > 4 else 1
    at = edges(total, width)
    span = at[-1] if at else width
    counts = loader.unit != "bytes" and total <= MOST_STEPS
    told = (_told_steps(state, loader, took, span, bool(ghost)) if counts else [_told_amount(loader)]) if height > thick + 2 else []
    chart_rows = min(6, height - thick - 1 - len(told))
    chart: list[Content] = []
    if chart_rows > 0 and counts and (took or ghost):
        usual = median(took[1:] or took or ghost)
        first = max(0, done - len(took))
        values: list[float | None] = [None] * total
        values[first:done] = took[-done:] if done else []
        if ghost:
            values[done:] = ghost[done:]
        tints = [TRACK if i >= done else W if i > first and _is_slow(value or 0, usual) else P for i, value in enumerate(values)]
        highest = max(usual * 1.4, min(max((v for v in values if v is not None), default=usual), usual * 2.5))
        if at:
            wide_values = [value for i, value in enumerate(values) for _ in range(at[i + 1] - at[i])]
            wide_tints = [tint for i, tint in enumerate(tints) for _ in range(at[i + 1] - at[i])]
        else:
            wide_values = resample(values, width)
            wide_tints = [tints[min(total - 1, i * total // width)] for i in range(width)]
        chart = area(wide_values, chart_rows, wide_tints, highest)
    bars = [meter(loader.done, loader.total, width, live, bright=beat)] * thick
    return [*told, *chart, *bars, _ruler(total, amounts(loader)[1], at, width)]


def _told_amount(loader: Loader) -> Content:
    """Where there are no steps to tell of: how much, and how fast."""
    rate = gigabytes_s(loader)
    done, total = amounts(loader)
    return line(
        label("loaded "), (done, B), label(f" of {total}"), *([label("   at "), (three(rate), B), label(" GB/s")] if rate else [])
    )


def _told_steps(state: DeploymentState, loader: Loader, took: list[float], width: int, ghost: bool) -> list[Content]:
    now = state.host_now
    parts: list[Part] = [label("seconds a " + one_of(loader))]
    if now is not None and loader.last_at is not None and loader.done < loader.total:
        parts += [
            label(f"   in hand, {loader.done + 1:.0f}: "),
            (clock(now - loader.last_at) if now - loader.last_at >= 100 else three(round(now - loader.last_at)), B),
        ]
    if len(took) > 2:
        slowest = max(took[1:])
        marked = _is_slow(slowest, median(took[1:]))
        parts += [label("   slowest: "), ("▲ " if marked else "", W), (three(slowest), W if marked else B)]
    return [spread(width, line(*parts), line(label("grey: last load")) if ghost else Content(""))]


def _is_slow(step_s: float, usual_s: float) -> bool:
    return step_s > usual_s * SLOW_STEP and step_s > usual_s + SLOW_S


def _ruler(total: int, last: str, at: list[int], width: int) -> Content:
    end = at[-1] if at else width
    step = next(
        (step for step in (1, 2, 4, 8, 16, 25, 32, 50, 64, 100, 128, 256, 500, 1000) if total / step <= min(8, max(1, end // 8))),
        max(1, total),
    )
    text = [" "] * end
    for n in range(0, total, step):
        place = at[n] if at else n * width // total
        for i, char in enumerate(str(n)):
            if place + i < end - len(last) - 1:
                text[place + i] = char
    text[-len(last) :] = last
    return line(label("".join(text)))
