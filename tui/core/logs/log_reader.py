"""Read a server's log a line at a time: `LogReader` holds the working state, `LoadState` is what it shows.

A new start resets everything but the count of restarts. Nothing leads back from ready, stopped or failed except a new start.
"""

import re

from msgspec.structs import replace

from tui.core.deployment import LogLine
from tui.core.logs import start_parser
from tui.core.logs.compose_services import ComposeServices
from tui.core.logs.failure_detector import FailureDetector
from tui.core.logs.grammar import Grammar, Rule, first_word
from tui.core.logs.load_state import LoadState, Phase
from tui.core.logs.log_records import NOBODY, Line, LineParser
from tui.core.logs.progress_bars import looks_like_bar, parse_bar
from tui.core.logs.start_parser import Counts, StartParser, snapshot
from tui.core.logs.timeline import Timeline
from tui.core.logs.wrappers import hides_data
from tui.core.text import clean
from tui.engines.registry import grammars

_RECORDS = {grammar.record: grammar for grammar in grammars() if grammar.record}
"""Record format -> the grammar of the engine that alone writes it."""
_MESSAGES: dict[str, list[Rule]] = {}
"""First word of a message -> the rules of all engines in order."""
for _grammar in grammars():
    for _word, _rules in _grammar.by_word.items():
        _MESSAGES.setdefault(_word, []).extend(_rules)
_LITERALS = [entry for grammar in grammars() if not grammar.record for entry in grammar.by_literal]

_TAG = re.compile(r"\[(?!shutdown\])[a-z_0-9]+\] (?=\S)")
_MAIN = frozenset(("APIServer", "MainProcess"))
_PRINTABLE = bytes(range(32, 127))
_REQUESTS = ("Received request ", "Added request ", "Finished request ", "Aborted request")
_SUCCESS = re.compile(r'"(?:POST|GET) /(?:v1|health|generate|invocations|score|rerank|pooling)\S* HTTP/[\d.]+" 200')


class LogReader:
    """Turn lines into `state`.

    `year` is the log's (a file's date); live, the lines' times of arrival tell it. `zone_s` is how far the host's local time is
    ahead of UTC, if that is known. `service` is the one to read if a compose log holds several.

    Feed lines as they are split; pass the time of arrival (seconds since 1970) if it is known.
    """

    def __init__(self, year: int | None = None, zone_s: float | None = None, service: str | None = None) -> None:
        self._year = year
        self._service = service
        self._zone_s = zone_s
        self.reset()

    def reset(self) -> None:
        """Forget everything: the source is another one now."""
        self._services = ComposeServices(self._service)
        self._begin()

    def begin_anew(self) -> None:
        """Forget the start that was read: another process runs, which has written nothing yet. Starts go on being counted."""
        restarts = self._counts.restarts + (self._start.phase is not Phase.STOPPED)
        self._begin()
        self._counts.restarts = restarts

    def _begin(self) -> None:
        self._time = Timeline(self._year, self._zone_s)
        self._parser = LineParser(self._time.clock)
        self._start = StartParser()
        self._detector = FailureDetector(self._start, self._services)
        self._counts = Counts()
        self._calm = False
        self._state: LoadState | None = None

    def set_zone(self, zone_s: float) -> None:
        """Set how far the host's local time is ahead of UTC; from the next `reset` on, or at once if nothing was read yet."""
        self._zone_s = zone_s
        if not self._counts.lines:
            self.reset()

    @property
    def rollovers(self) -> int:
        """Return the turns of the year within the log. A file's date tells the year of its end, so a first reading may begin too
        late."""
        return self._time.clock.rollovers

    @property
    def services(self) -> tuple[str, ...]:
        """Return the services that write in this log, if it is a compose log."""
        return tuple(self._services.seen)

    @property
    def live(self) -> bool:
        """Tell whether lines are read as they are written."""
        return self._time.live

    @property
    def state(self) -> LoadState:
        """Return what the log says so far. The same object until something changes."""
        if self._state is None:
            self._time.settle()
            load = snapshot(self._start, self._counts, self._detector.failure(), self._time.now)
            services = self._services
            if services.note is not None:
                load = replace(load, service=services.chosen, services=tuple(services.servers), notes=(services.note, *load.notes))
            self._state = self._time.placed(load)
        return self._state

    def feed(self, line: str, at: float | None = None, number: int | None = None) -> LogLine:
        """Read one line and return it cleaned. `number` is its place in the file if that is not the count of lines fed."""
        self._counts.lines += 1
        self._state = None
        place = number if number is not None else self._counts.lines
        # Cheaper than asking a pattern: what is left of an ASCII line without its printable characters.
        text = line if line.isascii() and not line.encode().translate(None, _PRINTABLE) else clean(line)
        if not self._services.settled and not self._is_servers(text):
            return LogLine(text, None, place, at)
        if self._calm and self._uneventful(text, at):
            return LogLine(text, "INFO", place, at)
        if self._time.unsettled_at is not None:
            self._time.settle()
        parts = self._parser.lines(text) if "{" in text[:120] else None
        if parts is not None:
            read = self._feed_parts(parts, text, at, place)
        else:
            line_read = self._parser.parse(text)
            self._take(line_read, at, place)
            read = LogLine(text, line_read.level, place, at)
        self._calm = self._start.phase is Phase.READY and not self._detector.busy and not self._start.stalls
        return read

    def _is_servers(self, text: str) -> bool:
        """Tell whether the line is the server's, and not another service's in the same log."""
        before = self._services.chosen
        mine = self._services.take(text)
        if self._services.chosen != before and len(self._services.seen) > 1:
            lines = self._counts.lines  # what other services wrote before has been read as the server's
            self._begin()
            self._counts.lines = lines
        return mine

    def _uneventful(self, text: str, at: float | None) -> bool:
        """Take the short way for what a busy server writes most: answered requests, and records of no account. False for all
        else."""
        if text[-6:] == "200 OK":
            if text.find("INFO:     ", 0, 160) < 0:
                return False
        else:
            start = text.find("INFO ", 0, 160) + 5
            if start < 5 or text[start + 2 : start + 3] != "-" or text[start + 8 : start + 9] != ":":
                return False
            end = text.find("] ", start + 15, start + 140) + 2
            if end < 2 or text[end : end + 1] in ("[", " ", "") or text[0] == "{":
                return False
            stop = text.find(" ", end)
            if not text.startswith(_REQUESTS, end) and (text[end:stop] if stop > 0 else text[end:]) in _MESSAGES:
                return False
            stamp = text[start : start + 14]
            if stamp != self._time.stamp and not self._time.glance(stamp, at):
                return False
        if at is not None:
            self._time.unsettled_at = at
        return True

    def finish(self) -> None:
        """Take the source as ended for good: an announced failure whose traceback never came is one."""
        self._time.settle()
        self._detector.finish()
        self._state = None

    def _feed_parts(self, parts: list[str], text: str, at: float | None, place: int) -> LogLine:
        shell = self._parser.parse(text)
        level, speaker, when, head = shell.level, shell.speaker, shell.at, shell.head
        for part in parts:
            line = self._parser.parse(clean(part))
            if line.level is None:
                line.level = level
            if line.at is None:
                line.at = when
            if not line.head and head:
                line.head = head
                line.speaker = speaker
            self._take(line, at, place)
        return LogLine(text, level, place, at)

    # -- one line

    def _take(self, line: Line, at: float | None, place: int) -> None:
        if line.speaker.name in _MAIN or line.uvicorn:
            self._main_speaks(line)
        start = self._start
        if not start.waiting:
            start.alive_at = self._time.now  # of the line before
        start.waiting = False
        self._time.take(line, at, place, start)
        message = line.message
        level = line.level
        if level is not None or line.head:
            if level == "WARNING":
                self._counts.warnings += 1
            elif level == "ERROR" or level == "CRITICAL":
                self._counts.errors += 1
            if line.uvicorn and message[-6:] == "200 OK":
                if start.phase is not Phase.READY and _SUCCESS.search(message):
                    self._served()
                elif start.stalls and '"POST' in message:
                    start.stalls.clear()
                return
            self._head_line(line, message)
        elif looks_like_bar(message) and self._bar(line, message, at):
            return
        if level == "ERROR" or level == "CRITICAL" or level is None or self._detector.busy or level == "WARNING":
            if level is None and not line.head and message and self._bare(line, message):
                return
            self._detector.read(line, message, place, self._time.now)

    def _main_speaks(self, line: Line) -> None:
        """Notice that another main process has begun a start whose banner the log level may hide."""
        start = self._start
        pid = line.speaker.pid if line.speaker.name in _MAIN else None
        if start.phase in (Phase.STOPPED, Phase.FAILED):
            begun = line.uvicorn and line.message.startswith("Started server process")
            if begun or (pid is not None and start.main_pid is not None and pid != start.main_pid):
                self._new_start(line)
        if pid is not None and self._start.main_pid is None:
            self._start.main_pid = pid

    # -- what engines say

    def _head_line(self, line: Line, message: str) -> None:
        """Read a record or a uvicorn line."""
        message = _untagged(line, message)
        own = _RECORDS.get(line.head)
        if own is not None:
            start = self._start
            if start.engine is None and (own.record_is_proof or line.speaker is not NOBODY):
                start.engine = own.engine
            found = own.rule_for(message)
            if found is not None:
                self._handle(line, *found, own)
                return
            if start.engine == own.engine:
                start.startup_is_ready = own.startup_is_ready
        if not self._known(line, message):
            for literal, rule in _LITERALS:
                if literal in message:
                    match = rule.pattern.search(message)
                    if match is not None:
                        self._handle(line, rule, match)
                        return

    def _known(self, line: Line, message: str) -> bool:
        """Handle a message by all rules that it matches; False if no engine's messages begin so."""
        rules = _MESSAGES.get(first_word(message))
        for rule in rules or ():
            match = rule.pattern.match(message)
            if match is not None:
                self._handle(line, rule, match)
        return rules is not None

    def _handle(self, line: Line, rule: Rule, match: "re.Match[str]", own: Grammar | None = None) -> None:
        if rule.begins:
            self._start_seen(line)
        start = self._start
        if own is not None:
            start.engine, start.startup_is_ready = own.engine, own.startup_is_ready
        was_ready = start.was_ready
        rule.handler(start, match, line)
        self._after(was_ready)

    def _after(self, was_ready: bool) -> None:
        if self._start.was_ready and not was_ready:
            self._detector.became_ready()

    def _served(self) -> None:
        """Note that a request was answered, so the server is up although the log hides its readiness."""
        start = self._start
        if not start.startup_is_ready and start.phase is not Phase.READY and not start.serving_soon:
            return
        was_ready = start.was_ready
        start.become_ready(self._time.now)
        self._after(was_ready)

    def _start_seen(self, line: Line) -> None:
        """Take the first line of a server's start."""
        start = self._start
        key = line.speaker.key
        if not start.banner and start.phase not in (Phase.FAILED, Phase.STOPPED, Phase.READY) and not start.loaders.bars:
            start.banner = True
            start.banner_speaker = key
            return
        if start.phase is Phase.STARTING and key != start.banner_speaker and ("ApiServer_" in key or "_DPRank_" in key):
            start.api_servers += "_DPRank_" in key  # one server a rank, each with a banner of its own
            return
        self._new_start(line)
        self._start.banner = True
        self._start.banner_speaker = key

    def _new_start(self, line: Line) -> None:
        if self._start.phase is not Phase.STOPPED:
            self._counts.restarts += 1
        before = self._detector.failure()
        self._start = StartParser()
        if before is not None:
            where = f" (line {before.line})" if before.line else ""
            self._start.notes["before"] = f"the start before this one failed{where}: {before.cause}"
        self._start.now = self._start.started_at = self._time.now
        self._start.start_seen = True
        self._detector = FailureDetector(self._start, self._services)

    # -- bars

    def _bar(self, line: Line, message: str, at: float | None) -> bool:
        bar = parse_bar(message)
        if bar is None:
            return False
        if line.at is None and bar.elapsed is not None:
            self._time.take_bar(bar, at, self._start)
        start_parser.read_bar(self._start, bar, line.speaker, self._time.now)
        return True

    # -- bare lines

    def _bare(self, line: Line, message: str) -> bool:
        """Read a line without a head, of which grammars know some if logging is switched off. True if it hides what it held."""
        if hides_data(message):
            self._start.notes["blobs"] = (
                "journalctl hides the progress bars as blob data: read the journal with -o json (or -a) to see them"
            )
            return True
        if message[0] not in " \t":
            self._known(line, _untagged(line, message))
        return False


def _untagged(line: Line, message: str) -> str:
    """Return a message without the part of the model that stands before it in vLLM 0.32 and later: `[backbone] Starting
    torch.compile`."""
    if message[:1] == "[":
        tag = _TAG.match(message)
        if tag:
            message = line.message = message[tag.end() :]
    return message
