"""The deployments of the control room: which one is open, its screen, and the way from one to another."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.message import Message

from tui.actions import BY_ID, shown_key
from tui.core.deployment import DeploymentState
from tui.messages import DeploymentChosen, OverviewLeft, OverviewShown, RetryRequested
from tui.screens.main_screen import MainScreen
from tui.screens.room_app import RoomApp
from tui.settings import Settings

if TYPE_CHECKING:
    from textual.timer import Timer

    from tui.screens.overview import Overview
    from tui.services.deployment_watch import Session
    from tui.services.lazy_session import Fleet

SHOW_S = 0.5
"""How often the overview is given the newest states."""


class FleetController:
    """Every deployment that was opened stays watched, and keeps its own screen; `session` and `main` are those of the open one."""

    def __init__(self, app: RoomApp, session: "Session", settings: Settings, fleet: "Fleet | None") -> None:
        self._app = app
        self.session = session
        self.fleet = fleet
        self._settings = settings
        self.main = self._screen(DeploymentState(name=session.name, target=session.target))  # what is being connected to
        self.mains = {session.name: self.main}
        self._overview: Overview | None = None
        self._showing: Timer | None = None
        self._watched: set[str] = set()
        self._added: set[str] = set()
        """Names of deployments that were written into the configuration since the start."""

    def _screen(self, state: DeploymentState) -> MainScreen:
        main = MainScreen(dict(self._settings.keys), self._settings.ui.system_prompt)
        main.set_reactive(MainScreen.state, state)
        main.set_reactive(MainScreen.shown, state)
        return main

    @property
    def several(self) -> bool:
        """Whether there is more than one deployment to look at."""
        return self.fleet is not None and len(self.fleet.names) > 1

    @property
    def kept(self) -> frozenset[str]:
        """Names that need not be written into the configuration."""
        return frozenset({*self._settings.deployments, *self._added})

    @property
    def overview(self) -> "Overview":
        """The screen of all deployments, made when it is first wanted."""
        if self._overview is None:
            from tui.screens.overview import Overview

            self._overview = Overview(dict(self._settings.keys))
        return self._overview

    async def take(self, request: Message) -> None:
        """Do what a screen asks for, if it is about the fleet."""
        match request:
            case OverviewShown():
                self._watch_all()
            case OverviewLeft():
                await self._go_to(self.main)
            case DeploymentChosen():
                await self._open(request.name)
            case RetryRequested() if self.fleet is not None:
                self.fleet.retry()

    def watch(self, session: "Session") -> None:
        """Open a session and show its states, once; it goes on while another one is on the screen."""
        if session.name not in self._watched:
            self._watched.add(session.name)
            self._app.start(partial(self._follow, session), "watch")

    async def _follow(self, session: "Session") -> None:
        async for state in session.states():
            main = self.mains.get(session.name)
            if main is not None:
                main.state = state
                served = state.api.models
                main.model = (session.deployment.model or served[0].id) if served else None

    # -- from one screen to another ------------------------------------------------------------------------------------------------

    async def _go_to(self, screen: "MainScreen | Overview") -> None:
        """Show a screen in place of the one that is shown. The first one of the app stays below: Textual can't replace that one."""
        app = self._app
        if app.screen is screen or app.screen.is_modal:
            return  # a dialog that has come up meanwhile is answered first
        first = app.screen_stack[0]
        if screen is first:
            await app.pop_screen()
        elif app.screen is first:
            await app.push_screen(screen)
        else:
            await app.switch_screen(screen)

    async def show_overview(self) -> None:
        """Go to the screen of all deployments, unless something runs on the one that is open."""
        if not self.several:
            self._app.notify("The configuration has no other deployment.", markup=False)
        elif self.main.activity:
            stop = shown_key(BY_ID["stop"], self._settings.keys)
            self._app.notify(f"Stop what runs first ({stop}): it belongs to this deployment.", severity="warning", markup=False)
        else:
            await self._go_to(self.overview)

    def _watch_all(self) -> None:
        assert self.fleet is not None
        for name in self.fleet.names:
            self.watch(cast("Session", self.fleet.session(name)))
        self._show_all()
        if self._showing is None:
            self._showing = self._app.set_interval(SHOW_S, self._show_all)

    def _show_all(self) -> None:
        overview = self._overview
        if overview is not None and self.fleet is not None and overview.is_current:
            overview.states = self.fleet.states

    async def _open(self, name: str) -> None:
        assert self.fleet is not None
        session = cast("Session", self.fleet.session(name))
        if name not in self.mains:
            self.mains[name] = self._screen(session.state)
            self._app.install_screen(self.mains[name], f"deployment {len(self.mains)}")
        if session is not self.session:
            self.session, self.main = session, self.mains[name]
        self.overview.can_leave = True
        self.watch(session)
        await self._go_to(self.main)

    # -- the servers of this host --------------------------------------------------------------------------------------------------

    async def choose_server(self) -> None:
        """Ask which of the servers of the host is watched."""
        from tui.screens.dialogs import ServerDialog

        state = self.main.shown
        if not state.servers:
            self._app.notify("No server has been found on this host yet.", severity="warning", markup=False)
            return
        pid = await self._app.push_screen_wait(ServerDialog(state.servers, state.server_pid))
        if pid is not None and pid != state.server_pid:
            self.session.choose(pid)

    async def keep_server(self) -> None:
        """Write the server that was found into the configuration, under a name that is asked for."""
        from tui.screens.dialogs import NameDialog
        from tui.services.save_deployment import KeepFailed, found_deployment, keep, name_for

        app, session = self._app, self.session
        server = next((server for server in session.servers if server.pid == session.state.server_pid), None)
        if server is None:
            app.notify("No server has been found on this host yet.", severity="warning", markup=False)
            return
        told = f"{server.words}\non {session.target}\n\nFrom then on, open it with readyroom NAME."
        name = await app.push_screen_wait(NameDialog("Save this server", told, name_for(server, session.target)))
        if name is None:
            return
        try:
            path = await asyncio.to_thread(lambda: keep(found_deployment(server, session.target, name)))
        except KeepFailed as error:
            app.notify(str(error), severity="error", markup=False, timeout=12)
        else:
            self._added.add(session.name)
            self.main.set_keys()
            app.notify(f"{path}: deployment {name} added", markup=False)
