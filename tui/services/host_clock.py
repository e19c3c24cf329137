"""The clock of a host, as far as its frames tell it."""

import time
from collections.abc import Mapping
from typing import Any

TRUSTED_S = 60.0
"""Seconds for which the most advanced estimate counts: a frame that a slow link held back must not set the clock back."""


class HostClock:
    """The host's newest stamp, and when it arrived here."""

    def __init__(self) -> None:
        self._seen: tuple[float, float] | None = None

    def now(self) -> float:
        """Return the host's wall clock: its newest stamp plus the time since then; this machine's before the first one."""
        if self._seen is None:
            return time.time()
        wall, arrived = self._seen
        return wall + (time.monotonic() - arrived)

    def see(self, frame: Mapping[str, Any]) -> None:
        """Take the stamp of a frame, but not of lines (it is their own) or of a late one (it is that of old values)."""
        wall = frame.get("wall")
        if isinstance(wall, int | float) and frame.get("f") != "lines" and frame.get("late") is not True:
            arrived = time.monotonic()
            if self._seen is None or arrived - self._seen[1] > TRUSTED_S or float(wall) > self.now():
                self._seen = (float(wall), arrived)
