"""What a terminal of 16 colours, or one without Unicode, shows of a figure: the same shape in other glyphs. Others' texts stay."""

from collections.abc import Sequence

from rich.segment import Segment
from textual.color import Color
from textual.content import Content, Span
from textual.filter import LineFilter
from textual.widgets import Static

SHADES = "░▒▓█"
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


def sixteen(content: Content) -> Content:
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
                    text[slot] = [shade if char == "█" else "·" if char == "▆" and share < 62 else char for char in piece]
                    if share < 62 and piece and set(piece) == {"▆"}:
                        style = "$track"
        spans.append(Span(span.start, span.end, style))
    return Content("".join(text), spans)


def plain(content: Content) -> Content:
    """The same in ASCII; every glyph is replaced by one of the same width."""
    text = content.plain.translate(ASCII)
    return Content(text if text.isascii() or len(text) == len(content.plain) else content.plain, list(content.spans))


class Plain(LineFilter):
    """What is left of glyphs where text is written that is no figure: borders, lists. Not for what others wrote; see `Theirs`."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            piece if piece.text.isascii() else Segment(piece.text.translate(ASCII), piece.style, piece.control)
            for piece in segments
        ]


class Theirs:
    """Mixed into a widget whose text others wrote: none of its characters is replaced. Its own borders must be ASCII by style.

    It is no widget itself: Textual would look for the styles of its first base only.
    """

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters: Sequence[LineFilter] = super().get_line_filters()  # type: ignore[misc]
        return [one for one in filters if not isinstance(one, Plain)]


class TheirText(Theirs, Static):
    """A text that others wrote."""
