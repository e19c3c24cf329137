"""The whole control room over a session whose states a test sets, and what is on its screen."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import cast

from textual.pilot import Pilot

from tui.app import ControlRoom
from tui.core.api_status import ApiStatus
from tui.core.deployment import DeploymentState
from tui.host.base import Host
from tui.record.store import RunStore
from tui.screens.login_dialogs import ScreenAsker
from tui.services.deployment_watch import Session
from tui.settings import Deployment, Settings, UiSettings

Room = Pilot[str | None]


class SetSession:
    """Yields the states that it is given, the newest one first."""

    name = "kimi-k2-w4"
    target = "gpu-8x"
    api_key: str | None = None
    host: Host | None = None
    recorded_load: int | None = None

    def __init__(self, state: DeploymentState, deployment: Deployment | None = None) -> None:
        self.state = state
        self.deployment = deployment or Deployment()
        self.retries = 0
        self.polls = 0
        self._news = asyncio.Event()

    def set(self, state: DeploymentState) -> None:
        self.state = state
        self._news.set()

    async def states(self) -> AsyncIterator[DeploymentState]:
        while True:
            yield self.state
            await self._news.wait()
            self._news.clear()

    def retry(self) -> None:
        self.retries += 1

    @property
    def api(self) -> "SetSession":
        return self

    async def poll(self) -> ApiStatus:
        """Return the state's own API status, as if the server said it once more."""
        self.polls += 1
        return self.state.api


def room(
    state: DeploymentState,
    settings: Settings | None = None,
    asker: ScreenAsker | None = None,
    *,
    session: SetSession | None = None,
    record: RunStore | None = None,
) -> tuple[ControlRoom, SetSession]:
    """Return the app, and the session that a test moves."""
    session = session or SetSession(state)
    settings = settings or Settings(ui=UiSettings(theme="dark"))
    return ControlRoom(cast("Session", session), settings, asker=asker, record=record), session


async def until(pilot: Room, holds: Callable[[], bool], seconds: float = 15.0) -> None:
    """Let the app run until the predicate holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold in time; on the screen:\n" + screen(pilot)
        await pilot.pause(0.02)


def screen(pilot: Room) -> str:
    """Return what is on the screen, as text."""
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


async def shows(pilot: Room, *words: str) -> None:
    """Wait until all these words are on the screen."""
    await until(pilot, lambda: all(word in screen(pilot) for word in words))
