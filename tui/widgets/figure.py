"""A widget that is drawn by a pure function of its size and of the values that it was given."""

from msgspec import Struct
from textual.app import RenderResult
from textual.content import Content
from textual.geometry import Region
from textual.reactive import var
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
    """Subclasses implement `draw`. Only lines that changed are painted again: the terminal may be at the end of a slow link."""

    DEFAULT_CSS = "Figure { width: 1fr; height: 1fr; }"

    state: var[DeploymentState] = var(NOTHING, init=False)
    moment: var[Moment] = var(Moment(), init=False)

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: list[Content] = []

    def draw(self, width: int, height: int) -> Content:
        """The content for that many columns and rows; both may be 0 or anything above."""
        raise NotImplementedError

    def watch_state(self) -> None:
        self.redraw()

    def watch_moment(self) -> None:
        self.redraw()

    def redraw(self) -> None:
        """Draws again, and has the lines painted that changed."""
        if not self.is_attached or not self.size or not self.display:
            return
        before, after = self._lines, self._compose_lines()
        if len(before) != len(after):
            self._lines = after
            self.refresh()
            return
        changed = [y for y, (old, new) in enumerate(zip(before, after, strict=True)) if not old.is_same(new)]
        if changed:
            self._lines = after
            left, top = self.gutter.left, self.gutter.top
            self.refresh(*(Region(left, top + y, self.size.width, 1) for y in changed))

    def render(self) -> RenderResult:
        self._lines = self._compose_lines()
        return Content("\n").join(self._lines)

    def _compose_lines(self) -> list[Content]:
        width, height = self.size
        if width <= 0 or height <= 0:
            return []
        content = self.draw(width, height)
        if self.app.current_theme.ansi:
            content = sixteen(content)
        if self.app.has_class("-ascii"):
            content = plain(content)
        lines = content.split("\n", allow_blank=True)[:height]
        return [one.truncate(width, ellipsis=True) if one.cell_length > width else one for one in lines]
