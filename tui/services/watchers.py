"""What runs while a host is online: each watcher reads one thing from it and publishes that to the store."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, Protocol
from urllib.parse import urlsplit

from msgspec.structs import replace

from tui.aio import together
from tui.core.api_status import ApiStatus
from tui.core.deployment import ApiPolled, GpusSampled, HistoryRead, LogSourceChanged, MachineSampled
from tui.core.gpu import GIB_MIB, GpuSample
from tui.core.gpu_findings import only
from tui.core.gpu_frames import gpus_from_frame, machine_from_frame
from tui.core.host_machine import MachineSample, StorageTracker
from tui.core.logs.load_state import LoadState, PastLoad, Phase, ServerStart
from tui.engines.registry import TITLES, commands
from tui.host.api import ApiClient
from tui.host.base import Host, HostError, ProbeFailed, Unreachable
from tui.record.store import RecordError
from tui.services.deployment_store import DeploymentStore
from tui.services.host_link import WITHOUT_PROBE_S, keep_running
from tui.services.server_choice import ServerChoice
from tui.services.server_search import FoundServer, servers_by_shell, servers_from_frame
from tui.services.smi_stream import SmiFallback, sample_smi
from tui.settings import Deployment
from tui.wire.frames import FIND, WATCH
from tui.wire.log_prefixes import AUTO
from tui.wire.urls import socket_of

API_UP_S = 1.0
API_DOWN_S = 2.0
FIND_EVERY_S = 5.0
FIND_BY_SHELL_EVERY_S = 10.0
OLD_S = 5.0
"""A sample that is older than this says how old it is."""


class GpuWatcher:
    """Samples the GPUs of a host: by the probe's role "watch", or by nvidia-smi if the probe can't run or finds no NVML."""

    def __init__(
        self, host: Host, publish: Callable[[GpuSample], None], gpus: str = "all", *, hz: float = 2.0, become: Sequence[str] = ()
    ) -> None:
        """`gpus` names those that are published (`all`, indices or UUIDs); `become` are words before a command that sees more."""
        self._host = host
        self._send = publish
        self._gpus = gpus
        self._arguments = {"hz": hz, "become": list(become), "titles": list(TITLES)}
        self._smi = SmiFallback(host, self._publish)
        self._ran = False
        """Whether the role has ever run on this host: one that did is started again, however it ended."""
        self._last: GpuSample | None = None
        self._arrived = 0.0
        """When it came, by the monotonic clock."""
        self._old_s = max(OLD_S, 3.0 / hz)

    async def run(self) -> None:
        """Sample until cancelled."""
        await together(keep_running(self._sample), self._smi.run(), self._date_old_values())

    async def _date_old_values(self) -> NoReturn:
        """Mark the last sample as late when no newer one comes: a figure that stands still is dated."""
        while True:
            await asyncio.sleep(1.0)
            last, now = self._last, time.monotonic()
            if last is not None and last.gpus and last.received_at is not None and now - self._arrived > self._old_s:
                age = now - last.received_at
                self._send(replace(last, note=f"no newer values for {age:.0f} s", late=True, late_s=age, unheard=True))

    async def _sample(self) -> None:
        attributed = self.attributed()
        try:
            stream = await self._host.start_probe(WATCH, {**self._arguments, **attributed})
            try:
                async for frame in stream:
                    now = time.monotonic()
                    self._ran = True
                    self.see(frame, now)
                    if frame.get("f") == "gpus":
                        self._see_gpus(gpus_from_frame(frame, now))
                    elif frame.get("f") == "end":
                        return
                    if self.attributed() != attributed:
                        attributed = self.attributed()
                        await stream.send({"do": "set", **attributed})
            finally:
                await stream.close()
        except ProbeFailed as error:
            if self._ran:
                return
            note = f"{error.cause} — {error.advice.partition(';')[0]}" if error.advice else error.cause
            await sample_smi(self._host, self._publish, note=note, seconds=WITHOUT_PROBE_S)

    def attributed(self) -> dict[str, Any]:
        """Return whose reads and which disk the probe counts: nobody's in particular."""
        return {"pids": None, "paths": []}

    def see(self, frame: Mapping[str, Any], now: float) -> None:
        """Take a frame that came at `now` of the monotonic clock; those of the GPUs are published elsewhere."""

    def _see_gpus(self, sample: GpuSample) -> None:
        if sample.gpus or sample.source != "none":
            self._smi.stop()
        else:
            self._smi.start()
            if self._smi.serves:
                return
        self._publish(sample)

    def _publish(self, sample: GpuSample) -> None:
        self._last, self._arrived = only(sample, self._gpus), time.monotonic()
        self._send(self._last)


class MachineWatcher(GpuWatcher):
    """Samples the GPUs and the machine of the deployment's first host, and what its server reads from storage."""

    def __init__(
        self, host: Host, store: DeploymentStore, choice: ServerChoice, gpus: str, *, hz: float, become: Sequence[str]
    ) -> None:
        super().__init__(host, self._show_gpus, gpus, hz=hz, become=become)
        self._store = store
        self._choice = choice
        self._machine: MachineSample | None = None
        self._storage = StorageTracker()

    def attributed(self) -> dict[str, Any]:
        """Return the processes of the server that is meant, and the model's files if it lies in files."""
        load, server = self._store.state.load, self._choice.server
        model = load.model if load is not None else None
        return {
            "pids": [server.pid] if server is not None else None,
            "paths": [model] if model is not None and model.startswith("/") else [],
        }

    def _show_gpus(self, sample: GpuSample) -> None:
        self._store.signs.see_gpus(sample, time.monotonic())
        self._store.publish(GpusSampled(sample))

    def see(self, frame: Mapping[str, Any], now: float) -> None:
        self._store.clock.see(frame)
        if frame.get("f") == "machine":
            machine = machine_from_frame(frame, self._machine, now)
            self._machine = replace(machine, storage_bound=self._storage.see(machine))
            self._store.signs.see_machine(self._machine, now)
            self._store.publish(MachineSampled(self._machine))


class ServerFinder:
    """Looks which servers run on the host: by the probe's role "find", or with a shell if the probe can't run."""

    def __init__(self, host: Host, store: DeploymentStore, choice: ServerChoice, become: Sequence[str] = ()) -> None:
        self._host = host
        self._store = store
        self._choice = choice
        self._become = list(become)
        self._ran = False

    async def run(self) -> NoReturn:
        """Look until cancelled."""
        await keep_running(self._find)

    async def _find(self) -> None:
        try:
            stream = await self._host.start_probe(FIND, {"every": FIND_EVERY_S, "become": self._become, "engines": commands()})
            try:
                async for frame in stream:
                    self._ran = True
                    if frame.get("f") == "servers":
                        boot = str(frame["boot"]) if frame.get("boot") else None
                        self._choice.see(servers_from_frame(frame), boot)
            finally:
                await stream.close()
        except ProbeFailed as error:
            if not self._ran:
                await self._find_without_probe(error)

    async def _find_without_probe(self, error: ProbeFailed) -> None:
        try:
            ends, last = time.monotonic() + WITHOUT_PROBE_S, None
            while time.monotonic() < ends:
                servers = await servers_by_shell(self._host)
                if servers != last:
                    self._choice.see(servers)
                last = servers
                await asyncio.sleep(FIND_BY_SHELL_EVERY_S)
        except Unreachable:
            raise
        except HostError as failed:
            self._choice.see_nothing()
            self._store.signs.process_alive = None
            if self._choice.wanted.log == AUTO:
                why = f'{error.cause}, and {failed.cause}: name the log in the configuration (log = "file:…")'
                self._store.publish(LogSourceChanged(AUTO, why))


class ApiWatcher:
    """Polls the server's API and follows the chosen server to where it listens. Never generates a token."""

    def __init__(
        self, host: Host, store: DeploymentStore, choice: ServerChoice, deployment: Deployment, api_key: str | None = None
    ) -> None:
        self._host = host
        self._store = store
        self._choice = choice
        self._deployment = deployment
        self._api_key = api_key
        self._client: ApiClient | None = None
        self._asked: FoundServer | None = None
        self._soon = asyncio.Event()
        self.address = deployment.api
        """Where the API is asked, as seen from the host."""

    @property
    def client(self) -> ApiClient:
        """The API's client, through the host unless the deployment's URL is `direct`."""
        if self._client is None:
            uds = socket_of(self.address)
            transport = None if self._deployment.direct else self._host.transport(verify=self._verify(), uds=uds)
            self._client = ApiClient(
                self.address,
                transport,
                api_key=self._api_key,
                headers=self._deployment.headers,
                ca_file=self._deployment.ca_file,
            )
        return self._client

    @property
    def asked(self) -> FoundServer | None:
        """The server that the client was sent to."""
        return self._asked

    def _verify(self) -> Any:
        return self._deployment.ca_file or True

    def ask(self, server: FoundServer) -> None:
        """Ask this server from now on, unless the configuration says at which address the API is."""
        address, before = server.api, self._asked
        if address is None or not self._choice.wanted.moves or self._deployment.direct or before == server:
            return
        self._asked = server
        if server.uds is not None or (before is not None and before.uds is not None):
            self.client.move(address, self._host.transport(verify=self._verify(), uds=server.uds))
        elif self.client.base_url != address:
            self.client.move(address)
        else:
            return
        self.address = address
        self._store.publish(ApiPolled(ApiStatus()))  # what was known of the API is not known of this one
        self._soon.set()

    def ask_soon(self) -> None:
        """Poll at once: the log says that the server is ready, and the API's word is the one that counts."""
        self._soon.set()

    async def run(self) -> NoReturn:
        """Poll until cancelled."""
        while True:
            asked = self.client.base_url
            status = await self.client.poll()
            if self.client.base_url != asked:
                continue  # it was found elsewhere meanwhile: what the old address says is not its word
            self._store.signs.see_api(status, time.monotonic())
            self._store.publish(ApiPolled(status))
            load = self._store.state.load
            up = status.health is not None or (load is not None and load.ready)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(API_UP_S if up else API_DOWN_S):  # wait_for may swallow a cancellation (Python 3.11)
                    await self._soon.wait()
            self._soon.clear()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


BEGAN_S = 60.0
"""A start seems to begin so much earlier once its process is known, and not only its first line."""


class LoadRecord(Protocol):
    """The part of the record that keeps finished starts."""

    def save_load(self, start: ServerStart, load: LoadState, /, *, page_cache_mib: float | None = None) -> int | None: ...

    def loads(self, start: ServerStart, before: float | None, /) -> tuple[PastLoad, ...]: ...

    def process_start(self, start: ServerStart, first_line_at: float, /) -> float | None: ...


class LoadKeeper:
    """Keeps each start that came to its end, ready or failed, once, and publishes the earlier starts of the same server."""

    def __init__(
        self,
        name: str,
        target: str,
        store: DeploymentStore,
        choice: ServerChoice,
        address: Callable[[], str],
        record: LoadRecord | None,
    ) -> None:
        """`address` returns where the API is asked: what tells the port of a server whose process was never seen."""
        self._name = name
        self._target = target
        self._store = store
        self._choice = choice
        self._address = address
        self._record = record
        self._saved: dict[tuple[ServerStart, float | None, int, Phase], int | None] = {}
        self._compared: tuple[ServerStart, float | None] | None = None
        self._page_cache: tuple[float | None, float] | None = None
        """When a start began, and what the page cache held before its first shard, in MiB."""

    @property
    def start(self) -> ServerStart:
        """Which start is watched, as far as host, process and log tell."""
        state, last = self._store.state, self._choice.last
        server, load = self._choice.server, state.load
        where: str | int | None = None
        if server is not None:
            where = server.where
        elif last.server is not None:
            where = last.server.uds or last.server.port
        if where is None:
            address = self._address()
            where = socket_of(address) or urlsplit(address).port
        named = [load.model if load is not None else None]
        if server is not None:
            named += [server.model, server.served_name]
        began = state.process_starts[0] if state.process_starts else None
        if load is not None and load.first_line_at is not None:
            began = load.process_started_at
        models = tuple(dict.fromkeys(name for name in named if name))
        return ServerStart(self._name, self._target, where, last.boot, began, models)

    def _before(self) -> float | None:
        """Return the time before which starts are earlier ones than the present."""
        state = self._store.state
        if state.load is not None and state.load.started_at is not None:
            return state.load.started_at
        return state.process_starts[0] if state.process_starts else None

    @property
    def compared(self) -> bool:
        """Whether the earlier starts of this server are known, or there is no record."""
        return self._record is None or self._compared == (self.start, self._before())

    @property
    def saved(self) -> int | None:
        """The number in the record of the start that is shown; None until it ended."""
        load = self._store.state.load
        return self._saved.get((self.start, load.started_at, load.restarts, load.phase)) if load is not None else None

    def _see_page_cache(self) -> None:
        load, machine = self._store.state.load, self._store.state.machine
        began = self._before()
        if machine is None or machine.page_cache_mib is None or began is None:
            return
        loading = load is not None and (load.was_ready or (load.shards is not None and load.shards.done > 0))
        known = self._page_cache
        if not loading and (known is None or known[0] is None or abs(known[0] - began) > BEGAN_S):
            self._page_cache = began, machine.page_cache_mib

    @property
    def page_cache_mib(self) -> float | None:
        """What the page cache held when the present start began; None if that was not seen."""
        began, known = self._before(), self._page_cache
        same = known is not None and known[0] is not None and began is not None and abs(known[0] - began) <= BEGAN_S
        return known[1] if same and known is not None else None

    @property
    def cold(self) -> bool | None:
        """Whether the page cache was too small to hold the weights when the present start began; None if that is not known."""
        state, cache = self._store.state, self.page_cache_mib
        sizes = [state.load.checkpoint_gib if state.load is not None else None, *(past.checkpoint_gib for past in state.history)]
        size = next((size for size in sizes if size is not None), None)
        return cache < size * GIB_MIB if cache is not None and size is not None else None

    async def compare(self) -> None:
        """Publish the earlier starts of this server, when another start or another server is watched."""
        self._see_page_cache()
        if self._record is None or self.compared:
            return
        start, before = self.start, self._before()
        load = self._store.state.load
        first = load.first_line_at if load is not None and load.process_started_at is None else None
        with contextlib.suppress(RecordError):  # nothing to compare with then; writing says what is wrong with it
            began = await asyncio.to_thread(self._record.process_start, start, first) if first is not None else None
            self._store.publish(HistoryRead(await asyncio.to_thread(self._record.loads, start, began or before), began))
        self._compared = start, before

    async def save_if_finished(self, *, caught_up: bool) -> None:
        """Save the present start if it has ended and its whole log was read (`caught_up`). Publish why it can't be saved."""
        load, record = self._store.state.load, self._record
        if load is None or record is None or not load.lines or not caught_up or not self._choice.looked:
            return
        start = self.start
        key = (start, load.started_at, load.restarts, load.phase)
        if key in self._saved or not (load.phase is Phase.FAILED or (load.ready and load.phase is Phase.READY)):
            return
        self._saved[key] = None
        try:
            # in a thread: it may wait for another process that writes
            save = partial(record.save_load, start, load, page_cache_mib=self.page_cache_mib)
            self._saved[key] = await asyncio.to_thread(save)
        except RecordError as error:
            log = self._store.state.log
            self._store.publish(LogSourceChanged(log.source, f"this start could not be recorded: {error}", log.note, log.of))
