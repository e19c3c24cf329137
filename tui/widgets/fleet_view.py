"""Every configured deployment in two lines: its state, what it is at, its GPUs, what it serves."""

from collections import Counter

from textual.content import Content
from textual.events import Click
from textual.message import Message

from tui.core.connection import LinkState
from tui.core.deployment import DeploymentState
from tui.core.deployment_status import (
    GRAVITY,
    UNREACHED,
    Status,
    api_problem,
    arranged,
    conflict_of,
    hang_of,
    log_problem,
    status_of,
    unheard_text,
)
from tui.core.gpu_groups import engine_of
from tui.core.gpu_health import headroom
from tui.core.gpu_uniformity import uniformity
from tui.core.logs.load_state import Verdict
from tui.core.presentation import (
    DASH,
    age,
    amounts,
    clock,
    failure_title,
    gigabytes_s,
    name_of,
    one_of,
    percent,
    three,
    verdict_text,
    whole,
)
from tui.widgets.canvas import Canvas, Moment, drawn
from tui.widgets.draw import BP, QUIET, B, E, P, Part, W, label, line, meter, middle, rows, short, sparks
from tui.widgets.gpu_rows import LOW_SHARE, old_mark
from tui.widgets.load_panel import bar_of
from tui.widgets.phase_view import past_loading
from tui.widgets.status_line import LOOKS

STATE_W, GPUS_W = 16, 18
FIGURES = (("tok/s", 8), ("run", 5), ("wait", 5), ("KV %", 6))


def since_words(state: DeploymentState, moment: Moment) -> str:
    """Return `28:32 left`, `12 min ago`, `3 d 04 h`, in STATE_W - 3 characters at most."""
    load, now = state.load, state.host_now
    match status_of(state):
        case Status.READY:
            up = now - load.ready_at if load and load.ready_at is not None and now is not None else None
            return age(max(0.0, up)) if up is not None else ""
        case Status.LOADING:
            if state.forecast.ready_eta_s is not None:
                return f"{_lasting(state.forecast.ready_eta_s)} left"
            start = load.started_at if load else None
            return f"for {_lasting(now - start)}" if start is not None and now is not None else ""
        case Status.FAILED | Status.STOPPED:
            silent = state.forecast.silent_s
            return f"{age(silent)} ago" if silent is not None else ""
    ago = moment.since(state.connection.since)
    return f"{age(ago)} ago" if ago is not None and status_of(state) in UNREACHED else ""


def _lasting(seconds: float) -> str:
    """Return `28:32`, from ten hours on `10 h 02`, `3 d 04 h`: seconds tell nothing then, and have no room."""
    return clock(seconds) if seconds < 36_000 else age(seconds)


def now_lines(state: DeploymentState, width: int, moment: Moment) -> tuple[Content, Content]:
    """Draw what a deployment is at, and a quiet line about it."""
    load, link = state.load, state.connection
    match status_of(state):
        case Status.LOST | Status.UNREACHABLE | Status.REFUSED | Status.MISCONFIGURED:
            retry = f"next try in {max(0.0, link.retry_at - moment.mono):.0f} s" if link.retry_at is not None else link.advice or ""
            return Content(short(link.cause or "", width)), line(label(short(retry, width)))
        case Status.FAILED if load is not None and load.failure is not None:
            return Content(short(failure_title(load.failure), width)), line(label(short(load.failure.cause, width)))
        case Status.FAILED | Status.STOPPED:
            return Content(short(conflict_of(state) or "stopped cleanly", width)), Content("")
        case Status.HUNG:
            return line((short(hang_of(state) or "", width), W)), Content("")
        case Status.LOADING if load is not None and load.recognised:
            bar = bar_of(load)
            if past_loading(load) or bar is None or not bar.total:
                silent = f"silent for {clock(state.forecast.silent_s)}" if (state.forecast.silent_s or 0) > 8 else ""
                return line((name_of(load.phase), BP)), line(label(silent))
            rate, step = gigabytes_s(bar), state.forecast.s_per_shard if bar is load.shards else None
            pace = f", {three(rate)} GB/s" if rate else f", {three(step)} s/{one_of(bar)}" if step else ""
            bad = state.forecast.verdict in (Verdict.SLOW, Verdict.STALLED, Verdict.HUNG)
            said = verdict_text(state.forecast.verdict)
            told = line(label(f"{' of '.join(amounts(bar))}{pace}, "), (f"▲ {said}" if bad else said, W if bad else QUIET))
            return meter(bar.done, bar.total, width, live=link.online, bright=moment.beat), told
        case Status.READY:
            rates = state.trends.generation_tokens_s
            model = state.api.models[0].id if state.api.models else (load.model if load else None)
            chart = sparks(rates, width) if any(rates) else line(label("idle")) if rates else Content("")
            return chart, line(label(middle(model or "", width)))
    if link.link is LinkState.ASKING:
        return line(("the login needs your input", W)), Content("")
    waiting = log_problem(state) or unheard_text(state) or api_problem(state) or ("no start in the log yet" if link.online else "")
    return line(label(short(waiting, width))), Content("")


def gpu_lines(state: DeploymentState, moment: Moment) -> tuple[Content, Content]:
    """Draw a column a GPU; below it even, odd, or how much is free."""
    sample = state.gpus
    if sample is None or not sample.gpus:
        return line(label(DASH)), Content("")
    judged, fullest = uniformity(sample, engine_of(state)), headroom(sample)
    old = sample.late or not state.connection.online
    gap = " " if 2 * len(sample.gpus) < GPUS_W else ""
    parts: list[Part] = []
    for gpu in sample.gpus[: GPUS_W - 2]:
        share = gpu.memory_share
        bad = bool(gpu.error) or gpu.index in judged.odd
        char = "▁▂▃▄▅▆▇█"[min(7, round(share * 8))] if share is not None else "✗" if bad else "·"
        parts += [(char, QUIET if old else E if bad else P), gap]
    if old:
        return line(*parts), line(old_mark(sample, moment) or label("as last seen"))
    if judged.even is False:
        return line(*parts), line((f"✗ odd: {', '.join(map(str, judged.odd[:4]))}", E))
    if status_of(state) is Status.READY and fullest is not None:
        low = fullest.free_share < LOW_SHARE
        return line(*parts), line(label(f"{percent(fullest.free_share)} free{', low' if low else ''}"))
    return line(*parts), line(label("✓ even" if judged.even else ""))


def counts(states: tuple[DeploymentState, ...], brief: bool = False) -> Content:
    """Draw how many are in which state, the worst first, for the border; `brief` leaves out the words."""
    found = Counter(map(status_of, states))
    parts = []
    for status in GRAVITY:
        if status in found:
            glyph, tint = LOOKS[status]
            number = (f"{glyph} {found[status]}", B if tint == QUIET else f"bold {tint}")
            parts.append(line(number, label("" if brief else f" {status.label.lower()}")))
    return Content("  " if brief else "   ").join(parts)


class FleetView(Canvas, can_focus=True):
    """The list. Which one is selected goes by name, so that a change of the order does not move it to another."""

    class DeploymentOpened(Message):
        """One was opened."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    class Selected(Message):
        """Another one is selected."""

    states: drawn[tuple[DeploymentState, ...]] = drawn(())
    order: drawn[str] = drawn("worst first")
    sought: drawn[str] = drawn("")
    selected: drawn[str] = drawn("")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._tops: list[tuple[int, int, str]] = []

    @property
    def listed(self) -> list[DeploymentState]:
        return arranged(self.states, self.order, self.sought)

    @property
    def current(self) -> DeploymentState | None:
        """Return the selected one, or the first if that is not listed."""
        listed = self.listed
        return next((state for state in listed if state.name == self.selected), listed[0] if listed else None)

    def watch_selected(self) -> None:
        self.post_message(self.Selected())

    def move(self, by: int) -> None:
        """Select the next one, or the one before."""
        names = [state.name for state in self.listed]
        if names:
            at = names.index(self.current.name) if self.current else 0
            self.selected = names[min(len(names) - 1, max(0, at + by))]

    def on_mouse_scroll_down(self) -> None:
        self.move(1)

    def on_mouse_scroll_up(self) -> None:
        self.move(-1)

    def on_click(self, event: Click) -> None:
        for top, end, name in self._tops:
            if top <= event.y < end:
                if self.current is not None and self.current.name == name:
                    self.post_message(self.DeploymentOpened(name))
                self.selected = name

    def draw(self, width: int, height: int) -> Content:
        listed = self.listed
        shown_figures = FIGURES if width >= 112 else FIGURES[:1] if width >= 92 else ()
        gpus = GPUS_W if width >= 72 else 0
        names = max((max(len(state.name), len(state.target)) for state in self.states), default=10) + 2
        name_w = max(12, min(names, 36, max(14, width // 5)))
        now_w = max(8, width - 2 - STATE_W - name_w - gpus - sum(size for _, size in shown_figures) - 2)
        each = 3 if 3 * len(listed) + 1 <= height else 2 if width >= 60 else 1
        head = line(label(f"  {'state':<{STATE_W}}{'deployment':<{name_w}}{'now':<{now_w + 2}}{'GPUs' if gpus else '':<{gpus}}"))
        head = line(head, *(label(f"{name:>{size}}") for name, size in shown_figures))
        out: list[Content | str] = [head]
        if each == 3:
            out.append("")
        self._tops = []
        if not listed:
            what = f"none of {len(self.states)} deployments has {self.sought!r} in its name, host, model or state"
            return rows(*out, line(label(what if self.sought else "no deployment is configured")))
        current = self.current
        room = max(1, (height - len(out)) // each)
        at = next((i for i, state in enumerate(listed) if current is not None and state.name == current.name), 0)
        first = max(0, min(at - room // 2, len(listed) - room))
        for state in listed[first : first + room]:
            here = current is not None and state.name == current.name
            self._tops.append((len(out), len(out) + each, state.name))
            out += self._entry(state, here, width, (name_w, now_w, gpus), shown_figures)[: 2 if each > 1 else 1]
            if each == 3:
                out.append("")
        return rows(*out[:height])

    def _entry(
        self, state: DeploymentState, here: bool, width: int, widths: tuple[int, int, int], figures: tuple[tuple[str, int], ...]
    ) -> list[Content]:
        name_w, now_w, gpus_w = widths
        now = status_of(state)
        glyph, tint = LOOKS[now]
        ink = B if tint == QUIET else f"bold {tint}"
        edge = ("▌ ", BP) if here else "  "
        above, below = now_lines(state, now_w, self.moment)
        cells, says = gpu_lines(state, self.moment) if gpus_w else (Content(""), Content(""))
        metrics = state.api.metrics if now is Status.READY else None
        values = (
            three(metrics.generation_tokens_s if metrics else None),
            whole(metrics.running if metrics else None),
            whole(metrics.waiting if metrics else None),
            three(metrics.kv_cache_share * 100 if metrics and metrics.kv_cache_share is not None else None),
        )

        def padded(one: Content, size: int) -> Content:
            one = one.truncate(size, ellipsis=True) if one.cell_length > size else one
            return line(one, " " * (size - one.cell_length))

        first = line(
            edge,
            (f"{glyph} {now.label:<{STATE_W - 2}}", ink),
            padded(line((middle(state.name, name_w - 1), B)), name_w),
            padded(above, now_w),
            "  ",
            padded(cells, gpus_w),
            *((f"{value:>{size}}", B if value != DASH else QUIET) for value, (_, size) in zip(values, figures, strict=False)),
        )
        second = line(
            edge,
            label(f"  {short(since_words(state, self.moment), STATE_W - 3):<{STATE_W - 2}}"),
            padded(line(label(middle(state.target, name_w - 1))), name_w),
            padded(below, now_w),
            "  ",
            padded(says, gpus_w),
        )
        pair = [first, second]
        if here:
            pair = [line(row, " " * max(0, width - row.cell_length)).stylize_before("on $surface") for row in pair]
        return pair
