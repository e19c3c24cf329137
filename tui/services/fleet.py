"""Sessions of several deployments in one process: each is opened when it is first asked for, and stays until all are closed."""

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from tui.core.deployment import DeploymentState
from tui.services.opening import OpeningSession


class Fleet:
    """`async with` closes every session that was opened, all at the same time."""

    def __init__(self, sessions: Iterable[OpeningSession]) -> None:
        self._sessions = {session.name: session for session in sessions}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        closing = (session.__aexit__(kind, error, trace) for session in self._sessions.values())
        problems = [one for one in await asyncio.gather(*closing, return_exceptions=True) if isinstance(one, BaseException)]
        if problems:
            raise problems[0]

    @property
    def names(self) -> tuple[str, ...]:
        """In the order of the configuration."""
        return tuple(self._sessions)

    def session(self, name: str) -> OpeningSession:
        """Raises KeyError for a name that is not among them."""
        return self._sessions[name]

    @property
    def states(self) -> tuple[DeploymentState, ...]:
        """The newest state of each; of one that was never asked for, that nothing is known."""
        return tuple(session.state for session in self._sessions.values())

    def retry(self) -> None:
        """Every deployment without a link tries again now."""
        for session in self._sessions.values():
            if not session.state.connection.online:
                session.retry()
