"""How the control room goes from one deployment to another: every one that was opened stays watched, and keeps its own screen."""

import asyncio
from typing import TYPE_CHECKING, cast

from textual import on, work
from textual.app import App

from tui.actions import BY_ID, shown_key
from tui.messages import DeploymentChosen, OverviewLeft, OverviewShown, RetryRequested
from tui.screens.main_screen import MainScreen
from tui.settings import Settings

if TYPE_CHECKING:
    from tui.screens.overview import Overview
    from tui.services.deployment_watch import Session
    from tui.services.opened import Fleet

SHOW_S = 0.5


class FleetWork(App[str | None], inherit_bindings=False):
    """`main` and `session` are those of the deployment that is open."""

    main: MainScreen
    session: "Session"
    settings: Settings
    fleet: "Fleet | None"
    mains: dict[str, MainScreen]
    _overview: "Overview | None" = None

    @property
    def several(self) -> bool:
        """Whether there is more than one deployment to look at."""
        return self.fleet is not None and len(self.fleet.names) > 1

    @property
    def overview(self) -> "Overview":
        """The screen of all deployments, made when it is first wanted."""
        if self._overview is None:
            from tui.screens.overview import Overview

            self._overview = Overview(dict(self.settings.keys))
        return self._overview

    def watch_deployment(self, session: "Session") -> None:
        """Has a session opened and its states shown, once; it goes on while another one is on the screen."""
        if session.name not in self._watched:
            self._watched.add(session.name)
            self._watch(session)

    @property
    def _kept_now(self) -> set[str]:
        if not hasattr(self, "_names_kept"):
            self._names_kept: set[str] = set()
        return self._names_kept

    @property
    def _watched(self) -> set[str]:
        if not hasattr(self, "_names_watched"):
            self._names_watched: set[str] = set()
        return self._names_watched

    @work(group="watch")
    async def _watch(self, session: "Session") -> None:
        async for state in session.states():
            main = self.mains.get(session.name)
            if main is not None:
                main.state = state
                served = state.api.models
                main.model = (session.deployment.model or served[0].id) if served else None

    async def _go_to(self, screen: "MainScreen | Overview") -> None:
        """Shows a screen instead of the one that is shown. The first one of the app stays below: Textual can't replace that one."""
        if self.screen is screen or self.screen.is_modal:
            return  # a dialog that has come up meanwhile is answered first
        first = self.screen_stack[0]
        if screen is first:
            await self.pop_screen()
        elif self.screen is first:
            await self.push_screen(screen)
        else:
            await self.switch_screen(screen)

    # -- the overview --------------------------------------------------------------------------------------------------------------

    async def action_deployments(self) -> None:
        if not self.several:
            self.notify("The configuration has no other deployment.", markup=False)
        elif self.main.activity:
            stop = shown_key(BY_ID["stop"], self.settings.keys)
            self.notify(f"Stop what runs first ({stop}): it belongs to this deployment.", severity="warning", markup=False)
        else:
            await self._go_to(self.overview)

    @on(OverviewShown)
    def _watch_all(self) -> None:
        assert self.fleet is not None
        for name in self.fleet.names:
            self.watch_deployment(cast("Session", self.fleet.session(name)))
        self._show_all()
        if not hasattr(self, "_showing"):
            self._showing = self.set_interval(SHOW_S, self._show_all)

    def _show_all(self) -> None:
        overview = self._overview
        if overview is not None and self.fleet is not None and overview.is_current:
            overview.states = self.fleet.states

    @on(RetryRequested)
    def _retry_all(self) -> None:
        if self.fleet is not None:
            self.fleet.retry()

    @on(OverviewLeft)
    async def _back(self) -> None:
        await self._go_to(self.main)

    @on(DeploymentChosen)
    async def _open_deployment(self, chosen: DeploymentChosen) -> None:
        assert self.fleet is not None
        session = cast("Session", self.fleet.session(chosen.name))
        if chosen.name not in self.mains:
            main = MainScreen(dict(self.settings.keys), self.settings.ui.system_prompt)
            main.state = session.state
            self.mains[chosen.name] = main
            self.install_screen(main, f"deployment {len(self.mains)}")
        if session is not self.session:
            self.session, self.main = session, self.mains[chosen.name]
        self.overview.can_leave = True
        self.watch_deployment(session)
        await self._go_to(self.main)

    # -- keeping one ---------------------------------------------------------------------------------------------------------------

    @property
    def kept(self) -> set[str]:
        """Names that need not be written into the configuration."""
        return {*self.settings.deployments, *self._kept_now}

    @work(group="ask")
    async def action_servers(self) -> None:
        from tui.screens.dialogs import ServerDialog

        state = self.main.shown
        if not state.servers:
            self.notify("No server has been found on this host yet.", severity="warning", markup=False)
            return
        pid = await self.push_screen_wait(ServerDialog(state.servers, state.server_pid))
        if pid is not None and pid != state.server_pid:
            self.session.choose(pid)

    @work(group="ask")
    async def action_keep(self) -> None:
        from tui.screens.dialogs import NameDialog
        from tui.services.save_deployment import KeepFailed, found_deployment, keep, name_for

        session = self.session
        server = next((one for one in session.servers if one.pid == session.state.server_pid), None)
        if server is None:
            self.notify("No server has been found on this host yet.", severity="warning", markup=False)
            return
        told = f"{server.words}\non {session.target}\n\nIt opens with readyroom NAME from then on."
        name = await self.push_screen_wait(NameDialog("Keep this server", told, name_for(server, session.target)))
        if name is None:
            return
        try:
            path = await asyncio.to_thread(lambda: keep(found_deployment(server, session.target, name)))
        except KeepFailed as error:
            self.notify(str(error), severity="error", markup=False, timeout=12)
        else:
            self._kept_now.add(session.name)
            self.main.set_keys()
            self.notify(f"{path}: deployment {name} added", markup=False)
