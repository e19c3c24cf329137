"""How the control room goes from one deployment to another: every one that was opened stays watched, and keeps its own screen."""

from typing import TYPE_CHECKING, cast

from textual import on, work
from textual.app import App

from tui.messages import DeploymentChosen, OverviewLeft, OverviewShown, RetryRequested
from tui.screens.main import MainScreen
from tui.settings import Settings

if TYPE_CHECKING:
    from tui.screens.overview import Overview
    from tui.services.benchmark import Benchmarks
    from tui.services.fleet import Fleet
    from tui.services.session import Session

SHOW_S = 0.5


class FleetWork(App[str | None], inherit_bindings=False):
    """`main` and `session` are those of the deployment that is open."""

    main: MainScreen
    session: "Session"
    settings: Settings
    fleet: "Fleet | None"
    mains: dict[str, MainScreen]
    _overview: "Overview | None" = None
    _benchmarks: "Benchmarks | None" = None

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
            self.notify("Stop what runs first (f8): it belongs to this deployment.", severity="warning", markup=False)
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
            self._benchmarks = None
        self.overview.can_leave = True
        self.watch_deployment(session)
        await self._go_to(self.main)
