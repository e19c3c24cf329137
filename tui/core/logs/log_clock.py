"""Seconds out of the times that logs print.

All times of a log are kept in its own clock: seconds since 1970 as if its wall clock read UTC. Most engines print no year and no
zone;
the year is given (the file's date) and goes up when December turns into January. Processes write side by side, so that lines of
before midnight may follow those of after it.
"""

import math
from calendar import timegm

STEP = 900.0
"""Zones differ by quarters of an hour."""


class LogClock:
    """Turn `MM-DD HH:MM:SS` into seconds. `rollovers` counts the turns of the year that were seen."""

    __slots__ = ("_date", "_day", "_day_seconds", "_last", "_last_seconds", "rollovers", "year")

    def __init__(self, year: int | None) -> None:
        self.year = year or 2000
        self.rollovers = 0
        self._date = ""
        """The last `MM-DD` from which the turn of the year is told; empty before the first, and if a line told its year."""
        self._day = ""
        self._day_seconds = 0
        self._last = ""
        self._last_seconds = 0.0

    def seconds(self, stamp: str) -> float | None:
        """Return the seconds of `MM-DD HH:MM:SS`; None if it is no time."""
        if stamp == self._last:
            return self._last_seconds
        try:
            if stamp[:5] != self._day:
                month, day = int(stamp[:2]), int(stamp[3:5])
                if not (1 <= month <= 12 and 1 <= day <= 31):
                    return None
                if month == 12 and stamp[:5] >= "12-30" and "" < self._date <= "01-02":
                    # Another process's line of the old year, behind the first ones of the new: it moves nothing.
                    return float(timegm((self.year - 1, month, day, int(stamp[6:8]), int(stamp[9:11]), int(stamp[12:14]), 0, 0, 0)))
                if self._date and int(self._date[:2]) - month > 6:
                    self.year += 1
                    self.rollovers += 1
                self._date = self._day = stamp[:5]
                self._day_seconds = timegm((self.year, month, day, 0, 0, 0, 0, 0, 0))
            seconds = self._day_seconds + int(stamp[6:8]) * 3600 + int(stamp[9:11]) * 60 + int(stamp[12:14])
        except ValueError:
            return None
        self._last = stamp
        self._last_seconds = float(seconds)
        return self._last_seconds

    def reset_day(self) -> None:
        """Forget what was computed with another year."""
        self._day = self._last = ""

    def dated(self, year: int, stamp: str) -> float | None:
        """Return the same of a time beside which the year is written, so that no turn of the year has to be guessed."""
        if year != self.year or stamp[:5] != self._day:
            self.set_year(year)
            self._date = ""
        return self.seconds(stamp)

    def set_year(self, year: int) -> None:
        """Take a year that is known better."""
        if year != self.year:
            self.year = year
            self.reset_day()


class Alignment:
    """How far the log's own clock is from the clock of arrival.

    Lines that are read long after they were written arrive at one moment, whatever their own times; lines that are read as they are
    written keep a constant lag. Only the latter tell the difference exactly; before, it is a zone of quarters of an hour.
    """

    __slots__ = ("_last_arrival", "_last_lag", "_zones", "lag", "live")

    def __init__(self, zone_s: float | None = None) -> None:
        """`zone_s` is how far the host's local time is ahead of UTC, if that is known: the server writes local time, or UTC in
        a container."""
        self._zones = () if zone_s is None else (-zone_s, 0.0)
        self.lag: float | None = None
        """The smallest difference seen: what is over a zone is the age of the newest line."""
        self.live = False
        self._last_arrival = 0.0
        self._last_lag = 0.0

    def sample(self, arrival: float, own: float) -> None:
        """Take a line with both times."""
        lag = arrival - own
        if self.lag is None:
            self.lag = lag
            self._last_arrival, self._last_lag = arrival, lag
            return
        if lag < self.lag:
            self.lag = lag
        if arrival - self._last_arrival >= 2.0:
            self.live = self.live or abs(lag - self._last_lag) < 1.6
            self._last_arrival, self._last_lag = arrival, lag
        elif lag < self._last_lag:
            self._last_lag = lag

    @property
    def offset(self) -> float | None:
        """Return the seconds to add to a time of the log's clock for one of the clock of arrival; None if nothing is known."""
        if self.lag is None:
            return None
        return self.lag if self.live else self._zone(self.lag)

    def _zone(self, lag: float) -> float:
        """Return the largest difference of zones that leaves the newest line no younger than now."""
        likely = [zone for zone in self._zones if zone <= lag + 5]
        return max(likely) if likely else math.floor((lag + 5) / STEP) * STEP

    def own(self, arrival: float) -> float | None:
        """Return the time in the log's own clock of a line without one; None while arrivals say nothing about it."""
        if self.lag is None:
            return None
        if self.live:
            return arrival - self.lag
        zone = self._zone(self.lag)
        return arrival - zone if self.lag - zone < 5 else None
