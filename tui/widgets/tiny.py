"""Five lines that still say all that matters, for a window of 20 × 5."""

from textual.content import Content

from tui.core.deployment import DeploymentState
from tui.core.deployment_status import Status, detail_of, status_of
from tui.core.gpu import GIB_MIB
from tui.core.gpu_groups import engine_of
from tui.core.gpu_health import headroom
from tui.core.gpu_uniformity import uniformity
from tui.core.presentation import amounts, clock, failure_title, name_of, percent, three
from tui.widgets.canvas import Canvas, Moment
from tui.widgets.draw import BE, BP, BW, QUIET, B, E, G, label, line, meter, rows, short, spread
from tui.widgets.gpu_rows import old_mark
from tui.widgets.gpu_strip import strip
from tui.widgets.load_panel import bar_of, countdown, verdict
from tui.widgets.phase_view import past_loading, phase_seconds
from tui.widgets.status_line import LOOKS


class Tiny(Canvas):
    """Name and progress, meter, time, shards and verdict, memory."""

    def draw(self, width: int, height: int) -> Content:
        state = self.state
        now = status_of(state)
        glyph, tint = LOOKS[now]
        load = state.load
        current = bar_of(load) if load else None
        right = now.label.lower()
        loaded = load is not None and past_loading(load) and (current is None or current is load.shards)
        if now is Status.LOADING and load is not None and loaded:
            right = name_of(load.phase)
        elif now is Status.LOADING and current and current.total:
            right = percent(current.done / current.total)
        name = short(state.name or state.target, max(4, width - len(right) - 4))
        ink = "bold" if tint == QUIET else f"bold {tint}"
        first = spread(width, line((f"{glyph} ", ink), (name, B)), line((right, ink)))
        body: list[Content] = []
        if now is Status.LOADING and current and current.total:
            title_of, figure, _ = countdown(state, self.moment.wall)
            body = [
                meter(min(width, int(current.done * width / current.total)), width, width),
                spread(width, line(label(title_of.replace(" about", ""))), line((figure, BP))),
                spread(
                    width,
                    line(label("now"), " ", (clock(phase_seconds(state)), B))
                    if loaded
                    else line(label(" of ".join(amounts(current)))),
                    verdict(state),
                    verdict(state, 1),
                ),
            ]
        elif now is Status.FAILED and load and load.failure:
            body = [line((short(failure_title(load.failure), width), BE)), line(label(short(load.failure.cause, width)))]
        elif now in (Status.FAILED, Status.HUNG) and (detail := detail_of(state)):
            body = [line(label(short(detail, width)))]
        elif now is Status.READY:
            rate = state.api.metrics.generation_tokens_s if state.api.metrics else None
            body = [line((three(rate), BP), label(" tok/s"))]
        elif state.connection.cause and not state.connection.online:
            body = [line(label(text)) for text in (state.connection.cause, state.connection.advice) if text]
        return rows(first, *body, _memory(state, width, self.moment))


def _memory(state: DeploymentState, width: int, moment: Moment) -> Content:
    sample = state.gpus
    if sample is None or not sample.gpus:
        return strip(state, width, moment)
    judged = uniformity(sample, engine_of(state))
    used = sorted(gpu.memory_used_mib for gpu in sample.gpus if gpu.memory_used_mib is not None)
    even = (
        line(("✓ even", G))
        if judged.even
        else line((f"✗ odd {judged.odd[0]}", E))
        if judged.even is False and judged.odd
        else Content("")
    )
    fullest = headroom(sample)
    free = line((percent(fullest.free_share), B)) if fullest else Content("")
    level = line(label(f"{len(sample.gpus)} × {three(used[len(used) // 2] / GIB_MIB if used else None)} GiB"))
    if sample.late:
        return spread(width, level, line(old_mark(sample, moment)), line(("○ old", BW)))
    return spread(width, level, even, free)
