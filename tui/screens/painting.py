"""What of a screen is written to the terminal: the cells that changed, and not the rest of their line.

Textual 8 writes a changed region of a widget from the widget's left edge on: a clock at the right end of a status line costs the
whole line, every second. A test holds what is used of Textual's private parts here.
"""

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate, Compositor


class SparingUpdate(ChopsUpdate):
    """Writes of each changed span just that span."""

    def render_segments(self, console: Console) -> str:
        """The terminal sequences."""
        out: list[str] = []
        for y, left, right in self.spans:
            for end, (start, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is None or start >= right or end <= left:
                    continue
                first, last = max(start, left), min(end, right)
                out.append(Control.move_to(first, y).segment.text)
                out.append(strip.crop(first - start, last - start).render(console))
        return "".join(out)


class SparingCompositor(Compositor):
    """Textual's own, with updates that spare the terminal."""

    def render_partial_update(self) -> ChopsUpdate | None:
        """What has to be written since the last one; None when that is nothing."""
        update = super().render_partial_update()
        return None if update is None else SparingUpdate(update.chops, update.spans, update.chop_ends)
