"""The layout of the main screen: which panes there are at which size, how high, and what their borders say."""

from collections.abc import Callable, Mapping

from msgspec import Struct
from textual.content import Content
from textual.style import Style

from tui.core.deployment import DeploymentState
from tui.panes import FIT, PANES, REST, TAB, TABS, Pane, Place, Size
from tui.screens.view import ScreenView
from tui.widgets.draw import BP, BW, QUIET, P, label, line

STAGE_TABS_ONLY = frozenset({"gpus", "log"})
"""Tabs that need the width: nothing stands beside them."""
FULL_TABS = STAGE_TABS_ONLY | {"runs"}
"""Tabs that need the height: no line stands above them."""
STALE_ROWS = 7
"""Of the log while the host cannot be reached, below the banner."""
SERVED_GPU_ROWS = 4
"""For the headroom and what belongs to it, below the GPUs."""


class Layout(Struct, frozen=True):
    """What stands on the screen: classes for the style sheet, and the rows of each pane that is shown, by its place and id."""

    classes: Mapping[str, bool]
    rows: Mapping[tuple[Place, str], int]


def layout(view: ScreenView) -> Layout:
    """Return the layout for what is shown, at its size."""
    classes = {
        "-tiny": view.tiny,
        "-narrow": view.narrow and not view.tiny,
        "-wide": view.size == "wide",
        "-starting": not view.served,
        "-offline": view.offline,
        "-stale": view.stale,
        "-zoomed-log": view.zoomed == "log",
        **{f"-tab-{tab}": tab == view.tab for tab in TABS},
    }
    shown = {} if view.tiny else {(pane.place, pane.id): _rows(pane, view) for pane in PANES if _is_shown(pane, view)}
    return Layout(classes, shown)


def heights(pane: Pane, view: ScreenView) -> Mapping[Size, int]:
    """Return the rows that a pane has at each size, as things stand."""
    return pane.serving if view.served else pane.starting


def _is_shown(pane: Pane, view: ScreenView) -> bool:
    if pane.place == "tab":
        return False  # the switcher of the tabs shows one of them
    if pane.place == "bottom" and (view.zoomed == "log" or view.tab == pane.id):
        return True
    if view.size not in heights(pane, view):
        return False
    match pane.place:
        case "strip":
            return view.tab not in FULL_TABS
        case "machine" | "below":
            return view.tab not in STAGE_TABS_ONLY and view.zoomed != "stage"
    return view.tab != "gpus" and view.zoomed != "stage" and (view.tab == "load" or not view.narrow)


def _rows(pane: Pane, view: ScreenView) -> int:
    if pane.place == "bottom":
        if view.zoomed == "log" or view.tab == pane.id:
            return REST
        if view.stale and view.size == "mid":
            return STALE_ROWS
    rows = heights(pane, view)[view.size]
    return _gpu_rows(view) if rows == FIT else rows


def _gpu_rows(view: ScreenView) -> int:
    """Return the rows that the GPUs need with their MIG instances, as long as the pane below keeps its own."""
    sample, high = view.state.gpus, view.size == "wide"
    count = sum(1 + len(gpu.mig) for gpu in sample.gpus) if sample else 0
    need = max(3, (2 if high and count <= 16 else 1) * count + 1 + 2 + (SERVED_GPU_ROWS if view.served else 0)) + 2
    below = 12 if high else 0 if view.served else 10
    beside = 16 if view.served else 12 if high else 10
    return max(7, min(need, view.height - 2 - below - beside))


# -- borders -----------------------------------------------------------------------------------------------------------------------


def tab_title(tab: str, shown: str, count: int) -> Content:
    """Return key, name and news of a tab; clicking opens it. `shown` is the one that is open, `count` how much is new."""
    here = tab == shown
    alarm = (f" ▲{count if count < 100 else '99+'}", BW) if TAB[tab].alarming else (" •", BP)
    name = (f"{TAB[tab].key} ", P if here else QUIET), (TAB[tab].title, BP if here else QUIET)
    text = line(*name, alarm if count and not here else "")
    return text.stylize(Style.from_meta({"@click": f"screen.show('{tab}')"}))


def titles(view: ScreenView, news: Callable[[str], int], log_note: Content) -> dict[str, Content]:
    """Return what stands in the upper borders, by the id of the pane; "stage" has the tabs.

    `news` counts what is new on a tab. With one column there is no lower border, and the note on the log follows its title.
    """
    elsewhere = {pane.id for pane in PANES if pane.place != "tab" and pane.key and view.size in heights(pane, view)}
    elsewhere |= {pane.id for pane in PANES if pane.place == "machine" and pane.id in TABS}
    ruled = view.narrow or view.tab == "log"
    names = [tab for tab in TABS if ruled or tab not in elsewhere or tab == view.tab]
    out = {"stage": _padded(Content("  ").join(tab_title(tab, view.tab, news(tab)) for tab in names), ruled)}
    for pane in PANES:
        if pane.place in ("tab", "strip"):
            continue
        title = tab_title(pane.id, view.tab, news(pane.id)) if pane.id in TABS else line(label(pane.title))
        if pane.place == "bottom" and view.narrow and log_note.plain:
            title = line(title, "  ", log_note)
        out[pane.id] = _padded(title, view.narrow)
    return out


def _padded(title: Content, ruled: bool) -> Content:
    """Return a title for a rule with blanks at its sides; Textual adds them only to a title on a border."""
    return line(" ", title, " ") if ruled else title


class News:
    """Counts that only rise are told, a tab at a time; what was told before the first look is no news."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], int] = {}
        self._seen: dict[tuple[str, str], int] = {}

    def tell(self, tab: str, total: int, source: str = "") -> None:
        """So many there are by now, of one source. A total that fell begins anew: the server was started again, the list was
        cleared."""
        key = (tab, source)
        if key not in self._told or total < self._told[key]:
            self._seen[key] = total
        self._told[key] = total

    def add(self, tab: str) -> None:
        """Count one thing more, of what has no total."""
        self._told[tab, ""] = self._told.get((tab, ""), 0) + 1

    def see(self, tab: str) -> None:
        """Count nothing on the tab as new: it is looked at."""
        self._seen.update({key: total for key, total in self._told.items() if key[0] == tab})

    def count(self, tab: str) -> int:
        """Return how much is new there."""
        return sum(total - self._seen.get(key, 0) for key, total in self._told.items() if key[0] == tab)

    def marks(self, tabs: tuple[str, ...]) -> tuple[int, ...]:
        """Return the counts of all, for comparing."""
        return tuple(self.count(tab) for tab in tabs)

    def take(self, state: DeploymentState) -> None:
        """Count what a state tells: errors in the log, and what is wrong with the GPUs of each host."""
        if state.load is not None and state.load.lines:
            self.tell("log", state.load.errors)
        from tui.core.gpu_findings import hosts_of  # not needed for the first paint

        for host in hosts_of(state):
            if host.sample is not None:
                self.tell("gpus", len(host.wrong), host.host)
