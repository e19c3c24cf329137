"""What of a screen is written to the terminal: the cells that changed, and not the rest of their line.

Textual 8 writes a changed region of a widget from the widget's left edge on: a clock at the right end of a status line costs the
whole line, every second. It also has every widget on the screen rendered, all its lines, for one changed cell; here only the lines
of those that show it. A test holds what is used of Textual's private parts here.
"""

from collections.abc import Iterable
from typing import NamedTuple

from rich.console import Console
from rich.control import Control
from textual._compositor import Compositor, CompositorUpdate
from textual.geometry import Region
from textual.strip import Strip


class Piece(NamedTuple):
    """A part of a row, and its position."""

    y: int
    x: int
    strip: Strip


class SparingUpdate(CompositorUpdate):
    """Writes just these pieces."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces

    def render_segments(self, console: Console) -> str:
        """Return the terminal sequences."""
        return "".join(Control.move_to(x, y).segment.text + strip.render(console) for y, x, strip in self.pieces)


class SparingCompositor(Compositor):
    """Textual's own, with updates that spare the terminal and the processor."""

    def render_partial_update(self) -> SparingUpdate | None:  # type: ignore[override]
        """Return what has to be written since the last update, or None if that is nothing."""
        regions = self._dirty_regions.copy()
        self._dirty_regions.clear()
        return SparingUpdate(self._pieces(regions)) if regions else None

    def _pieces(self, regions: Iterable[Region]) -> list[Piece]:
        """Return what stands in these regions: of each row the widgets at the front, until nothing of it is left to show."""
        width, height = self.size
        left: dict[int, list[tuple[int, int]]] = {}
        for y, first, end in self._regions_to_spans(regions):
            first, end = max(first, 0), min(end, width)
            if first < end and 0 <= y < height:
                left.setdefault(y, []).append((first, end))
        pieces: list[Piece] = []
        for widget, (region, clip) in self.visible_widgets.items():
            if not left:
                break
            seen = region.intersection(clip)
            rows = [y for y, spans in left.items() if seen.y <= y < seen.bottom and _meet(spans, seen)]
            if not rows:
                continue
            top = min(rows)
            crop = Region(seen.x - region.x, top - region.y, seen.width, max(rows) + 1 - top)
            strips = widget.render_lines(crop)
            for y in rows:
                rest = []
                for first, end in left.pop(y):
                    here, there = max(first, seen.x), min(end, seen.right)
                    if here >= there:
                        rest.append((first, end))
                        continue
                    pieces.append(Piece(y, here, strips[y - top].crop(here - seen.x, there - seen.x)))
                    rest += [span for span in ((first, here), (there, end)) if span[0] < span[1]]
                if rest:
                    left[y] = rest
        return sorted(pieces, key=lambda piece: piece[:2])


def _meet(spans: Iterable[tuple[int, int]], seen: Region) -> bool:
    return any(first < seen.right and end > seen.x for first, end in spans)
