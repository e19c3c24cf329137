"""What runs while a host is connected: the sampler, the log follower and the API's poll, each restarted when it ends."""

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tui.core.api_status import ApiStatus
from tui.core.connection import retry_delay_s
from tui.core.deployment import ApiPolled, GpusSampled, LogSourceChanged, MachineSampled, ProcessesSeen, ServerSeen
from tui.core.gpu import GpuSample
from tui.core.gpu_findings import only, together
from tui.core.gpu_frames import gpus_from_frame, machine_from_frame
from tui.core.host_machine import MachineSample, StorageTracker
from tui.core.logs.load_state import LoadState, Phase
from tui.host.base import HostError, ProbeFailed, Unreachable
from tui.record.store import RecordError
from tui.services.attach import alive, meant, undecided
from tui.services.host_clock import HostClock
from tui.services.last_seen import LastSeen, as_server
from tui.services.log_following import GAVE_UP_S, WITHOUT_PROBE_S, Following
from tui.services.server_search import Server, servers_from_frame, servers_without_probe
from tui.services.smi_stream import WithoutNvml, sample_smi
from tui.wire.frames import FIND, WATCH

if TYPE_CHECKING:
    from tui.services.deployment_watch import Session

API_UP_S = 1.0
API_DOWN_S = 2.0
FIND_EVERY_S = 5.0


class Watch:
    """The standing work on one connected host, on behalf of a session that it publishes to."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._engine = session.deployment.engines[0]
        here = [one.gpus for one in session.deployment.engines if one.host == self._engine.host]
        self._wanted_gpus = together(here)
        self._machine: MachineSample | None = None
        self._storage = StorageTracker()
        self._saved: set[tuple[float | None, int]] = set()
        self.server: Server | None = None
        """The server's process as found on the host."""
        self.servers: tuple[Server, ...] = ()
        self._orphans: tuple[int, ...] = ()
        self._undecided = False
        self._looked = False
        self._up_to_date = False
        self._without_nvml = WithoutNvml(session.host, self._publish_gpus)
        self._ready_said = asyncio.Event()
        self.clock = HostClock()
        self.last = LastSeen(session)
        # Where the log says that the server is ready the API is asked at once: its word is the one that counts.
        self.log = Following(session, self.clock, self._ready_said.set)

    @property
    def looked(self) -> bool:
        """Whether the host's processes have been looked at, or can't be."""
        return self._looked

    # -- GPUs and machine ----------------------------------------------------------------------------------------------------------

    async def sample(self) -> None:
        """Role "watch", for ever; nvidia-smi by hand where the probe can't run."""
        attempt = 0
        while True:
            began = time.monotonic()
            try:
                await self._sample_once()
            except Unreachable:
                await asyncio.sleep(1.0)  # the link's own task notices and ends this one
            except ProbeFailed as error:
                note = f"{error.cause} — {error.advice.partition(';')[0]}" if error.advice else error.cause
                with contextlib.suppress(Unreachable):
                    await sample_smi(self._session.host, self._publish_gpus, note=note, seconds=WITHOUT_PROBE_S)
            attempt = 0 if time.monotonic() - began > GAVE_UP_S else attempt + 1
            if attempt:
                await asyncio.sleep(retry_delay_s(attempt, 0.5))

    async def _sample_once(self) -> None:
        told = self._attributed()
        stream = await self._session.host.start_probe(
            WATCH, {"hz": self._session.settings.ui.gpu_hz, "become": self._session.become, **told}
        )
        try:
            async for frame in stream:
                self.clock.see(frame)
                now = time.monotonic()
                match frame.get("f"):
                    case "gpus":
                        self._without_nvml.see(gpus_from_frame(frame, now))
                    case "machine":
                        machine = machine_from_frame(frame, self._machine, now)
                        self._machine = replace(machine, storage_bound=self._storage.see(machine))
                        self._session.signs.see_machine(self._machine, now)
                        self._session.publish(MachineSampled(self._machine))
                        if self._attributed() != told:
                            told = self._attributed()
                            await stream.send({"do": "set", **told})
                    case "end":
                        return
        finally:
            await stream.close()

    def _attributed(self) -> dict[str, Any]:
        """Whose reads and which disk count: the found server's processes, and the model's files where they are files."""
        load = self._session.state.load
        model = load.model if load is not None else None
        return {
            "pids": [self.server.pid] if self.server is not None else None,
            "paths": [model] if model is not None and model.startswith("/") else [],
        }

    async def sample_without_nvml(self) -> None:
        """Asks nvidia-smi where the probe finds no NVML."""
        await self._without_nvml.run()

    def _publish_gpus(self, sample: GpuSample) -> None:
        sample = only(sample, self._wanted_gpus)
        self._session.signs.see_gpus(sample, time.monotonic())
        self._session.publish(GpusSampled(sample))

    # -- processes -----------------------------------------------------------------------------------------------------------------

    async def find(self) -> None:
        """Role "find", for ever: which server runs here, and whether it lives."""
        self._up_to_date = False  # what ran before the link was lost may have ended since
        attempt = 0
        while True:
            began = time.monotonic()
            try:
                await self._find_once()
            except Unreachable:
                await asyncio.sleep(1.0)
            except ProbeFailed as error:
                await self._find_without_probe(error)
            attempt = 0 if time.monotonic() - began > GAVE_UP_S else attempt + 1
            if attempt:
                await asyncio.sleep(retry_delay_s(attempt, 0.5))

    async def _find_once(self) -> None:
        arguments = {"every": FIND_EVERY_S, "become": self._session.become}
        stream = await self._session.host.start_probe(FIND, arguments)
        try:
            async for frame in stream:
                if frame.get("f") == "servers":
                    self.last.boot = str(frame["boot"]) if frame.get("boot") else None
                    self._servers(servers_from_frame(frame))
        finally:
            await stream.close()

    async def _find_without_probe(self, error: ProbeFailed) -> None:
        """A shell of the host can look, too; where not even that goes, the log has to be named."""
        found = servers_without_probe(self._session.host, seconds=WITHOUT_PROBE_S)
        try:
            async with contextlib.aclosing(found) as servers:
                async for some in servers:
                    self._servers(some)
        except Unreachable:
            await asyncio.sleep(1.0)
        except HostError as failed:
            self._session.signs.process_alive = None
            self._looked = True
            if self._engine.log == "auto":
                why = f'{error.cause}, and {failed.cause}: name the log in the configuration (log = "file:…")'
                self._session.publish(LogSourceChanged("auto", why))

    def _servers(self, servers: tuple[Server, ...]) -> None:
        self.servers = alive(servers)
        self._orphans = tuple(server.pid for server in servers if server.orphan)
        self.decide()
        self._looked = self._up_to_date = True

    def decide(self) -> None:
        """Takes the server that is meant of those that run."""
        session = self._session
        seen = session.signs.process_alive is not None
        before, self.server = self.server, meant(self.servers, session.wanted, self.server)
        choice = bool(undecided(self.servers, session.wanted))
        kept = before is not None and self.server is not None and before.pid == self.server.pid
        # A server that starts beside the one that is watched makes nothing unclear.
        self._undecided = choice and (self._undecided or not kept)
        if self.server is not None:
            session.signs.process_alive = True
            session.ask(self.server)
            if not self._undecided:  # a guess is not remembered
                self.last.see(self.server)
        elif seen or self.last.server is not None:
            # One that was never seen may run where it can't be: in another container's list of processes, say.
            session.signs.process_alive = False
            if not seen and self.last.server is not None:
                session.ask(as_server(self.last.server))
        pid = self.server.pid if self.server is not None else None
        seen_servers = tuple(
            ServerSeen(one.pid, one.engine, one.served_name or one.model, one.where, one.user, one.started_at)
            for one in self.servers
        )
        session.publish(ProcessesSeen(pid, self._orphans, seen_servers, self._undecided))
        self.log.take(self.server, self.last.server)

    # -- API -----------------------------------------------------------------------------------------------------------------------

    async def poll_api(self) -> None:
        """Asks the API how it is, for ever. Never generates a token."""
        while True:
            asked = self._session.api.base_url
            status = await self._session.api.poll()
            if self._session.api.base_url != asked:
                continue  # it was found elsewhere meanwhile: what the old address says is not its word
            self._session.signs.see_api(status, time.monotonic())
            self._session.publish(ApiPolled(status))
            load = self._session.state.load
            soon = status.health is not None or (load is not None and load.ready)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(API_UP_S if soon else API_DOWN_S):  # wait_for may swallow a cancellation (Python 3.11)
                    await self._ready_said.wait()
            self._ready_said.clear()

    def poll_anew(self) -> None:
        """The API is asked elsewhere from now on: what was known of it is not known any more."""
        self._session.publish(ApiPolled(ApiStatus()))
        self._ready_said.set()

    async def keep_last(self) -> None:
        """Has it kept when the server was last seen; called every second."""
        if self.server is not None and self._up_to_date and self._session.state.connection.online and not self._undecided:
            self.last.see(self.server)
        await self.last.keep()

    # -- record --------------------------------------------------------------------------------------------------------------------

    async def save_if_finished(self, load: LoadState) -> None:
        """Keeps a start that came to its end, ready or failed, once."""
        record = self._session.record
        key = (load.started_at, load.restarts)
        finished = load.phase is Phase.FAILED or (load.ready and load.phase is Phase.READY)
        if record is None or not finished or not self.log.caught_up or key in self._saved:
            return
        self._saved.add(key)
        try:
            await asyncio.to_thread(record.save_load, self._session.name, load)  # it may wait for another process that writes
        except RecordError as error:
            log = self._session.state.log
            self._session.publish(LogSourceChanged(log.source, f"this start could not be kept: {error}", log.note, log.of))
