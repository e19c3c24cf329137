"""What runs while a host is connected: the sampler, the log follower and the API's poll, each restarted when it ends."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tui.core.api import ApiStatus
from tui.core.connection import retry_delay_s
from tui.core.deployment import ApiPolled, GpusSampled, LogRestarted, LogSourceChanged, MachineSampled, ProcessesSeen, ServerSeen
from tui.core.gpu import GpuSample
from tui.core.gpu_choice import only, together
from tui.core.gpu_frames import gpus_from_frame, machine_from_frame
from tui.core.logs.state import LoadState, Phase
from tui.core.machine import MachineSample
from tui.core.storage import StorageTracker
from tui.host.base import HostError, ProbeFailed, ProbeStream, Unreachable
from tui.record.store import RecordError
from tui.services.attach import alive, meant, undecided
from tui.services.found import Server, servers_from_frame
from tui.services.intake import LogIntake
from tui.services.log_source import follow_arguments, kind_and_name
from tui.services.processes import servers_without_probe
from tui.services.smi import sample_smi
from tui.services.tail import tail_frames
from tui.wire.frames import FIND, FOLLOW, WATCH

if TYPE_CHECKING:
    from tui.services.session import Session

API_UP_S = 1.0
API_DOWN_S = 2.0
FIND_EVERY_S = 5.0
SMI_AGAIN_S = 300.0
WITHOUT_PROBE_S = 600.0
"""How long a host is watched without the probe before the probe is tried again."""
NO_LOG = "none"
"""The source in the configuration where no log is to be followed; a file of that name is `file:none`."""
GAVE_UP_S = 5.0
"""A role that ran longer than this before it ended is started again at once; a shorter one after a growing pause."""

_UNREAD = "its output can't be read"


class NoProbe(Exception):
    """The probe can't even start; one that ended is only started again."""

    def __init__(self, source: str, error: ProbeFailed) -> None:
        super().__init__(error.cause)
        self.source = source
        self.error = error


class Watch:
    """The standing work on one connected host, on behalf of a session that it publishes to."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._engine = session.deployment.engines[0]
        here = [one.gpus for one in session.deployment.engines if one.host == self._engine.host]
        self._wanted_gpus = together(here)
        self._intake: LogIntake | None = None
        self._machine: MachineSample | None = None
        self._storage = StorageTracker()
        self._clock: tuple[float, float] | None = None
        self._saved: set[tuple[float | None, int]] = set()
        self.server: Server | None = None
        """The server's process as found on the host."""
        self.servers: tuple[Server, ...] = ()
        self._orphans: tuple[int, ...] = ()
        self._undecided = False
        self._changed = asyncio.Event()
        self._looked = asyncio.Event()
        self._no_nvml = asyncio.Event()
        self._ready_said = asyncio.Event()
        self._smi_serves = False

    @property
    def caught_up(self) -> bool:
        """Whether the log has been read as far as it went; one that is not to be read has been."""
        if self._engine.log == NO_LOG:
            return True
        return self._intake is not None and self._intake.caught_up.is_set()

    @property
    def looked(self) -> bool:
        """Whether the host's processes have been looked at, or can't be."""
        return self._looked.is_set()

    def host_now(self) -> float:
        """The host's wall clock now: its newest stamp plus the time since it arrived here. This machine's before the first one."""
        if self._clock is None:
            return time.time()
        wall, arrived = self._clock
        return wall + (time.monotonic() - arrived)

    def _see_clock(self, frame: Mapping[str, Any]) -> None:
        wall = frame.get("wall")
        if isinstance(wall, int | float) and frame.get("f") != "lines":
            now = time.monotonic()
            # A frame that a slow link held back must not set the clock back: the most advanced estimate of a minute counts.
            if self._clock is None or now - self._clock[1] > 60.0 or float(wall) > self.host_now():
                self._clock = (float(wall), now)

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
                await self._sample_smi(self._publish_gpus, note, WITHOUT_PROBE_S)
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
                self._see_clock(frame)
                now = time.monotonic()
                match frame.get("f"):
                    case "gpus":
                        self._sampled(gpus_from_frame(frame, now))
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
        """Asks nvidia-smi where the probe finds no NVML: the two may see different libraries (a container, an odd installation)."""
        while True:
            await self._no_nvml.wait()
            note = "NVML can't be loaded here: values come from nvidia-smi"
            await self._sample_smi(self._from_smi, note, 0.0)
            while self._smi_serves:
                await self._sample_smi(self._from_smi, note, 60.0)
            await asyncio.sleep(SMI_AGAIN_S)

    async def _sample_smi(self, sampled: Callable[[GpuSample], None], note: str, seconds: float) -> None:
        try:
            await sample_smi(self._session.host, sampled, note=note, seconds=seconds)
        except Unreachable:
            await asyncio.sleep(1.0)  # the link's own task notices and ends this one

    def _from_smi(self, sample: GpuSample) -> None:
        self._smi_serves = bool(sample.gpus)
        if self._smi_serves:
            self._publish_gpus(sample)

    def _sampled(self, sample: GpuSample) -> None:
        if sample.source == "none" and not sample.gpus:
            self._no_nvml.set()
            if self._smi_serves:
                return
        else:
            self._no_nvml.clear()
            self._smi_serves = False
        self._publish_gpus(sample)

    def _publish_gpus(self, sample: GpuSample) -> None:
        sample = only(sample, self._wanted_gpus)
        self._session.signs.see_gpus(sample, time.monotonic())
        self._session.publish(GpusSampled(sample))

    # -- log -----------------------------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Role "follow", for ever: found if the source is `auto`, resumed where it stopped; nothing where no log is to be read."""
        if self._engine.log == NO_LOG:
            self._session.publish(LogSourceChanged(NO_LOG))
            return
        attempt = 0
        while True:
            began = time.monotonic()
            try:
                source = await self._source()
                if source is not None:
                    await self._follow_once(source)
            except Unreachable:
                await asyncio.sleep(1.0)
            except NoProbe as failed:
                await self._follow_without_probe(failed.source, failed.error)
            except HostError as error:
                name = self._intake.source if self._intake else self._engine.log
                self._session.publish(LogSourceChanged(name, f"{error.cause} — {error.advice}" if error.advice else error.cause))
            attempt = 0 if time.monotonic() - began > GAVE_UP_S else attempt + 1
            if attempt:
                await asyncio.sleep(retry_delay_s(attempt, 0.5))

    async def _source(self) -> str | None:
        """The log's source in the words of `log = …`; for `auto`, of the server that was found, waiting for one."""
        if self._engine.log != "auto":
            return self._engine.log
        if self.server is None and self._intake is not None and self._intake.resume is not None:
            return self._intake.source  # the server is gone; its log still tells why
        while self.server is None:
            if self._looked.is_set():
                self._session.publish(LogSourceChanged("auto", "no server process on this host yet: waiting for one"))
            self._changed.clear()
            await self._changed.wait()
        if self.server.source is None:
            self._session.publish(LogSourceChanged("auto", f"{self.server.why or _UNREAD}; its API and the GPUs still tell"))
            self._changed.clear()
            await self._changed.wait()
            return None
        return self.server.source

    # -- processes -----------------------------------------------------------------------------------------------------------------

    async def find(self) -> None:
        """Role "find", for ever: which server runs here, and whether it lives."""
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
            self._looked.set()
            if self._engine.log == "auto":
                why = f'{error.cause}, and {failed.cause}: name the log in the configuration (log = "file:…")'
                self._session.publish(LogSourceChanged("auto", why))

    def _servers(self, servers: tuple[Server, ...]) -> None:
        self.servers = alive(servers)
        self._orphans = tuple(server.pid for server in servers if server.orphan)
        self.decide()
        self._looked.set()

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
        elif seen:
            # One that was never seen may run where it can't be: in another container's list of processes, say.
            session.signs.process_alive = False
        pid = self.server.pid if self.server is not None else None
        seen_servers = tuple(
            ServerSeen(one.pid, one.engine, one.served_name or one.model, one.where, one.user, one.started_at)
            for one in self.servers
        )
        session.publish(ProcessesSeen(pid, self._orphans, seen_servers, self._undecided))
        self._changed.set()

    async def _follow_once(self, source: str) -> None:
        if self._intake is None or self._intake.source != source:
            other = self._intake is not None
            self._intake = LogIntake(source)
            self._session.publish(LogSourceChanged(source))
            if other:
                self._session.publish(LogRestarted(self._intake.reader.state))
        intake = self._intake
        async for event in intake.drain():
            self._session.publish(event)
        try:
            arguments = follow_arguments(source, resume=intake.resume, become=self._session.become)
            stream = await self._session.host.start_probe(FOLLOW, arguments)
        except ProbeFailed as error:
            raise NoProbe(source, error) from None
        leaving = asyncio.create_task(self._leave_for_another(stream, source))
        try:
            async for frame in stream:
                self._see_clock(frame)
                if frame.get("f") == "end":
                    return
                was_ready = intake.reader.state.ready
                async for event in intake.take(frame):
                    self._session.publish(event)
                if intake.reader.state.ready and not was_ready:
                    self._ready_said.set()  # ask the API at once: its word is the one that counts
        finally:
            leaving.cancel()
            await stream.close()
            await asyncio.wait([leaving])
            if not leaving.cancelled():
                leaving.result()  # what broke it is told

    async def _leave_for_another(self, stream: ProbeStream, source: str) -> None:
        """Ends the stream when the server that is meant writes elsewhere: another was chosen, or it was started anew."""
        if self._engine.log != "auto":
            return
        try:
            while not self._elsewhere(source):
                self._changed.clear()
                await self._changed.wait()
        finally:
            await stream.close()

    def _elsewhere(self, source: str) -> bool:
        """Whether the server that is meant writes to another log than the one that is followed."""
        return self._engine.log == "auto" and self.server is not None and self.server.source not in (None, source)

    async def _follow_without_probe(self, source: str, error: ProbeFailed) -> None:
        """A file can be followed with a shell of the host; of anything else the reason is shown."""
        intake = self._intake
        assert intake is not None, "the source was opened before the probe was tried"
        kind, path = kind_and_name(source)
        why = f"{error.cause} — {error.advice}" if error.advice else error.cause
        if kind != "file":
            self._session.publish(LogSourceChanged(source, f'{why}; without Python only files can be followed: log = "file:…"'))
            await asyncio.sleep(WITHOUT_PROBE_S / 10)
            return
        note = f"{error.cause}: a shell reads it once a second"
        try:
            async with contextlib.aclosing(tail_frames(self._session.host, path, intake.resume, seconds=WITHOUT_PROBE_S)) as frames:
                async for frame in frames:
                    self._see_clock(frame)
                    was_ready = intake.reader.state.ready
                    async for event in intake.take(frame):
                        self._session.publish(replace(event, note=note) if isinstance(event, LogSourceChanged) else event)
                    if intake.reader.state.ready and not was_ready:
                        self._ready_said.set()
                    if self._elsewhere(source):
                        return
        except Unreachable:
            await asyncio.sleep(1.0)
        except HostError as failed:
            self._session.publish(LogSourceChanged(source, f"{failed}; {why}"))

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

    # -- record --------------------------------------------------------------------------------------------------------------------

    async def save_if_finished(self, load: LoadState) -> None:
        """Keeps a start that came to its end, ready or failed, once."""
        record = self._session.record
        key = (load.started_at, load.restarts)
        finished = load.phase is Phase.FAILED or (load.ready and load.phase is Phase.READY)
        if record is None or not finished or not self.caught_up or key in self._saved:
            return
        self._saved.add(key)
        try:
            await asyncio.to_thread(record.save_load, self._session.name, load)  # it may wait for another process that writes
        except RecordError as error:
            self._session.publish(LogSourceChanged(self._session.state.log.source, f"this start could not be kept: {error}"))
