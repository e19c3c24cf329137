"""The phases of a start: a row each with what it took and took last time, what the server does now, the shards one by one; and
what is waited for before the first phase."""

from statistics import median

from msgspec import Struct
from textual.content import Content

from tui.core.api_status import Reach
from tui.core.deployment import DeploymentState
from tui.core.deployment_status import another_server, api_problem, hang_of, log_problem, process_gone_unheard, process_unheard
from tui.core.logs.load_state import Loader, LoadState, PastLoad, Phase
from tui.core.presentation import NAMES, NORMAL_SILENCE_S, amounts, clock, doing, gigabytes_s, one_of, silence_text, three
from tui.widgets.canvas import Canvas
from tui.widgets.draw import (
    BE,
    BP,
    BW,
    QUIET,
    TRACK,
    B,
    G,
    P,
    Part,
    W,
    area,
    edges,
    facts,
    fit,
    label,
    line,
    meter,
    resample,
    rows,
    spread,
)

USUAL = tuple(phase for phase in NAMES if phase is not Phase.DOWNLOADING)
"""What a log shows in another order is drawn in the log's."""


class PhaseRow(Struct, frozen=True):
    name: str
    mark: tuple[str, str]
    seconds: float | None
    usual: float | None
    style: str


def last_time(state: DeploymentState) -> PastLoad | None:
    """Return the newest earlier start in the record."""
    return max(state.history, key=lambda past: past.at or 0.0, default=None)


def _current(load: LoadState) -> Phase | None:
    phase = load.failure.phase if load.failure is not None else load.phase
    return phase if phase in NAMES else None


def _served(load: LoadState) -> PhaseRow | None:
    """Return the row of a server that failed while it served."""
    if load.failure is None or load.failure.phase is not Phase.READY:
        return None
    span = next((span for span in reversed(load.phases) if span.name is Phase.READY), None)
    return PhaseRow("serving", ("✗", BE), span.seconds if span is not None else None, None, B)


def time_line(state: DeploymentState) -> list[PhaseRow]:
    """Return a row a phase: those seen, in the log's order, then those that usually follow."""
    load = state.load
    past = last_time(state)
    usual = dict(past.phases) if past else {}
    seen: dict[Phase, float | None] = {}
    now = state.host_now
    current = _current(load) if load else None
    for span in load.phases if load else ():
        if span.name not in NAMES:
            continue
        took = span.seconds
        if took is None and span.name == current and span.started_at is not None and now is not None:
            took = max(0.0, now - span.started_at)
        before = seen.get(span.name)
        seen[span.name] = took if before is None else before + (took or 0.0)
    if current is not None and current not in seen:
        seen[current] = None
    over = load is not None and load.phase in (Phase.READY, Phase.FAILED, Phase.STOPPED)
    out = []
    for phase, took in seen.items():
        if phase is current and load is not None:
            mark, style = (("✗", BE), B) if load.phase is Phase.FAILED else (("◐", BP), B)
        else:
            mark, style = ("✓", G), ""
        out.append(PhaseRow(NAMES[phase], mark, took, usual.get(phase), style))
    if not (over and load is not None and (load.phase is not Phase.FAILED or load.was_ready)):
        rest = [phase for phase in (usual or USUAL) if phase in NAMES and phase not in seen]
        out += [PhaseRow(NAMES[phase], ("·", QUIET), None, usual.get(phase), QUIET) for phase in rest]
    served = _served(load) if load is not None else None
    if served is not None:
        out.append(served)
    return out


def ended_at(load: LoadState) -> float | None:
    """Return when a start ended without having been ready."""
    last = load.phases[-1] if load.phases and load.phase in (Phase.FAILED, Phase.STOPPED) else None
    return last.started_at if last is not None and last.name is load.phase else None


def total_words(state: DeploymentState) -> Content:
    """Draw `7:49 · last time 36:18`, for the pane's border."""
    past = last_time(state)
    so_far = state.forecast.ready_s
    if so_far is None and state.load and state.load.started_at is not None:
        end = state.load.ready_at if state.load.ready_at is not None else ended_at(state.load) or state.host_now
        so_far = end - state.load.started_at if end is not None else None
    parts: list[tuple[str, str]] = []
    if so_far is not None:
        parts.append((clock(so_far), B))
    if past is not None:
        parts.append(label((" · " if parts else "") + f"last time {clock(past.total_s)}"))
    return line(*parts)


def phase_rows(state: DeploymentState, width: int, height: int) -> list[Content]:
    """Draw a line a phase, with a head if there is room."""
    shown = time_line(state)
    has_usual = any(row.usual is not None for row in shown)
    wide = max(6, width - 9 - (9 if has_usual else 0))
    out = []
    for row in shown:
        slow = row.seconds is not None and row.usual is not None and row.seconds > row.usual * 1.3 + 5
        took = (f"{clock(row.seconds):>7}", W if slow and row.style != QUIET else row.style)
        last = label(f"{clock(row.usual):>9}") if has_usual else ""
        out.append(line(row.mark, " ", (fit(row.name, wide), row.style), took, last))
    if len(out) > height:  # what is over goes first
        done = next((i for i, row in enumerate(shown) if row.mark[0] != "✓"), len(shown))
        return out[max(0, min(done - 1, len(out) - height)) :][:height]
    if height > len(out):
        out.insert(0, line(label(fit("  phase", wide + 2) + f"{'took':>7}" + (f"{'last':>9}" if has_usual else ""))))
    return out


class PhasesPane(Canvas):
    """The pane at the left: one row a phase."""

    def draw(self, width: int, height: int) -> Content | list[Content]:
        return phase_rows(self.state, width, height)

    def note(self) -> Content | None:
        """Return what the whole start takes, for the border."""
        return total_words(self.state)


def phase_line(state: DeploymentState, width: int) -> list[Content]:
    """Draw the same as running text in two lines, for narrow screens."""
    shown = time_line(state)
    across = max(1, (width + 3) // 20)
    if len(shown) > 2 * across:
        done = next((i for i, row in enumerate(shown) if row.mark[0] != "✓"), 0)
        first = min(max(0, done - 1), len(shown) - 2 * across)
        shown = shown[first : first + 2 * across]
    per_line = across if len(shown) > across else max(1, len(shown))
    cells = []
    for row in shown:
        took = clock(row.seconds) if row.seconds is not None or row.usual is None else clock(row.usual, tilde=True)
        cells.append(line(row.mark, (f" {row.name:<9}{took:>6}", row.style if row.style == QUIET else "")))
    return [Content("   ").join(cells[i : i + per_line]) for i in range(0, len(cells), per_line)][:2]


def _no_link(state: DeploymentState, width: int) -> list[Content | str]:
    """Draw that it connects, or why there is no connection and what to do, in full."""
    link = state.connection
    host = link.host or state.target
    if not link.cause:
        return [line((f"Connecting to {host}", B))]
    out: list[Content | str] = [line((f"No connection to {host}", B)), ""]
    for name, text in (("because", link.cause), ("next", link.advice)):
        wrapped = Content(text or "").wrap(max(8, width - 10)) if text else []
        out += [line(label(f"{name if i == 0 else '':<10}"), row) for i, row in enumerate(wrapped)]
    return out


def before(state: DeploymentState, width: int, height: int) -> Content:
    """Draw what is watched before anything has started, and what would make it start to show."""
    reach = {
        Reach.UNKNOWN: "not asked yet",
        Reach.CLOSED: "port still closed",
        Reach.SICK: state.api.error or f"answers, /health says {state.api.health}",
        Reach.UP: api_problem(state) or "up",
        Reach.ERROR: state.api.error or "does not answer as expected",
    }[state.api.reach]
    source = state.log.source or "looking for it"
    lines: list[Content | str] = []
    if state.connection.online:
        title, words = "No start in the log yet.", "It shows here as soon as the server writes its first line."
        if process_gone_unheard(state):
            title, words = "The server's process is gone.", "It left no readable log: check what started it, and dmesg."
        elif process_unheard(state):
            title = f"The server's process {state.server_pid} is running."
            words = (
                "Its log can't be read: its API and the GPUs are watched instead."
                if state.log.unread
                else "It has logged nothing yet: the imports come first and take 10 to 60 s, longer from a slow disk."
            )
        lines += [
            line((title, B)),
            *Content(words).stylize(QUIET).wrap(max(8, width)),
        ]
    else:
        lines += _no_link(state, width)
    lines += ["", *facts(width, ("host", state.connection.host or state.target), ("log", source), ("API", reach), column=10)]
    for problem in (hang_of(state), another_server(state), log_problem(state)):
        if problem:
            wrapped = Content(problem).wrap(max(8, width - 2))
            lines += ["", *(line(("▲ ", W) if i == 0 else "  ", row) for i, row in enumerate(wrapped))]
    if past := last_time(state):
        lines += ["", line(label("last time   "), (clock(past.total_s), B))]
    return rows(*lines[:height])


QUIET_S = 8.0
"""Shorter silences are not worth a word."""


def past_loading(load: LoadState) -> bool:
    """Return whether the weights are loaded and it still has to come up: a bar at its end says nothing any more."""
    return load.phase in NORMAL_SILENCE_S and load.phase is not Phase.STARTING


def phase_seconds(state: DeploymentState) -> float | None:
    """Return how long the present phase has lasted."""
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
    """Draw what the server does now in a phase without a bar, or None. What the GPUs do is left out first."""
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
    """Draw the seconds of each shard above the shard's own cell; grey is how the last load went on from here."""
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
    """Draw how much is loaded, and how fast, if there are no steps to tell of."""
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
            label(f"   {one_of(loader)} {loader.done + 1:.0f} so far: "),
            (clock(now - loader.last_at) if now - loader.last_at >= 100 else three(round(now - loader.last_at)), B),
        ]
    if len(took) > 2:
        slowest = max(took[1:])
        marked = _is_slow(slowest, median(took[1:]))
        told = f"~{slowest:.0f}" if loader.whole_seconds else three(slowest)
        parts += [label("   slowest: "), ("▲ " if marked else "", W), (told, W if marked else B)]
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
