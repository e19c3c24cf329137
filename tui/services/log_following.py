"""A log that is followed: of the server that is meant, found where `log = "auto"`, taken up again where its reading stopped.

Where no server runs, the log of the one that was last seen there tells how that one ended.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tui.aio import ended
from tui.core.connection import retry_delay_s
from tui.core.deployment import NO_LOG, Event, LogLine, LogRead, LogRestarted, LogSourceChanged, SupervisorTold
from tui.core.logs.load_state import Failure, LoadState
from tui.core.logs.log_filters import IMPORTANT, NOISE
from tui.core.logs.log_reader import LogReader
from tui.core.server_end import LastServer, supervisor_from_frame
from tui.core.text import clean
from tui.engines.registry import START_MARKERS
from tui.host.base import HostError, ProbeFailed, ProbeStream, Unreachable
from tui.services.host_clock import HostClock
from tui.services.posix_tail import tail_frames
from tui.services.server_search import Server
from tui.wire.frames import FOLLOW
from tui.wire.log_prefixes import FILE, split_source

if TYPE_CHECKING:
    from tui.services.deployment_watch import Session


SLICE_S = 0.005
LONGEST_LINE = 4096
PREVIOUS_LINES = 2000


class LogIntake:
    """The client's end of one followed log: its reader, and where to go on after a lost link."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.reader = LogReader()
        self.resume: dict[str, Any] | None = None
        """What the follower gave as its place: handed back as `from` when it is started again."""
        self.caught_up = asyncio.Event()
        """Set once everything that the log held at attach has been read."""
        self.before: Failure | None = None
        """Why the start before the present one ended, where its supervisor keeps that log."""
        self._waiting: deque[tuple[str, float | None, int | None, bool]] = deque()

    async def take(self, frame: Mapping[str, Any]) -> AsyncGenerator[Event]:
        """The events that one frame makes. Yields to the loop at least every 5 ms of work."""
        match frame.get("f"):
            case "hello":
                zone_s = frame.get("zone_s")
                if isinstance(zone_s, int | float):
                    self.reader.set_zone(float(zone_s))
            case "lines":
                async for event in self._read(frame):
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

    async def _read(self, frame: Mapping[str, Any]) -> AsyncIterator[Event]:
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
        # From here on these lines are ours, though they are read in slices: a link lost in between must not bring them twice.
        if isinstance(frame.get("resume"), dict):
            self.resume = dict(frame["resume"])
        async for event in self.drain():
            yield event

    async def drain(self) -> AsyncIterator[Event]:
        """Reads the lines that wait."""
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
    """Why the log of an earlier start says that it ended."""
    reader = LogReader()
    for line in list(frame.get("lines") or ())[-PREVIOUS_LINES:]:
        reader.feed(str(line)[:LONGEST_LINE])
    return reader.state.failure


TAIL_LINES = 400


def follow_arguments(source: str, *, resume: Mapping[str, Any] | None = None, become: Sequence[str] = ()) -> dict[str, Any]:
    """Arguments of the role "follow". `resume` is the place that an earlier run gave; `become` are words before a command that may
    read more."""
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


WITHOUT_PROBE_S = 600.0
"""How long a host is watched without the probe before the probe is tried again."""
GAVE_UP_S = 5.0
"""A role that ran longer than this before it ended is started again at once; a shorter one after a growing pause."""

_UNREAD = "its output can't be read"


class NoProbe(Exception):
    """The probe can't even start; one that ended is only started again."""

    def __init__(self, source: str, error: ProbeFailed) -> None:
        super().__init__(error.cause)
        self.source = source
        self.error = error


class _NothingLeft(Exception):
    """The log of the server that was last seen can't be read: as if none had been seen."""


class Following:
    """The log of a deployment's first engine, on behalf of the session that it publishes to."""

    def __init__(self, session: "Session", clock: HostClock, on_ready: Callable[[], None]) -> None:
        """`clock` is told the stamps of frames; `on_ready` is called when the log says that the server is ready."""
        self._session = session
        self._engine = session.deployment.engines[0]
        self._clock = clock
        self._on_ready = on_ready
        self._intake: LogIntake | None = None
        self._server: Server | None = None
        self._last: LastServer | None = None
        self._recalled: LastServer | None = None
        """The one that ended unwatched, whose log is read now."""
        self._unread: str | None = None
        """Why nothing of it can be read."""
        self._looked = False
        self._changed = asyncio.Event()

    @property
    def caught_up(self) -> bool:
        """Whether the log has been read as far as it went; one that is not to be read has been."""
        if self._engine.log == NO_LOG:
            return True
        return self._intake is not None and self._intake.caught_up.is_set()

    def take(self, server: Server | None, last: LastServer | None) -> None:
        """The server that is meant, now that its host has been looked at; None where none runs. `last` is the one last seen."""
        self._server = server
        self._last = last
        self._unread = self._unread if server is None else None
        self._looked = True
        self._changed.set()

    async def follow(self) -> None:
        """Role "follow", for ever: found if the source is `auto`, resumed where it stopped; nothing where no log is to be read."""
        if self._engine.log == NO_LOG:
            self._session.publish(LogSourceChanged(NO_LOG))
            return
        attempt = 0
        self._unread = None
        while True:
            began = time.monotonic()
            try:
                await self._once()
            except _NothingLeft as nothing:
                self._unread = str(nothing)
                self._intake = None
            except Unreachable:
                await asyncio.sleep(1.0)
            except HostError as error:
                name = self._intake.source if self._intake else self._engine.log
                self._session.publish(LogSourceChanged(name, f"{error.cause} — {error.advice}" if error.advice else error.cause))
            attempt = 0 if time.monotonic() - began > GAVE_UP_S else attempt + 1
            if attempt:
                await asyncio.sleep(retry_delay_s(attempt, 0.5))

    async def _once(self) -> None:
        source = await self._source()
        if source is None:
            return
        try:
            await self._follow_once(source)
        except NoProbe as failed:
            await self._follow_without_probe(failed.source, failed.error)

    async def _source(self) -> str | None:
        """The log's source in the words of `log = …`; for `auto`, of the server that was found, or was last seen, or is to come."""
        if self._engine.log != "auto":
            return self._engine.log
        if self._server is None and self._intake is not None and self._intake.resume is not None:
            return self._intake.source  # the server is gone; its log still tells why
        while self._server is None:
            last = self._last
            if self._looked and last is not None and last.source is not None and self._unread is None:
                self._switch(last)
                return last.source
            if self._looked:
                self._session.publish(LogSourceChanged("auto", self._none_yet()))
            self._changed.clear()
            await self._changed.wait()
        self._switch(None)
        if self._server.source is None:
            self._session.publish(LogSourceChanged("auto", f"{self._server.why or _UNREAD}; its API and the GPUs still tell"))
            self._changed.clear()
            await self._changed.wait()
            return None
        return self._server.source

    def _none_yet(self) -> str:
        said = "no server process on this host yet: waiting for one"
        return f"{said}; {self._last.unread(self._unread)}" if self._last is not None else said

    def _switch(self, recalled: LastServer | None) -> None:
        """From the log of a server that runs to that of one that was last seen, or back: read anew, though it be the same file."""
        if recalled is not self._recalled:
            self._recalled = recalled
            if self._intake is not None:
                self._intake = None
                self._session.publish(LogRestarted(LoadState()))

    def _publish(self, event: Event, how: str | None = None) -> None:
        """`how`: in which way the log is read, where that is not the usual one. Raises _NothingLeft."""
        if not isinstance(event, LogSourceChanged):
            self._session.publish(event)
            return
        recalled, intake = self._recalled, self._intake
        if recalled is not None and event.problem is not None and (intake is None or not intake.reader.state.lines):
            raise _NothingLeft(event.problem)
        of = recalled.of(self._session.last.boot) if recalled is not None else None
        self._session.publish(replace(event, note="; ".join(part for part in (of, how) if part) or None, of=of))

    async def _follow_once(self, source: str) -> None:
        if self._intake is None or self._intake.source != source:
            other = self._intake is not None
            self._intake = LogIntake(source)
            self._publish(LogSourceChanged(source))
            if other:
                self._publish(LogRestarted(self._intake.reader.state))
        intake = self._intake
        async for event in intake.drain():
            self._publish(event)
        try:
            arguments = follow_arguments(source, resume=intake.resume, become=self._session.become)
            stream = await self._session.host.start_probe(FOLLOW, arguments)
        except ProbeFailed as error:
            raise NoProbe(source, error) from None
        broken: list[Exception] = []
        leaving = asyncio.create_task(self._leave_for_another(stream, source, broken))
        try:
            async for frame in stream:
                self._clock.see(frame)
                if frame.get("f") == "end":
                    break
                was_ready = intake.reader.state.ready
                async for event in intake.take(frame):
                    self._publish(event)
                if intake.reader.state.ready and not was_ready:
                    self._on_ready()
        finally:
            try:
                await ended(leaving)
            finally:
                await stream.close()
        if broken:
            raise broken[0]

    async def _leave_for_another(self, stream: ProbeStream, source: str, broken: list[Exception]) -> None:
        """Ends the stream when the server that is meant writes elsewhere: another was chosen, or it was started anew.

        What breaks it is left in `broken`: the stream ends while it is being closed here, so the task may be cancelled meanwhile.
        """
        if self._engine.log != "auto":
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
        """Whether the server that is meant writes to another log than the one that is followed, or is not the one that ended."""
        if self._engine.log != "auto" or self._server is None:
            return False
        return self._recalled is not None or self._server.source not in (None, source)

    async def _follow_without_probe(self, source: str, error: ProbeFailed) -> None:
        """A file can be followed with a shell of the host; of anything else the reason is shown."""
        intake = self._intake
        assert intake is not None, "the source was opened before the probe was tried"
        prefix, path = split_source(source)
        why = f"{error.cause} — {error.advice}" if error.advice else error.cause
        if prefix != FILE:
            self._publish(LogSourceChanged(source, f'{why}; without Python only files can be followed: log = "file:…"'))
            await asyncio.sleep(WITHOUT_PROBE_S / 10)
            return
        note = f"{error.cause}: a shell reads it once a second"
        try:
            async with contextlib.aclosing(tail_frames(self._session.host, path, intake.resume, seconds=WITHOUT_PROBE_S)) as frames:
                async for frame in frames:
                    self._clock.see(frame)
                    was_ready = intake.reader.state.ready
                    async for event in intake.take(frame):
                        self._publish(event, note)
                    if intake.reader.state.ready and not was_ready:
                        self._on_ready()
                    if self._elsewhere(source):
                        return
        except Unreachable:
            await asyncio.sleep(1.0)
        except HostError as failed:
            self._publish(LogSourceChanged(source, f"{failed}; {why}"))
