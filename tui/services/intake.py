"""Frames of the log follower in, events of the deployment out: the reducer works in short slices: no flood freezes the loop."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from tui.core.deployment import Event, LogLine, LogRead, LogRestarted, LogSourceChanged, SupervisorTold
from tui.core.logs.reader import LogReader
from tui.core.logs.state import Failure
from tui.core.supervisor import supervisor_from_frame
from tui.core.text import clean

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
