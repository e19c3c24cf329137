"""What goes on beside the measuring, told while it lasts: making prompts and summing up take seconds where there is much of it.

Python 3.8.
"""

import threading
import time
from types import TracebackType
from typing import Any, Dict, Optional, Type

from tui.probe.leash import Link

EVERY_S = 1.0
"""What takes less is not told of."""


class Telling:
    """Sends a progress frame each second, from a thread that sleeps in between, until its end."""

    def __init__(self, link: Link, number: Any, stage: str, work: str) -> None:
        """`number` is the point's, `work` says what is done, in words."""
        self._link = link
        self._frame = {"f": "progress", "id": number, "stage": stage, "work": work}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="telling", daemon=True)

    def __enter__(self) -> "Telling":
        self._thread.start()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.end()

    def end(self) -> None:
        """No frame is sent from here on. May be called again."""
        if not self._over.is_set():
            self._over.set()
            self._thread.join()

    def _tell(self) -> None:
        began = time.monotonic()
        while not self._over.wait(EVERY_S):
            if not self._link.outlet_blocked():
                frame: Dict[str, Any] = dict(self._frame, elapsed_s=time.monotonic() - began)
                self._link.send(frame)
