"""One watched deployment: connects, stays connected, follows, polls, samples, and yields the state that all of it folds into."""

import asyncio
import contextlib
import random
import shlex
import time
from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from tui.aio import ended, together
from tui.core.connection import ConnectionState, LinkState, retry_delay_s
from tui.core.deployment import ConnectionChanged, DeploymentState, Event, ForecastMade, HistoryRead, HostSeen, fold
from tui.core.expectations import Expected
from tui.core.liveness import SignTracker
from tui.core.logs.forecast import make_forecast
from tui.core.logs.load_state import Forecast, LoadState, PastLoad
from tui.core.server_end import LastServer
from tui.host.api import ApiClient
from tui.host.base import Host, HostError, Refused, UnknownName
from tui.record.store import RecordError
from tui.services.attach import Wanted, at_port
from tui.services.last_seen import LastSeen
from tui.services.other_hosts import OtherHost
from tui.services.server_search import Server
from tui.services.watchers import Watch
from tui.settings import Deployment, Settings
from tui.wire.urls import socket_of

MAILBOX_HZ = 10.0
JUDGE_S = 1.0
CONNECTION_POLL_S = 0.1


class LoadRecord(Protocol):
    """The part of the record that a session writes to and compares with."""

    def save_load(self, deployment: str, load: LoadState, /) -> Any: ...

    def loads(self, deployment: str, /) -> tuple[PastLoad, ...]: ...

    def save_last_server(self, deployment: str, target: str, port: int | None, last: LastServer, /) -> None: ...

    def last_server(self, deployment: str, target: str, port: int | None, /) -> LastServer | None: ...


class _LinkLost(Exception):
    """Ends the watchers of a connection that is gone."""

    def __init__(self, error: HostError) -> None:
        super().__init__(str(error))
        self.error = error


class Session:
    """A deployment under watch. `async with` starts the work in the background and ends it, the API client and the host.

    What was known stays while the link is lost; its age counts from each value's `received_at`.
    """

    def __init__(
        self,
        name: str,
        target: str,
        deployment: Deployment,
        settings: Settings,
        host: Host,
        record: LoadRecord | None = None,
        *,
        api_key: str | None = None,
        port: int | None = None,
        others: Sequence[OtherHost] = (),
        resembles: str | None = None,
    ) -> None:
        self.name = name
        self.target = target
        self.deployment = deployment
        if port is not None and not deployment.direct:
            self.deployment = msgspec.structs.replace(deployment, api=at_port(deployment.api, port))
        self.settings = settings
        self.host = host
        self.record = record
        expected = Expected(**msgspec.structs.asdict(deployment.expect))
        self._others = tuple(others)
        further = tuple(HostSeen(one.target) for one in self._others)
        self.state = DeploymentState(name=name, target=target, expected=expected, others=further)
        self.signs = SignTracker()
        self._api: ApiClient | None = None
        self._api_key = api_key
        self._port = port
        self._resembles = resembles
        self._configured_api = deployment.api
        self._chosen: int | None = None
        self._asked: Server | None = None
        self._retry = asyncio.Event()
        self._news: set[asyncio.Event] = set()
        self._work: asyncio.Task[None] | None = None
        self._watch = Watch(self)

    # -- lifetime ------------------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> "Session":
        await self.host.__aenter__()
        self._work = asyncio.create_task(self._run(), name=f"watch {self.name}")
        self._work.add_done_callback(lambda _: self._tell())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if self._work is not None:
                # A bug of the work was already raised by `states`; leaving must not raise it again over what is being handled.
                await ended(self._work)
                await self._watch.last.keep(leaving=True)
        finally:
            try:
                if self._api is not None:
                    await self._api.close()
            finally:
                await self.host.__aexit__(kind, error, trace)

    @property
    def api(self) -> ApiClient:
        """The client of the server's API, through the host unless the deployment's URL is `direct`."""
        if self._api is None:
            uds = socket_of(self.deployment.api)
            transport = None if self.deployment.direct else self.host.transport(verify=self._verify(), uds=uds)
            self._api = ApiClient(
                self.deployment.api,
                transport,
                api_key=self._api_key,
                headers=self.deployment.headers,
                ca_file=self.deployment.ca_file,
            )
        return self._api

    @property
    def api_key(self) -> str | None:
        """The key of the server's API, for the load generator; never shown or kept."""
        return self._api_key

    def _verify(self) -> Any:
        return self.deployment.ca_file or True

    # -- which server --------------------------------------------------------------------------------------------------------------

    @property
    def wanted(self) -> Wanted:
        """What is known of the server that is meant."""
        log = self.deployment.engines[0].log
        return Wanted(self._configured_api, log, self.name in self.settings.deployments, self._port, self._chosen)

    @property
    def port(self) -> int | None:
        """The port that was asked for, where several servers run."""
        return self._port

    @property
    def last(self) -> LastSeen:
        """The server that was last seen on the host."""
        return self._watch.last

    @property
    def become(self) -> list[str]:
        """The words before a command that may see more on the host."""
        return shlex.split(self.deployment.engines[0].become)

    @property
    def servers(self) -> tuple[Server, ...]:
        """The servers that run on the host, youngest last."""
        return self._watch.servers

    @property
    def batched_tokens(self) -> int | None:
        """The most tokens that the engine takes into one step: by its log, or by the arguments of its process. None: not known."""
        load, server = self.state.load, self._watch.server or self._asked
        if load is not None and load.batched_tokens is not None:
            return load.batched_tokens
        return server.batched_tokens if server is not None else None

    def choose(self, pid: int) -> None:
        """Watches this one of `servers`: its log, its API, its process."""
        self._chosen = pid
        self._watch.decide()

    def ask(self, server: Server) -> None:
        """Has the API client ask this server, where nobody said at which address the API is."""
        address = server.api
        if address is None or not self.wanted.moves or self.deployment.direct or self._asked == server:
            return
        before, self._asked = self._asked, server
        if server.uds is not None or (before is not None and before.uds is not None):
            self.api.move(address, self.host.transport(verify=self._verify(), uds=server.uds))
        elif self.api.base_url != address:
            self.api.move(address)
        else:
            return
        self._watch.poll_anew()
        self.deployment = msgspec.structs.replace(self.deployment, api=address)

    # -- what the screen and the commands use --------------------------------------------------------------------------------------

    async def states(self) -> AsyncGenerator[DeploymentState]:
        """The newest state whenever there is one, ten times a second at most. Ends when the session does; raises what broke it."""
        news = asyncio.Event()
        news.set()
        self._news.add(news)
        try:
            while True:
                await news.wait()
                news.clear()
                yield self.state
                if self._work is not None and self._work.done():
                    if not self._work.cancelled():
                        self._work.result()
                    return
                await asyncio.sleep(1 / MAILBOX_HZ)
        finally:
            self._news.discard(news)

    def retry(self) -> None:
        """Tries to connect now, also after a refusal."""
        for other in self._others:
            other.retry()
        self._retry.set()

    @property
    def caught_up(self) -> bool:
        """Whether everything that the log held at attach has been read."""
        return self._watch.log.caught_up

    @property
    def settled(self) -> bool:
        """Whether the log has been read as far as it went, or can't be, and the host's processes have been looked at."""
        return (self.caught_up or self.state.log.problem is not None) and self._watch.looked

    async def next_state(self, timeout: float) -> DeploymentState:
        """The next newer state; the present one after `timeout` seconds. Raises what broke the session."""
        news = asyncio.Event()
        self._news.add(news)
        try:
            async with asyncio.timeout(timeout):
                await news.wait()
                await asyncio.sleep(1 / MAILBOX_HZ)
        except TimeoutError:
            pass
        finally:
            self._news.discard(news)
        if self._work is not None and self._work.done() and not self._work.cancelled():
            self._work.result()
        return self.state

    def publish(self, event: Event) -> None:
        """Folds an event into the state. For the tasks of this session."""
        state = fold(self.state, event)
        if state is not self.state:
            turned = state.load is not None and (self.state.load is None or state.load.phase is not self.state.load.phase)
            self.state = state
            if turned and state.load is not None and state.load.lines:
                self.state = fold(state, self._judged(state.load))  # the verdict on one phase is never shown with the next
            self._tell()

    def _tell(self) -> None:
        for news in self._news:
            news.set()

    # -- the work ------------------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        await self._read_history()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._stay_connected())
            tasks.create_task(self._judge())
            for other in self._others:
                tasks.create_task(other.run(self.publish))
            if self.deployment.direct:
                tasks.create_task(self._watch.poll_api())

    async def _stay_connected(self) -> None:
        attempt = 0
        while True:
            attempt += 1
            self._retry.clear()
            self._link(LinkState.CONNECTING, attempt=attempt)
            try:
                await self._connect()
            except Refused as error:
                self._link(LinkState.REFUSED, error, attempt=attempt)
                await self._retry.wait()
                attempt = 0
                continue
            except HostError as error:
                await self._back_off(LinkState.UNREACHABLE, error, attempt)
                continue
            attempt = 0
            lost = await self._while_online()
            self.signs.forget()
            attempt = 1
            # A login that needed a person is not repeated by the host itself: it raises Refused, which waits for `retry`.
            await self._back_off(LinkState.LOST, lost, attempt)

    async def _connect(self) -> None:
        """Connects, while the state shows what the host says of it (a question to the person, above all)."""
        connecting = asyncio.create_task(self.host.connect())
        try:
            while not connecting.done():
                await asyncio.wait([connecting], timeout=CONNECTION_POLL_S)
                link = self.host.connection.link
                if (
                    not connecting.done()
                    and link in (LinkState.ASKING, LinkState.CONNECTING)
                    and link is not self.state.connection.link
                ):
                    self._link(link, attempt=self.state.connection.attempt)
            connecting.result()
        finally:
            await ended(connecting)

    async def _back_off(self, link: LinkState, error: HostError, attempt: int) -> None:
        delay = retry_delay_s(attempt, random.random())
        self._link(link, error, attempt=attempt, retry_at=time.monotonic() + delay)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):  # wait_for may swallow a cancellation (Python 3.11)
                await self._retry.wait()

    async def _while_online(self) -> HostError:
        self._link(LinkState.ONLINE)
        work = [self._watch.sample(), self._watch.sample_without_nvml(), self._watch.find(), self._watch.log.follow()]
        if not self.deployment.direct:
            work.append(self._watch.poll_api())
        try:
            await together(*work, self._round_trips(), self._notice_loss())
        except _LinkLost as lost:
            return lost.error
        raise AssertionError("the watchers of a connection end only with it")

    async def _notice_loss(self) -> None:
        raise _LinkLost(await self.host.wait_lost())

    async def _round_trips(self) -> None:
        while True:
            measured = self.host.connection.round_trip_ms
            if measured != self.state.connection.round_trip_ms:
                self.publish(ConnectionChanged(replace(self.state.connection, round_trip_ms=measured)))
            await asyncio.sleep(1.0)

    def _link(self, link: LinkState, error: HostError | None = None, *, attempt: int = 0, retry_at: float | None = None) -> None:
        before = self.state.connection
        since = before.since if link is before.link else time.monotonic()
        keeps = link in (LinkState.CONNECTING, LinkState.ASKING)  # the reason of the loss stays readable while a new try runs
        connection = ConnectionState(
            link=link,
            host=self.target,
            since=since,
            cause=error.cause if error is not None else before.cause if keeps else None,
            advice=self._advice(error) if error is not None else before.advice if keeps else None,
            attempt=attempt,
            retry_at=retry_at,
        )
        self.publish(ConnectionChanged(connection))

    def _advice(self, error: HostError) -> str:
        if self._resembles is not None and isinstance(error, UnknownName):
            return f"{error.advice} (or did you mean the command {self._resembles!r}?)"
        return error.advice

    async def _judge(self) -> None:
        while True:
            load = self.state.load
            await self._watch.keep_last()
            if load is not None and load.lines:
                self.publish(self._judged(load))
                await self._watch.save_if_finished(load)
            known = self.state.forecast != Forecast()
            await asyncio.sleep(JUDGE_S if known else JUDGE_S / 4)

    def _judged(self, load: LoadState) -> ForecastMade:
        """What is to be said of the load now."""
        expect, server = self.deployment.expect, self._watch.server
        signs = self.signs.signs(time.monotonic())
        forecast = make_forecast(
            load,
            self._watch.clock.now(),
            self.state.history,
            signs,
            expect.seconds_per_shard,
            expect.load_minutes * 60 if expect.load_minutes is not None else None,
            server.ready_timeout_s if server is not None else None,
            server.job_ends_at if server is not None else None,
            "its job's time limit",
        )
        return ForecastMade(forecast, signs)

    async def _read_history(self) -> None:
        if self.record is not None:
            with contextlib.suppress(RecordError):  # nothing to compare with then; writing says what is wrong with it
                self.publish(HistoryRead(await asyncio.to_thread(self.record.loads, self.name)))
                await self._watch.last.read()
