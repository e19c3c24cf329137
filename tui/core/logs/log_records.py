"""The head of a line: who speaks, at which level, when; and the message that is left.

Process prefixes stand in front of the record (to 0.30) or inside it (0.31 and later), nest (the innermost is the speaker),
carry Ray's address, or stand alone on a line with what they belong to on the next.
"""

import re

from tui.core.logs.log_clock import STEP, LogClock
from tui.core.logs.wrappers import LEAP_YEAR_S, YEARLESS_UNTIL, Unwrapped, strip_colour_remnants, unwrap
from tui.core.text import clean

DATED = "[date]"
"""The head of records that begin with their date in brackets: `[2025-10-16 09:06:09 TP7] message`."""
UPTIME = "[uptime]"
"""The head of records that begin with the time since the process began: `0.00.009.202 I message`."""
LEVELS = frozenset(("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"))
_UVICORN = {f"{level}:": level for level in LEVELS} | {"WARN:": "WARNING"}
_PROCESS = re.compile(
    r"\((?P<name>(?:[^()]|\([^()]*\)|\((?:[^()]|\([^()]*\))*\)){1,120}?),? pid=(?P<pid>\d+)(?:, ip=[^)]{1,60})?\) ?"
)
_ANY_HEAD = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d-\d\d \d\d:\d\d:\d\d) \[?([\w./+-]+\.(?:py|rs|pyx|cpp):\d+)\] ?")
_ANY_UVICORN = re.compile(r"(?:^|[ \t|:])(DEBUG|INFO|WARNING|ERROR|CRITICAL): {4,5}(?=\S)")
_ENDS_IN_PROCESS = re.compile(r"(\([^()]{1,100} pid=\d+(?:, ip=[^)]{1,60})?\) )$")
_DATED = re.compile(r"\[(\d{4})-(\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d+)?((?: (?:DP|PP|TP|EP|ATTN_CP|ATTN_TP|MOE_DP|MOE_EP)\d+)*)\] ?")
_UPTIME = re.compile(r"(\d{1,7})\.(\d\d)\.(\d{3})\.(\d{3}) ([DIWE]) ")
_LETTERS = {"D": "DEBUG", "I": "INFO", "W": "WARNING", "E": "ERROR"}
_FOLDED = re.compile(r"\s*\[repeated \d+x across (?:cluster|all nodes)\].*$")
_RANK = re.compile(r"\brank=(\d+)|(?:^|[ _])(?<!ATTN_)(?<!MOE_)(DP|PP|TP|EP)(\d+)|VllmWorker-(\d+)")


class Speaker:
    """One process as its prefix names it.

    `engine` is its number among data-parallel engines and `rank` its place within its engine, None if the name does not tell.
    """

    __slots__ = ("engine", "key", "name", "pid", "rank", "worker")

    def __init__(self, name: str, pid: int | None) -> None:
        self.name = name
        self.pid = pid
        self.key = f"{name} {pid}"
        self.worker = "Worker" in name or (pid is None and bool(name))
        self.rank: int | None = None
        self.engine: int | None = None
        place = 0
        for match in _RANK.finditer(name):
            rank, kind, number, index = match.groups()
            if rank is not None or index is not None:
                self.rank = int(rank if rank is not None else index)
                place = 0
            elif kind == "DP":
                self.engine = int(number)
                if self.worker and self.rank is None:
                    self.rank = 0
            elif kind in ("PP", "TP"):
                place += int(number) * (1000 if kind == "PP" else 1)
                self.rank = place
        if name == "VllmWorkerProcess" or (name.startswith("RayWorker") and self.rank is None):
            self.rank = 1  # the driver is rank 0 and bare; of the others only the pid is known
        if name.startswith("VllmWorker-"):
            self.rank = None  # an early name of a process that is called Worker_… as soon as its rank is known


NOBODY = Speaker("", None)


class Line:
    """One line taken apart. A single instance is reused, since a log may bring hundreds of thousands a second."""

    __slots__ = ("at", "head", "level", "message", "speaker", "uptime", "uvicorn")

    def __init__(self) -> None:
        self.message = ""
        self.level: str | None = None
        self.speaker = NOBODY
        self.head = ""
        self.at: float | None = None
        self.uptime = False
        """Does `at` count from when the process began?"""
        self.uvicorn = False


class LineParser:
    """Take lines apart. Remembers names, the last bare prefix and the difference between the wrapper's clock and the server's."""

    def __init__(self, clock: LogClock) -> None:
        self._clock = clock
        self._prefixes: dict[str, Speaker] = {}
        self._alone = NOBODY
        self._shift: float | None = None
        self._last_at: float | None = None
        """The last time that a wrapper told, in the server's clock."""
        self._wrapped = False
        self._candidate = ""
        self._custom = ""
        self._dated = False
        self.line = Line()

    def lines(self, text: str) -> list[str] | None:
        """Return the parts of a text that unwraps into several lines (JSON messages), else None."""
        if text[:1] == "{" or self._wrapped or text[-1:] == "}":
            inner = self._unwrapped(text)[0]
            if "\n" in inner or "\r" in inner:
                return [part for part in re.split(r"[\r\n]+", inner) if part.strip()]
        return None

    def parse(self, text: str) -> Line:
        """Take a cleaned line apart; the result is valid until the next call."""
        line = self.line
        line.level = None
        line.head = ""
        line.at = None
        line.uptime = False
        line.uvicorn = False
        alone, self._alone = self._alone, NOBODY
        line.speaker = NOBODY
        if "0m" in text:
            text = strip_colour_remnants(text)
        if self._custom and text.startswith(self._custom):
            text = text[len(self._custom) :]
        if not self._head(text, line):
            inner, wrapper = self._unwrapped(text)
            if wrapper is not None:
                if not inner.isprintable():
                    inner = clean(inner)  # a JSON string may hold what the line around it only spells out
                line.level = wrapper.level
                line.head = wrapper.head
                if wrapper.process:
                    line.speaker = self._speaker(f"({wrapper.process}) ") or NOBODY
                if not self._head(inner, line) and (".py:" in inner or "INFO:     " in inner):
                    self._find_head(inner, line)
                if wrapper.at is not None:
                    self._wrapper_time(wrapper, line)
            elif ".py:" in text or ".rs:" in text or "INFO:     " in text:
                self._find_head(text, line)
        if line.speaker is NOBODY and not line.head:
            line.speaker = alone
        elif not line.head and not line.message.strip():
            self._alone = line.speaker
        if " [repeated " in line.message:
            line.message = _FOLDED.sub("", line.message)
        return line

    def _unwrapped(self, text: str) -> tuple[str, Unwrapped | None]:
        outer: Unwrapped | None = None
        for _ in range(4):
            wrapper = unwrap(text)
            if wrapper is None:
                break
            self._wrapped = True
            text = wrapper.text
            if outer is None or (outer.at is None and outer.level is None):
                outer = wrapper
            if wrapper.level is not None:
                outer = wrapper
        if outer is None and text[-1:] == "}":
            # A JSON record behind a prefix that nobody knows.
            start = text.find('{"', 1, 160)
            record = unwrap(text[start:]) if start > 0 else None
            if record is not None and record.level is not None:
                self._learn(text[:start])
                return record.text, record
        return text, outer

    def _learn(self, prefix: str) -> None:
        """Learn a prefix: what stands before two records alike stands before every line."""
        if prefix and prefix == self._candidate:
            self._custom = prefix
        self._candidate = prefix

    def _wrapper_time(self, wrapper: Unwrapped, line: Line) -> None:
        at = wrapper.at
        assert at is not None
        if wrapper.local:
            line.at = at
        elif line.at is not None:
            self._shift = round((line.at - at) / STEP) * STEP
        elif self._shift is not None:
            line.at = at + self._shift
            if self._last_at is not None and abs(line.at - self._last_at) > LEAP_YEAR_S / 2 and at < YEARLESS_UNTIL:
                # Syslog writes no year: between a record and this line the year has turned.
                line.at += LEAP_YEAR_S if line.at < self._last_at else -LEAP_YEAR_S
        else:
            line.at = at
        self._last_at = line.at

    def _speaker(self, prefix: str) -> Speaker | None:
        speaker = self._prefixes.get(prefix)
        if speaker is None:
            match = _PROCESS.fullmatch(prefix)
            if match is None:
                return None
            speaker = Speaker(match["name"].rpartition(",")[2].strip() or match["name"], int(match["pid"]))
            if len(self._prefixes) > 4096:
                self._prefixes.clear()
            self._prefixes[prefix] = speaker
        return speaker

    def _head(self, text: str, line: Line) -> bool:
        """Peel prefixes and record head off into `line`; False if the text shows neither."""
        found = False
        while text[:1] == "(":
            end = text.find(")", 1, 200)
            speaker = None
            while end > 0:
                cut = end + 2 if text[end + 1 : end + 2] == " " else end + 1
                speaker = self._speaker(text[:cut])
                if speaker is not None:
                    break
                end = text.find(")", end + 1, 200)
            if speaker is None:
                break
            if speaker.rank == 1 and speaker.name.startswith("RayWorker") and line.speaker.name.startswith("EngineCore"):
                speaker.rank = None  # V1's engine core is no worker: any of its Ray workers may be the first rank
            line.speaker = speaker
            text = text[cut:]
            found = True
        space = text.find(" ", 0, 12)
        word = text[:space] if space > 0 else ""
        if word in LEVELS:
            if text[space + 3 : space + 4] == "-" and text[space + 15 : space + 16] == " ":
                start = space + 16
                end = text.find("]", start, start + 160)
                if end > 0:
                    line.level = word
                    line.at = self._clock.seconds(text[space + 1 : space + 15])
                    line.head = text[start + 1 : end] if text[start] == "[" else text[start:end]
                    line.message = text[end + 2 :]
                    return True
        elif word in _UVICORN:
            line.level = _UVICORN[word]
            line.uvicorn = True
            line.message = text[space:].lstrip()
            return True
        elif word[:5] == "[rank" and word[-2:] == "]:":
            # PyTorch's hook writes the rank before each line of an uncaught exception.
            if line.speaker is NOBODY:
                line.speaker = self._rank_speaker(word[1:-2])
            line.message = text[space + 1 :]
            return True
        elif word[:1] == "[" and word[5:6] == "-":
            match = _DATED.match(text)
            if match:
                ranks = match[3].strip()
                if not ranks and self._stamped(text[match.end() :], match, line):
                    return True
                if ranks:
                    line.speaker = self._rank_speaker(ranks)
                line.at = self._clock.dated(int(match[1]), match[2])
                line.head = DATED
                text = text[match.end() :]
                space = text.find(" ", 0, 12)
                if space > 0 and text[:space] in _UVICORN:
                    line.level = _UVICORN[text[:space]]
                    line.uvicorn = True
                    text = text[space:].lstrip()
                line.message = text
                return True
        elif text[:1].isdigit():
            match = _UPTIME.match(text)
            if match:
                line.level = _LETTERS[match[5]]
                line.at = int(match[1]) * 60 + int(match[2]) + int(match[3]) / 1e3 + int(match[4]) / 1e6
                line.uptime = True
                line.head = UPTIME
                line.message = text[match.end() :]
                return True
        line.message = text
        return found

    def _stamped(self, inner: str, match: "re.Match[str]", line: Line) -> bool:
        """Read a record behind a date in brackets that `ts` or a script wrote; False if the date is the record's own."""
        if not self._dated:
            doubled = inner[:1] == "[" and _DATED.match(inner) is not None
            if not doubled and (".py:" not in inner or _ANY_HEAD.search(inner, 0, 200) is None):
                return False
            self._dated = True
        at = self._clock.dated(int(match[1]), match[2])
        if not self._head(inner, line) and ".py:" in inner:
            self._find_head(inner, line)
        if at is not None:
            self._wrapper_time(Unwrapped(inner, at), line)
        return True

    def _rank_speaker(self, ranks: str) -> Speaker:
        speaker = self._prefixes.get(ranks)
        if speaker is None:
            speaker = self._prefixes[ranks] = Speaker(ranks, None)
        return speaker

    def _find_head(self, text: str, line: Line) -> None:
        """Find a record behind a prefix of the user's own, or behind an unknown wrapper."""
        match = _ANY_HEAD.search(text, 0, 400)
        if match is None:
            uvicorn = _ANY_UVICORN.search(text, 0, 200)
            if uvicorn:
                line.level, line.uvicorn = uvicorn[1], True
                line.message = text[uvicorn.end() :]
            return
        line.level, line.head = match[1], match[3]
        line.at = self._clock.seconds(match[2])
        line.message = text[match.end() :]
        before = match.start()
        process = _ENDS_IN_PROCESS.search(text[:before])
        if process:
            line.speaker = self._speaker(process[1]) or NOBODY
            before = process.start(1)
        self._learn(text[:before])
