"""When things were said: the log's own times, those of arrival where lines carry none, and one put beside the other."""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from tui.core.logs.load_state import LoadState
from tui.core.logs.log_clock import Alignment, LogClock
from tui.core.logs.log_records import Line
from tui.core.logs.progress_bars import Bar
from tui.core.logs.start_parser import SILENCE_S, StartParser, shifted


class Timeline:
    """Where in time the reading of one log stands. `now` is the time of the last line, in seconds of the log's own clock; times of
    arrival are seconds since 1970."""

    def __init__(self, year: int | None, zone_s: float | None) -> None:
        """`year` is the log's; `zone_s` is how far the host's local time is ahead of UTC, if that is known."""
        self._year = year
        self.clock = LogClock(year)
        self.now: float | None = None
        self.stamp = ""
        """The last `MM-DD HH:MM:SS` that `glance` has read: of a busy server's lines, hundreds bear the same one."""
        self.unsettled_at: float | None = None
        """The arrival of the last line that was only glanced at, until `settle` takes it over."""
        self._alignment = Alignment(zone_s)
        self._undated = False
        self._uptime = False
        """Do times count from when the server's process began?"""
        self._last_arrival: float | None = None

    @property
    def live(self) -> bool:
        """Tell whether lines are read as they are written."""
        return self._alignment.live

    def glance(self, stamp: str, at: float | None) -> bool:
        """Take over the time of a record that is of no account else; False if it is no time."""
        seconds = self.clock.seconds(stamp)
        if seconds is None:
            return False
        self.stamp = stamp
        self.now = seconds
        if at is not None:
            self._alignment.sample(at, seconds)
        return True

    def settle(self) -> None:
        """Take over the arrival of the lines that were only glanced at."""
        at, self.unsettled_at = self.unsettled_at, None
        if at is not None:
            self._last_arrival = at
            self._forward(at)

    def take(self, line: Line, at: float | None, place: int, start: StartParser) -> None:
        """Move on to a line, and tell the start its time and position. `place` is the line's number."""
        before = self.now
        if line.uptime and line.at is not None:
            if at is None:
                self._uptime = True
            else:
                if self._uptime:
                    start.shift(at - line.at)
                    before, self._uptime = None, False
                line.at = None  # the time of arrival tells the date as well
        if line.at is not None:
            self.now = line.at
            if start.started_at is None:
                start.started_at = line.at
        if at is not None:
            self._arrived(line, at, start)
        start.now = self.now
        start.line = place
        if before is not None and self.now is not None and self.now - before >= SILENCE_S and not start.was_ready:
            start.silent(self.now - before, place, before)

    def take_bar(self, bar: Bar, at: float | None, start: StartParser) -> None:
        """Tell the time by a bar's elapsed seconds, if the bar has no time of its own and its start is dated."""
        for known in reversed(start.loaders.bars):
            if known.total == bar.total and known.started_at is not None and known.done <= bar.done and not known.complete:
                there = known.started_at + (bar.elapsed or 0.0)
                if at is not None and not self._undated:
                    self._alignment.sample(at, there)
                    if self._alignment.live:
                        return
                if self.now is None or there > self.now:
                    if self.now is not None and there - self.now >= SILENCE_S:
                        start.silent(there - self.now, start.line, self.now)
                    self.now = start.now = there
                return

    def placed(self, load: LoadState) -> LoadState:
        """Return what the log shows, in the clock of arrival as far as that is known."""
        offset = self._alignment.offset
        if offset:
            load = shifted(load, offset)
        if self._last_arrival is not None and not self._alignment.live:
            # How old the last line really is can't be told yet: it counts from when it was read.
            load = replace(load, last_line_at=self._last_arrival)
        return load

    # -- arrivals

    def _arrived(self, line: Line, at: float, start: StartParser) -> None:
        """Learn how far the log's clock is from the clock of arrival, and dates lines that carry no time themselves."""
        alignment = self._alignment
        self._last_arrival = at
        if line.at is not None:
            if alignment.lag is None:
                self._first_stamp(line, at, start)
            alignment.sample(at, line.at)
        elif alignment.lag is None:
            # No line has told a time yet: the clock of arrival is all there is.
            self.now = at
            self._undated = True
            if start.started_at is None:
                start.started_at = at
        else:
            self._forward(at)

    def _forward(self, at: float) -> None:
        """Date a line by its arrival, if that tells a time in the log's clock; never backwards."""
        own = self._alignment.own(at)
        if own is not None and (self.now is None or own > self.now):
            self.now = own

    def _first_stamp(self, line: Line, at: float, start: StartParser) -> None:
        """Take the year from the first arrival, and moves what was dated by arrivals alone into the log's clock."""
        assert line.at is not None
        arrived, stamped = datetime.fromtimestamp(at, UTC), datetime.fromtimestamp(line.at, UTC)
        if self._year is None and stamped.year != arrived.year:
            # A log's date may lie a day ahead (its zone) or months behind (an old file), never months ahead.
            year = arrived.year - (1 if stamped.month - arrived.month > 6 else -1 if arrived.month - stamped.month > 10 else 0)
            leap = stamped.month == 2 and stamped.day == 29
            line.at = (stamped - timedelta(days=1) if leap else stamped).replace(year=year).timestamp() + (86400.0 if leap else 0.0)
            self.clock.set_year(year)
            self.now = line.at
        if self._undated:
            start.shift(line.at - at)
            self._undated = False
        elif start.started_at is None or start.started_at < line.at - 366 * 86400:
            start.started_at = line.at
