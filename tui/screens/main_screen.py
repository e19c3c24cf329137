"""The main screen: the machine on the left, what happens on the right, the log below. It holds the values that its widgets show."""

import time
from typing import TYPE_CHECKING, TypeVar

from textual.app import ComposeResult
from textual.binding import BindingsMap
from textual.containers import Horizontal, Vertical
from textual.events import Resize
from textual.reactive import var
from textual.widget import MountError
from textual.widgets import ContentSwitcher

from tui.actions import ACTIONS, BY_ID, TABS, Action, bindings, in_footer, shown_key, types_text
from tui.core.deployment import DeploymentState
from tui.core.deployment_status import UNREACHED, Status, not_ready_reason, status_of
from tui.messages import RunsShown, ScreenFurnished
from tui.screens.availability import unavailable
from tui.screens.compositor import SparingCompositor
from tui.screens.job_state import JobScreen
from tui.screens.layout import Frame, News
from tui.screens.pane import Pane
from tui.widgets.canvas import NOTHING, Canvas, Moment
from tui.widgets.gpu_panel import GpuPanel
from tui.widgets.key_bar import KeyBar
from tui.widgets.load_panel import LoadPanel
from tui.widgets.phase_view import PhasesPane
from tui.widgets.status_line import StatusLine

if TYPE_CHECKING:
    from tui.core.bench_result import Plan
    from tui.widgets.log_pane import LogPane

F = TypeVar("F", bound=Canvas)

TICK_S = 0.5
HANDS_OFF_S = 3.0
"""Nothing opens by itself so soon after a key."""


class MainScreen(JobScreen):
    AUTO_FOCUS = ""

    state: var[DeploymentState] = var(NOTHING, init=False)
    """The newest one; only the log follows it at once."""
    shown: var[DeploymentState] = var(NOTHING, init=False)
    """What the figures show: twice a second at most, so that they can be read."""
    moment: var[Moment] = var(Moment, init=False)
    tab: var[str] = var("load", init=False)

    log_pane: "LogPane"

    def __init__(self, own_keys: dict[str, str] | None = None, system_prompt: str = "") -> None:
        super().__init__()
        self._compositor = SparingCompositor()
        self.own_keys = own_keys or {}
        self._bindings = BindingsMap.merge([BindingsMap(bindings(self.own_keys)), self._bindings])
        self.system_prompt = system_prompt
        self._figures: list[Canvas] = []
        self.frame = Frame(self)
        self.news = News()
        self.furnished = False
        """Whether all parts are there: what the first paint did not need comes right after it."""

    def compose(self) -> ComposeResult:
        mine = MainScreen
        self.frame.classify()  # before there are parts whose styles would have to follow
        yield self.showing(StatusLine(id="status")).data_bind(activity=mine.activity, tab=mine.tab)
        with Horizontal(id="body"):
            with Vertical(id="machine"):
                with Pane(id="gpus"):
                    yield self.showing(GpuPanel(id="gpu-bars"))
                with Pane(id="phases"):
                    yield self.showing(PhasesPane())
            with Vertical(id="right"), Pane(id="stage"), ContentSwitcher(initial="tab-load"):
                yield self.showing(LoadPanel(id="tab-load"))
        yield Pane(id="log")
        keys = KeyBar(id="keys")
        keys.own = self.own_keys
        yield keys

    def showing(self, figure: F) -> F:
        """The figure, which from now on is given what is shown, and when."""
        figure.set_reactive(Canvas.state, self.shown)
        figure.set_reactive(Canvas.moment, Moment(time.time(), time.monotonic()))
        self._figures.append(figure)
        return figure

    def on_mount(self) -> None:
        self._chose = False
        """Whether the user chose a tab: from then on none opens by itself."""
        self._was: Status | None = None
        self._marks: tuple[int, ...] = ()
        self.rearrange()
        self.moment = Moment(time.time(), time.monotonic())
        self.call_after_refresh(self._furnish)

    async def _furnish(self) -> None:
        from tui.core.conversation import Conversation
        from tui.screens.deferred import furnish

        self.set_reactive(MainScreen.conversation, Conversation(system=self.system_prompt))
        try:
            await furnish(self)
        except MountError:
            if self.is_attached and self.is_running and not self.app._exit:
                raise
            return  # the app is leaving
        if not self.log_pane.children:
            return
        self.furnished = True
        self.log_pane.state = self.shown = self.state
        self.rearrange()
        self._tick()
        self.set_interval(TICK_S, self._tick)
        self.post_message(ScreenFurnished())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.furnished or action not in {one.action.partition("(")[0] for one in ACTIONS if one.bound}

    # -- values --------------------------------------------------------------------------------------------------------------------

    def watch_state(self, before: DeploymentState, after: DeploymentState) -> None:
        if not self.furnished:
            return
        if before.log is not after.log or before.load is not after.load:
            self.log_pane.state = after
        # a change of state is shown at once, figures wait for the next tick
        if status_of(before) != status_of(after) or before.gpus is None or before.connection.link is not after.connection.link:
            self.shown = after
            self._draw()

    def watch_shown(self) -> None:
        now = status_of(self.shown)
        if now != self._was:
            self._became(self._was, now)
            self._was = now
        self.api_ready = self.shown.api.ready
        self.why_not_ready = not_ready_reason(self.shown)
        self.rearrange()
        self._mark_news()

    def _tick(self) -> None:
        if next((one for one in reversed(self.app.screen_stack) if not one.is_modal), None) is not self:
            return  # another deployment is on the screen
        self.moment = Moment(time.time(), time.monotonic(), not self.moment.beat)
        self.shown = self.state
        self._draw()
        self.frame.tell_below()

    def _draw(self) -> None:
        for figure in self._figures:
            figure.show(self.shown, self.moment)

    def _mark_news(self) -> None:
        """Tabs say how much came since they were looked at."""
        if not self.furnished:
            return
        self.news.take(self.shown)
        self.news.see(self.tab)
        for tab in ("log", "gpus"):
            if self.query_one(f"#{tab}").region:  # none where it is not on the screen
                self.news.see(tab)
        marks = self.news.marks(TABS)
        if marks != self._marks:
            self._marks = marks
            self.frame.retitle()

    def _became(self, before: Status | None, now: Status) -> None:
        """What opens by itself, as long as the user chose nothing."""
        offline = now in (*UNREACHED, Status.MISCONFIGURED)
        known = self.shown.gpus is not None or self.shown.load is not None
        self.update_classes({"-offline": offline, "-stale": offline and known})
        if now is Status.READY and not self.benching:
            self.bench_problem = None  # it told of the server that was there before
        if now is Status.READY:
            self.app.forget_refusal()  # type: ignore[attr-defined]
        if self._chose:
            return
        if now is Status.READY:
            # who is at the keys means what is there now
            if time.monotonic() - self.app.last_key_at > HANDS_OFF_S:  # type: ignore[attr-defined]
                self.open_tab("chat", focus=False)
        elif now in (Status.LOADING, Status.FAILED):
            self.open_tab("load")
        if now is Status.FAILED:
            self.call_after_refresh(self.log_pane.jump_to_cause)

    @property
    def narrow(self) -> bool:
        """Whether there is one column only."""
        return self.frame.narrow

    def on_resize(self, event: Resize) -> None:
        self.rearrange()

    def rearrange(self) -> None:
        """Keys, layout and titles follow what is shown."""
        self.set_keys()
        self.frame.arrange()

    # -- keys ----------------------------------------------------------------------------------------------------------------------

    @property
    def typing(self) -> bool:
        """Whether keys go into a text."""
        return hasattr(self.focused, "cursor_blink")  # an Input or a TextArea, which need not be imported yet

    def can(self, action: Action) -> bool:
        """Whether the action would do anything now."""
        return unavailable(self, action) is None

    def set_keys(self) -> None:
        """The footer: what does something now."""
        bar = self.query_one(KeyBar)
        typing = self.typing
        shown = [one for one in in_footer(self.tab) if self.can(one) and not (typing and types_text(one, bar.own))]
        bar.actions = tuple(shown)

    def on_descendant_focus(self) -> None:
        self.set_keys()

    def on_descendant_blur(self) -> None:
        self.set_keys()

    def watch_activity(self, before: str, after: str) -> None:
        self.set_keys()
        for word_of, tab in (("reply", "chat"), (self.plan.kind if self.plan else "benchmark", "bench")):
            if word_of in before and word_of not in after:
                self.news.add(tab)
        if "smoke" in before and "smoke" not in after and self.smoke is not None and not self.query_one("#smoke").region:
            self.news.add("chat")
        self._mark_news()

    # -- what runs -----------------------------------------------------------------------------------------------------------------

    def begin_benchmark(self, plan: "Plan") -> None:
        """A benchmark starts: its tab opens."""
        super().begin_benchmark(plan)
        self._chose = True
        self.open_tab("bench")

    # -- tabs ----------------------------------------------------------------------------------------------------------------------

    def open_tab(self, tab: str, *, focus: bool = True) -> None:
        """Show a tab; `focus` goes to what it is for, but not where the tab opens by itself: keys stay commands then."""
        self.tab = tab
        if not focus:
            self.set_focus(None)
            return
        # at once, not as `focus()` does it: the key that follows is meant for what is shown then. The prompt is entered with a key
        # of its own: the digit of another place, or this one's pressed twice, would be typed into it
        home = {
            "gpus": "#tab-gpus",
            "log": "#log-lines",
            "chat": "#tab-chat.-talking Turns",
            "bench": "#tab-bench",
            "runs": "#tab-runs DataTable",
        }.get(tab)
        self.set_focus(next(iter(self.query(home)), None) if home else None)

    def watch_tab(self, tab: str) -> None:
        switcher = self.query_one(ContentSwitcher)
        if tab != "log":
            switcher.current = f"tab-{tab}" if self.query(f"#tab-{tab}") else None
        self.rearrange()
        self._mark_news()

    def action_type(self) -> None:
        """Into the prompt, where a tab that opened by itself left the keys to be commands."""
        if self.tab == "chat":
            self.chat.focus_prompt()

    def action_smoke(self) -> None:
        """Its verdicts are looked at where they come: on the chat, if there is no panel for them beside the tab that is open."""
        if self.tab != "chat" and not self.query_one("#smoke").region:
            self._chose = True
            self.open_tab("chat", focus=False)
        super().action_smoke()

    def action_show(self, tab: str) -> None:
        self._chose = True
        self.remove_class("-zoomed-log", "-zoomed-stage")
        self.open_tab(tab)
        if tab == "runs":
            self.post_message(RunsShown())

    def action_leave(self) -> None:
        log = self.log_pane
        if log.has_class("-finding") or log.sought:
            log.stop_finding(keep=False)
        elif self.typing:
            self.set_focus(None)
        elif self.streaming or self.smoking:
            self.stop_asking()
        elif self.benching:
            self.app.say(f"{shown_key(BY_ID['stop'], self.own_keys)} stops the benchmark.")  # type: ignore[attr-defined]

    def action_find(self) -> None:
        if not self.query_one("#log").display:
            self.open_tab("log")
        self.log_pane.start_finding()

    def action_follow(self) -> None:
        log = self.log_pane
        log.follow = not log.follow

    def action_log_there(self) -> None:
        if self.narrow or not self.query_one("#log").display:
            self._chose = True
            self.open_tab("log")
        if not self.log_pane.jump_to_cause():
            self.notify("That line is no longer among the lines kept.", markup=False)

    def action_gpu_order(self) -> None:
        if self.tab == "gpus":
            self.query_one("#tab-gpus", GpuPanel).next_order()

    def action_gpu_kind(self) -> None:
        if self.tab == "gpus":
            self.query_one("#tab-gpus", GpuPanel).next_kind()

    def action_zoom(self) -> None:
        log = self.query_one("#log")
        if self.has_class("-zoomed-log") or self.has_class("-zoomed-stage"):
            self.remove_class("-zoomed-log", "-zoomed-stage")
        elif log.has_focus_within:
            self.add_class("-zoomed-log")
        else:
            self.add_class("-zoomed-stage")
