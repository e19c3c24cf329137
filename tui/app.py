"""The control room: the app that owns the controllers, and hands them what screens ask for."""

import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on, work
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Event, InputEvent, Key
from textual.filter import LineFilter
from textual.screen import Screen

from tui import themes
from tui.actions import ACTIONS, BY_CALL, BY_ID, Action, help_of
from tui.core.deployment import DeploymentState
from tui.core.presentation import failure_title
from tui.fleet_controller import FleetController
from tui.messages import GpuOpened, OverviewShown, Request, ScreenFurnished, TextCopied
from tui.model_controller import ModelController
from tui.record_controller import RecordController
from tui.screens.login_dialogs import Asked, ScreenAsker
from tui.screens.main_screen import MainScreen
from tui.screens.room_app import RoomApp
from tui.settings import Settings
from tui.terminal_driver import TerminalDriver
from tui.widgets.canvas import AsciiFilter

if TYPE_CHECKING:
    from textual.actions import ActionParseResult

    from tui.record.store import RunStore
    from tui.services.deployment_watch import Session
    from tui.services.lazy_session import Fleet

QUIT_AGAIN_S = 3.0
REWRITE_S = 0.4


class ControlRoom(RoomApp, inherit_bindings=False):
    """One deployment on the screen, or all of them. Sessions are closed by whoever runs this app (`async with` around `run_async`).

    `fleet` holds the others that can be gone to, this one among them; `all_first` opens with all of them.
    """

    TITLE = "readyroom"
    CSS_PATH = "screens/main_screen.tcss"  # a default screen's own CSS_PATH is not read by Textual 8.2
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "interrupt", show=False, system=True),
        # Textual would add one that no [keys] can move
        Binding(BY_ID["commands"].keys, "command_palette", show=False, priority=True, id="commands"),
    ]
    ENABLE_COMMAND_PALETTE = True

    def __init__(
        self,
        session: "Session",
        settings: Settings | None = None,
        *,
        asker: ScreenAsker | None = None,
        record: "RunStore | None" = None,
        fleet: "Fleet | None" = None,
        all_first: bool = False,
    ) -> None:
        super().__init__()
        self.settings = settings or Settings()
        self.own_keys = dict(self.settings.keys)
        self.asker = asker
        self._interrupted = False
        self._plain = AsciiFilter()
        for theme in themes.THEMES:
            self.register_theme(theme)
        self._begin_with(themes.choose(self.settings.ui.theme, self.console.color_system, os.environ))
        self.deployments = FleetController(self, session, self.settings, fleet)
        self.jobs = ModelController(self, self.deployments, self.settings, record)
        self.history = RecordController(self, self.deployments, record) if record is not None else None
        self._all_first = all_first and self.several

    @property
    def session(self) -> "Session":
        """Return the deployment that is open."""
        return self.deployments.session

    @property
    def main(self) -> MainScreen:
        """Return the screen of the deployment that is open."""
        return self.deployments.main

    @property
    def several(self) -> bool:
        return self.deployments.several

    @property
    def kept(self) -> frozenset[str]:
        return self.deployments.kept

    def _begin_with(self, theme: str) -> None:
        """Take a theme before anything is drawn; assigning `theme` would have all styles worked out twice for the first paint."""
        look = self.available_themes[theme]
        if look.ansi:
            self.theme = theme
            return
        self.set_reactive(ControlRoom.theme, theme)
        self.update_classes({"-dark-mode": look.dark, "-light-mode": not look.dark}, update=False)
        self.stylesheet.set_variables(self.get_css_variables())

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = super().get_line_filters()
        return [*filters, self._plain] if self.has_class("-ascii") else filters

    def get_driver_class(self) -> type[Driver]:
        chosen = super().get_driver_class()
        return TerminalDriver if chosen is LinuxDriver else chosen

    def get_default_screen(self) -> Screen[None]:
        if self._all_first:
            self.deployments.overview.can_leave = False
            return self.deployments.overview
        return self.main

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(themes.DARK.variables)

    def on_mount(self) -> None:
        encoding = (getattr(sys.__stdout__, "encoding", None) or "utf-8").replace("-", "").lower()
        if self.settings.ui.ascii or encoding not in ("utf8", "utf16"):
            self.add_class("-ascii")
        self.set_keymap(self.own_keys)
        self.install_screen(self.main, "deployment 1")
        if self.several:
            self.install_screen(self.deployments.overview, "overview")

    async def on_event(self, event: Event) -> None:
        if isinstance(event, InputEvent) and (self._exit or not self.screen_stack):
            return  # typed on the way out: there is no screen any more that it could be meant for
        if isinstance(event, Key):
            self.last_key_at = time.monotonic()
        await super().on_event(event)

    @on(ScreenFurnished)
    @on(OverviewShown)
    def _begin(self) -> None:
        """Let questions be asked: the first paint is done."""
        if self.asker is not None:
            self.asker.bind(self)

    @on(ScreenFurnished)
    def _begin_deployment(self) -> None:
        self.deployments.watch(self.session)

    @on(Asked)
    def _ask(self, asked: Asked) -> None:
        self._answer(asked)

    @work(group="ask")
    async def _answer(self, asked: Asked) -> None:
        answer: bool | str | None = None
        try:
            answer = await self.push_screen_wait(asked.dialog)
        finally:
            if not asked.answer.done():
                asked.answer.set_result(answer)

    @on(Request)
    async def _pass_on(self, request: Request) -> None:
        for controller in (self.deployments, self.jobs, self.history):
            if controller is not None:
                await controller.take(request)

    # -- actions -------------------------------------------------------------------------------------------------------------------

    async def run_action(
        self,
        action: "str | ActionParseResult",
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Do what a key asks for, or say why it can't be done now."""
        known = BY_CALL.get(action) if isinstance(action, str) and default_namespace is self.main else None
        why = self.main.unavailable(known) if known is not None and self.main.furnished else None
        if why is None:
            return await super().run_action(action, default_namespace, namespaces)
        if why:
            self.say(why)
        return True

    async def action_quit(self) -> None:
        """Leave; if that ends a benchmark, after a question."""
        running = self._under_benchmark()
        if running is None:
            self.exit()
        elif not self.screen.is_modal:
            self._ask_to_quit(running)

    def _under_benchmark(self) -> MainScreen | None:
        return next((main for main in self.deployments.mains.values() if main.benching), None)

    @work(group="ask")
    async def _ask_to_quit(self, main: MainScreen) -> None:
        from tui.screens.dialogs import LeaveDialog

        if await self.push_screen_wait(LeaveDialog("A benchmark is running", main.ended_by_leaving(), "leave")):
            self.say("Saving the results …")
            await self.jobs.end_benchmark()
            self.exit()

    def action_retry(self) -> None:
        self.session.retry()

    async def action_deployments(self) -> None:
        await self.deployments.show_overview()

    @work(group="ask")
    async def action_servers(self) -> None:
        await self.deployments.choose_server()

    @work(group="ask")
    async def action_keep(self) -> None:
        await self.deployments.keep_server()

    def action_help(self) -> None:
        from tui.screens.dialogs import HelpDialog

        self.push_screen(HelpDialog(self.own_keys))

    def on_resize(self) -> None:
        """Write the whole screen anew a moment later: a terminal that shrank and grew before the screen could follow has lost what
        stood on it, though the size is the old one."""
        self.set_timer(REWRITE_S, self.refresh)

    @property
    def bug(self) -> Exception | None:
        """Return what ended the app, if that was no wish of the user's."""
        return self._exception

    def _fatal_error(self) -> None:
        """Leave without Textual's own traceback: it prints local values, and whoever runs the app reports the bug."""
        self._close_messages_no_wait()

    def action_commands(self) -> None:
        self.action_command_palette()

    def action_command_palette(self) -> None:
        """Open the palette; not over a dialog, which is answered first, nor on the way out."""
        if not self.screen.is_modal and not self._exit:
            from tui.screens.palette import Palette

            self.push_screen(Palette())

    async def action_interrupt(self) -> None:
        """Say how to leave at the first ctrl+c, leave at the second; if a benchmark runs, ask then, and leave at the third."""
        if self._interrupted:
            await self.action_quit()
            return
        self._interrupted = True
        asks = self._under_benchmark() is not None
        words = "ctrl+c again asks whether to end the benchmark." if asks else "ctrl+c again leaves; nothing on the host changes."
        self.notify(words, markup=False, timeout=QUIT_AGAIN_S)
        self.set_timer(QUIT_AGAIN_S, self._forget_interrupt)

    def _forget_interrupt(self) -> None:
        self._interrupted = False

    def action_look(self) -> None:
        names = [theme.name for theme in themes.THEMES]
        self.theme = names[(names.index(self.theme) + 1) % len(names)] if self.theme in names else names[0]

    def action_load_report(self) -> None:
        if self.main.shown.load is not None:
            from tui.screens.load_report import LoadReport

            report = LoadReport(self.main.shown)
            self.push_screen(report)
            report.watch(self.main, "shown", lambda state: setattr(report, "state", state), init=False)

    def action_copy_cause(self) -> None:
        load = self.main.shown.load
        if load is not None and load.failure is not None:
            self.post_message(TextCopied(f"{failure_title(load.failure)}: {load.failure.cause}", "the cause"))

    @on(TextCopied)
    def _copy(self, copied: TextCopied) -> None:
        self.copy_to_clipboard(copied.text)
        self.notify(f"Copied {copied.what}.", markup=False)

    @on(GpuOpened)
    def _open_gpu(self, opened: GpuOpened) -> None:
        from tui.core.gpu_findings import GpuSeen, gpu_seen
        from tui.screens.dialogs import GpuDialog

        def found(state: DeploymentState) -> GpuSeen | None:
            return gpu_seen(state, opened.index, opened.host)

        if (seen := found(self.main.shown)) is not None:
            dialog = GpuDialog(seen, opened.host if self.main.shown.others else "")
            self.push_screen(dialog)
            dialog.watch(self.main, "shown", lambda state: setattr(dialog, "seen", found(state) or dialog.seen), init=False)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Yield the commands of the palette: the same actions as the keys."""
        for action in ACTIONS:
            if action.palette and action.bound and self.main.unavailable(action) is None:
                name = action.text.capitalize() if action.group != "Navigation" else f"Go to {action.text}"
                yield SystemCommand(name, help_of(action, self.own_keys), Runner(self, action))


class Runner:
    """Calls an action of the main screen; the palette wants a callable."""

    def __init__(self, app: ControlRoom, action: Action) -> None:
        self.app = app
        self.action = action

    async def __call__(self) -> None:
        await self.app.main.run_action(self.action.action)
