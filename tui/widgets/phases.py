"""The phases of a start as a time line: what each took, and what it took last time."""

from msgspec import Struct
from textual.content import Content

from tui.core.deployment import DeploymentState
from tui.core.logs.load_state import LoadState, PastLoad, Phase
from tui.core.presentation import NAMES, clock
from tui.widgets.canvas import Canvas
from tui.widgets.draw import BE, BP, QUIET, B, G, W, fit, label, line

USUAL = tuple(phase for phase in NAMES if phase is not Phase.DOWNLOADING)
"""What a log shows in another order is drawn in the log's."""


class Row(Struct, frozen=True):
    name: str
    mark: tuple[str, str]
    seconds: float | None
    usual: float | None
    style: str


def last_time(state: DeploymentState) -> PastLoad | None:
    """The newest earlier start in the record."""
    return max(state.history, key=lambda past: past.at or 0.0, default=None)


def _current(load: LoadState) -> Phase | None:
    phase = load.failure.phase if load.failure is not None else load.phase
    return phase if phase in NAMES else None


def _served(load: LoadState) -> Row | None:
    """The row of a server that failed while it served."""
    if load.failure is None or load.failure.phase is not Phase.READY:
        return None
    span = next((span for span in reversed(load.phases) if span.name is Phase.READY), None)
    return Row("serving", ("✗", BE), span.seconds if span is not None else None, None, B)


def time_line(state: DeploymentState) -> list[Row]:
    """One row a phase: those seen, in the log's order, then those that usually follow."""
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
        out.append(Row(NAMES[phase], mark, took, usual.get(phase), style))
    if not (over and load is not None and (load.phase is not Phase.FAILED or load.was_ready)):
        rest = [phase for phase in (usual or USUAL) if phase in NAMES and phase not in seen]
        out += [Row(NAMES[phase], ("·", QUIET), None, usual.get(phase), QUIET) for phase in rest]
    served = _served(load) if load is not None else None
    if served is not None:
        out.append(served)
    return out


def ended_at(load: LoadState) -> float | None:
    """When a start ended without having been ready."""
    last = load.phases[-1] if load.phases and load.phase in (Phase.FAILED, Phase.STOPPED) else None
    return last.started_at if last is not None and last.name is load.phase else None


def total_words(state: DeploymentState) -> Content:
    """`7:49 · last time 36:18`, for the pane's border."""
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
    """One line a phase, with a head where there is room."""
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


class Phases(Canvas):
    """The pane at the left: one row a phase."""

    def draw(self, width: int, height: int) -> Content | list[Content]:
        return phase_rows(self.state, width, height)


def phase_line(state: DeploymentState, width: int) -> list[Content]:
    """The same as running text in two lines, for narrow screens."""
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
