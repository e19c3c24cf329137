"""The main screen: the machine on the left, what happens on the right, the log below. It holds the values that its widgets show."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, TypeVar

from textual import getters
from textual.app import ComposeResult
from textual.binding import BindingsMap
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.css.query import NoMatches
from textual.reactive import var
from textual.widget import MountError, Widget
from textual.widgets import ContentSwitcher

from tui.actions import ACTIONS, BY_ID, Action, bindings, in_footer, shown_key, types_text
from tui.core.deployment import DeploymentState
from tui.core.deployment_status import Status, not_ready_reason, status_of
from tui.messages import RunsShown, ScreenFurnished
from tui.panes import PANES, REST, TAB, TABS, Pane, Place
from tui.screens.availability import unavailable
from tui.screens.compositor import SparingCompositor
from tui.screens.job_state import JobScreen
from tui.screens.layout import Layout, News, layout, titles
from tui.screens.pane_frame import Noted, PaneFrame
from tui.screens.view import ScreenView
from tui.widgets.canvas import NOTHING, Canvas, Moment, in_ascii
from tui.widgets.key_bar import KeyBar
from tui.widgets.status_line import StatusLine

if TYPE_CHECKING:
    from tui.core.bench_result import Plan
    from tui.widgets.gpu_panel import GpuPanel
    from tui.widgets.log_pane import LogPane

C = TypeVar("C", bound=Canvas)

TICK_S = 0.5
HANDS_OFF_S = 3.0
"""Nothing opens by itself so soon after a key."""


class MainScreen(JobScreen):
    """One deployment: its panes, its tabs, its keys."""

    AUTO_FOCUS = ""

    state: var[DeploymentState] = var(NOTHING, init=False)
    """The newest one; only the log follows it at once."""
    shown: var[DeploymentState] = var(NOTHING, init=False)
    """What the figures show: twice a second at most, so that they can be read."""
    moment: var[Moment] = var(Moment, init=False)
    narrow: var[bool] = var(False, init=False)
    """Whether there is one column only."""

    log_pane: "LogPane"
    gpus_tab: "GpuPanel"
    """The two are there once the screen is furnished."""
    switcher = getters.query_one(ContentSwitcher)

    def __init__(self, own_keys: dict[str, str] | None = None, system_prompt: str = "") -> None:
        super().__init__()
        self._compositor = SparingCompositor()
        self.own_keys = own_keys or {}
        self._bindings = BindingsMap.merge([BindingsMap(bindings(self.own_keys)), self._bindings])
        self.system_prompt = system_prompt
        self.news = News()
        self.furnished = False
        """Whether all parts are there: what the first paint did not need comes right after it."""
        self._canvases: list[Canvas] = []
        """They show the state, and when."""
        self._layout = Layout({}, {})
        self._placed: dict[tuple[Place, str], Widget] = {}
        """By place and id, what is shown and hidden for a pane: its frame, or itself."""
        self._titles: dict[str, Content] = {}
        self._notes: dict[str, Content | None] = {}
        self._zoomed: Literal["", "stage", "log"] = ""
        self._chose = False
        """Whether the user chose a tab: from then on none opens by itself."""
        self._was: Status | None = None
        self._marks: tuple[int, ...] = ()

    @property
    def view(self) -> ScreenView:
        """Return what is on the screen now."""
        width, height = self.app.size
        return ScreenView(
            state=self.shown,
            tab=self.tab,
            width=width,
            height=height,
            own_keys=self.own_keys,
            zoomed=self._zoomed,
            typing=self.typing,
            filtered=self.furnished and self.log_pane.sought != "",
            streaming=self.streaming,
            smoking=self.smoking,
            benching=self.benching,
            measured=self.result is not None,
            recorded=bool(self.runs),
            several=self.app.several,
            kept=self.app.kept,
        )

    # -- parts ---------------------------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        view = self.view
        self._layout = layout(view)  # before there are parts whose styles would have to follow
        self.update_classes(dict(self._layout.classes))
        self.set_reactive(MainScreen.narrow, view.narrow)
        yield self.showing(StatusLine(id="status")).data_bind(MainScreen.activity, MainScreen.tab)
        with Horizontal(id="body"):
            with Vertical(id="machine"):
                yield from self._new("machine", first=True)
            with Vertical(id="right"), PaneFrame(id="stage"), ContentSwitcher(initial=TAB["load"].widget_id):
                yield from self._new("tab", first=True)
        for pane in PANES:
            if pane.place == "bottom":
                yield self._place(pane, PaneFrame(id=pane.id))  # its content comes with the second paint
        keys = KeyBar(id="keys")
        keys.own = self.own_keys
        yield keys

    def _new(self, place: Place, *, first: bool = False) -> Iterator[Widget]:
        """Make the panes of a place that come with the first paint, or the others."""
        for pane in PANES:
            if pane.place != place or pane.first != first:
                continue
            widget = self._widget(pane)
            framed = place in ("machine", "below")
            yield widget if place == "tab" else self._place(pane, PaneFrame(widget, id=pane.id) if framed else widget)

    def _widget(self, pane: Pane) -> Widget:
        widget = pane.make()
        if isinstance(widget, Canvas) and pane.shows_state:
            self.showing(widget)
        return widget.data_bind(**{own: getattr(MainScreen, value) for own, value in pane.values.items()})

    def _place(self, pane: Pane, widget: Widget) -> Widget:
        self._placed[pane.place, pane.id] = widget
        self._apply_rows(pane.place, pane.id)
        return widget

    def showing(self, canvas: C) -> C:
        """Return the canvas, which from now on is given what is shown, and when."""
        canvas.set_reactive(Canvas.state, self.shown)
        canvas.set_reactive(Canvas.moment, Moment(time.time(), time.monotonic()))
        self._canvases.append(canvas)
        return canvas

    def on_mount(self) -> None:
        self.set_keys()
        self._write_titles()
        self.moment = Moment(time.time(), time.monotonic())
        self.call_after_refresh(self._furnish)

    async def _furnish(self) -> None:
        """Mount everything that the first paint left out."""
        from tui.core.conversation import Conversation
        from tui.widgets.gpu_panel import GpuPanel
        from tui.widgets.log_pane import LogPane
        from tui.widgets.status_line import Banner
        from tui.widgets.tiny import Tiny

        self.set_reactive(MainScreen.conversation, Conversation(system=self.system_prompt))
        tabs = list(self._new("tab"))
        for tab in tabs:
            tab.display = False
        try:
            await self.mount(self.showing(Banner(id="banner")), self.showing(Tiny(id="tiny")), after="#status")
            for pane in PANES:
                if pane.place == "bottom":
                    await self._placed[pane.place, pane.id].mount(self._widget(pane))
            self.log_pane = self.query_one("#log-pane", LogPane)
            await self.query_one("#stage").mount(*self._new("strip"), before=self.switcher)
            await self.switcher.mount(*tabs)
            self.gpus_tab = self.query_one("#tab-gpus", GpuPanel)
            await self.query_one("#machine").mount(*self._new("machine"))
            await self.query_one("#right").mount(Horizontal(*self._new("below"), id="more"))
        except (MountError, NoMatches) as error:
            if isinstance(error, MountError) and self.is_attached and self.is_running and not self.app._exit:
                raise
            return  # the app is leaving
        if not self.log_pane.children:
            return
        self.furnished = True
        self.log_pane.state = self.shown = self.state
        self.set_keys()
        self._arrange(layout(self.view))
        self._tick()
        self.set_interval(TICK_S, self._tick)
        self.post_message(ScreenFurnished())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.furnished or action not in {known.action.partition("(")[0] for known in ACTIONS if known.bound}

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
        if next((screen for screen in reversed(self.app.screen_stack) if not screen.is_modal), None) is not self:
            return  # another deployment is on the screen
        self.moment = Moment(time.time(), time.monotonic(), not self.moment.beat)
        self.shown = self.state
        self._draw()
        self._write_notes()

    def _draw(self) -> None:
        for canvas in self._canvases:
            canvas.show(self.shown, self.moment)

    def _mark_news(self) -> None:
        """Let the tabs say how much came since they were looked at."""
        if not self.furnished:
            return
        self.news.take(self.shown)
        self.news.see(self.tab)
        for tab in ("log", "gpus"):
            if self.query_one(f"#{tab}").region:  # none if it is not on the screen
                self.news.see(tab)
        marks = self.news.marks(TABS)
        if marks != self._marks:
            self._marks = marks
            self._write_titles()

    def _became(self, before: Status | None, now: Status) -> None:
        """Open what opens by itself, as long as the user chose nothing."""
        if now is Status.READY and not self.benching:
            self.bench_problem = None  # it told of the server that was there before
        if now is Status.READY:
            self.app.forget_refusal()
        if self._chose:
            return
        if now is Status.READY:
            # who is at the keys means what is there now
            if time.monotonic() - self.app.last_key_at > HANDS_OFF_S:
                self.open_tab("chat", focus=False)
        elif now in (Status.LOADING, Status.FAILED):
            self.open_tab("load")
        if now is Status.FAILED:
            self.call_after_refresh(self.log_pane.jump_to_cause)

    # -- layout --------------------------------------------------------------------------------------------------------------------

    def on_resize(self) -> None:
        self.rearrange()

    def rearrange(self) -> None:
        """Let keys, layout and titles follow what is shown; nothing on a screen that is closed before it has its parts."""
        if self.query("#log"):
            self.set_keys()
            if (new := layout(self.view)) != self._layout:
                self._arrange(new)

    def _arrange(self, new: Layout) -> None:
        self._layout = new
        self.narrow = self.view.narrow
        self.update_classes(dict(new.classes))  # all at once: each change has the styles of the whole screen worked out again
        for place, id in self._placed:
            self._apply_rows(place, id)
        self.query_one("#machine").display = any(place == "machine" for place, _ in new.rows)
        below = [rows for (place, _), rows in new.rows.items() if place == "below"]
        for row in self.query("#more"):
            row.display = bool(below)
            row.styles.height = max(below, default=0)
        self._write_titles()

    def _apply_rows(self, place: Place, id: str) -> None:
        """Show a pane with the rows that the layout gives it, or hide it."""
        widget, rows = self._placed[place, id], self._layout.rows.get((place, id))
        widget.display = rows is not None
        if rows is not None:
            widget.styles.height = "1fr" if rows == REST or place == "below" else rows

    @property
    def _log_shown(self) -> bool:
        return ("bottom", "log") in self._layout.rows

    def _write_titles(self) -> None:
        """Write the upper borders: the tabs, and the names of the panes."""
        note = self.log_pane.note() if self.furnished else Content("")
        for pane, title in titles(self.view, self.news.count, note).items():
            if (before := self._titles.get(pane)) is None or not before.is_same(title):
                for frame in self.query(f"#{pane}").results(PaneFrame):
                    self._titles[pane] = title
                    frame.border_title = self._written(title)

    def _write_notes(self) -> None:
        """Write the lower borders: how old the sample of a pane is, or what it comes to."""
        shown: dict[str, object] = {"stage": self.switcher.visible_content}
        shown |= {id: self.query_one(f"#{id}-pane") for place, id in self._layout.rows if place in ("machine", "bottom")}
        for pane, widget in shown.items():
            note = widget.note() if isinstance(widget, Noted) and not self.narrow else None
            before = self._notes.get(pane)
            if note is not before and (note is None or before is None or not note.is_same(before)):
                self._notes[pane] = note
                self.query_one(f"#{pane}", PaneFrame).set_note(self._written(note) if note is not None else None)
        if self.narrow:
            self._write_titles()  # there the log's note stands in its title

    def _written(self, text: Content) -> Content:
        return in_ascii(text) if self.app.has_class("-ascii") else text

    # -- keys ----------------------------------------------------------------------------------------------------------------------

    @property
    def typing(self) -> bool:
        """Return whether keys go into a text."""
        return hasattr(self.focused, "cursor_blink")  # an Input or a TextArea, which need not be imported yet

    def unavailable(self, action: Action) -> str | None:
        """Return why the action would do nothing now, None if it would do something."""
        return unavailable(self.view, action)

    def set_keys(self) -> None:
        """Let the footer show what does something now."""
        view = self.view
        for bar in self.query(KeyBar):  # none is left on a screen that is being closed
            bar.actions = tuple(
                action
                for action in in_footer(self.tab)
                if unavailable(view, action) is None and not (view.typing and types_text(action, self.own_keys))
            )

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
        """Open the tab of the benchmark that starts."""
        super().begin_benchmark(plan)
        self._chose = True
        self.open_tab("bench")

    # -- tabs ----------------------------------------------------------------------------------------------------------------------

    def open_tab(self, tab: str, *, focus: bool = True) -> None:
        """Show a tab. `focus` moves to its main widget, but not if the tab opens by itself: keys stay commands then."""
        self.tab = tab
        if not focus:
            self.set_focus(None)
            return
        # at once, not as `focus()` does it: the key that follows is meant for what is shown then. The prompt is entered with a key
        # of its own: the digit of another place, or this one's pressed twice, would be typed into it
        home = TAB[tab].focus
        self.set_focus(next(iter(self.query(home)), None) if home else None)

    def watch_tab(self, tab: str) -> None:
        switcher = self.switcher
        if TAB[tab].place == "tab":
            switcher.current = TAB[tab].widget_id if self.query(f"#{TAB[tab].widget_id}") else None
        self.rearrange()
        self._mark_news()

    def action_type(self) -> None:
        """Enter the prompt: a tab that opens by itself leaves the keys to be commands."""
        if self.tab == "chat":
            self.chat.focus_prompt()

    def action_smoke(self) -> None:
        """Run the smoke prompts, on the chat if there is no panel for the verdicts beside the tab that is open."""
        if self.tab != "chat" and not self.query_one("#smoke").region:
            self._chose = True
            self.open_tab("chat", focus=False)
        super().action_smoke()

    def action_show(self, tab: str) -> None:
        self._chose = True
        self._zoomed = ""
        self.open_tab(tab)
        self.rearrange()
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
            self.app.say(f"{shown_key(BY_ID['stop'], self.own_keys)} stops the benchmark.")

    def action_find(self) -> None:
        if not self._log_shown:
            self.open_tab("log")
        self.log_pane.start_finding()

    def action_follow(self) -> None:
        log = self.log_pane
        log.follow = not log.follow

    def action_log_there(self) -> None:
        if self.narrow or not self._log_shown:
            self._chose = True
            self.open_tab("log")
        if not self.log_pane.jump_to_cause():
            self.notify("That line is no longer in the log kept here.", markup=False)

    def action_gpu_order(self) -> None:
        if self.tab == "gpus":
            self.gpus_tab.next_order()

    def action_gpu_kind(self) -> None:
        if self.tab == "gpus":
            self.gpus_tab.next_kind()

    def action_zoom(self) -> None:
        if self._zoomed:
            self._zoomed = ""
        else:
            self._zoomed = "log" if self.query_one("#log").has_focus_within else "stage"
        self.rearrange()
