"""A session that is opened after the first paint: importing SSH and HTTP costs as much as the screen itself."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tui.core.deployment import DeploymentState

if TYPE_CHECKING:
    from tui.services.session import Session


class OpeningSession:
    """Stands in for a Session until its first state is asked for, then opens it and is it.

    `open_session` is called in a thread (it imports) and must return a session that is not entered. `async with` closes what was
    opened. `retry` before that does nothing; every other attribute is the session's and raises AttributeError before it is there.
    """

    def __init__(self, name: str, target: str, open_session: "Callable[[], Session]") -> None:
        self.name = name
        self.target = target
        self._open_session = open_session
        self._session: Session | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stack.__aexit__(kind, error, trace)

    @property
    def state(self) -> DeploymentState:
        return self._session.state if self._session is not None else DeploymentState(name=self.name, target=self.target)

    async def states(self) -> AsyncIterator[DeploymentState]:
        """The session's states, after one that says that nothing is known yet."""
        yield self.state
        if self._session is None:
            session = await asyncio.to_thread(self._open_session)
            self._session = await self._stack.enter_async_context(session)
        async for state in self._session.states():
            yield state

    def retry(self) -> None:
        if self._session is not None:
            self._session.retry()

    def __getattr__(self, name: str) -> Any:
        session = self.__dict__.get("_session")
        if session is None:
            raise AttributeError(f"the session is not open yet: {name}")
        return getattr(session, name)
