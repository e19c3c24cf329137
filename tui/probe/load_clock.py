"""The wall clock, which the kernel's stamps are of, held against one that can't be set. Python 3.8.

Stamps are of the wall clock; what is waited for (ticks, the end of a run, what is due, timeouts) is counted by the monotonic one.
"""

import time

STEP_S = 0.002
"""A smaller difference is a clock that is slewed."""


class WallClock:
    """Notices when the wall clock is set while a run lasts."""

    def __init__(self) -> None:
        self.stepped = 0.0
        """By how much it was set so far, in seconds."""
        self.ahead = time.time() - time.monotonic()
        """What it shows more than the monotonic clock, at the last look."""

    def look(self, now: float, steady: float) -> bool:
        """To be called now and then with what it tells, and the monotonic clock; whether it was set since the last look."""
        drift = now - steady - self.ahead
        self.ahead += drift
        if abs(drift) <= STEP_S:
            return False
        self.stepped += drift
        return True
