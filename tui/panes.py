"""The panes of the main screen: title, key, widget, and their place at each size. A new pane is an entry here and its widget.

Widgets are named, not imported: most of them are needed only after the first paint, and the keys, which the commands print too,
are made from this table.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from textual.widget import Widget

Size = Literal["narrow", "tall", "mid", "wide"]
"""One column only, the same with more rows, 120 by 35 cells and the like, 180 by 50 cells and more."""
Place = Literal["tab", "strip", "machine", "below", "bottom"]
"""Behind a tab · a line above the tabs · the column at the left · a row below the tabs · across the bottom."""
FIT = -1
"""As many rows as the content asks for and the screen has."""
REST = 0
"""The rows that the others leave."""
NOWHERE: Mapping[Size, int] = {}


class Pane(Struct, frozen=True, kw_only=True):
    """One pane. A pane with a key is also a tab; the pane at the left or the bottom with the id of a tab carries its title."""

    id: str
    title: str = ""
    widget: str
    """`module:Class`."""
    place: Place
    key: str = ""
    help: str = ""
    """What the tab shows, for the help and the command palette."""
    options: Mapping[str, object] = {}
    """What the widget is made with."""
    values: Mapping[str, str] = {}
    """Which of the screen's values the widget's own ones follow."""
    shows_state: bool = True
    """Whether the widget, if it is a canvas, is given the state of the deployment twice a second."""
    first: bool = False
    """Whether it is there with the first paint."""
    alarming: bool = False
    """Whether what is new there is an error, and not just a result that has not been seen."""
    focus: str = ""
    """What is focused when the tab opens, as a CSS selector."""
    starting: Mapping[Size, int] = NOWHERE
    """Rows at each size until the server is up; at a size that is left out the pane is not on the screen."""
    serving: Mapping[Size, int] = NOWHERE
    """The same once the server is up."""

    @property
    def widget_id(self) -> str:
        """The id of the widget: a pane at the left, below or at the bottom is a box around it, which has the pane's own."""
        return f"tab-{self.id}" if self.place == "tab" else self.id if self.place == "strip" else f"{self.id}-pane"

    def make(self) -> "Widget":
        """Return a new widget for the pane."""
        module, _, name = self.widget.partition(":")
        widget: Widget = getattr(import_module(module), name)(id=self.widget_id, **self.options)
        return widget


def same(*names: str, **others: str) -> dict[str, str]:
    """Return values of a widget that have the screen's own names, and others that have not."""
    return {name: name for name in names} | others


PANES: tuple[Pane, ...] = (
    Pane(
        id="load",
        title="Load",
        widget="tui.widgets.load_panel:LoadPanel",
        place="tab",
        key="1",
        help="The start: time left, shards, phases, verdict",
        values=same("narrow"),
        first=True,
    ),
    Pane(
        id="chat",
        title="Chat",
        widget="tui.widgets.chat_pane:ChatPane",
        place="tab",
        key="2",
        help="Chat with the model; {type} focuses the prompt",
        values=same("conversation", "streaming", "model", "smoke", "smoking", ready="api_ready", reason="why_not_ready"),
        shows_state=False,
        focus="#tab-chat.-talking Turns",
    ),
    Pane(
        id="bench",
        title="Bench",
        widget="tui.widgets.bench_pane:BenchPane",
        place="tab",
        key="3",
        help="Benchmarks: single stream and concurrency sweep",
        values={
            **same("points", "progress", "plan", "result", "previous"),
            **{"running": "benching", "problem": "bench_problem", "told_below": "narrow"},
        },
        shows_state=False,
        focus="#tab-bench",
    ),
    Pane(
        id="gpus",
        title="GPUs",
        widget="tui.widgets.gpu_panel:GpuPanel",
        place="tab",
        key="4",
        help="All GPUs with all their figures; enter shows details of one",
        options={"full": True},
        alarming=True,
        focus="#tab-gpus",
    ),
    Pane(
        id="log",
        title="Log",
        widget="tui.widgets.log_pane:LogPane",
        place="bottom",
        key="5",
        help="The server's log, full screen",
        alarming=True,
        focus="#log-lines",
        starting={"narrow": 5, "tall": 10, "mid": 10, "wide": 12},
        serving={"wide": 12},
    ),
    Pane(
        id="runs",
        title="Runs",
        widget="tui.widgets.runs_pane:RunsPane",
        place="tab",
        key="6",
        help="The record: loads, smoke runs, benchmarks; compare two",
        values=same("runs", "opened", "compared", result="opened_result"),
        shows_state=False,
        focus="#tab-runs DataTable",
    ),
    Pane(
        id="strip",
        widget="tui.widgets.gpu_strip:GpuStrip",
        place="strip",
        starting={"narrow": 1, "tall": 1},
        serving={"narrow": 1, "tall": 1},
    ),
    Pane(
        id="serving-strip",
        widget="tui.widgets.facts_panes:ServingStrip",
        place="strip",
        serving={"narrow": 1, "tall": 1},
    ),
    Pane(
        id="gpus",
        widget="tui.widgets.gpu_panel:GpuPanel",
        place="machine",
        starting={"mid": FIT, "wide": FIT},
        serving={"mid": FIT, "wide": FIT},
    ),
    Pane(
        id="phases",
        title="Phases",
        widget="tui.widgets.phase_view:PhasesPane",
        place="machine",
        starting={"mid": REST, "wide": 12},
    ),
    Pane(
        id="serving",
        title="Serving",
        widget="tui.widgets.facts_panes:ServingPane",
        place="machine",
        serving={"mid": REST, "wide": REST},
    ),
    Pane(
        id="smoke",
        title="Smoke",
        widget="tui.widgets.smoke_panel:SmokePanel",
        place="machine",
        values={"run": "smoke", "running": "smoking"},
        shows_state=False,
        serving={"mid": 8, "wide": 8},
    ),
    Pane(
        id="host",
        title="Host",
        widget="tui.widgets.facts_panes:HostPane",
        place="machine",
        starting={"wide": REST},
        serving={"wide": 8},
    ),
    Pane(
        id="deployment",
        title="Deployment",
        widget="tui.widgets.facts_panes:DeploymentPane",
        place="below",
        starting={"wide": 13},
    ),
    Pane(
        id="past",
        title="Earlier loads",
        widget="tui.widgets.facts_panes:PastLoadsPane",
        place="below",
        starting={"wide": 13},
    ),
)
TABS = tuple(pane.id for pane in PANES if pane.key)
TAB = {pane.id: pane for pane in PANES if pane.key}
EVERYWHERE = frozenset(TABS)
