"""The wall clock, which the kernel's stamps are of, held against one that can't be set. Python 3.8."""

import time

STEP_S = 0.002
"""A smaller difference is a clock that is slewed."""


class WallClock:
    """Notices when the wall clock is set while a run lasts."""

    def __init__(self) -> None:
        self.stepped = 0.0
        """By how much it was set so far, in seconds."""
        self._ahead = time.time() - time.monotonic()

    def look(self, now: float) -> None:
        """To be called now and then with the time that it tells."""
        drift = now - time.monotonic() - self._ahead
        if abs(drift) > STEP_S:
            self.stepped += drift
        self._ahead += drift
