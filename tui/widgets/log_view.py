"""The lines of the log, drawn as they are looked at: nothing is copied or parsed for lines that are not on the screen."""

import re
from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.core.deployment import LogLine
from tui.widgets.canvas import ASCII, Verbatim

PREFIX = re.compile(
    r"(?P<who>\((?:[^()]|\([^()]*\))*? ?pid=\d+\)\s*|\[[^\]]{0,80}\]\s*)?"
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|WARN|FATAL)\b:?\s+)?"
    r"(?P<when>\d{2,4}-\d{2}(?:-\d{2})?[ T]\d{2}:\d{2}:\d{2}(?:[.,]\d+)? ?)?"
    r"(?P<where>\[[\w./-]+\.py:\d+\] ?)?"
)
POLL = re.compile(r'"GET /(?:health|metrics|ping|version|v1/models)/? HTTP/[\d.]+" 200')
PROGRESS = re.compile(r"\b\d+/\d+\b")
PROCESS = re.compile(r"\((?:VLLM::)?(?:Worker_)?(\w+?)(?: pid=\d+)?\)")
LEVELS = {"ERROR": "error", "CRITICAL": "error", "FATAL": "error", "WARNING": "warning", "WARN": "warning"}


def bare(text: str) -> bool:
    """Tell whether a line is only the prefix of a process: what a progress bar's carriage return leaves."""
    return (
        len(text) < 60
        and text.startswith("(")
        and text.rstrip().endswith(")")
        and PREFIX.fullmatch(text.rstrip() + " ") is not None
    )


def poll(text: str) -> bool:
    """Tell whether a line is the access log of a health check: a screen that polls each second would drown in its own requests."""
    return '"GET /' in text and POLL.search(text) is not None


def parts_of(text: str, brief: bool) -> tuple[str, str, str]:
    """Return the line as prefix, level word, message. `brief` drops process and time of the prefix, for narrow screens."""
    found = PREFIX.match(text)
    if found is None or not found.end():
        return "", "", text
    who, level, when, where = (found[name] or "" for name in ("who", "level", "when", "where"))
    said = text[found.end() :]
    if not brief:
        return who, level, f"{when}{where}\0{said}" if when or where else said
    process = PROCESS.match(who)
    short = f"{process[1][:6]:<6} " if process else ""
    clock = when.strip()[-8:] if when else ""
    return (
        f"{short}{clock + ' ' if clock and level not in ('INFO', 'DEBUG', '') else ''}",
        "" if level in ("INFO", "DEBUG") else level,
        said,
    )


class LogView(Verbatim, ScrollView, can_focus=True):
    """A scrolling view of lines; the newest is followed while the view stands at its end."""

    DEFAULT_CSS = """
    LogView {
        background: $background; overflow-y: scroll; scrollbar-size: 1 1; scrollbar-size-horizontal: 0;
        scrollbar-color: $rule; scrollbar-background: $background;
        & > .log--quiet { color: $foreground-muted; }
        & > .log--error { color: $error; }
        & > .log--warning { color: $warning; }
        & > .log--figure { color: $primary; }
        & > .log--cause { color: $error; text-style: bold; }
    }
    """

    class EndWanted(Message):
        """The reader asks for the newest line."""

    COMPONENT_CLASSES = {"log--quiet", "log--error", "log--warning", "log--figure", "log--cause"}  # noqa: RUF012

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: Sequence[LogLine] = ()
        self._cause: int | None = None
        self._longest = 0
        self._top: LogLine | None = None
        """Where the reader is: it stays the topmost line, whatever the size and whichever lines are shown. None follows the end."""
        self._stand_in: LogLine | None = None
        """What is at the top instead of it while a filter hides it; else the line itself."""
        self._held = False
        self._placing = False
        self._settled = Size(0, 0)
        self._goal: int | None = None
        self._inks: dict[str, Style] = {}
        self.brief = False

    @property
    def at_end(self) -> bool:
        """Whether the newest line is in view."""
        return self.scroll_offset.y >= self.max_scroll_y - 1

    @property
    def settling(self) -> bool:
        """Whether it scrolls because its size or its lines change, not because the reader moves."""
        return self._placing or self.size != self._settled

    def hold(self) -> None:
        """Keep the line at the top in place from now on."""
        self._held = True
        self._note_top()

    def release(self) -> None:
        """Follow the newest line again."""
        self._held, self._goal = False, None
        self._top = self._stand_in = None
        self.scroll_end(animate=False, immediate=True, x_axis=False)

    def show_lines(self, lines: Sequence[LogLine], *, order: Sequence[LogLine] = (), cause: int | None = None) -> None:
        """Show these lines; `cause` is the number of the line that says why a start failed.

        `order`: all lines there are, by which the place of a reader is found whose own line is not among these.
        """
        if lines is self._lines and cause == self._cause:
            return
        known = self._lines
        self._inks.clear()
        fresh = lines if not known or not lines or known[0] is not lines[0] else lines[len(known) :]
        self._longest = min(
            2000,
            max((len(line.text) for line in fresh), default=0, key=int)
            if fresh is lines
            else max(self._longest, *(len(line.text) for line in fresh), 0),
        )
        self._lines, self._cause = lines, cause
        # assigning it would lay out the whole screen, with every batch of lines; only the scroll bar has to know
        self.set_reactive(LogView.virtual_size, Size(self._longest, len(lines)))
        self.vertical_scrollbar.window_virtual_size = len(lines)
        if self._held:
            self._find_stand_in(order)
            self._place()
        else:
            self.scroll_end(animate=False, immediate=True, x_axis=False)
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self._held and not self.settling:
            self._note_top()

    def _note_top(self) -> None:
        top = self.scroll_offset.y
        self._top = self._stand_in = self._lines[top] if 0 <= top < len(self._lines) else None

    def _find_stand_in(self, order: Sequence[LogLine]) -> None:
        """Find a line that is still shown: the reader's own, else the next one after it, else the last."""
        if self._top is None or not self._lines:
            self._stand_in = None
            return
        shown = {id(line) for line in self._lines}
        at = next((index for index, line in enumerate(order) if line is self._top), 0)
        self._stand_in = next((line for line in (self._top, *order[at:]) if id(line) in shown), self._lines[-1])

    def _place(self) -> None:
        """Bring it to the top."""
        self._scroll_to_line(next((index for index, line in enumerate(self._lines) if line is self._stand_in), 0))

    def _scroll_to_line(self, index: int) -> None:
        self._placing = True
        try:
            self.scroll_to(y=index, animate=False, immediate=True)
        finally:
            self._placing = False

    def on_resize(self) -> None:
        self._settled = self.size
        if self._goal is not None:
            self.call_after_refresh(self.jump_to, self._goal)
        elif self._held:
            self._place()
        else:
            self.call_after_refresh(self._scroll_to_newest)

    def _scroll_to_newest(self) -> None:
        if not self._held:  # the reader may have moved meanwhile
            self.scroll_end(animate=False, x_axis=False)

    def action_scroll_end(self) -> None:
        self.post_message(self.EndWanted())

    def jump_to(self, number: int) -> bool:
        """Hold the line with that number in the middle; False if it is not among the lines kept.

        Before there is a size to know the middle of, it waits for one.
        """
        for index, line in enumerate(self._lines):
            if line.number == number:
                self._held = True
                self._goal = None if self.size.height else number
                top = max(0, index - self.size.height // 2)
                self._top = self._stand_in = self._lines[top]
                self._scroll_to_line(top)
                return True
        return False

    def render_line(self, y: int) -> Strip:
        left, top = self.scroll_offset
        width, index = self.scrollable_content_region.width, y + top
        if index >= len(self._lines):
            return Strip.blank(width, self._style(""))
        strip = Strip(self._segments(self._lines[index]))
        cut = strip.cell_length - left > width
        strip = strip.crop_extend(left, left + width - cut, self._style(""))
        return Strip([*strip, Segment(self._sign("…"), self._style("quiet"))], width) if cut else strip

    def notify_style_update(self) -> None:
        self._inks.clear()
        super().notify_style_update()

    def _style(self, name: str) -> Style:
        """Return a component's style ("" for the view's own), once a batch: working one out costs half a millisecond."""
        if name not in self._inks:
            self._inks[name] = self.get_component_rich_style(f"log--{name}") if name else self.rich_style
        return self._inks[name]

    def _sign(self, sign: str) -> str:
        """Return one of the view's own signs, the only text here that is replaced in ASCII mode."""
        return sign.translate(ASCII) if self.app.has_class("-ascii") else sign

    def _segments(self, one: LogLine) -> list[Segment]:
        base, quiet = self._style(""), self._style("quiet")
        out: list[Segment] = []
        marked = self._cause is not None
        cause = marked and one.number == self._cause
        if marked:
            number = f"{one.number:>7,} " if one.number is not None else " " * 8
            out.append(Segment(number + (self._sign("▸") + " " if cause else "  "), self._style("cause") if cause else quiet))
        prefix, level, said = parts_of(one.text.expandtabs(4), self.brief)
        tint = LEVELS.get((level or one.level or "").upper())
        if prefix:
            out.append(Segment(prefix, quiet))
        if level:
            out.append(Segment(level + " ", self._style(tint) if tint else quiet))
        where, mark, message = said.partition("\0")
        if mark:
            out.append(Segment(where, quiet))
        else:
            message = where
        if cause:
            return [*out, Segment(message, self._style("cause"))]
        if tint and not level:
            return [*out, Segment(message, self._style(tint))]
        found = PROGRESS.search(message) if "|" in message else None
        if found:
            head, tail = message[: found.start()], message[found.end() :]
            return [*out, Segment(head, base), Segment(found[0], self._style("figure")), Segment(tail, base)]
        return [*out, Segment(message, base)]
