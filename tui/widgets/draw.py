"""Drawing without a widget: lines, tables, bars, meters, charts. Everything returns Content and bears any size.

Styles name theme variables, never colours. Neighbours of one style are joined into one span: spans are what drawing and the
terminal pay for.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

from rich.cells import cell_len, set_cell_size
from textual.content import Content, Span
from textual.renderables.digits import DIGITS, DIGITS3X3_BOLD

from tui.core.presentation import age

Part = str | Content | tuple[str, str]
P, G, W, E, S, B = "$primary", "$success", "$warning", "$error", "$secondary", "bold"
BP, BG, BW, BE, BS = (f"bold {tint}" for tint in (P, G, W, E, S))
QUIET, TRACK, RULE = "$quiet", "$track", "$rule"
STALE_S = 6.0
"""From this age on a sample is marked with it."""
LEVELS = " ▁▂▃▄▅▆▇█"


def line(*parts: Part) -> Content:
    """Join parts side by side."""
    text: list[str] = []
    spans: list[Span] = []
    at = 0
    for part in parts:
        if isinstance(part, tuple):
            said, style = part
            end = at + len(said)
            if style and said:
                if spans and spans[-1].style == style and spans[-1].end == at:
                    spans[-1] = Span(spans[-1].start, end, style)
                else:
                    spans.append(Span(at, end, style))
        elif isinstance(part, str):
            said = part
            end = at + len(said)
        else:
            said = part.plain
            end = at + len(said)
            spans += [Span(start + at, stop + at, style) for start, stop, style in part.spans] if at else part.spans
        text.append(said)
        at = end
    return Content("".join(text), spans, strip_control_codes=False)  # the painter sees to those


def lines(parts: Iterable[Content | str]) -> list[Content]:
    """Return each part as a line of its own."""
    return [line(part) if isinstance(part, str) else part for part in parts]


def rows(*parts: Content | str) -> Content:
    """Join parts below each other in one piece."""
    return Content("\n").join(lines(parts))


def warning(text: str, width: int) -> list[Content]:
    """Draw a warning with its sign, wrapped to the width."""
    return [line(("▲ ", W) if i == 0 else "  ", row) for i, row in enumerate(Content(text).wrap(max(8, width - 2)))]


def label(text: str, width: int = 0) -> tuple[str, str]:
    """Return a dimmed word: a name, a unit."""
    return f"{text:<{width}}", QUIET


def fit(text: str, width: int) -> str:
    """Return the text in exactly `width` cells: padded, or cut with an ellipsis."""
    if width <= 0:
        return ""
    length = cell_len(text)
    if length <= width:
        return text + " " * (width - length)
    return set_cell_size(text, width - 1) + "…"


def short(text: str, width: int) -> str:
    """Return the text in at most `width` cells, cut with an ellipsis if it was longer."""
    return fit(text, width).rstrip() if cell_len(text) > width else text


def middle(text: str, width: int) -> str:
    """Return the text in at most `width` cells, shortened in its middle: both ends of a path or a model's name matter."""
    if cell_len(text) <= width or width < 5:
        return short(text, width)
    head = (width - 1) // 3
    tail = width - 1 - head
    return set_cell_size(text, head) + "…" + text[-tail:]


def spread(width: int, left: Content, *rights: Content) -> Content:
    """Left text, and at the right edge the first of the right texts that fits whole."""
    for right in rights:
        if (gap := width - left.cell_length - right.cell_length) >= 2:
            return line(left, " " * gap, right)
    return left


def pairs(*figures: tuple[str, str, str]) -> Content:
    """Bright values between quiet words: `TTFT 187 ms   81.2 tok/s`."""
    return Content("   ").join(line(label(before), (value, B), label(after)) for before, value, after in figures)


def facts(width: int, *pairs_of: tuple[str, Part], column: int = 12) -> list[Content]:
    """Lines of a quiet name and its value, each cut to the width."""
    out = []
    for name, value in pairs_of:
        room = max(1, width - column)
        shown = (middle(value, room),) if isinstance(value, str) else (value,)
        out.append(line(label(fit(name, column)), *shown))
    return out


def table(width: int, columns: Sequence[Sequence[str]], records: Iterable[Sequence[str | tuple[str, str]]]) -> Content:
    """Columns of (format, style): `<12`, `>6`, `*` for the width that is left. A cell may bring its own style."""
    rest = max(1, width - sum(int(spec[1:]) for spec, _ in columns if spec[1:] not in ("*", "")))
    out = []
    for record in records:
        parts: list[Part] = []
        for cell, (spec, style) in zip(record, columns, strict=False):
            text, own = cell if isinstance(cell, tuple) else (cell, style)
            size = rest if spec[1:] == "*" else int(spec[1:])
            text = short(text, size)
            gap = " " * (size - cell_len(text))
            parts.append((gap + text if spec[0] == ">" else text + gap, own))
        out.append(line(*parts))
    return rows(*out)


# -- bars and meters ---------------------------------------------------------------------------------------------------------------


@lru_cache(256)
def bar(share: float | None, width: int, other: float = 0.0, style: str = P) -> Content:
    """Draw a share of the whole; ▒ is the part of it that is not the engine's.

    The boundary cell is mixed, not cut, since ▆ leaves a line between rows and has no eighths.
    """
    if width <= 0:
        return Content("")
    if share is None:
        return line(("╌" * width, TRACK))
    share, other = min(1.0, max(0.0, share)), min(1.0, max(0.0, other))
    hatched = min(width, max(round(other * width), 1 if other > 0.005 else 0))
    full, part = divmod(max(0.0, share - other) * width, 1)
    solid = min(int(full), width - hatched)
    eighths = round(part * 8)  # finer steps can't be told apart, but would be painted with every sample
    mixed = int(hatched == 0 and solid < width and eighths > 0)
    rest = width - solid - mixed - hatched
    return line(("▆" * solid, style), ("▆" * mixed, f"{style} {25 + eighths * 75 // 8}%"), ("▒" * hatched, W), ("▆" * rest, TRACK))


def edges(total: int, width: int) -> list[int]:
    """Return where each of `total` cells begins in `width` columns and where the last one ends; empty if they don't fit."""
    if total <= 0 or width < total:
        return []
    if width < 1.4 * total:
        return list(range(total + 1))
    return [width * i // total for i in range(total + 1)]


@lru_cache(32)
def meter(
    done: float,
    total: float,
    width: int,
    live: bool = True,
    style: str = P,
    mark: tuple[str, str] | None = None,
    bright: bool = True,
) -> Content:
    """Draw progress, one cell a shard: ▊ done, ▌ current, ▏ to come, so that it reads without colour; brighter towards the head.

    With more shards than columns it is one continuous bar. `bright` False shows the cell in hand dim (its other half second);
    `mark` stands in the cell where it ended.
    """
    if width <= 0 or total <= 0:
        return Content("")
    done = min(max(done, 0), total)
    at = edges(round(total), width)
    if not at or total != round(total):
        return _continuous(done / total, width, style, mark)
    count = int(done)
    parts: list[Part] = []
    for i in range(count):
        size = at[i + 1] - at[i]
        parts.append(("█" * (size - 1) + "▊", f"{style} {55 + 5 * (9 * (i + 1) // count)}%"))
    rest = at[count:]
    if len(rest) > 1 and (mark or live):
        size = rest[1] - rest[0]
        if mark:
            parts.append((mark[0] + " " * (size - 1), mark[1]))
        else:
            body = "▌" if size == 1 else "█" * (size // 2) + " " * (size - size // 2)
            parts.append((body, f"bold {style}" if bright else f"{style} 55%"))
        rest = rest[1:]
    parts.append(("".join("▏" + " " * (b - a - 1) for a, b in pairwise(rest)), TRACK))
    return line(*parts)


def _continuous(share: float, width: int, style: str, mark: tuple[str, str] | None) -> Content:
    full, part = divmod(share * width, 1)
    solid = int(full)
    eighth = "" if solid >= width else " ▏▎▍▌▋▊▉"[int(part * 8)]
    head: Part = mark or (eighth, f"bold {style}")
    used = solid + (1 if solid < width else 0)
    parts: list[Part] = [("█" * solid, f"{style} 85%")]
    if solid < width:
        parts.append(head)
    return line(*parts, ("▁" * (width - used), TRACK))


# -- charts ------------------------------------------------------------------------------------------------------------------------


def area(values: Sequence[float | None], height: int, style: str | Sequence[str] = P, top: float | None = None) -> list[Content]:
    """Draw one column a value, in eighths, brighter the higher, never as bright as a bar.

    None leaves a gap. TRACK is a ghost: expected, not measured.
    """
    if height <= 0:
        return []
    return list(_area(tuple(values), height, style if isinstance(style, str) else tuple(style), top))


@lru_cache(64)
def _area(values: tuple[float | None, ...], height: int, style: str | tuple[str, ...], top: float | None) -> tuple[Content, ...]:
    highest = top if top and top > 0 else max((value for value in values if value is not None), default=0) or 1.0
    levels = [0 if value is None else max(1 if value > 0 else 0, round(value / highest * height * 8)) for value in values]
    out: list[Content] = []
    for row in range(height - 1, -1, -1):
        share = (row + 1) / height
        strength = 14 + round(60 * share)
        chars = [LEVELS[min(8, max(0, level - row * 8))] for level in levels]
        if isinstance(style, str):
            out.append(line(("".join(chars), _strong(style, strength, height))))
        else:
            tints = {tint: _strong(tint, strength, height) for tint in set(style)}
            out.append(line(*((char, tints[tint]) for char, tint in zip(chars, style, strict=False))))
    return tuple(out)


def _strong(tint: str, strength: int, height: int) -> str:
    return tint if tint == TRACK or height == 1 else f"{tint} {strength}%"


def sparks(values: Sequence[float | None], width: int, top: float | None = None, style: str = f"{P} 70%") -> Content:
    """Draw a one-row chart of the last `width` values, right-aligned."""
    if width <= 0:
        return Content("")
    recent = list(values)[-width:]
    return line(" " * (width - len(recent)), area(recent, 1, style, top)[0] if recent else "")


def resample(values: Sequence[float | None], width: int) -> list[float | None]:
    """Return the values in exactly `width` columns: the largest of each bucket, or each one over several columns."""
    if not values or width <= 0:
        return [None] * max(0, width)
    out: list[float | None] = []
    for i in range(width):
        first = i * len(values) // width
        last = max(first + 1, (i + 1) * len(values) // width)
        known = [value for value in values[first:last] if value is not None]
        out.append(max(known) if known else None)
    return out


def curve(
    xs: Sequence[float],
    ys: Sequence[float],
    width: int,
    height: int,
    style: str,
    marks: dict[int, str] | None = None,
    limit: tuple[float, str] | None = None,
) -> list[Content]:
    """Braille between measured points ●, ○ above the `limit`; `marks` writes figures above some. x in cells, y from 0 to 1."""
    if height < 3 or width < 1 or not xs:
        return []
    grid = [[0] * width for _ in range(height)]
    over: dict[tuple[int, int], tuple[str, str]] = {}
    bits = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))

    def place(y: float) -> int:  # the first row is kept for the figures
        return min(height * 4 - 1, 4 + int((1 - min(1.0, max(0.0, y))) * (height * 4 - 5) + 0.5))

    for x0, y0, x1, y1 in zip(xs, ys, xs[1:], ys[1:], strict=False):
        steps = max(1, int((x1 - x0) * 2), int(abs(y1 - y0) * height * 4))
        for step in range(steps + 1):
            t = step / steps
            px, py = int((x0 + (x1 - x0) * t) * 2), place(y0 + (y1 - y0) * t)
            if 0 <= px // 2 < width:
                grid[py // 4][px // 2] |= bits[px % 2][py % 4]
    if limit:
        row = place(limit[0]) // 4
        ruler = (limit[1] + " ").ljust(width, "╌")[:width]
        over = {(row, c): (char, QUIET) for c, char in enumerate(ruler) if not grid[row][c]}
    for i, (x, y) in enumerate(zip(xs, ys, strict=False)):
        row, text = place(y) // 4, (marks or {}).get(i, "")
        first = max(0, int(x) - len(text) + 1)
        over |= {(row - 1, first + k): (char, f"bold {style}") for k, char in enumerate(text)}
        over[row, int(x)] = ("○" if limit and y > limit[0] else "●", f"bold {style}")

    def cell(r: int, c: int, dots: int) -> Part:
        return over.get((r, c)) or (chr(0x2800 + dots) if dots else " ", style)

    return [line(*(cell(r, c, dots) for c, dots in enumerate(cells))) for r, cells in enumerate(grid)]


# -- big figures -------------------------------------------------------------------------------------------------------------------

_BIG = {
    char: tuple(DIGITS3X3_BOLD[i * 3 + row].ljust(3) for row in range(3)) for i, char in enumerate(DIGITS) if char in "0123456789"
} | {
    ":": (" ", ":", " "),
    "%": ("  ", "  ", " %"),
    ".": (" ", " ", "•"),
    ",": (" ", " ", ","),
    "—": ("   ", "╺━╸", "   "),
    " ": (" ", " ", " "),
    "~": ("  ", "~ ", "  "),
}
"""Textual's own shapes, three cells wide; points and colons take one."""


@lru_cache(64)
def big(text: str, style: str = B) -> tuple[Content, ...]:
    """Draw the text in digits three rows high (digits, `:` `.` `,` `%` and the dash)."""
    drawn = [_BIG.get(char, (" ", char, " ")) for char in text]
    return tuple(line(("".join(glyph[row] for glyph in drawn), style)) for row in range(3))


def stale(seconds: float | None) -> Content | None:
    """Return `12 s old` for the border around an old sample; None for a new one, and for none at all."""
    return line((f"{age(seconds)} old", BW)) if seconds is not None and seconds > STALE_S else None
