"""Exceptions out of the lines of many processes: tracebacks bare or inside records, their chains, and texts of several lines.

Lines of one traceback need not be contiguous: two streams are cut into one another, and ranks speak at once. So each process has a
reading of its own, kept apart for bare lines and for records.
"""

import re
from dataclasses import dataclass, field

from tui.core.logs.log_records import NOBODY, Speaker

TEXT_LINES = 24
IDLE_LINES = 200
"""So many other lines end whatever is still open."""

_EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.]*)(?::\s?(?P<text>.*))?$")
_TYPE = re.compile(
    r"(?:Error|Exception|Interrupt|Exit|Warning|Timeout|Cancelled|NotFound|OutOfMemory|Fault|Failure|Stop\w*|Group)$"
)
_DIRECT = "The above exception was the direct cause"
_DURING = "During handling of the above exception"
HEADER = "Traceback (most recent call last)"
FRAME = '  File "'
"""What follows the header, and stands first if a log begins in the midst of a traceback."""
_GROUPED = re.compile(r"^\s*(?:\+-\+-+ \d+ -+|\+ |\| )")


@dataclass(slots=True)
class Raised:
    """One exception. `line` is the number of its own line; `above` is what it was raised from or while handling, `direct` telling
    which. `frames` are the last source lines of its traceback."""

    type: str
    text: str
    line: int
    speaker: Speaker
    at: float | None = None
    more: list[str] = field(default_factory=list)
    above: "Raised | None" = None
    direct: bool = False
    introduction: str = ""
    frames: list[str] = field(default_factory=list)
    in_record: bool = False
    covered: bool = False
    """Is it the cause or the context of a later one in its chain?"""

    @property
    def full(self) -> str:
        return "\n".join([f"{self.type}: {self.text}" if self.text else self.type, *self.more])


@dataclass(slots=True)
class _Reading:
    """Where the reading of one process's exceptions stands."""

    open: bool = False
    frames: list[str] = field(default_factory=list)
    last: Raised | None = None
    trailing: bool = False
    blank: bool = False
    chain: bool | None = None
    introduction: str = ""
    head: str = ""
    owner: Speaker = NOBODY


class Tracebacks:
    """Collect what was raised. Feed it the lines that may belong to a traceback."""

    def __init__(self) -> None:
        self._readings: dict[str, _Reading] = {}
        self.busy = False
        """Is any reading open? While none is, plain lines that aren't a traceback's header need not be fed."""
        self._idle = 0

    def introduce(self, key: str, text: str) -> None:
        """Remember the line that stands before a traceback: `Process EngineCore:`, `WorkerProc failed to start.`"""
        self._readings.setdefault(key, _Reading()).introduction = text

    def feed(self, key: str, speaker: Speaker, text: str, line: int, at: float | None, head: str) -> tuple[bool, Raised | None]:
        """Return whether the line belongs to a traceback, and the exception if it brings one."""
        mine, raised = self._feed(key, speaker, text, line, at, head)
        self._idle = 0 if mine else self._idle + 1
        if self._idle > IDLE_LINES:
            for reading in self._readings.values():
                reading.open = reading.trailing = False
            self.busy = False
        return mine, raised

    def _feed(self, key: str, speaker: Speaker, text: str, line: int, at: float | None, head: str) -> tuple[bool, Raised | None]:
        reading = self._readings.get(key)
        if reading is None:
            if HEADER not in text and not text.startswith(FRAME):
                return False, None
            reading = self._readings[key] = _Reading()
        stripped = text.strip()
        if stripped[:1] in "|+" and _GROUPED.match(text):
            stripped = stripped.lstrip("|+- ")
            text = stripped if not stripped.startswith("File ") else "  " + stripped
        if HEADER in text:
            reading.open = True
            before = text.partition(HEADER)[0].strip(" :")
            if before:
                reading.introduction = before  # older releases announce it on the same line
            reading.trailing = False
            reading.frames = []
            reading.head = head
            reading.owner = speaker
            self.busy = True
            return True, None
        if not reading.open and not reading.trailing and text.startswith(FRAME):
            reading.open = self.busy = True
            reading.trailing = False
            reading.frames = []
            reading.head = head
            reading.owner = speaker
        if _DIRECT in text or _DURING in text:
            reading.chain = _DIRECT in text
            reading.trailing = False
            return True, None
        if reading.open:
            if not stripped or text[0] in " \t":
                if stripped and not stripped.startswith(("^", "~")):
                    reading.frames.append(stripped)
                    if len(reading.frames) > 40:
                        del reading.frames[:20]
                return True, None
            match = _EXCEPTION.match(text)
            reading.open = False
            if match is None or not (_TYPE.search(match["type"]) or match["text"] is not None or "." in match["type"]):
                # Something else was printed into the midst of it, or the log lost the end.
                reading.open = not _looks_foreign(text)
                return reading.open, None
            raised = Raised(match["type"], (match["text"] or "").strip(), line, reading.owner, at, in_record=bool(head))
            raised.frames = reading.frames[-6:]
            raised.introduction = reading.introduction
            if reading.chain is not None and reading.last is not None:
                raised.above, raised.direct = reading.last, reading.chain
                reading.last.covered = True
            reading.chain = None
            reading.introduction = ""
            reading.last = raised
            reading.trailing = True
            reading.blank = False
            return True, raised
        if reading.trailing and reading.last is not None:
            if not stripped:
                reading.blank = True
                return True, None
            full = len(reading.last.more) >= TEXT_LINES
            if head != reading.head or (full and not head) or _looks_foreign(text):
                reading.trailing = False
                return False, None
            if full:
                reading.last.more.pop()  # a record shows where it ends, and the last line of a long text is the telling one
            reading.last.more.append(stripped)
            return True, None
        return False, None


def _looks_foreign(text: str) -> bool:
    return (
        text.startswith(
            ("INFO", "WARNING", "ERROR", "DEBUG", "Process ", "Exception ignored", "Exception in thread", "nanobind:", "[rank")
        )
        or "UserWarning:" in text
        or "% Completed |" in text
        or "%|" in text
        or (text.startswith("/") and ": " in text and ".py:" in text)
    )
