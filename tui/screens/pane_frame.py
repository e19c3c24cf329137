"""The border around a pane, with the title and the note in it."""

from typing import Protocol, runtime_checkable

from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region


@runtime_checkable
class Noted(Protocol):
    """A pane that has something to say in the lower border around it."""

    def note(self) -> Content | None:
        """Return it; None if there is nothing to say now."""


class PaneFrame(Vertical):
    """A part of the screen with its title in its border; the number before the title is its key."""

    def set_note(self, note: Content | None) -> None:
        """Write into the lower border, and have only that painted; assigning `border_subtitle` would paint the other three too."""
        self._border_subtitle = note
        left, top = self.content_offset
        width, height = self.outer_size
        self.refresh(Region(-left, height - 1 - top, width, 1))
