"""A log that is followed: of the server that is meant, found where `log = "auto"`, taken up again where its reading stopped.

Where no server runs, the log of the one that was last seen there tells how that one ended.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from tui.aio import ended
from tui.core.deployment import Event, LogLine, LogRead, LogRestarted, LogSourceChanged, SupervisorTold
from tui.core.logs.load_state import Failure, LoadState, Phase
from tui.core.logs.log_filters import IMPORTANT, NOISE
from tui.core.logs.log_reader import LogReader
from tui.core.server_end import LastServer, supervisor_from_frame
from tui.core.text import clean
from tui.engines.registry import START_MARKERS
from tui.host.base import Host, HostError, ProbeFailed, ProbeStream, Unreachable
from tui.services.deployment_store import DeploymentStore
from tui.services.host_link import WITHOUT_PROBE_S, keep_running
from tui.services.posix_tail import tail_frames
from tui.services.server_choice import ServerChoice
from tui.wire.frames import FOLLOW
from tui.wire.log_prefixes import AUTO, FILE, NO_LOG, split_source

SLICE_S = 0.005
LONGEST_LINE = 4096
PREVIOUS_LINES = 2000
YOUNG_S = 2.0
"""A line that was written before a process is so old is not of that process: imports take longer."""


class LogDecoder:
    """Makes events of the frames of one followed log, and keeps the place to go on at after a lost link."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.reader = LogReader()
        self.resume: dict[str, Any] | None = None
        """The place that the follower gave: handed back as `from` when it is started again."""
        self.caught_up = asyncio.Event()
        """Set once everything that the log held at attach has been read."""
        self.before: Failure | None = None
        """Why the start before the present one ended, if its supervisor keeps that log."""
        self._waiting: deque[tuple[str, float | None, int | None, bool]] = deque()

    async def take(self, frame: Mapping[str, Any]) -> AsyncGenerator[Event]:
        """Yield the events of one frame, and yield to the loop at least every 5 ms of work."""
        match frame.get("f"):
            case "hello":
                zone_s = frame.get("zone_s")
                if isinstance(zone_s, int | float):
                    self.reader.set_zone(float(zone_s))
            case "lines":
                self._queue(frame)
                async for event in self.drain():
                    yield event
            case "start":
                self.reader.reset()
                yield LogRestarted(self.reader.state, keep_lines=bool(frame.get("quiet")))
            case "skipped":
                yield LogRead((), self.reader.state, skipped=int(frame.get("count", 0)))
            case "source":
                self.resume = frame["resume"] if isinstance(frame.get("resume"), dict) else self.resume
                why = frame.get("why")
                yield LogSourceChanged(clean(str(frame.get("path") or self.source)), clean(str(why)) if why else None)
            case "rotated" | "truncated" as what:
                yield LogSourceChanged(clean(str(frame.get("path") or self.source)), None)
                yield LogRead((LogLine(f"— the log was {what} —"),), self.reader.state)
            case "previous":
                self.before = _ended_why(frame)
            case "supervisor":
                yield SupervisorTold(supervisor_from_frame(frame, self.before))
            case "caught_up":
                self.caught_up.set()
            case "error":
                yield LogSourceChanged(self.source, clean(f"{frame.get('what', '')}: {frame.get('why', '')}"))

    def _queue(self, frame: Mapping[str, Any]) -> None:
        """Keep the lines of a frame until `drain` reads them; from here on a lost link must not bring them twice."""
        wall = frame.get("wall", frame.get("written"))
        at = float(wall) if isinstance(wall, int | float) else None
        first = frame.get("first")
        number = int(first) if isinstance(first, int) else None
        quiet = bool(frame.get("quiet"))
        stamps = frame.get("stamps") or ()
        for index, text in enumerate(frame.get("lines", ())):
            stamp = stamps[index] if index < len(stamps) else None
            self._waiting.append((str(text)[:LONGEST_LINE], at if stamp is None else float(stamp), number, quiet))
            if number is not None:
                number += 1
        if isinstance(frame.get("resume"), dict):
            self.resume = dict(frame["resume"])

    async def drain(self) -> AsyncIterator[Event]:
        """Yield the events of the lines that wait."""
        while self._waiting:
            read: list[LogLine] = []
            ends = time.monotonic() + SLICE_S
            while self._waiting and time.monotonic() < ends:
                text, at, number, quiet = self._waiting.popleft()
                line = self.reader.feed(text, at, number)
                if not quiet:
                    read.append(line if number is not None else LogLine(line.text, line.level, None, line.at))
            yield LogRead(tuple(read), self.reader.state)
            await asyncio.sleep(0)


def _ended_why(frame: Mapping[str, Any]) -> Failure | None:
    """Return why an earlier start ended, as its log says."""
    reader = LogReader()
    for line in list(frame.get("lines") or ())[-PREVIOUS_LINES:]:
        reader.feed(str(line)[:LONGEST_LINE])
    return reader.state.failure


TAIL_LINES = 400


def follow_arguments(source: str, *, resume: Mapping[str, Any] | None = None, become: Sequence[str] = ()) -> dict[str, Any]:
    """Return the arguments of the role "follow".

    `resume` is the place that an earlier run gave; `become` are words before a command that may read more. Raise ValueError for a
    source of no known kind.
    """
    prefix, name = split_source(source)
    return {
        "source": prefix,
        "path" if prefix == FILE else "name": name,
        "from": resume,
        "start_markers": list(START_MARKERS),
        "important": list(IMPORTANT),
        "noise": list(NOISE),
        "tail": TAIL_LINES,
        "become": list(become),
    }


_UNREAD = "its output can't be read"


class NoProbe(Exception):
    """The probe can't even start; one that ended is started again instead."""

    def __init__(self, source: str, error: ProbeFailed) -> None:
        super().__init__(error.cause)
        self.source = source
        self.error = error


class _NothingLeft(Exception):
    """The log of the server that was last seen can't be read: as if none had been seen."""


class LogFollower:
    """Follows the log of a deployment's first host, and publishes what it says to the store."""

    def __init__(
        self,
        host: Host,
        store: DeploymentStore,
        choice: ServerChoice,
        log: str,
        become: Sequence[str] = (),
        *,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        """`log` is the source as configured; `on_ready` is called when the log says that the server is ready."""
        self._host = host
        self._store = store
        self._choice = choice
        self._configured = log
        self._become = become
        self._on_ready = on_ready
        self._decoder: LogDecoder | None = None
        self._recalled: LastServer | None = None
        """The server that ended unwatched, whose log is read now."""
        self._unread: str | None = None
        """Why nothing of it can be read."""
        self._looked = False
        self._told = False
        """Whether the follower has told of the log since it last failed."""
        self._ran = False
        """Whether the probe could ever be started here."""
        self._followed_pid: int | None = None
        """The process whose lines are read."""
        self._changed = asyncio.Event()
        choice.on_change(self._choice_changed)

    @property
    def caught_up(self) -> bool:
        """Whether the log has been read to its end; true if it is not to be read at all."""
        if self._configured == NO_LOG:
            return True
        return self._decoder is not None and self._decoder.caught_up.is_set()

    def _choice_changed(self) -> None:
        if self._choice.server is not None:
            self._unread = None
        self._looked = True
        self._begin_anew()
        self._changed.set()

    def _begin_anew(self) -> None:
        """Forget how an earlier start went once a process runs that was started after it: its own lines are still to come."""
        decoder, server = self._decoder, self._choice.server
        if decoder is None or server is None or server.started_at is None or not decoder.caught_up.is_set():
            return
        load = decoder.reader.state
        if not load.lines or load.last_line_at is None or load.first_line_at is None:
            return
        ended = load.phase in (Phase.FAILED, Phase.STOPPED) or self._followed_pid not in (None, server.pid)
        if ended and load.first_line_at < server.started_at - 1 and load.last_line_at < server.started_at + YOUNG_S:
            decoder.reader.begin_anew()
            self._publish(LogRestarted(decoder.reader.state, keep_lines=True))
        self._followed_pid = server.pid

    async def run(self) -> None:
        """Follow until cancelled: the source that is found if it is `auto`, from the place where reading stopped."""
        if self._configured == NO_LOG:
            self._store.publish(LogSourceChanged(NO_LOG))
            return
        self._unread = None
        await keep_running(self._follow)

    async def _follow(self) -> None:
        try:
            await self._once()
        except _NothingLeft as nothing:
            self._unread = str(nothing)
            self._decoder = None
        except Unreachable:
            raise
        except HostError as error:
            if self._told:
                self._told = False
                return  # it told of the log until now, and is started again at once: the client slept, or a process was ended
            name = self._decoder.source if self._decoder else self._configured
            self._store.publish(LogSourceChanged(name, f"{error.cause} — {error.advice}" if error.advice else error.cause))

    async def _once(self) -> None:
        source = await self._source()
        if source is None:
            return
        try:
            await self._follow_once(source)
        except NoProbe as failed:
            await self._follow_without_probe(failed.source, failed.error)

    async def _source(self) -> str | None:
        """Return the source as `log = …` names it: for `auto`, that of the server found, or last seen, or to come.

        None if there is none to follow now.
        """
        if self._configured != AUTO:
            return self._configured
        if self._choice.server is None and self._decoder is not None and self._decoder.resume is not None:
            return self._decoder.source  # the server is gone; its log still tells why
        while self._choice.server is None:
            last = self._choice.last.server
            if self._looked and last is not None and last.source is not None and self._unread is None:
                self._switch(last)
                return last.source
            if self._looked:
                self._store.publish(LogSourceChanged(AUTO, self._none_yet()))
            self._changed.clear()
            await self._changed.wait()
        self._switch(None)
        if self._choice.server.source is None:
            self._store.publish(
                LogSourceChanged(AUTO, f"{self._choice.server.why or _UNREAD}; its API and the GPUs are still watched")
            )
            self._changed.clear()
            await self._changed.wait()
            return None
        return self._choice.server.source

    def _none_yet(self) -> str:
        said, last = "no server process on this host yet: waiting for one", self._choice.last.server
        if self._choice.running:
            said = "none of the servers on this host is this deployment's: waiting for it"
        return f"{said}; {last.unread(self._unread)}" if last is not None else said

    def _switch(self, recalled: LastServer | None) -> None:
        """Go from the log of a running server to that of one last seen, or back: it is read anew, even if it is the same file."""
        if recalled is not self._recalled:
            self._recalled = recalled
            if self._decoder is not None:
                self._decoder = None
                self._store.publish(LogRestarted(LoadState()))

    def _publish(self, event: Event, how: str | None = None) -> None:
        """Publish an event; `how` says in which unusual way the log is read. Raise _NothingLeft."""
        if not isinstance(event, LogSourceChanged):
            self._store.publish(event)
            return
        recalled, decoder = self._recalled, self._decoder
        if recalled is not None and event.problem is not None and (decoder is None or not decoder.reader.state.lines):
            raise _NothingLeft(event.problem)
        of = recalled.of(self._choice.last.boot) if recalled is not None else None
        self._store.publish(replace(event, note="; ".join(part for part in (of, how) if part) or None, of=of))

    async def _follow_once(self, source: str) -> None:
        if self._decoder is None or self._decoder.source != source:
            other = self._decoder is not None
            self._decoder = LogDecoder(source)
            self._publish(LogSourceChanged(source))
            if other:
                self._publish(LogRestarted(self._decoder.reader.state))
        decoder = self._decoder
        async for event in decoder.drain():
            self._publish(event)
        try:
            arguments = follow_arguments(source, resume=decoder.resume, become=self._become)
        except ValueError as error:
            raise HostError(f"its log can't be followed: the source {error}") from None
        try:
            stream = await self._host.start_probe(FOLLOW, arguments)
        except ProbeFailed as error:
            if self._ran:
                raise  # it is started again
            raise NoProbe(source, error) from None
        self._ran = True
        broken: list[Exception] = []
        leaving = asyncio.create_task(self._leave_for_another(stream, source, broken))
        try:
            async for frame in stream:
                if frame.get("f") == "end":
                    break
                await self._take(decoder, frame)
        finally:
            try:
                await ended(leaving)
            finally:
                await stream.close()
        if broken:
            raise broken[0]

    async def _take(self, decoder: LogDecoder, frame: Mapping[str, Any], how: str | None = None) -> None:
        self._store.clock.see(frame)
        self._told = frame.get("f") in ("lines", "caught_up") or self._told
        was_ready = decoder.reader.state.ready
        if frame.get("f") == "abandoned":
            self._choice.see_log_abandoned(frame.get("gone") is True)
        async for event in decoder.take(frame):
            self._publish(event, how)
        self._begin_anew()
        if decoder.reader.state.ready and not was_ready:
            self._on_ready()

    async def _leave_for_another(self, stream: ProbeStream, source: str, broken: list[Exception]) -> None:
        """End the stream when the server that is meant writes elsewhere: another was chosen, or it was started anew.

        What breaks it is left in `broken`: the stream ends while it is being closed here, so the task may be cancelled meanwhile.
        """
        if self._configured != AUTO:
            return
        try:
            while not self._elsewhere(source):
                self._changed.clear()
                await self._changed.wait()
        except Exception as error:
            broken.append(error)
        finally:
            await stream.close()

    def _elsewhere(self, source: str) -> bool:
        """Return whether the server that is meant writes to another log than is followed, or is not the one that ended."""
        if self._configured != AUTO or self._choice.server is None:
            return False
        return self._recalled is not None or self._choice.server.source not in (None, source)

    async def _follow_without_probe(self, source: str, error: ProbeFailed) -> None:
        """Follow a file with a shell of the host; of any other source say why it can't be followed."""
        decoder = self._decoder
        assert decoder is not None, "the source was opened before the probe was tried"
        prefix, path = split_source(source)
        why = f"{error.cause} — {error.advice}" if error.advice else error.cause
        if prefix != FILE:
            self._publish(LogSourceChanged(source, f'{why}; without Python only files can be followed: log = "file:…"'))
            await asyncio.sleep(WITHOUT_PROBE_S / 10)
            return
        note = f"{error.cause}: a shell reads it once a second"
        try:
            async with contextlib.aclosing(tail_frames(self._host, path, decoder.resume, seconds=WITHOUT_PROBE_S)) as frames:
                async for frame in frames:
                    await self._take(decoder, frame, note)
                    if self._elsewhere(source):
                        return
        except Unreachable:
            await asyncio.sleep(1.0)
        except HostError as failed:
            self._publish(LogSourceChanged(source, f"{failed}; {why}"))
