"""Sessions of several deployments: each is opened when it is first asked for, and stays open until all are closed."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AsyncExitStack, aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tui.core.connection import ConnectionState, LinkState
from tui.core.deployment import DeploymentState

if TYPE_CHECKING:
    from tui.services.deployment_watch import Session


class OpeningFailed(Exception):
    """A session can't be made: its configuration is wrong. `cause` says how."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


class LazySession:
    """A session that opens itself when its first state is asked for.

    `open_session` is called in a thread (it imports) and must return a session that is not entered. `async with` closes what was
    opened. If it raises OpeningFailed, the state says so until `retry`. Every other attribute is the session's and
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
        connection = ConnectionState(LinkState.IDLE, self.target, cause=self._failed, advice=advice)
        return DeploymentState(name=self.name, target=self.target, connection=connection, misconfigured=self._failed)

    async def states(self) -> AsyncGenerator[DeploymentState, None]:
        """Yield the session's states, after one that says that nothing is known yet."""
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
        async with aclosing(self._session.store.states()) as states:
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


class Fleet:
    """`async with` closes every session that was opened, all at the same time."""

    def __init__(self, sessions: Iterable[LazySession]) -> None:
        self._sessions = {session.name: session for session in sessions}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        closing = (session.__aexit__(kind, error, trace) for session in self._sessions.values())
        ends = await asyncio.gather(*closing, return_exceptions=True)
        problems = [end for end in ends if isinstance(end, BaseException)]
        if problems:
            raise problems[0]

    @property
    def names(self) -> tuple[str, ...]:
        """The names in the order of the configuration."""
        return tuple(self._sessions)

    def session(self, name: str) -> LazySession:
        """Return the session of that name. Raise KeyError if there is none."""
        return self._sessions[name]

    @property
    def states(self) -> tuple[DeploymentState, ...]:
        """The newest state of each deployment; one that was never opened has a state in which nothing is known."""
        return tuple(session.state for session in self._sessions.values())

    def retry(self) -> None:
        """Try again now to connect every deployment without a link."""
        for session in self._sessions.values():
            if not session.state.connection.online:
                session.retry()
