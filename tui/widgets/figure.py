"""A widget that is drawn by a pure function of its size and of the values that it was given."""

from msgspec import Struct
from rich.cells import cell_len
from textual.app import RenderResult
from textual.content import Content
from textual.geometry import Region, Size
from textual.reactive import var
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

from tui.core.deployment import DeploymentState
from tui.widgets.ink import plain, sixteen

NOTHING = DeploymentState(name="", target="")


class Moment(Struct, frozen=True):
    """When the screen is drawn: wall clock of this machine for what is shown as a time of day, its monotonic clock for ages."""

    wall: float = 0.0
    mono: float = 0.0
    beat: bool = True
    """Alternates every half second; what may move by itself looks at it."""

    def since(self, at: float | None) -> float | None:
        """Seconds since a monotonic time."""
        return None if at is None else max(0.0, self.mono - at)


class Figure(Widget):
    """Subclasses implement `draw`. Only cells that changed are painted again: the terminal may be at the end of a slow link."""

    DEFAULT_CSS = "Figure { width: 1fr; height: 1fr; text-wrap: nowrap; text-overflow: clip; }"

    state: var[DeploymentState] = var(NOTHING, init=False)
    moment: var[Moment] = var(Moment(), init=False)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.auto_links = False  # there are none; to look for them costs as much as to draw
        self._lines: list[Content] = []
        self._strips: dict[int, Strip] = {}
        """What of `_lines` has been painted."""
        self._drawn: Size | None = None
        """The size that `_lines` were drawn for; None when they are no longer what `draw` would give."""
        self._asked = False

    def draw(self, width: int, height: int) -> Content:
        """The content for that many columns and rows; both may be 0 or anything above."""
        raise NotImplementedError

    def watch_state(self) -> None:
        self.redraw_soon()

    def watch_moment(self) -> None:
        self.redraw_soon()

    def redraw_soon(self) -> None:
        """Draws once for all values that are assigned together."""
        self._drawn = None
        if not self._asked and self.is_attached and self.is_on_screen:
            self._asked = True
            self.call_next(self.redraw)

    def redraw(self) -> None:
        """Draws again, and has the cells painted that changed."""
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

    def render_line(self, y: int) -> Strip:
        """A line is painted once, until it changes; Textual would paint all of them again for one."""
        if self.text_selection is not None:
            return super().render_line(y)
        if self._drawn != self.size:
            self._draw_lines()
            self._strips.clear()
        strip = self._strips.get(y)
        if strip is None:
            strip = self._strip(self._lines[y] if y < len(self._lines) else Content(""), y)
            self._strips[y] = strip
            self._dirty_regions.clear()
        return strip

    def _strip(self, shown: Content, y: int) -> Strip:
        if not shown:
            return Strip.blank(self.size.width, self.visual_style.rich_style)
        return Visual.to_strips(self, shown, self.size.width, 1, self.visual_style)[0].apply_offsets(0, y)

    def notify_style_update(self) -> None:
        self._drawn = None
        self._strips.clear()
        super().notify_style_update()

    def _draw_lines(self) -> None:
        self._drawn = self.size
        width, height = self.size
        if width <= 0 or height <= 0:
            self._lines = []
            return
        content = self.draw(width, height)
        if self.app.current_theme.ansi:
            content = sixteen(content)
        lines = content.split("\n", allow_blank=True)[:height]
        self._lines = [one.truncate(width, ellipsis=True) if one.cell_length > width else one for one in lines]
        if self.app.has_class("-ascii"):
            self._lines = [plain(one) for one in self._lines]  # the ellipsis of a cut line, too


def difference(before: Content, after: Content) -> tuple[int, int]:
    """The first column in which two lines differ, and the one after the last."""
    old, new = _cells(before), _cells(after)
    common = min(len(old), len(new))
    first = next((i for i in range(common) if old[i] != new[i]), common)
    last = 0
    if len(old) == len(new):
        last = next((i for i in range(common - first) if old[-1 - i] != new[-1 - i]), common - first)
    return first, max(len(old), len(new)) - last


def _cells(content: Content) -> list[tuple[str, ...]]:
    """Each column's character and styles; the second column of a wide character has the same as the first."""
    cells: list[tuple[str, ...]] = [(char,) for char in content.plain]
    for start, end, style in content.spans:
        mark = str(style)
        cells[start:end] = [(*cell, mark) for cell in cells[start:end]]
    if content.cell_length == len(cells):
        return cells
    return [cell for cell in cells for _ in range(cell_len(cell[0]))]
