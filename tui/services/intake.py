"""Frames of the log follower in, events of the deployment out: the reducer works in short slices: no flood freezes the loop."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from tui.core.deployment import Event, LogLine, LogRead, LogRestarted, LogSourceChanged
from tui.core.important import IMPORTANT
from tui.core.logs.reader import LogReader
from tui.core.text import clean

SLICE_S = 0.005
LONGEST_LINE = 4096


class LogIntake:
    """The client's end of one followed log: its reader, and where to go on after a lost link."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.reader = LogReader()
        self.resume: dict[str, Any] | None = None
        """What the follower gave as its place: handed back as `from` when it is started again."""
        self.caught_up = asyncio.Event()
        """Set once everything that the log held at attach has been read."""
        self.important = IMPORTANT

    async def take(self, frame: Mapping[str, Any]) -> AsyncIterator[Event]:
        """The events that one frame makes. Yields to the loop at least every 5 ms of work."""
        match frame.get("f"):
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
            case "caught_up":
                self.caught_up.set()
            case "error":
                yield LogSourceChanged(self.source, clean(f"{frame.get('what', '')}: {frame.get('why', '')}"))

    async def _read(self, frame: Mapping[str, Any]) -> AsyncIterator[Event]:
        wall = frame.get("wall")
        at = float(wall) if isinstance(wall, int | float) else None
        first = frame.get("first")
        number = int(first) if isinstance(first, int) else None
        quiet = bool(frame.get("quiet"))
        read: list[LogLine] = []
        began = time.monotonic()
        for text in frame.get("lines", ()):
            line = self.reader.feed(str(text)[:LONGEST_LINE], at)
            if not quiet:
                read.append(line if number is None else LogLine(line.text, line.level, number, line.at))
            if number is not None:
                number += 1
            if time.monotonic() - began > SLICE_S:
                yield LogRead(tuple(read), self.reader.state)
                read = []
                await asyncio.sleep(0)
                began = time.monotonic()
        if isinstance(frame.get("resume"), dict):
            self.resume = dict(frame["resume"])
        yield LogRead(tuple(read), self.reader.state)
