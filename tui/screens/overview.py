"""All configured deployments on one screen, each of them watched: the worst on top, enter opens one."""

import time
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Resize
from textual.reactive import var
from textual.screen import Screen
from textual.widgets import Input

from tui.actions import BY_ID, OVERVIEW_TOO, binding
from tui.core.deployment import DeploymentState
from tui.core.deployment_status import ORDERS
from tui.core.presentation import counted
from tui.messages import DeploymentChosen, OverviewLeft, OverviewShown, RetryRequested
from tui.screens.pane_frame import PaneFrame
from tui.widgets.canvas import NOTHING, Canvas, Moment, drawn, in_ascii
from tui.widgets.draw import B, label, line, middle, spread
from tui.widgets.fleet_view import FleetView, counts
from tui.widgets.key_bar import KeyBar
from tui.widgets.load_panel import LoadPanel

PREVIEW_ROWS = 30
"""From this height on the selected one is shown below the list."""
KEYS = ("overview-open", "overview-filter", "overview-sort", "overview-back", "retry", "commands", "help", "quit")


class FleetStatus(Canvas):
    """How many deployments on how many hosts, and the slowest link."""

    DEFAULT_CSS = "FleetStatus { height: 1; background: $surface; }"

    states: drawn[tuple[DeploymentState, ...]] = drawn(())

    def draw(self, width: int, height: int) -> Content:
        states = self.states
        hosts = len({state.target for state in states})
        left = line(
            (" READYROOM     ", "bold reverse $primary"),
            "  ",
            (counted(len(states), "deployment"), B),
            label(" on "),
            counted(hosts, "host"),
        )
        links = [state.connection for state in states if state.connection.online]
        slowest = max((link.round_trip_ms for link in links if link.round_trip_ms is not None), default=None)
        trip = line(label(", slowest "), f"{slowest:.0f}", label(" ms")) if slowest is not None else Content("")
        end = line((time.strftime("%H:%M:%S", time.localtime(self.moment.wall)) if self.moment.wall else "", B), " ")
        return spread(width, left, line(label(f"{len(links)} of {len(states)} connected"), trip, "   ", end), end)


class Overview(Screen[None]):
    """It is given the states twice a second; opening one of them is the app's work."""

    AUTO_FOCUS = ""
    DEFAULT_CSS = """
    Overview { background: $background; }
    Overview KeyBar { background: $surface; }
    Overview #fleet { height: 1fr; }
    Overview #preview { height: 11; display: none; }
    Overview.-roomy #preview { display: block; }
    Overview.-high #preview { height: 18; }
    Overview Input { display: none; height: 1; border: none; padding: 0 1; background: $surface; }
    Overview.-finding Input { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open"),
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup", "move(-5)", "up", show=False),
        Binding("pagedown", "move(5)", "down", show=False),
        Binding("slash", "find", "filter"),
        Binding("s", "sort", "sort"),
        Binding("escape", "back", "back"),
        *(binding(BY_ID[id], {"deployments": "back", "retry": "retry"}.get(id, "")) for id in OVERVIEW_TOO),
    ]

    states: drawn[tuple[DeploymentState, ...]] = drawn(())
    moment: var[Moment] = var(Moment, init=False)
    chosen: var[DeploymentState] = var(NOTHING, init=False)
    """The selected one, for the preview."""

    def __init__(self, own_keys: dict[str, str] | None = None) -> None:
        super().__init__()
        self.own_keys = own_keys or {}
        self.can_leave = True
        """Whether a deployment is open behind it."""

    def compose(self) -> ComposeResult:
        mine = Overview
        yield FleetStatus(id="fleet-status").data_bind(states=mine.states, moment=mine.moment)
        with PaneFrame(id="fleet"):
            yield FleetView(id="fleet-list").data_bind(states=mine.states, moment=mine.moment)
        with PaneFrame(id="preview"):
            yield LoadPanel().data_bind(state=mine.chosen, moment=mine.moment)
        yield Input(placeholder="name, host, model or state; esc clears", compact=True)
        keys = KeyBar(id="overview-keys")
        keys.own = self.own_keys
        yield keys

    @property
    def fleet(self) -> FleetView:
        return self.query_one(FleetView)

    def on_mount(self) -> None:
        self._arrange()
        self.fleet.focus()
        self.post_message(OverviewShown())

    def on_screen_resume(self) -> None:
        self.post_message(OverviewShown())

    def on_resize(self, event: Resize) -> None:
        self._arrange()

    def _arrange(self) -> None:
        width, height = self.size
        self.set_class(height >= PREVIEW_ROWS, "-roomy")
        self.set_class(height >= 44, "-high")
        self.set_class(width < 100 or height < PREVIEW_ROWS, "-narrow")
        self._retitle()

    def watch_states(self) -> None:
        self.moment = Moment(time.time(), time.monotonic(), not self.moment.beat)
        self._follow()

    def on_fleet_view_selected(self) -> None:
        self._follow()

    def _follow(self) -> None:
        self.chosen = self.fleet.current or NOTHING
        self._retitle()

    def _retitle(self) -> None:
        view, list_pane, preview = self.fleet, self.query_one("#fleet", PaneFrame), self.query_one("#preview", PaneFrame)
        told = [label("Deployments"), label(f", {view.order}")]
        if view.sought:
            told.append((f"  only {middle(view.sought, 30)}", "$warning"))
        ascii_only = self.app.has_class("-ascii")
        below = counts(self.states)
        # without a lower border the counts stand in the upper one
        title = line(" ", *told, "   ", counts(self.states, brief=True), " ") if self.has_class("-narrow") else line(*told)
        for pane, name, note in (
            (list_pane, title, below),
            (preview, line(label(f"{middle(self.chosen.name, 40)} on {middle(self.chosen.target, 30)}")), None),
        ):
            pane.border_title = in_ascii(name) if ascii_only else name
            if note is not None:
                pane.border_subtitle = in_ascii(note) if ascii_only else note
        typing = self.has_class("-finding")
        shown = [BY_ID[id] for id in KEYS if id != "overview-back" or self.can_leave]
        if all(state.connection.online for state in self.states):
            shown.remove(BY_ID["retry"])
        self.query_one(KeyBar).actions = () if typing else tuple(shown)

    # -- keys ----------------------------------------------------------------------------------------------------------------------

    def action_open(self) -> None:
        if self.fleet.current is not None:
            self.post_message(DeploymentChosen(self.fleet.current.name))

    def on_fleet_view_deployment_opened(self, opened: FleetView.DeploymentOpened) -> None:
        self.post_message(DeploymentChosen(opened.name))

    def action_move(self, by: int) -> None:
        self.fleet.move(by)

    def action_sort(self) -> None:
        self.fleet.order = ORDERS[(ORDERS.index(self.fleet.order) + 1) % len(ORDERS)]
        self._follow()

    def action_retry(self) -> None:
        self.post_message(RetryRequested())

    def action_find(self) -> None:
        self.add_class("-finding")
        self.query_one(Input).focus()
        self._retitle()

    def on_input_changed(self, changed: Input.Changed) -> None:
        self.fleet.sought = changed.value.strip()
        self._follow()

    def on_input_submitted(self) -> None:
        self._stop_finding()

    def _stop_finding(self) -> None:
        self.remove_class("-finding")
        self.fleet.focus()
        self._retitle()

    def action_back(self) -> None:
        if self.has_class("-finding") or self.fleet.sought:
            self.query_one(Input).value = ""
            self._stop_finding()
        elif self.can_leave:
            self.post_message(OverviewLeft())
