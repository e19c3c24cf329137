"""The log: its last lines, levels marked, filtered on demand, followed or paused."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.reactive import var
from textual.widgets import Input

from tui.core.deployment import LOG_LINES, DeploymentState, LogLine
from tui.core.presentation import counted, whole
from tui.widgets.canvas import NOTHING, Canvas
from tui.widgets.draw import BW, QUIET, B, W, label, line, rows
from tui.widgets.key_bar import key_of
from tui.widgets.log_view import LogView, bare, poll

BRIEF_BELOW = 110


class LogNote(Canvas):
    """Why there are no lines, in the place of them."""

    DEFAULT_CSS = "LogNote { height: 1fr; }"

    def draw(self, width: int, height: int) -> Content:
        tail = self.state.log
        if tail.problem:
            wrapped = Content(tail.problem).wrap(max(8, width - 2))
            return rows(*(line(("▲ ", W) if i == 0 else "  ", row) for i, row in enumerate(wrapped)))
        return rows(line(label(f"no lines yet in {tail.source}" if tail.source else "no log yet")))


class LogPane(Vertical):
    """Shows `state.log`. While it is paused nothing moves, and what came meanwhile is counted."""

    DEFAULT_CSS = """
    LogPane { height: 1fr; }
    LogPane LogView { height: 1fr; }
    LogPane Input { display: none; padding: 0; background: $surface; }
    LogPane Input, LogPane Input:focus { height: 1; border: none; }
    LogPane.-finding Input { display: block; }
    LogPane LogNote { display: none; }
    LogPane.-empty LogNote { display: block; }
    LogPane.-empty LogView { display: none; }
    """

    state: var[DeploymentState] = var(NOTHING, init=False)
    follow: var[bool] = var(True, init=False)
    sought: var[str] = var("", init=False)

    def compose(self) -> ComposeResult:
        yield LogView(id="log-lines")
        yield LogNote(id="log-note")
        asks = f"filter the log; enter applies, {key_of(self, 'leave')} clears"
        yield Input(placeholder=asks, id="log-find", select_on_focus=False)

    def on_mount(self) -> None:
        self._held_at = 0
        self._kept: tuple[LogLine, ...] = ()
        self._seen = 0
        self._polls = 0
        self._held = 0
        self._at_cause = False
        self.watch(self.query_one(LogView), "scroll_y", self._scrolled, init=False)
        self.show()

    def watch_state(self) -> None:
        # states come until the very end, when the parts of the pane go one by one
        if self.is_mounted and self.query("LogView") and self.query("LogNote"):
            load = self.state.load
            if self._at_cause and (load is None or load.failure is None):
                self.follow = True  # another start
            self.show()

    def watch_follow(self, follow: bool) -> None:
        self._held_at = self.state.log.seen
        if follow:
            self._at_cause = False
            self.show()
            self.query_one(LogView).release()
        else:
            self.query_one(LogView).hold()

    def watch_sought(self) -> None:
        self._kept, self._seen, self._held, self._polls = (), 0, 0, 0
        self._held_at = self.state.log.seen  # all that came is looked through
        self.show(force=True)

    def on_resize(self) -> None:
        """Leave out dates and source lines on narrow screens."""
        brief, view = self.app.size.width < BRIEF_BELOW, self.query_one(LogView)
        if view.brief != brief:
            view.brief = brief
            view.refresh()

    def show(self, force: bool = False) -> None:
        """Bring the view up to date with the state, unless it is held."""
        tail, view = self.state.log, self.query_one(LogView)
        self.set_class(not tail.lines, "-empty")
        note = self.query_one(LogNote)
        note.state = self.state
        if self.follow or force:
            load = self.state.load
            cause = load.failure.line if load and load.failure else None
            view.show_lines(self._lines(), order=tail.lines if force else (), cause=cause)

    def _lines(self) -> tuple[LogLine, ...]:
        """Return the lines of the tail to show.

        Those that hold the text sought, without the bare prefixes that progress bars leave.
        """
        tail = self.state.log
        new = tail.seen - self._seen
        if new < 0 or len(tail.lines) < min(LOG_LINES, self._held + new):  # the log starts over
            self._kept, new, self._polls = (), len(tail.lines), 0
        self._seen, self._held = tail.seen, len(tail.lines)
        fresh = tail.lines[len(tail.lines) - min(len(tail.lines), new) :]
        needle = self.sought.casefold()
        found = tuple(
            line for line in fresh if (needle in line.text.casefold() if needle else not bare(line.text) and not poll(line.text))
        )
        if not needle:
            self._polls += sum(poll(line.text) for line in fresh)
        if found:
            self._kept = (self._kept + found)[-LOG_LINES:]
        return self._kept

    def _scrolled(self, before: float, after: float) -> None:
        view = self.query_one(LogView)
        if view.settling:
            return
        if self.follow and not view.at_end and view.has_focus:
            self.follow = False
        elif not self.follow and after > before and view.at_end and view.max_scroll_y and self.state.log.seen == self._held_at:
            self.follow = True

    def note(self) -> Content:
        """Return the text of the pane's border: paused, filtered, skipped, a problem."""
        tail = self.state.log
        parts: list[Content] = []
        if not self.follow:
            parts.append(line(("paused", BW), label(f", {tail.seen - self._held_at:,} new")))
        if tail.problem and tail.lines:
            parts.append(line(("▲ ", W), tail.problem))
        if tail.note and tail.lines:
            parts.append(line(label(tail.note)))
        if tail.skipped:
            parts.append(line((whole(tail.skipped), BW), label(" line skipped" if tail.skipped == 1 else " lines skipped")))
        if self._polls and not self.sought:
            parts.append(line(label(f"{counted(self._polls, 'health check')} not shown")))
        if self.sought:
            parts.append(line(label("only "), (self.sought, B)))
        return Content("  ·  ").stylize(QUIET).join(parts) if parts else Content("")

    def start_finding(self) -> None:
        """Open the line to type a filter in."""
        self.add_class("-finding")
        self.query_one(Input).focus()

    def stop_finding(self, keep: bool) -> None:
        """Close it; the filter stays only if `keep`."""
        box = self.query_one(Input)
        if not keep:
            box.value = ""
            self.sought = ""
        self.remove_class("-finding")
        if box.has_focus:
            self.query_one(LogView).focus()

    def jump_to_cause(self) -> bool:
        """Hold the log at the line that says why the start failed; False if that line is no longer kept."""
        load = self.state.load
        if load is None or load.failure is None or load.failure.line is None:
            return False
        self.stop_finding(keep=False)
        self.follow = False
        self._at_cause = True
        return self.query_one(LogView).jump_to(load.failure.line)

    def on_log_view_end_wanted(self, event: LogView.EndWanted) -> None:
        event.stop()
        if self.follow:
            self.query_one(LogView).release()
        self.follow = True

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.sought = event.value

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.stop_finding(keep=True)
