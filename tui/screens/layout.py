"""The frame of the main screen: which panes there are at which size, how high, and what stands in their borders."""

from typing import TYPE_CHECKING

from textual.content import Content

from tui.actions import TABS
from tui.core.deployment import DeploymentState
from tui.core.deployment_status import Status, status_of
from tui.core.gpu_findings import hosts_of
from tui.core.presentation import age
from tui.screens.pane import Pane, tab_title
from tui.widgets.canvas import in_ascii
from tui.widgets.draw import BW, label, line
from tui.widgets.load_panel import LoadPanel
from tui.widgets.phase_view import total_words

if TYPE_CHECKING:
    from tui.screens.main_screen import MainScreen


NARROW, SHORT, WIDE, HIGH = 110, 32, 180, 50
TINY = (60, 12)
STALE_S = 6.0
"""From this age on a sample is marked with it."""


class Frame:
    """It follows size, tab and state of its screen; classes and titles are touched only when what they follow from has changed."""

    def __init__(self, screen: "MainScreen") -> None:
        self._screen = screen
        self._arranged: object = None
        self._noted: dict[str, Content | None] = {}
        self._titled: dict[str, Content] = {}

    @property
    def narrow(self) -> bool:
        """Whether there is one column only."""
        width, height = self._screen.app.size
        return width < NARROW or height < SHORT

    def arrange(self) -> None:
        """Layout and titles."""
        screen = self._screen
        cause = (screen.size, screen.tab, screen.furnished, self._gpus, status_of(screen.shown) is Status.READY)
        if cause == self._arranged:
            return
        self._arranged = cause
        self.classify()
        load = screen.query_one(LoadPanel)
        if load.narrow != self.narrow:
            load.narrow = self.narrow
            load.redraw_soon()
        if screen.furnished:
            screen.log_pane.set_brief(screen.size.width < NARROW)
        self._size_gpus(status_of(screen.shown) is Status.READY)
        self.retitle()

    @property
    def _gpus(self) -> int:
        """How many rows they are, with their MIG instances."""
        sample = self._screen.shown.gpus
        return sum(1 + len(gpu.mig) for gpu in sample.gpus) if sample else 0

    def classify(self) -> None:
        """The classes that the layout follows, all at once: each change has the styles of the whole screen worked out again."""
        screen = self._screen
        width, height = screen.app.size
        tiny = width < TINY[0] or height < TINY[1]
        served = status_of(screen.shown) is Status.READY
        screen.update_classes(
            {
                "-tiny": tiny,
                "-narrow": self.narrow and not tiny,
                "-tall": height >= SHORT,
                "-wide": width >= WIDE and height >= HIGH,
                "-served": served,
                "-starting": not served,
                **{f"-tab-{tab}": tab == screen.tab for tab in TABS},
            }
        )

    def _size_gpus(self, served: bool) -> None:
        """As high as the GPUs there are need, as long as the pane below keeps its rows."""
        screen, count = self._screen, self._gpus
        high = screen.has_class("-wide")
        need = max(3, (2 if high and count <= 16 else 1) * count + 1 + 2 + (4 if served else 0)) + 2
        room = screen.size.height - 2 - (12 if high else 0 if served else 10) - (16 if served else 12 if high else 10)
        screen.query_one("#gpus").styles.height = max(7, min(need, room))

    # -- borders -------------------------------------------------------------------------------------------------------------------

    def tell_below(self) -> None:
        """Lower borders: panes whose sample is old say how old, others what they come to."""
        from tui.widgets.smoke_panel import sum_line

        screen = self._screen
        sample, machine = screen.shown.gpus, screen.shown.machine
        for pane, at in (("#gpus", sample.received_at if sample else None), ("#host", machine.received_at if machine else None)):
            old = screen.moment.since(at)
            stamp = line((f"{age(old)} old", BW)) if old is not None and old > STALE_S else None
            self._note(pane, stamp)
        bench, runs = screen.bench, screen.record
        bench.told_below = self.narrow
        note = None if self.narrow else bench.note() if screen.tab == "bench" else runs.note() if screen.tab == "runs" else None
        self._note("#stage", note)
        self._note("#phases", total_words(screen.shown))
        self._note("#smoke", sum_line(screen.smoke, screen.smoking))
        self._tell_of_log()

    def _tell_of_log(self) -> None:
        """What is to be said of the log stands in its lower border, or after its title where there is none."""
        note = self._screen.log_pane.note() if self._screen.furnished else Content("")
        self._note("#log", None if self.narrow else note)
        title = self._tab_title("log")
        self._title("#log", line(title, "  ", note) if self.narrow and note.plain else title, self.narrow)

    def _tab_title(self, tab: str) -> Content:
        return tab_title(tab, self._screen.tab, self._screen.news.count(tab))

    def retitle(self) -> None:
        """Upper borders: the tabs, and the names of the panes."""
        screen = self._screen
        narrow = self.narrow or screen.tab == "log"
        own_pane = {"gpus", "log"} if screen.has_class("-wide") or status_of(screen.shown) is not Status.READY else {"gpus"}
        names = [tab for tab in TABS if narrow or tab not in own_pane or tab == screen.tab]
        parts = [self._tab_title(tab) for tab in names]
        self._title("#stage", Content("  ").join(parts), narrow)
        for pane, title in (("#phases", "Phases"), ("#serving", "Serving"), ("#smoke", "Smoke"), ("#host", "Host")):
            self._title(pane, line(label(title)), False)
        for pane, title in (("#deployment", "Deployment"), ("#past", "Earlier loads")):
            self._title(pane, line(label(title)), self.narrow)
        self._title("#gpus", self._tab_title("gpus"), False)
        self._tell_of_log()

    def _title(self, pane: str, title: Content, ruled: bool) -> None:
        title = line(" ", title, " ") if ruled else title
        if self._screen.app.has_class("-ascii"):
            title = in_ascii(title)
        before = self._titled.get(pane)
        if before is not None and before.is_same(title):
            return
        for one in self._screen.query(pane):
            self._titled[pane] = title
            one.border_title = title

    def _note(self, pane: str, note: Content | None) -> None:
        """Write into a pane's lower border, when it is something new."""
        before = self._noted.get(pane)
        if note is before or (note is not None and before is not None and note.is_same(before)):
            return
        self._noted[pane] = note
        ascii_only = self._screen.app.has_class("-ascii")
        self._screen.query_one(pane, Pane).say_below(in_ascii(note) if note is not None and ascii_only else note)


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
        """One thing more, of what has no total."""
        self._told[tab, ""] = self._told.get((tab, ""), 0) + 1

    def see(self, tab: str) -> None:
        """The tab is looked at."""
        self._seen.update({key: total for key, total in self._told.items() if key[0] == tab})

    def count(self, tab: str) -> int:
        """How much is new there."""
        return sum(total - self._seen.get(key, 0) for key, total in self._told.items() if key[0] == tab)

    def marks(self, tabs: tuple[str, ...]) -> tuple[int, ...]:
        """The counts of all, for comparing."""
        return tuple(self.count(tab) for tab in tabs)

    def take(self, state: DeploymentState) -> None:
        """What a state tells: errors in the log, and what is wrong with the GPUs of each host."""
        if state.load is not None and state.load.lines:
            self.tell("log", state.load.errors)
        for one in hosts_of(state):
            if one.sample is not None:
                self.tell("gpus", len(one.wrong), one.host)
