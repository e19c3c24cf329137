"""How a follower tells lines to the client: in frames of bounded size, with the place to resume at, skipping where it is behind.

Python 3.8: this runs on the GPU host.
"""

import collections
import time
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence

from tui.probe.leash import Link

FRAME_LINES = 5000
FRAME_BYTES = 1 << 20
"""What is read in one piece goes in one frame, so that each frame has the place after its last line; these are only bounds."""


class Outlet:
    """Sends lines. `quiet` lines are for the client's reader alone, not for its pane."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.written: Optional[float] = None
        """When the last line of the past was written, as far as known; the time of reading where it is not."""

    def lines(
        self,
        lines: Sequence[str],
        resume: Optional[Dict[str, Any]],
        live: bool,
        first: Optional[int] = None,
        stamps: Optional[Sequence[Optional[float]]] = None,
        quiet: bool = False,
    ) -> None:
        """`resume` is the place after the last of them; `first` the number of the first line in its source, where it is known.

        Live lines carry the host's clocks of this moment; those of the past when the last of them was `written`, or their source's
        own times in `stamps`.
        """
        at = 0
        while at < len(lines):
            size = 0
            end = at
            while end < len(lines) and end - at < FRAME_LINES and size < FRAME_BYTES:
                size += len(lines[end])
                end += 1
            frame: Dict[str, Any] = {"f": "lines", "lines": list(lines[at:end])}
            if live:
                frame["wall"] = time.time()
                frame["mono"] = time.monotonic()
            else:
                frame["written"] = time.time() if self.written is None else self.written
            if first is not None:
                frame["first"] = first + at
            if stamps is not None:
                frame["stamps"] = list(stamps[at:end])
            if quiet:
                frame["quiet"] = True
            if resume is not None and end == len(lines):
                frame["resume"] = resume
                if "offset" in resume:
                    frame["offset"] = resume["offset"]
            self._link.send(frame)
            at = end

    def start(self, offset: Optional[int], quiet: bool = False) -> None:
        """What follows begins at the last start of the server: the client's reader begins anew."""
        self._link.send({"f": "start", "offset": offset, "quiet": quiet})

    def skipped(self, count: int) -> None:
        if count > 0:
            self._link.send({"f": "skipped", "count": count})

    def source(self, path: str, why: Optional[str] = None, **facts: Any) -> None:
        """What is followed, or why it can't be at the moment."""
        frame = {"f": "source", "path": path, "why": why, "wall": time.time(), "utc_offset": time.localtime().tm_gmtoff}
        frame.update(facts)
        self._link.send(frame)

    def happened(self, what: str, path: str) -> None:
        """`rotated` or `truncated`."""
        self._link.send({"f": what, "path": path})

    def caught_up(self) -> None:
        """Everything that there was at attach has been sent."""
        self._link.send({"f": "caught_up"})


class Digest:
    """Of very many lines, those that matter: the first ones after the last start, the important ones, the last ones, in order."""

    def __init__(
        self,
        tail: int,
        is_start: Callable[[str], bool],
        is_important: Callable[[str], bool],
        head: int = 4000,
        important: int = 2000,
        together: int = 200,
    ) -> None:
        self._is_start = is_start
        self._is_important = is_important
        self._head_lines = head
        self._together = together
        self._head: List[Any] = []
        self._important: Deque[Any] = collections.deque(maxlen=important)
        self._tail: Deque[Any] = collections.deque(maxlen=tail)
        self._since_start: Optional[int] = None
        self.count = 0
        self.started = False

    def add(self, line: str, extra: Any = None) -> None:
        """One line, and what goes with it (its time stamp)."""
        number = self.count
        self.count += 1
        item = (number, line, extra)
        if self._is_start(line):
            # Several markers in a row are one start: its first line stays the first.
            if self._since_start is None or number - self._since_start > self._together:
                self._head = []
                self._important.clear()
                self.started = True
            self._since_start = number
        if len(self._head) < self._head_lines:
            self._head.append(item)
        elif self._is_important(line):
            self._important.append(item)
        self._tail.append(item)

    def chosen(self) -> List[Any]:
        """(number, line, extra) of what is kept, in order, none twice."""
        kept = {item[0]: item for part in (self._head, self._important, self._tail) for item in part}
        return [kept[number] for number in sorted(kept)]
