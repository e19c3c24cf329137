"""One watched deployment: the store of its state, the choice of its server, the links to its hosts, and the watchers on them."""

import asyncio
import contextlib
import shlex
import time
from collections.abc import AsyncGenerator, Coroutine, Sequence
from types import TracebackType
from typing import Any, Protocol

import msgspec

from tui.aio import ended
from tui.core.connection import ConnectionState, LinkState
from tui.core.deployment import ConnectionChanged, DeploymentState, ForecastMade, HostSeen, ProcessesSeen, ServerSeen
from tui.core.expectations import Expected
from tui.core.gpu_findings import together as gpus_together
from tui.core.logs.forecast import make_forecast
from tui.core.logs.load_state import Forecast, LoadState
from tui.host.api import ApiClient
from tui.host.base import Host
from tui.record.store import RecordError
from tui.services.deployment_store import DeploymentStore
from tui.services.host_link import HostLink
from tui.services.log_following import LogFollower
from tui.services.other_hosts import OtherHost
from tui.services.server_choice import ServerChoice, ServerRecord, Undecided, Wanted, at_port, choice_text, meant, undecided
from tui.services.server_search import FoundServer, find_servers
from tui.services.watchers import ApiWatcher, LoadKeeper, LoadRecord, MachineWatcher, ServerFinder
from tui.settings import Deployment, EngineSettings, Settings

FORECAST_S = 1.0
FORECAST_LOOKS = 4
"""How often within that time it is looked whether anything became known that the forecast waits for."""


class SessionRecord(LoadRecord, ServerRecord, Protocol):
    """The part of the record that a session writes to and compares with."""


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
        record: SessionRecord | None = None,
        *,
        api_key: str | None = None,
        port: int | None = None,
        others: Sequence[OtherHost] = (),
        resembles: str | None = None,
    ) -> None:
        self.name = name
        self.target = target
        self.settings = settings
        self.host = host
        self.api_key = api_key
        """The key of the server's API, for the load generator; never shown or kept."""
        engine = deployment.engines[0]
        self.become = shlex.split(engine.become)
        """The words before a command that may see more on the host."""
        named = engine.host != EngineSettings().host
        configured = name in settings.deployments
        wanted = Wanted(deployment.api, engine.log, configured, port, direct=deployment.direct, host_named=named)
        if port is not None and not deployment.direct:
            deployment = msgspec.structs.replace(deployment, api=at_port(deployment.api, port))
        self._deployment = deployment
        self._record = record
        self._others = tuple(others)
        self._work: asyncio.Task[None] | None = None
        state = DeploymentState(
            name=name,
            target=target,
            expected=Expected(**msgspec.structs.asdict(deployment.expect)),
            others=tuple(HostSeen(other.target) for other in self._others),
        )
        self.store = DeploymentStore(state, self._forecast)
        self.choice = ServerChoice(name, target, wanted, record)
        self.link = HostLink(host, target, self._show_connection, resembles=resembles)
        store, choice = self.store, self.choice
        here = gpus_together([other.gpus for other in deployment.engines if other.host == engine.host])
        self._machine = MachineWatcher(host, store, choice, here, hz=settings.ui.gpu_hz, become=self.become)
        self._finder = ServerFinder(host, store, choice, self.become)
        self._api = ApiWatcher(host, store, choice, deployment, api_key)
        self._log = LogFollower(host, store, choice, engine.log, self.become, on_ready=self._api.ask_soon)
        self._loads = LoadKeeper(name, target, store, choice, lambda: self._api.address, record)
        choice.on_change(self._choice_changed)

    # -- lifetime ------------------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> "Session":
        await self.host.__aenter__()
        self._work = asyncio.create_task(self._run(), name=f"watch {self.name}")
        self.store.end_with(self._work)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if self._work is not None:
                # A bug of the work was already raised by `states`; leaving must not raise it again over what is being handled.
                await ended(self._work)
                await self.choice.last.keep(leaving=True)
                await self._loads.save_if_finished(caught_up=self.caught_up)  # it may have become ready just now
        finally:
            try:
                await self._api.close()
            finally:
                await self.host.__aexit__(kind, error, trace)

    async def _run(self) -> None:
        if self._record is not None:
            with contextlib.suppress(RecordError):  # nothing was seen then; writing says what is wrong with it
                await self.choice.last.read()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.link.run(self._while_online))
            tasks.create_task(self._keep_up())
            for other in self._others:
                tasks.create_task(other.run(self.store.publish))
            if self._deployment.direct:
                tasks.create_task(self._api.run())

    def _while_online(self) -> list[Coroutine[Any, Any, object]]:
        work: list[Coroutine[Any, Any, object]] = [self._machine.run(), self._finder.run(), self._log.run()]
        return work if self._deployment.direct else [*work, self._api.run()]

    async def _keep_up(self) -> None:
        """Judge the load as time passes, and keep in the record what came to its end."""
        while True:
            await self.choice.keep()
            await self._loads.compare()
            self.store.make_forecast()
            await self._loads.save_if_finished(caught_up=self.caught_up)
            known = self.store.state.forecast != Forecast()
            for _ in range(FORECAST_LOOKS if known else 1):
                await asyncio.sleep(FORECAST_S / FORECAST_LOOKS)
                if not self._loads.compared:
                    break

    # -- what the parts publish ----------------------------------------------------------------------------------------------------

    def _show_connection(self, connection: ConnectionState) -> None:
        if connection.link is LinkState.LOST:
            self.store.signs.forget()
            self.choice.forget()
        self.store.publish(ConnectionChanged(connection))

    def _choice_changed(self) -> None:
        choice, last = self.choice, self.choice.last.server
        self.store.signs.process_alive = choice.alive
        if choice.target is not None:
            self._api.ask(choice.target)
        pid = choice.server.pid if choice.server is not None else None
        seen = tuple(
            ServerSeen(
                server.pid,
                server.engine,
                server.served_name or server.model,
                server.where,
                server.user,
                server.started_at,
                halted=server.halted,
            )
            for server in choice.running
        )
        started_at = choice.server.started_at if choice.server is not None else last.started_at if last is not None else None
        self.store.publish(ProcessesSeen(pid, choice.orphans, seen, choice.undecided, started_at))

    def _forecast(self, load: LoadState) -> ForecastMade:
        """Judge the load as it stands now."""
        expect, server = self._deployment.expect, self.choice.server
        signs = self.store.signs.signs(time.monotonic())
        forecast = make_forecast(
            load,
            self.store.clock.now(),
            self.store.state.history,
            signs,
            expect.seconds_per_shard,
            expect.load_minutes * 60 if expect.load_minutes is not None else None,
            server.ready_timeout_s if server is not None else None,
            server.job_ends_at if server is not None else None,
            "its job's time limit",
            self._loads.cold,
            gpus=bool(self.store.state.gpus and self.store.state.gpus.gpus),
        )
        return ForecastMade(forecast, signs)

    # -- what the screen and the commands use --------------------------------------------------------------------------------------

    @property
    def state(self) -> DeploymentState:
        """The newest state."""
        return self.store.state

    def states(self) -> AsyncGenerator[DeploymentState]:
        """Yield the newest state whenever there is one, ten times a second at most. Raise what broke the session."""
        return self.store.states()

    async def next_state(self, timeout: float) -> DeploymentState:
        """Return the next newer state; the present one after `timeout` seconds. Raise what broke the session."""
        return await self.store.next_state(timeout)

    @property
    def deployment(self) -> Deployment:
        """The deployment as configured, with the address at which its API is asked."""
        return msgspec.structs.replace(self._deployment, api=self._api.address)

    @property
    def api(self) -> ApiClient:
        """The client of the server's API."""
        return self._api.client

    @property
    def port(self) -> int | None:
        """The port that was asked for, if several servers run."""
        return self.choice.wanted.port

    @property
    def servers(self) -> tuple[FoundServer, ...]:
        """The servers that run on the host, the youngest last."""
        return self.choice.running

    @property
    def batched_tokens(self) -> int | None:
        """The most tokens that the engine takes into one step, by its log or its process's arguments; None if neither says."""
        load, server = self.state.load, self.choice.server or self._api.asked
        if load is not None and load.batched_tokens is not None:
            return load.batched_tokens
        return server.batched_tokens if server is not None else None

    def choose(self, pid: int) -> None:
        """Watch this one of `servers`: its log, its API, its process."""
        self.choice.choose(pid)

    def ask(self, server: FoundServer) -> None:
        """Have the API client ask this server, unless the configuration says at which address the API is."""
        self._api.ask(server)

    async def attach(self) -> FoundServer | None:
        """Look once which server is meant, on a host that is connected, and have the API client ask that one.

        Return None if none is found or nothing needs to be found. Raise Undecided or HostError; TimeoutError if it takes too long.
        """
        wanted = self.choice.wanted
        if not wanted.moves or self._deployment.direct:
            return None
        servers = await find_servers(self.host, self.become)
        if among := undecided(servers, wanted):
            raise Undecided(choice_text(self.target, among))
        server = meant(servers, wanted, self.choice.watched)
        if server is not None:
            self.ask(server)
        return server

    def retry(self) -> None:
        """Try to connect now, also after a refusal."""
        for other in self._others:
            other.retry()
        self.link.retry()

    @property
    def caught_up(self) -> bool:
        """Whether everything that the log held at attach has been read."""
        return self._log.caught_up

    @property
    def settled(self) -> bool:
        """Whether the log has been read as far as it went, or can't be, and the host's processes have been looked at."""
        return (self.caught_up or self.state.log.problem is not None) and self.choice.looked and self._loads.compared

    @property
    def recorded_load(self) -> int | None:
        """The number in the record of the start that is shown; None until it ended."""
        return self._loads.saved
