"""From a line of a figure to what is written to the terminal: its text in pieces of one style each.

Textual's own way from content to a strip is made for text that wraps, is aligned, justified and selected. A figure's lines are
none of that, and are painted twice a second: here a style is worked out once, not with every line.
"""

from collections.abc import Iterator
from itertools import pairwise

from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.strip import Strip
from textual.style import Style as VisualStyle
from textual.widget import Widget

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
        """The theme, or the widget's own style, is another one."""
        self._inks.clear()

    def strip(self, line: Content, width: int) -> Strip:
        """The line in exactly `width` columns; it must not be longer."""
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
            for one in self._widget.get_line_filters():
                sample = one.apply(sample, self._widget.background_colors[1])
            ink = self._inks[styles] = sample[0].style or Style.null()
        return ink


def printable(line: Content) -> Content:
    """The line with its tabs as spaces, and nothing in it that a terminal would obey."""
    text = line.plain.translate(CONTROLS)
    return Content(text, list(line.spans), strip_control_codes=False).expand_tabs(TAB)


def runs(line: Content) -> Iterator[Run]:
    """The pieces of a line that have the same styles throughout, and those styles, the strongest last."""
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
