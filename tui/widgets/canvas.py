"""A widget that is drawn by a pure function of its size and of the values that it was given."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.app import RenderResult
from textual.color import Color
from textual.content import Content, Span
from textual.dom import DOMNode
from textual.filter import LineFilter
from textual.geometry import Region, Size
from textual.reactive import var
from textual.strip import Strip
from textual.style import Style as VisualStyle
from textual.widget import Widget
from textual.widgets import Static

from tui.core.deployment import DeploymentState

TAB = 8
CONTROLS = dict.fromkeys((*range(9), *range(10, 32), *range(127, 160)), "�")
"""What is left of them where text was not cleaned; the tab is none of them."""

Styles = tuple[str | VisualStyle, ...]
Run = tuple[str, Styles]
"""Text, and the styles that lie over all of it."""


class Painter:
    """Paints the lines of one widget, in its colours; `forget` when those changed."""

    def __init__(self, widget: Widget) -> None:
        self._widget = widget
        self._inks: dict[Styles, Style] = {}

    def forget(self) -> None:
        """Drop what was painted: the theme or the widget's own style changed."""
        self._inks.clear()

    def strip(self, line: Content, width: int) -> Strip:
        """Return the line in exactly `width` columns; it must not be longer."""
        if not line.plain.isprintable():
            line = printable(line)
        segments = [Segment(text, self._ink(styles)) for text, styles in runs(line)]
        if line.cell_length < width:
            segments.append(Segment(" " * (width - line.cell_length), self._ink(())))
        return Strip(segments, max(width, line.cell_length))

    def _ink(self, styles: Styles) -> Style:
        if (ink := self._inks.get(styles)) is None:
            whole = self._widget.visual_style
            for style in styles:
                whole += self._widget._get_style(style)
            sample = [Segment(" ", whole.rich_style)]
            for line_filter in self._widget.get_line_filters():
                sample = line_filter.apply(sample, self._widget.background_colors[1])
            ink = self._inks[styles] = sample[0].style or Style.null()
        return ink


def printable(line: Content) -> Content:
    """Return the line with its tabs as spaces and without control characters."""
    text = line.plain.translate(CONTROLS)
    return Content(text, list(line.spans), strip_control_codes=False).expand_tabs(TAB)


def runs(line: Content) -> Iterator[Run]:
    """Yield the pieces of a line that have the same styles throughout, and those styles, the strongest last."""
    text, spans, at = line.plain, line.spans, 0
    if any(after.start < before.end for before, after in pairwise(spans)):
        yield from _overlapping(line)
        return
    for start, end, style in spans:
        if start > at:
            yield text[at:start], ()
        if end > start:
            yield text[start:end], (style,)
        at = end
    if at < len(text):
        yield text[at:], ()


def _overlapping(line: Content) -> Iterator[Run]:
    text, spans = line.plain, line.spans
    cuts = sorted({0, len(text), *(min(cut, len(text)) for span in spans for cut in span[:2])})
    for start, end in pairwise(cuts):
        yield text[start:end], tuple(style for first, last, style in spans if first <= start and last >= end)


SHADES = "░▒▓█"
HALF_FILLED = 62
"""The strength, in per cent, of the tint of a bar's boundary cell that is half filled."""
ASCII = str.maketrans(
    {chr(code): "+" for code in range(0x2500, 0x2580)}
    | {chr(code): "#" for code in range(0x2580, 0x25A0)}
    | {
        "◐": "*", "●": "o", "○": "O", "✓": "+", "✗": "x", "▲": "!", "·": ".", "▌": ">", "▸": ">", "▾": "v", "▊": "#", "▏": ".",
        "▆": "#", "▒": "%", "░": "-", "▓": "=", "█": "#", "▁": "_", "▂": "_", "▃": ".", "▄": "-", "▅": "=", "▇": "=", "▎": ":",
        "▍": ":", "▋": "#", "▉": "#", "╌": "-", "—": "-", "–": "-", "…": ".", "−": "-", "×": "x", "±": "~", "°": " ", "≥": ">",
        "≤": "<", "→": ">", "←": "<", "↑": "^", "↓": "v", "─": "-", "│": "|", "┌": "+", "┐": "+", "└": "+", "┘": "+", "╭": "+",
        "╮": "+", "╰": "+", "╯": "+", "├": "+", "┤": "+", "╶": "-", "╴": "-", "╷": "|", "╵": "|", "┴": "+", "⠀": " ",
        "━": "-", "╺": "-", "╸": "-", "┃": "|", "╻": "|", "╹": "|", "┏": "+", "┓": "+", "┗": "+", "┛": "+", "┻": "+", "┫": "+",
        "┣": "+", "•": "*", "▔": "-", "▕": "|", "▶": ">", "›": ">", "‹": "<", "∞": "~", "≈": "~",
    }
    | {chr(code): "." for code in range(0x2801, 0x2900)}
)  # fmt: skip


def in_16_colours(content: Content) -> Content:
    """Without tints the height of a chart and an empty track would be lost: solid cells become ░▒▓█, the track becomes `·`."""
    text = list(content.plain)
    spans: list[Span] = []
    for span in content.spans:
        style, slot = span.style, slice(span.start, span.end)
        if isinstance(style, str):
            piece = text[slot]
            if style == "$track":
                text[slot] = ["·" if char == "▆" else "░" if char == "█" else char for char in piece]
            elif style.endswith("%"):
                style, _, strength = style.rpartition(" ")
                share = int(strength[:-1])
                if share <= 74:
                    shade = SHADES[min(3, max(0, (share - 14) // 15))]
                    text[slot] = [shade if char == "█" else "·" if char == "▆" and share < HALF_FILLED else char for char in piece]
                    if share < HALF_FILLED and piece and set(piece) == {"▆"}:
                        style = "$track"
        spans.append(Span(span.start, span.end, style))
    return Content("".join(text), spans)


def without_colours(content: Content) -> Content:
    """Draw what is not filled in other characters: without colours an empty track would look full, an expectation measured."""
    text = list(content.plain)
    for start, end, style in content.spans:
        if not isinstance(style, str):
            continue
        if style == "$track":
            text[start:end] = ["·" if char == "▆" else "░" if char == "█" else char for char in text[start:end]]
        elif style.endswith("%") and int(style.rpartition(" ")[2][:-1]) < HALF_FILLED:
            text[start:end] = ["·" if char == "▆" else char for char in text[start:end]]
    return Content("".join(text), list(content.spans))


def in_ascii(content: Content) -> Content:
    """Return the content in ASCII; every glyph is replaced by one of the same width."""
    text = content.plain.translate(ASCII)
    return Content(text if text.isascii() or len(text) == len(content.plain) else content.plain, list(content.spans))


class AsciiFilter(LineFilter):
    """What is left of glyphs where text is written that is no figure: borders, lists. Not for what others wrote; see `Verbatim`."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            piece if piece.text.isascii() else Segment(piece.text.translate(ASCII), piece.style, piece.control)
            for piece in segments
        ]


class Verbatim:
    """Mixed into a widget whose text others wrote: none of its characters is replaced. Its own borders must be ASCII by style.

    It is no widget itself: Textual would look for the styles of its first base only.
    """

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters: Sequence[LineFilter] = super().get_line_filters()  # type: ignore[misc]
        return [line_filter for line_filter in filters if not isinstance(line_filter, AsciiFilter)]


class VerbatimText(Verbatim, Static):
    """A text that others wrote."""


NOTHING = DeploymentState(name="", target="")
NOT_ANY = Content("")
"""The line below the last."""


class Moment(Struct, frozen=True):
    """When the screen is drawn: wall clock of this machine for what is shown as a time of day, its monotonic clock for ages."""

    wall: float = 0.0
    mono: float = 0.0
    beat: bool = True
    """Alternates every half second; what may move by itself looks at it."""

    def since(self, at: float | None) -> float | None:
        """Return the seconds since a monotonic time; None if there is none."""
        return None if at is None else max(0.0, self.mono - at)


T = TypeVar("T")


class drawn(var[T]):
    """Declare a value that a canvas draws: a change has it drawn again, once for all values that change together."""

    def __init__(self, default: T | Callable[[], T]) -> None:
        super().__init__(default, init=False)

    def __set__(self, obj: DOMNode, value: T) -> None:
        before = getattr(obj, self.name)
        super().__set__(obj, value)
        if isinstance(obj, Canvas) and getattr(obj, self.name) != before:
            obj.redraw_soon()


class Canvas(Widget):
    """Draw with `draw`, which subclasses implement, and paint only the cells that changed: the link to the terminal may be slow."""

    DEFAULT_CSS = "Canvas { width: 1fr; height: 1fr; text-wrap: nowrap; text-overflow: clip; }"

    state: drawn[DeploymentState] = drawn(NOTHING)
    moment: drawn[Moment] = drawn(Moment())

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.auto_links = False  # there are none; to look for them costs as much as to draw
        self._lines: list[Content] = []
        self._painter = Painter(self)
        self._strips: dict[int, Strip] = {}
        """What of `_lines` has been painted."""
        self._drawn: Size | None = None
        """The size that `_lines` were drawn for; None when they are no longer what `draw` would give."""
        self._asked = False

    def draw(self, width: int, height: int) -> Content | list[Content]:
        """Return the content for that many columns and rows, whole or as its lines; both may be 0 or anything above."""
        raise NotImplementedError

    def show(self, state: DeploymentState, moment: Moment) -> None:
        """Draw these values: the same as to assign them, for a tenth of the time."""
        self.set_reactive(Canvas.state, state)
        self.set_reactive(Canvas.moment, moment)
        self.redraw()

    def redraw_soon(self) -> None:
        """Draw once for all values that are assigned together."""
        self._drawn = None
        if not self._asked and self.is_attached and self.is_on_screen:
            self._asked = True
            self.call_next(self.redraw)

    def redraw(self) -> None:
        """Draw again, and have the cells painted that changed."""
        self._asked = False
        self._drawn = None
        if not self.is_attached or not self.is_on_screen:
            return  # it is drawn when it is looked at again
        before = self._lines
        self._draw_lines()
        if len(before) != len(self._lines):
            self._strips.clear()
            self.refresh()
            return
        changed = []
        for y, (old, new) in enumerate(zip(before, self._lines, strict=True)):
            if not old.is_same(new):
                self._strips.pop(y, None)
                first, end = difference(old, new)
                changed.append(Region(first, y, end - first, 1))
        if changed:
            self.refresh(*changed)

    def render(self) -> RenderResult:
        self._draw_lines()
        return Content("\n").join(self._lines)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Paint each line once, until it changes; Textual would paint all of them again for one."""
        if self.text_selection is not None or self.opacity != 1.0 or self.styles.gutter:
            return super().render_lines(crop)  # something lies over the lines, or around them
        strips = [self._painted(y) for y in crop.line_range]
        if crop.column_span == (0, self.size.width):
            return strips
        return [strip.crop(crop.x, crop.right) for strip in strips]

    def render_line(self, y: int) -> Strip:
        """Return a line in which each piece has its offset, which text selection with the mouse needs."""
        if self.text_selection is not None:
            return super().render_line(y)
        return self._painted(y).apply_offsets(0, y)

    def _painted(self, y: int) -> Strip:
        if self._drawn != self.size:
            self._draw_lines()
            self._strips.clear()
        strip = self._strips.get(y)
        if strip is None:
            strip = self._painter.strip(self._lines[y] if y < len(self._lines) else NOT_ANY, self.size.width)
            self._strips[y] = strip
            self._dirty_regions.clear()
        return strip

    def notify_style_update(self) -> None:
        self._drawn = None
        self._strips.clear()
        self._painter.forget()
        super().notify_style_update()

    def _draw_lines(self) -> None:
        self._drawn = self.size
        width, height = self.size
        if width <= 0 or height <= 0:
            self._lines = []
            return
        drawn = self.draw(width, height)
        whole = [drawn] if isinstance(drawn, Content) else drawn
        lines = [part for text in whole for part in (text.split("\n", allow_blank=True) if "\n" in text.plain else (text,))]
        self._lines = [line.truncate(width, ellipsis=True) if line.cell_length > width else line for line in lines[:height]]
        if self.app.current_theme.ansi:
            self._lines = [in_16_colours(text) for text in self._lines]
        elif self.app.no_color or self.app.has_class("-ascii"):
            self._lines = [without_colours(text) for text in self._lines]
        if self.app.has_class("-ascii"):
            self._lines = [in_ascii(text) for text in self._lines]  # the ellipsis of a cut line, too


def difference(before: Content, after: Content) -> tuple[int, int]:
    """Return the first column in which two lines differ, and the one after the last."""
    old, new = list(runs(before)), list(runs(after))
    head = _alike(old, new)
    tail = _alike(old[:head:-1], new[:head:-1]) if before.cell_length == after.cell_length else 0
    mine, other = _cells(old[head : len(old) - tail], new[head : len(new) - tail])
    at = sum(cell_len(text) for text, _ in old[:head])
    first = _alike(mine, other)
    if before.cell_length != after.cell_length:
        return at + first, max(before.cell_length, after.cell_length)
    return at + first, at + len(mine) - _alike(mine[:first:-1], other[:first:-1])


def _alike(some: Sequence[object], others: Sequence[object]) -> int:
    """Return how many items they have in common at the beginning."""
    alike, end = 0, min(len(some), len(others))
    if some[:end] == others[:end]:
        return end
    while end - alike > 1:
        middle = (alike + end) // 2
        if some[alike:middle] == others[alike:middle]:
            alike = middle
        else:
            end = middle
    return alike


def _cells(some: Sequence[Run], others: Sequence[Run]) -> tuple[Sequence[object], Sequence[object]]:
    """Return what is in each column of two lines, for comparing: the characters alone if nothing else can differ."""
    if len(some) == len(others) == 1 and some[0][1] == others[0][1] and _narrow(some[0][0]) and _narrow(others[0][0]):
        return some[0][0], others[0][0]
    return _inked(some), _inked(others)


def _inked(pieces: Iterable[Run]) -> list[Run]:
    """Return each column's character and styles; the second column of a wide character has the same as the first."""
    cells: list[Run] = []
    for text, styles in pieces:
        narrow = _narrow(text)
        cells += [(char, styles) for char in text for _ in range(1 if narrow else cell_len(char))]
    return cells


def _narrow(text: str) -> bool:
    return cell_len(text) == len(text)
