"""Searches in large logs: where the last start of a server is, and which of many lines matter.

Python 3.8: this runs on the GPU host.
"""

import os
import re
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Union

from tui.probe.log_lines import Outlet, cut_block

BLOCK = 4 << 20
OVERLAP = 4096
"""Bytes that neighbouring blocks share when searching backwards, so that no marker is cut in two."""
SAME_START = 64 << 10
"""Markers closer than this are lines of one start: a banner, its arguments, its engine's configuration."""
SHORTEST_LITERAL = 3
DULL_SHAPES = 20000
_DIGITS = bytes(48 if 48 <= number <= 57 else number for number in range(256))


def pattern_of(sources: Sequence[str]) -> Optional["re.Pattern[bytes]"]:
    """Compile one pattern for bytes out of many for text; None if there is none. A source that is no pattern is taken literally."""
    parts = []
    for source in sources:
        raw = source.encode("utf-8")
        try:
            re.compile(raw)
        except re.error:
            raw = re.escape(raw)
        parts.append(b"(?:" + raw + b")")
    return re.compile(b"|".join(parts), re.MULTILINE) if parts else None


def literals_of(sources: Sequence[str]) -> Optional[List[bytes]]:
    """Return byte strings of which each match of one of the patterns holds at least one; None if that can't be told.

    Looking for a byte string is tens of times as fast as matching, which is what makes a gigabyte searchable in a second or two.
    """
    found: List[bytes] = []
    for source in sources:
        try:
            parsed = _parser().parse(source)
        except re.error:
            found.append(source.encode("utf-8"))
            continue
        needed = _needed(parsed)
        if needed is None:
            return None
        found.extend(needed)
    # A string that contains another one needs no search of its own.
    return [path for path in set(found) if not any(other in path and other != path for other in found)]


def _parser() -> Any:
    try:
        import re._parser as parser  # type: ignore[import-not-found]  # Python 3.11
    except ImportError:
        import sre_parse as parser
    return parser


def _needed(parsed: Any) -> Optional[List[bytes]]:
    """Return the literals of one parsed pattern: the best of its sequence's parts, of which each match must have one."""
    best: Optional[List[bytes]] = None
    run = ""

    def better(candidate: Optional[List[bytes]]) -> None:
        nonlocal best
        enough = SHORTEST_LITERAL if best is None else min(map(len, best)) + 1
        if candidate and min(map(len, candidate)) >= enough:
            best = candidate

    for operation, argument in parsed:
        name = str(operation)
        if name == "LITERAL":
            run += chr(argument)
            continue
        if name == "AT":  # ^, $ or \b match no character
            continue
        better([run.encode("utf-8")])
        run = ""
        if name == "SUBPATTERN":
            better(_needed(argument[-1]))
        elif name in ("MAX_REPEAT", "MIN_REPEAT") and argument[0] > 0:
            better(_needed(argument[2]))
        elif name == "BRANCH":
            branches = [_needed(branch) for branch in argument[1]]
            if all(branch is not None for branch in branches):
                better([word for branch in branches for word in branch or ()])
    better([run.encode("utf-8")])
    return best


class StartSearch:
    """Looks for the last start of a server in a file, backwards, a block at a time: `step` until `found` or `over`."""

    def __init__(self, fd: int, end: int, markers: Sequence[str], begin: int = 0) -> None:
        self._fd = fd
        self._begin = begin
        self._end = end
        self._pattern = pattern_of(markers)
        self._literals = literals_of(markers)
        self._room = bytearray(BLOCK + OVERLAP)  # used again: fresh pages for each block would cost as much as the search
        self.found: Optional[int] = None
        """The offset of the line that begins the last start."""
        self.over = self._pattern is None or end <= begin

    def step(self) -> None:
        """Search one block more."""
        begin = max(self._begin, self._end - BLOCK)
        at = self.last_in(self._block(begin, self._end - begin + OVERLAP))
        if at is not None:
            self.found = self._first_of_start(begin + at)
            self.over = True
        elif begin == self._begin:
            self.over = True
        self._end = begin

    def _block(self, begin: int, size: int) -> Union[bytes, bytearray]:
        if size == len(self._room) and os.preadv(self._fd, [self._room], begin) == size:
            return self._room
        return os.pread(self._fd, size, begin)

    def last_in(self, block: Union[bytes, bytearray]) -> Optional[int]:
        """Return the offset in a block of the line of its last marker."""
        if self._pattern is None:
            return None
        if self._literals is None:
            last = None
            for match in self._pattern.finditer(block):
                last = match
            return None if last is None else _line_start(block, last.start())
        end = len(block)
        while end > 0:
            hit = max((block.rfind(literal, 0, end) for literal in self._literals), default=-1)
            if hit < 0:
                return None
            begin = _line_start(block, hit)
            if self._pattern.search(block[begin : _line_end(block, hit)]):
                return begin
            end = begin
        return None

    def _first_of_start(self, offset: int) -> int:
        """Return the first of the markers that belong together with the one at `offset`."""
        least = max(self._begin, offset - 4 * SAME_START)  # a crash loop's starts follow each other closely, too
        while offset > least:
            begin = max(self._begin, offset - SAME_START)
            before = self.last_in(os.pread(self._fd, offset - begin, begin))
            if before is None:
                return offset
            offset = begin + before
        return offset


def _line_start(block: Union[bytes, bytearray], at: int) -> int:
    return max(block.rfind(b"\n", 0, at), block.rfind(b"\r", 0, at)) + 1


def _line_end(block: Union[bytes, bytearray], at: int) -> int:
    end = block.find(b"\n", at)
    return len(block) if end < 0 else end


class LineFilter:
    """Picks the lines that match one of many patterns out of blocks (LF ends only, see `cut_block`).

    Three shortcuts make a flood affordable. Lines that differ in digits only have one shape, and a shape is looked at once. `noise`
    are byte strings of lines that can't matter, which are most of a busy server's. And searching for byte strings is ten times as
    fast as matching.
    """

    def __init__(self, sources: Sequence[str], noise: Sequence[str] = ()) -> None:
        self._pattern = pattern_of(sources)
        self._literals = literals_of(sources)
        self._noise = [text.encode("utf-8") for text in noise]
        # A pattern that asks for one digit would not find it in a shape.
        self._shapes = not any(re.search(r"(?<![\\{,\d])\d(?![,}\d])", source) for source in sources)
        self._dull: Set[bytes] = set()

    def matches(self, line: str) -> bool:
        return self._pattern is not None and self._pattern.search(line.encode("utf-8", "replace")) is not None

    def lines(self, block: bytes) -> List[bytes]:
        """Return the lines in order."""
        if self._pattern is None:
            return []
        if self._shapes:
            shapes = block.translate(_DIGITS).split(b"\n")
            kinds = set(shapes)
            if len(kinds) * 3 < len(shapes):
                return self._by_shape(block, shapes, kinds)
        return self._one_by_one(block, self._noise)

    def _by_shape(self, block: bytes, shapes: List[bytes], kinds: Set[bytes]) -> List[bytes]:
        pattern = self._pattern
        assert pattern is not None
        fresh = kinds - self._dull
        noise = [text.translate(_DIGITS) for text in self._noise]
        wanted = set(self._one_by_one(b"\n".join(fresh), noise))
        if len(self._dull) > DULL_SHAPES:
            self._dull.clear()
        self._dull |= fresh - wanted
        if not wanted:
            return []
        pairs = zip(block.split(b"\n"), shapes)
        return [line for line, shape in pairs if shape in wanted and pattern.search(line)]

    def _one_by_one(self, block: bytes, noise: Sequence[bytes]) -> List[bytes]:
        pattern = self._pattern
        assert pattern is not None
        for text in noise:
            if text in block:
                block = b"\n".join([line for line in block.split(b"\n") if text not in line])
        if self._literals is None:
            return [line for line in block.split(b"\n") if pattern.search(line)]
        found = {}
        for literal in self._literals:
            at = block.find(literal)
            while at >= 0:
                begin = block.rfind(b"\n", 0, at) + 1
                end = _line_end(block, at)
                found[begin] = end
                at = block.find(literal, end)
        lines = [block[begin : found[begin]] for begin in sorted(found)]
        return [line for line in lines if pattern.search(line)]


def whole_blocks(fd: int, begin: int, end: int, size: int = 1 << 20) -> Iterator[Tuple[bytes, int]]:
    """Yield the region in blocks that end at line ends, cut to LF, each with the offset after it."""
    carry = b""
    at = begin
    while at < end:
        data = os.pread(fd, min(size, end - at), at)
        if not data:
            break
        at += len(data)
        data = carry + data
        cut = data.rfind(b"\n") + 1
        if not cut and len(data) > size:
            cut = len(data)  # a line longer than a block
        if at >= end:
            cut = len(data)
        carry = data[cut:]
        if cut:
            yield cut_block(data[:cut]), at - len(carry)


def tail_start(fd: int, begin: int, end: int, lines: int) -> int:
    """Return the offset at which the last `lines` lines of a region begin, looking at 1 MiB from its end at most."""
    first = max(begin, end - (1 << 20))
    block = os.pread(fd, end - first, first)
    at = len(block)
    for _ in range(lines + 1):
        cut = max(block.rfind(b"\n", 0, at), block.rfind(b"\r", 0, at))
        if cut < 0:
            return first if first == begin else first + max(0, block.find(b"\n") + 1)
        at = cut
    return first + at + 1


FIRST_IMPORTANT = 1000
LAST_IMPORTANT = 2000


class ImportantLines:
    """The important ones of many lines: the first and the last of them, if even they are too many."""

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
