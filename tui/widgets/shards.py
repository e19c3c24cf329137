"""The shards of a load: the seconds that each took, over a bar of how many there are."""

from statistics import median

from textual.content import Content

from tui.core.deployment import DeploymentState
from tui.core.how_far import amounts, gigabytes_s, one_of
from tui.core.logs.state import Loader
from tui.widgets.figures import TRACK, B, P, Part, W, area, edges, label, line, meter, resample, spread
from tui.widgets.host_clock import host_now
from tui.widgets.numbers import clock, three
from tui.widgets.phases import last_time

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
    now = host_now(state)
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
