"""Seconds out of the times that logs print.

All times of a log are kept in its own clock: seconds since 1970 as if its wall clock read UTC. vLLM prints no year and no zone;
the year is given (the file's date) and goes up when December turns into January.
"""

from calendar import timegm

STEP = 900.0
"""Zones differ by quarters of an hour."""


class LogClock:
    """Turns `MM-DD HH:MM:SS` into seconds. `rollovers` counts the turns of the year that were seen."""

    __slots__ = ("_day", "_day_seconds", "_last", "_last_seconds", "_month", "rollovers", "year")

    def __init__(self, year: int | None) -> None:
        self.year = year or 2000
        self.rollovers = 0
        self._month = 0
        self._day = ""
        self._day_seconds = 0
        self._last = ""
        self._last_seconds = 0.0

    def seconds(self, stamp: str) -> float | None:
        """The seconds of `MM-DD HH:MM:SS`; None where it is no time."""
        if stamp == self._last:
            return self._last_seconds
        try:
            if stamp[:5] != self._day:
                month, day = int(stamp[:2]), int(stamp[3:5])
                if not (1 <= month <= 12 and 1 <= day <= 31):
                    return None
                if self._month - month > 6:
                    self.year += 1
                    self.rollovers += 1
                self._month = month
                self._day = stamp[:5]
                self._day_seconds = timegm((self.year, month, day, 0, 0, 0, 0, 0, 0))
            seconds = self._day_seconds + int(stamp[6:8]) * 3600 + int(stamp[9:11]) * 60 + int(stamp[12:14])
        except ValueError:
            return None
        self._last = stamp
        self._last_seconds = float(seconds)
        return self._last_seconds

    def reset_day(self) -> None:
        """The year was set: what was computed with another one is void."""
        self._day = self._last = ""
