"""A log file that is followed: from its last start on, through rotation and truncation, resumed where an earlier run stopped.

Python 3.8: this runs on the GPU host.
"""

import errno
import os
import stat
import time
from typing import Any, Callable, Dict, List, Optional

from tui.probe.become import Become
from tui.probe.leash import Link
from tui.probe.log_lines import LineCutter, Outlet, Place, after_hole, holds, place_at, renamed
from tui.probe.log_search import ImportantLines, LineFilter, StartSearch, tail_start, whole_blocks
from tui.probe.outputs import abandoned

POLL_S = 0.2
RETRY_S = 1.0
WHOLE = 512 << 10
"""A log up to this size is sent whole; of a longer one, as much after its last start."""
HEAD = 192 << 10
SEARCH_S = 1.0
"""How long attach looks for the last start before it sends what it has."""
SCAN_NOW = 24 << 20
"""A middle up to this size is searched for important lines before the tail is sent; a longer one in the background."""
PIECE = 64 << 10
"""Bytes that are read, and sent, in one piece."""
AT_ONCE = 256 << 10
"""Bytes a round that are sent whole; more is a flood."""
FLOOD_ROUND = 16 << 20
BAR_AFTER = 2
LINE_AFTER = 10
"""Idle rounds before an unfinished bar, or line, is shown."""
WRITERS_AFTER = 100
"""Idle rounds after which it is looked whether anybody still has the file open."""


class FileFollower:
    """Follows a path by polling: five `fstat`s a second cost nothing and work on NFS, overlay and FUSE, where inotify is blind."""

    def __init__(self, arguments: Dict[str, Any], link: Link) -> None:
        self._link = link
        self._out = Outlet(link)
        self._path = os.path.expanduser(str(arguments["path"]))
        self._place: Optional[Place] = arguments.get("from") or None
        self._markers = [str(source) for source in arguments.get("start_markers") or ()]
        self._important = LineFilter(
            [str(source) for source in arguments.get("important") or ()], [str(text) for text in arguments.get("noise") or ()]
        )
        self._tail = int(arguments.get("tail", 400))
        self._become = Become(arguments, link)
        self._fd = -1
        self._inode = 0
        self._cutter = LineCutter()
        self._number: Optional[int] = None
        self._why: Optional[str] = None
        self._known: Optional[Place] = None
        self._later: Optional[Callable[[], bool]] = None
        self._absent = False
        self._abandoned = False

    def run(self) -> None:
        """Follow until the client ends it."""
        while True:
            try:
                self._open()
                self._attach()
                self._follow()
            except OSError as error:
                self._place = self._known or self._place
                self._later = None
                self._problem(error)
                self._link.request(RETRY_S)
            finally:
                self._close()

    # -- the file ------------------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        kind = os.stat(self._path)
        if not stat.S_ISREG(kind.st_mode):
            raise OSError(errno.EINVAL, "is not a regular file, it can't be followed")
        self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        status = os.fstat(self._fd)
        self._inode = status.st_ino
        self._why = None
        self._out.written = status.st_mtime
        self._out.source(self._path, inode=status.st_ino, size=status.st_size, mtime=status.st_mtime)

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _problem(self, error: OSError) -> None:
        """Say why the file can't be read, once for each reason."""
        text = os.strerror(error.errno) if error.errno and error.errno != errno.EINVAL else str(error.strerror or error)
        if error.errno == errno.ENOENT:
            # What comes into being later is new from its first byte.
            self._absent = self._absent or self._place is None
            text = "there is no such file yet; waiting for it"
        elif error.errno in (errno.EACCES, errno.EPERM):
            self._become.take_over(**{"from": self._place})
            text = "no permission to read it as %s: %s" % (_user(), self._become.advice())
        if text != self._why:
            self._why = text
            self._out.source(self._path, why=text)

    def _resume(self, offset: Optional[int] = None) -> Place:
        return place_at(self._fd, self._cutter.done if offset is None else offset, self._number)

    # -- attach --------------------------------------------------------------------------------------------------------------------

    def _attach(self) -> None:
        place = self._place
        if place is None:
            self._attach_fresh()
        elif place.get("inode") == self._inode and holds(self._fd, place):
            self._go_on(int(place["offset"]), place.get("number"))
        else:
            self._attach_elsewhere(place)
        self._remember()
        self._look_for_writers()
        self._out.caught_up()

    def _look_for_writers(self) -> None:
        """Say when the writers of the file are gone, and when one is there again."""
        gone = abandoned(self._path, self._fd)
        if gone != self._abandoned:
            self._abandoned = gone
            self._link.send({"f": "abandoned", "gone": gone})

    def _go_on(self, offset: int, number: Optional[int]) -> None:
        self._cutter = LineCutter(offset)
        self._number = number
        self._round(live=False)

    def _attach_elsewhere(self, place: Place) -> None:
        """Attach if the file of the place was renamed or emptied meanwhile: send its rest if it is found, then this file."""
        if place.get("inode") == self._inode:
            self._out.happened("truncated", self._path)
        else:
            old = renamed(self._path, place)
            if old is not None:
                new, self._fd = self._fd, old
                try:
                    self._go_on(int(place["offset"]), place.get("number"))
                    self._out.lines(self._cutter.flush(False), None, live=False)
                finally:
                    os.close(old)
                    self._fd = new
            self._out.happened("rotated", self._path)
        if os.fstat(self._fd).st_size > WHOLE:
            self._attach_fresh()
        else:
            self._go_on(0, 1)

    def _attach_fresh(self) -> None:
        size = os.fstat(self._fd).st_size
        begin = after_hole(self._fd, 0, size)
        if size - begin <= WHOLE:
            self._out.start(begin)
            self._cutter = LineCutter(begin)
            self._number = 1
            live, self._absent = self._absent, False
            self._send_to(size, live=live)
            return
        self._number = None
        search = StartSearch(self._fd, size, self._markers, begin)
        began = time.monotonic()
        while not search.over and time.monotonic() - began < SEARCH_S:
            search.step()
        if search.over:
            self._send_from(search.found or begin, size)
        else:
            # The head holds a start in most cases; the search for a later one goes on behind the live lines.
            head = StartSearch(self._fd, begin + HEAD, self._markers, begin)
            head.step()
            self._send_from(head.found or begin, size, scan=False)
            self._later = self._searching(search, begin, size)

    def _send_from(self, start: int, size: int, quiet: bool = False, scan: bool = True) -> None:
        """Send what the state needs of a region: its head, the important lines of its middle, its tail."""
        self._out.start(start, quiet)
        self._cutter = LineCutter(start)
        if size - start <= WHOLE:
            self._send_to(size, live=False, quiet=quiet)
            return
        self._send_to(start + HEAD, live=False, quiet=quiet)
        middle = self._cutter.done
        end = tail_start(self._fd, middle, size, self._tail)
        small = end - middle <= SCAN_NOW
        if small:
            self._send_important(middle, end, quiet)
        self._cutter = LineCutter(end)
        self._send_to(size, live=False, quiet=quiet)
        if scan and not small:
            self._later = self._scanning(start, middle, end)

    def _send_important(self, begin: int, end: int, quiet: bool) -> None:
        chosen = ImportantLines()
        for block, _ in whole_blocks(self._fd, begin, end):
            chosen.see(block, self._important)
        chosen.send(self._out, quiet)

    def _send_to(self, end: int, live: bool, quiet: bool = False) -> None:
        """Everything up to an offset."""
        while self._cutter.read < end:
            data = os.pread(self._fd, min(PIECE, end - self._cutter.read), self._cutter.read)
            if not data:
                return
            self._send(self._cutter.feed(data), live=live, quiet=quiet)

    def _send(self, lines: List[str], live: bool, quiet: bool = False) -> None:
        if lines:
            first = self._number
            if self._number is not None:
                self._number += len(lines)
            self._out.lines(lines, None if quiet else self._resume(), live=live, first=first, quiet=quiet)

    # -- in the background ---------------------------------------------------------------------------------------------------------

    def _searching(self, search: StartSearch, begin: int, size: int) -> Callable[[], bool]:
        def step() -> bool:
            search.step()
            if search.over:
                self._again(search.found or begin, size)
            return search.over

        return step

    def _scanning(self, start: int, begin: int, end: int) -> Callable[[], bool]:
        """Look through the middle; if anything of weight stands there, the reader gets the whole once more, with it."""
        blocks = whole_blocks(self._fd, begin, end)
        chosen = ImportantLines()

        def step() -> bool:
            for block, _ in blocks:
                chosen.see(block, self._important)
                return False
            if chosen.count:
                self._again_with(start, begin, end, chosen)
            return True

        return step

    def _again(self, start: int, size: int) -> None:
        """Send the region once more, for the reader, from a start that was found late."""
        done, number = self._cutter, self._number
        self._number = None
        self._send_from(start, size, quiet=True)
        self._filter(size, done.done, quiet=True)
        self._cutter, self._number = done, number

    def _again_with(self, start: int, begin: int, end: int, chosen: "ImportantLines") -> None:
        done, number = self._cutter, self._number
        self._number = None
        self._out.start(start, quiet=True)
        self._cutter = LineCutter(start)
        self._send_to(begin, live=False, quiet=True)
        chosen.send(self._out, quiet=True)
        self._filter(end, done.done, quiet=True)
        self._cutter, self._number = done, number

    # -- live ----------------------------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Follow on, from file to file when the path leads to another one. Raise OSError."""
        idle = 0
        moved = False
        while True:
            self._wait()
            size = os.fstat(self._fd).st_size
            if size < self._cutter.read or (
                size > self._cutter.read and self._known is not None and not holds(self._fd, self._known)
            ):
                self._out.happened("truncated", self._path)
                self._later = None
                self._cutter = LineCutter()
                self._number = 1
                self._remember()
            if size > self._cutter.read:
                idle = 0
                self._round(live=True)
                continue
            if moved:
                self._send(self._cutter.flush(False), live=True)
                self._out.happened("rotated", self._path)
                self._later = None
                # The new file is new from its first byte, whatever its size.
                self._open_next()
                moved = False
                idle = 0
                continue
            idle += 1
            if idle % WRITERS_AFTER == 0 or (self._abandoned and idle == 1):
                self._look_for_writers()
            if idle in (BAR_AFTER, LINE_AFTER):
                self._send(self._cutter.flush(bars_only=idle == BAR_AFTER), live=True)
                self._remember()
            moved = self._path_moved()

    def _open_next(self) -> None:
        self._close()
        self._open()
        self._cutter = LineCutter()
        self._number = 1
        self._remember()

    def _path_moved(self) -> bool:
        try:
            there = os.stat(self._path)
        except OSError as error:
            if error.errno == errno.ESTALE:
                raise
            # Renamed, and its successor isn't there yet.
            if self._why is None:
                self._problem(error)
            return False
        if self._why is not None:
            self._why = None
            self._out.source(self._path, inode=there.st_ino, size=there.st_size)
        # A server that was not told of the rotation goes on writing into the renamed file, while its successor stays empty.
        return there.st_ino != self._inode and there.st_size > 0

    def _wait(self) -> None:
        """Until the next round; the time is the background's, a short step at a time."""
        if self._later is None:
            self._link.request(POLL_S)
            return
        ends = time.monotonic() + POLL_S
        while self._later is not None and time.monotonic() < ends:
            later = self._later
            if later() and self._later is later:
                self._later = None
            time.sleep(0.005)

    def _round(self, live: bool) -> None:
        """Send what is new: whole while it is little, in a choice when it is a flood."""
        size = os.fstat(self._fd).st_size
        data = after_hole(self._fd, self._cutter.read, size)
        if data > self._cutter.read:
            self._send(self._cutter.flush(bars_only=False), live=live)
            self._cutter = LineCutter(data)
        pending = size - self._cutter.read
        whole = pending <= AT_ONCE and not self._link.outlet_blocked() if live else pending <= 4 * AT_ONCE
        if whole:
            self._send_to(size, live=live)
        else:
            while self._cutter.read < size:
                end = min(size, self._cutter.read + FLOOD_ROUND)
                last = tail_start(self._fd, self._cutter.read, end, self._tail) if end == size else end
                begin = self._cutter.read
                if last > begin:
                    self._filter(self._cutter.done, last, quiet=False, live=live)
                    lines = self._lines_between(begin, last)
                    self._number = None if self._number is None else self._number + lines
                    self._cutter = LineCutter(last)
                if last < end:
                    self._send_to(end, live=live)
        self._remember()

    def _lines_between(self, begin: int, end: int) -> int:
        return sum(block.count(b"\n") for block, _ in whole_blocks(self._fd, begin, end))

    def _filter(self, begin: int, end: int, quiet: bool, live: bool = False) -> None:
        """Send the lines of weight of a region, and how many were left out. A small one goes whole."""
        if end <= begin:
            return
        if quiet and end - begin <= WHOLE:
            lines = LineCutter().feed(os.pread(self._fd, end - begin, begin))
            self._out.lines(lines, None, live=False, quiet=True)
            return
        chosen = ImportantLines()
        for block, _ in whole_blocks(self._fd, begin, end):
            chosen.see(block, self._important)
        chosen.send(self._out, quiet, live, None if quiet else self._resume(end))
        if not quiet:
            self._out.skipped(chosen.seen - chosen.kept)

    def _remember(self) -> None:
        self._known = self._resume()


def _user() -> str:
    try:
        import pwd

        return pwd.getpwuid(os.geteuid()).pw_name
    except (ImportError, KeyError):
        return "uid %d" % os.geteuid()
