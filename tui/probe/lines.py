"""Bytes of a log made into lines, on the host: cut at CR, LF and CR LF, bounded in length, with the offset of what is done.

Python 3.8: this runs on the GPU host.
"""

import re
from typing import List

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
        """What came after the last line end."""
        return self._rest

    @property
    def read(self) -> int:
        """The offset up to which bytes were fed."""
        return self.done + len(self._rest)

    def feed(self, data: bytes) -> List[str]:
        """The lines that are complete with these bytes. An empty line counts as one, except where a bar's CR made it."""
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
        """The unfinished line, when nothing more came for a while: a progress bar stands there until it is drawn again, and what a
        killed process wrote last has no line end. With `bars_only`, nothing but a bar."""
        if not self._rest or (bars_only and not _BAR.search(self._rest)):
            return []
        line = _text(self._rest.rstrip(b"\r"), self._longest)
        self.done += len(self._rest)
        self._rest = b""
        self._flushed = True
        return [line]


def _text(part: bytes, longest: int) -> str:
    if len(part) > longest:
        return part[:longest].decode("utf-8", "replace") + CUT_MARK
    return part.decode("utf-8", "replace")


def cut_block(block: bytes) -> bytes:
    """A block with LF as its only line end, for searches that work on many lines at once."""
    if b"\r" in block:
        return re.sub(rb"\r+\n?", b"\n", block)
    return block
