"""The parts of the main screen: their borders, and the titles in them."""

from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region
from textual.style import Style

from tui.actions import TABS
from tui.widgets.draw import BP, BW, QUIET, P, line

TITLES = {"load": "Load", "chat": "Chat", "bench": "Bench", "gpus": "GPUs", "log": "Log", "runs": "Runs"}
ALARMING = frozenset({"log", "gpus"})
"""What is new there is errors; elsewhere it is a result that has not been seen."""


def tab_title(tab: str, shown: str, count: int) -> Content:
    """Key, name and news of a tab; clicking opens it. `shown` is the one that is open, `count` how much is new."""
    here = tab == shown
    alarms = (f" ▲{count if count < 100 else '99+'}", BW) if tab in ALARMING else (" •", BP)
    news = alarms if count and not here else ""
    text = line((f"{TABS.index(tab) + 1} ", P if here else QUIET), (TITLES[tab], BP if here else QUIET), news)
    return text.stylize(Style.from_meta({"@click": f"screen.show('{tab}')"}))


class Pane(Vertical):
    """A part of the screen with its title in its border; the number before the title is its key."""

    def say_below(self, words: Content | None) -> None:
        """Writes into the lower border, and has only that painted; assigning `border_subtitle` would paint the other three too."""
        self._border_subtitle = words
        left, top = self.content_offset
        width, height = self.outer_size
        self.refresh(Region(-left, height - 1 - top, width, 1))
