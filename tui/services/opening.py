"""A session that is opened after the first paint: importing SSH and HTTP costs as much as the screen itself."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tui.core.connection import ConnectionState, Link
from tui.core.deployment import DeploymentState

if TYPE_CHECKING:
    from tui.services.session import Session


class OpeningFailed(Exception):
    """A session can't even be made: its configuration does not hold. `cause` says what is wrong with it."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


class OpeningSession:
    """Stands in for a Session until its first state is asked for, then opens it and is it.

    `open_session` is called in a thread (it imports) and must return a session that is not entered. `async with` closes what was
    opened. Where it raises OpeningFailed, the state says so until `retry`. Every other attribute is the session's and
    raises AttributeError before it is there.
    """

    def __init__(self, name: str, target: str, open_session: "Callable[[], Session]") -> None:
        self.name = name
        self.target = target
        self._open_session = open_session
        self._session: Session | None = None
        self._failed: str | None = None
        self._again = asyncio.Event()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stack.__aexit__(kind, error, trace)

    @property
    def state(self) -> DeploymentState:
        if self._session is not None:
            return self._session.state
        advice = "Correct it." if self._failed is not None else None
        connection = ConnectionState(Link.IDLE, self.target, cause=self._failed, advice=advice)
        return DeploymentState(name=self.name, target=self.target, connection=connection, misconfigured=self._failed)

    async def states(self) -> AsyncGenerator[DeploymentState, None]:
        """The session's states, after one that says that nothing is known yet."""
        yield self.state
        while self._session is None:
            try:
                session = await asyncio.to_thread(self._open_session)
            except OpeningFailed as error:
                self._failed = error.cause
                self._again.clear()
                yield self.state
                await self._again.wait()
            else:
                self._session = await self._stack.enter_async_context(session)
        async with aclosing(self._session.states()) as states:
            async for state in states:
                yield state

    def retry(self) -> None:
        self._again.set()
        if self._session is not None:
            self._session.retry()

    def __getattr__(self, name: str) -> Any:
        session = self.__dict__.get("_session")
        if session is None:
            raise AttributeError(f"the session is not open yet: {name}")
        return getattr(session, name)
