"""The lines of weight among very many.

Python 3.8: this runs on the GPU host.
"""

from typing import Any, Dict, List, Optional

from tui.probe.outlet import Outlet
from tui.probe.scan import LineFilter

FIRST_IMPORTANT = 1000
LAST_IMPORTANT = 2000


class Chosen:
    """The important ones of many lines: the first ones and the last ones, where even they are too many."""

    def __init__(self) -> None:
        self._first: List[str] = []
        self._last: List[str] = []
        self.count = 0
        self.seen = 0

    @property
    def kept(self) -> int:
        return len(self._first) + min(len(self._last), LAST_IMPORTANT)

    def see(self, block: bytes, important: LineFilter) -> None:
        self.seen += block.count(b"\n")
        for line in important.lines(block):
            self.count += 1
            text = line[:4096].decode("utf-8", "replace")
            if len(self._first) < FIRST_IMPORTANT:
                self._first.append(text)
            else:
                self._last.append(text)
                if len(self._last) > 2 * LAST_IMPORTANT:
                    del self._last[:-LAST_IMPORTANT]

    def send(self, out: Outlet, quiet: bool, live: bool = False, resume: Optional[Dict[str, Any]] = None) -> None:
        out.lines(self._first + self._last[-LAST_IMPORTANT:], resume, live=live, quiet=quiet)
