"""Bytes of a log made into lines, on the host: cut at CR, LF and CR LF, bounded in length, with the offset of what is done.

Python 3.8: this runs on the GPU host.
"""

import collections
import errno
import os
import re
import time
import zlib
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence

from tui.probe.leash import Link

LONGEST = 16384
"""Bytes of a line that are kept; no log's line that means anything is longer, a model's prompt may be."""
CUT_MARK = " … (line cut)"

_LF = re.compile(rb"\n")
_END = re.compile(rb"\r*\n|\r+")
_BAR = re.compile(rb"\d%\||\d% Completed|it/s|s/it|\r")


class LineCutter:
    """Feeds on the bytes of one file in order. `done` counts the bytes that are in lines already: the place to resume at."""

    def __init__(self, offset: int = 0, longest: int = LONGEST, only_lf: bool = False) -> None:
        self.done = offset
        self._longest = longest
        self._end = _LF if only_lf else _END
        self._rest = b""
        self._dropping = False
        self._flushed = False

    @property
    def rest(self) -> bytes:
        """The bytes after the last line end."""
        return self._rest

    @property
    def read(self) -> int:
        """The offset up to which bytes were fed."""
        return self.done + len(self._rest)

    def feed(self, data: bytes) -> List[str]:
        """Return the lines that are complete with these bytes. An empty line counts, unless a bar's CR made it."""
        data = self._rest + data
        # CRs at the very end may be the beginning of a CR LF: they wait for the next byte.
        body = data.rstrip(b"\r") if data.endswith(b"\r") else data
        held = data[len(body) :]
        parts = self._end.split(body)
        rest = parts.pop() + held
        self.done += len(data) - len(rest)
        lines: List[str] = []
        for number, part in enumerate(parts):
            if number == 0 and self._dropping:
                self._dropping = False
                continue
            if number == 0 and self._flushed and not part:
                continue  # the end of the line that was flushed before it was complete
            lines.append(_text(part, self._longest))
        if parts:
            self._flushed = False
        if self._dropping:
            self.done += len(rest)
            rest = b""
        elif len(rest) > self._longest:
            lines.append(_text(rest, self._longest))
            self.done += len(rest)
            rest = b""
            self._dropping = True
        self._rest = rest
        return lines

    def flush(self, bars_only: bool) -> List[str]:
        """Return the unfinished line when nothing more came for a while.

        A progress bar stands there until it is drawn again, and what a killed process wrote last has no line end. With `bars_only`,
        return nothing but a bar.
        """
        if not self._rest or (bars_only and not _BAR.search(self._rest)):
            return []
        line = _text(self._rest.rstrip(b"\r"), self._longest)
        self.done += len(self._rest)
        self._rest = b""
        self._flushed = True
        return [line]


def _text(part: bytes, longest: int) -> str:
    part = part.lstrip(b"\0")  # the end of a hole, see `after_hole`
    if len(part) > longest:
        return part[:longest].decode("utf-8", "replace") + CUT_MARK
    return part.decode("utf-8", "replace")


def cut_block(block: bytes) -> bytes:
    """Return a block with LF as its only line end, for searches that work on many lines at once."""
    if b"\r" in block:
        return re.sub(rb"\r+\n?", b"\n", block)
    return block


CHECK = 64
"""Bytes before the place that must still be the same."""

Place = Dict[str, Any]


def place_at(fd: int, offset: int, number: Optional[int]) -> Place:
    """Return the place at an offset of an open file."""
    return {"inode": os.fstat(fd).st_ino, "offset": offset, "check": zlib.crc32(_before(fd, offset)), "number": number}


def holds(fd: int, place: Place) -> bool:
    """Return whether the file still has, before the place, what it had."""
    offset = int(place["offset"])
    if os.fstat(fd).st_size < offset:
        return False
    return place.get("check") is None or zlib.crc32(_before(fd, offset)) == place["check"]


def renamed(path: str, place: Place) -> Optional[int]:
    """Open the file of the place if it lies beside `path` under another name, as a rotated log does; else return None."""
    folder, name = os.path.split(os.path.realpath(path))
    try:
        with os.scandir(folder or ".") as entries:
            found = [entry.path for entry in entries if entry.name.startswith(name[:3]) and entry.inode() == place.get("inode")]
    except OSError:
        return None
    for other in found:
        try:
            fd = os.open(other, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        if os.fstat(fd).st_ino == place.get("inode") and holds(fd, place):
            return fd
        os.close(fd)
    return None


def _before(fd: int, offset: int) -> bytes:
    size = min(offset, CHECK)
    return os.pread(fd, size, offset - size)


def after_hole(fd: int, offset: int, size: int) -> int:
    """Return the first offset from `offset` on where the file, up to `size`, holds something else than NULs; `size` if none does.

    A log that is emptied under a writer without O_APPEND (`vllm serve > log` and logrotate's copytruncate) begins with a hole as
    large as the log was, for the writer goes on at its own offset.
    """
    at = offset
    while at < size and os.pread(fd, 1, at) == b"\0":
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return size
            # A file system that knows of no holes: its NULs are read.
        block = os.pread(fd, 1 << 20, at)
        at += len(block) - len(block.lstrip(b"\0"))
    return min(at, size)


FRAME_LINES = 5000
FRAME_BYTES = 1 << 20
"""What is read in one piece goes in one frame, so that each frame has the place after its last line; these are only bounds."""


class Outlet:
    """Sends lines. `quiet` lines are for the client's reader alone, not for its pane."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.written: Optional[float] = None
        """When the last line of the past was written, as far as known; the time of reading if it is not."""

    def lines(
        self,
        lines: Sequence[str],
        resume: Optional[Dict[str, Any]],
        live: bool,
        first: Optional[int] = None,
        stamps: Optional[Sequence[Optional[float]]] = None,
        quiet: bool = False,
    ) -> None:
        """Write lines.

        `resume` is the position after the last of them; `first` the number of the first line in its source, if known.

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
        """Say that what follows begins at the last start of the server: the client's reader begins anew."""
        self._link.send({"f": "start", "offset": offset, "quiet": quiet})

    def skipped(self, count: int) -> None:
        if count > 0:
            self._link.send({"f": "skipped", "count": count})

    def source(self, path: str, why: Optional[str] = None, **facts: Any) -> None:
        """Say what is followed, or why it can't be at the moment."""
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
        """Add one line, and what goes with it (its time stamp)."""
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
        """Return (number, line, extra) of each line kept, in order, none twice."""
        kept = {item[0]: item for part in (self._head, self._important, self._tail) for item in part}
        return [kept[number] for number in sorted(kept)]
