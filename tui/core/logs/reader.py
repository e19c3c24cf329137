"""Reads a server's log a line at a time: `LogReader` holds the working state, `LoadState` is what it shows.

A new start resets everything but the count of restarts. Nothing leads back from ready, stopped or failed except a new start.
"""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tui.core.deployment import LogLine
from tui.core.logs import sglang, vllm
from tui.core.logs.advice import advice
from tui.core.logs.bars import Bar, looks_like_bar, parse_bar
from tui.core.logs.clock import Alignment, LogClock
from tui.core.logs.course import SILENCE_S, Course
from tui.core.logs.failures import (
    ANNOUNCEMENT,
    FATAL,
    HINT,
    PLAIN,
    Evidence,
    Trouble,
    Verdictless,
    is_cleanup,
    is_consequence,
    is_ordered,
)
from tui.core.logs.kinds import is_wrapper, kind_of
from tui.core.logs.records import NOBODY, Line, LineParser
from tui.core.logs.state import Failure, Loader, LoadState, Phase
from tui.core.logs.tracebacks import HEADER, Raised, Tracebacks
from tui.core.logs.wrappers import hides_data
from tui.core.text import clean

_TAG = re.compile(r"\[(?!shutdown\])[a-z_0-9]+\] (?=\S)")
_LOADER_BARS = re.compile(r"[Ll]oading .*(?:checkpoint|shards|Streamer|loader)|Multi-thread loading")
_CAPTURE_BARS = re.compile(r"Capturing")
_WARM_BARS = re.compile(r"warm-?up|Compiling|Autotun|Pre-compiling|tuning", re.IGNORECASE)
_HUB_BARS = re.compile(r"Fetching \d+ files|\.(?:safetensors|bin|json|gguf|pt|model)\b|Downloading")
_BAR_NAME = re.compile(r"(?:Loading|Multi-thread|Capturing|Fetching|Downloading|\[Aiter|DeepGEMM|Compiling|JIT).*")
_SUCCESS = re.compile(r'"(?:POST|GET) /(?:v1|health|generate|invocations|score|rerank|pooling)\S* HTTP/[\d.]+" 200')

STALLS = 3
"""Waits of 60 s each for a shared memory block after ready: with so many it is a hang, not a long request."""


class LogReader:
    """Turns lines into `state`. `year` is the log's (a file's date); live, the lines' times of arrival tell it.

    Feed lines as they are split; pass the time of arrival (seconds since 1970) where it is known.
    """

    def __init__(self, year: int | None = None) -> None:
        self._year = year
        self.reset()

    def reset(self) -> None:
        """Forgets everything: the source is another one now."""
        self._clock = LogClock(self._year)
        self._parser = LineParser(self._clock)
        self._course = Course()
        self._evidence = Evidence()
        self._tracebacks = Tracebacks()
        self._restarts = 0
        self._lines = 0
        self._errors = 0
        self._warnings = 0
        self._last_at: float | None = None
        self._now: float | None = None
        self._alignment = Alignment()
        self._undated = False
        self._last_arrival: float | None = None
        self._unsettled_at: float | None = None
        self._announced: dict[str, tuple[int, str]] = {}
        self._stamp = ""
        self._calm = False
        self._soft = False
        self._state: LoadState | None = None

    @property
    def rollovers(self) -> int:
        """Turns of the year within the log. A file's date tells the year of its end, so a first reading may begin too late."""
        return self._clock.rollovers

    @property
    def live(self) -> bool:
        """Are lines read as they are written?"""
        return self._alignment.live

    @property
    def state(self) -> LoadState:
        """What the log says so far. The same object until something changes."""
        if self._state is None:
            self._settle()
            self._state = self._picture()
        return self._state

    def feed(self, line: str, at: float | None = None, number: int | None = None) -> LogLine:
        """Reads one line and returns it cleaned. `number` is its place in the file where that is not the count of lines fed."""
        self._lines += 1
        self._state = None
        place = number if number is not None else self._lines
        text = line if line.isascii() and line.isprintable() else clean(line)
        if self._calm and self._uneventful(text, at):
            return LogLine(text, "INFO", place, at)
        if self._unsettled_at is not None:
            self._settle()
        parts = self._parser.lines(text) if text[:1] == "{" else None
        if parts is not None:
            read = self._feed_parts(parts, text, at, place)
        else:
            read = LogLine(text, self._read(text, at, place), place, at)
        self._calm = self._course.phase is Phase.READY and not self._tracebacks.busy
        return read

    def _uneventful(self, text: str, at: float | None) -> bool:
        """The short way for what a busy server writes most: answered requests, and records of no account. False for all else."""
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
            if (text[end:stop] if stop > 0 else text[end:]) in vllm.MESSAGES:
                return False
            stamp = text[start : start + 14]
            if stamp != self._stamp:
                seconds = self._clock.seconds(stamp)
                if seconds is None:
                    return False
                self._stamp = stamp
                self._now = self._last_at = seconds
                if at is not None:
                    self._alignment.sample(at, seconds)
        if at is not None:
            self._unsettled_at = at
        return True

    def _settle(self) -> None:
        """Takes over the arrival of lines that went the short way."""
        at, self._unsettled_at = self._unsettled_at, None
        if at is not None:
            self._last_arrival = at
            own = self._alignment.own(at)
            if own is not None and (self._now is None or own > self._now):
                self._now = self._last_at = own

    def finish(self) -> None:
        """The source has ended for good: an announced failure whose traceback never came is one."""
        self._settle()
        for place, message in list(self._announced.values()):
            self._fatal(place, message)
        self._announced.clear()
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

    def _read(self, text: str, at: float | None, place: int) -> str | None:
        line = self._parser.parse(text)
        self._take(line, at, place)
        return line.level

    # -- one line

    def _take(self, line: Line, at: float | None, place: int) -> None:
        course = self._course
        stamp = line.at
        before = self._now
        if stamp is not None:
            self._now = stamp
            if course.started_at is None:
                course.started_at = stamp
        if at is not None:
            self._arrived(line, at)
        course.now = self._now
        course.line = place
        self._last_at = self._now
        if before is not None and self._now is not None and self._now - before >= SILENCE_S and not course.was_ready:
            course.silent(self._now - before, place, before)
        message = line.message
        level = line.level
        if level is not None or line.head:
            if level == "WARNING":
                self._warnings += 1
            elif level == "ERROR" or level == "CRITICAL":
                self._errors += 1
            if line.uvicorn and message[-6:] == "200 OK":
                if course.phase is not Phase.READY and _SUCCESS.search(message):
                    self._served()
                return
            if self._head_line(line, message):
                return
        elif looks_like_bar(message) and self._bar(line, message, at):
            return
        if level == "ERROR" or level == "CRITICAL" or level is None or self._tracebacks.busy or level == "WARNING":
            self._trouble(line, message, place)

    def _arrived(self, line: Line, at: float) -> None:
        """Learns how far the log's clock is from the clock of arrival, and dates lines that carry no time themselves."""
        course = self._course
        alignment = self._alignment
        self._last_arrival = at
        if line.at is not None:
            if alignment.lag is None:
                self._first_stamp(line, at)
            alignment.sample(at, line.at)
        elif alignment.lag is None:
            # No line has told a time yet: the clock of arrival is all there is.
            self._now = at
            self._undated = True
            if course.started_at is None:
                course.started_at = at
        else:
            own = alignment.own(at)
            if own is not None and (self._now is None or own > self._now):
                self._now = own

    def _first_stamp(self, line: Line, at: float) -> None:
        """Takes the year from the first arrival, and moves what was dated by arrivals alone into the log's clock."""
        assert line.at is not None
        arrived, stamped = datetime.fromtimestamp(at, UTC), datetime.fromtimestamp(line.at, UTC)
        if self._year is None and stamped.year != arrived.year:
            # A log's date may lie a day ahead (its zone) or months behind (an old file), never months ahead.
            year = arrived.year - (1 if stamped.month - arrived.month > 6 else -1 if arrived.month - stamped.month > 10 else 0)
            leap = stamped.month == 2 and stamped.day == 29
            line.at = (stamped - timedelta(days=1) if leap else stamped).replace(year=year).timestamp() + (86400.0 if leap else 0.0)
            self._clock.set_year(year)
            self._now = line.at
        if self._undated:
            self._course.shift(line.at - at)
            self._undated = False
        elif self._course.started_at is None or self._course.started_at < line.at - 366 * 86400:
            self._course.started_at = line.at

    # -- what engines say

    def _head_line(self, line: Line, message: str) -> bool:
        """A record or a uvicorn line; True where an engine's table knows it."""
        if message[:1] == "[":
            tag = _TAG.match(message)
            if tag:
                message = line.message = message[tag.end() :]
        course = self._course
        if line.head == "sglang":
            if course.engine is None:
                course.engine = "sglang"
            if sglang.begins(message):
                self._start_seen(line)
                course = self._course
            was_ready = course.was_ready
            if sglang.read(course, line):
                self._after(was_ready)
                return False
        space = message.find(" ")
        rules = vllm.MESSAGES.get(message[:space] if space > 0 else message)
        if rules is not None:
            for pattern, handler in rules:
                match = pattern.match(message)
                if match is not None:
                    self._handle(line, handler, match)
        elif "version " in message or "model  " in message:
            self._logo(line, message)
        return False

    def _handle(self, line: Line, handler: vllm.Handler, match: "re.Match[str]") -> None:
        if handler is vllm.banner:
            self._start_seen(line)
        was_ready = self._course.was_ready
        handler(self._course, match, line)
        self._after(was_ready)

    def _after(self, was_ready: bool) -> None:
        if self._course.was_ready and not was_ready:
            self._evidence = Evidence(hints=self._evidence.hints)
            self._soft = False
        elif self._soft and self._course.phase is not Phase.FAILED:
            self._soft = False

    def _logo(self, line: Line, message: str) -> None:
        version = vllm.LOGO_VERSION.match(message)
        if version:
            self._start_seen(line)
            self._course.engine = "vllm"
            self._course.version = version[1]
            return
        model = vllm.LOGO_MODEL.match(message)
        if model and self._course.version:
            self._course.model = self._course.model or model[1]

    def _served(self) -> None:
        """A request was answered, so the server is up although the log hides its readiness."""
        course = self._course
        if course.engine == "sglang" and course.phase is not Phase.READY and not course.serving_soon:
            return
        was_ready = course.was_ready
        course.become_ready(self._now)
        self._after(was_ready)

    def _start_seen(self, line: Line) -> None:
        """The first line of a server's start."""
        course = self._course
        key = line.speaker.key
        if not course.banner and course.phase not in (Phase.FAILED, Phase.STOPPED, Phase.READY) and not course.loaders.bars:
            course.banner = True
            course.banner_speaker = key
            return
        if course.phase in (Phase.STARTING,) and key != course.banner_speaker and "ApiServer_" in key:
            return
        self._new_start(line)
        self._course.banner = True
        self._course.banner_speaker = key

    def _new_start(self, line: Line) -> None:
        if self._course.phase is not Phase.STOPPED:
            self._restarts += 1
        self._course = Course()
        self._course.now = self._now
        self._course.started_at = self._now
        self._evidence = Evidence()
        self._tracebacks = Tracebacks()
        self._announced = {}
        self._soft = False

    # -- bars

    def _bar(self, line: Line, message: str, at: float | None) -> bool:
        bar = parse_bar(message)
        if bar is None:
            return False
        course = self._course
        if line.at is None and bar.elapsed is not None:
            self._bar_time(bar, at)
        named = _BAR_NAME.search(bar.name)
        name = named[0] if named else bar.name
        if name != bar.name:
            bar = type(bar)(name, bar.done, bar.total, bar.elapsed, bar.unit, bar.shards)
        if bar.shards or _LOADER_BARS.search(name):
            if course.phase in (Phase.STOPPED, Phase.FAILED) and bar.done == 0 and course.loaders.main is None:
                return True
            known = course.loaders.update(bar, line.speaker.key if line.speaker.pid is not None else "", self._now)
            if not known.complete and known.what not in ("reload",):
                course.enter(Phase.LOADING, self._now)
        elif _CAPTURE_BARS.search(name):
            course.capture_bar(bar, self._now)
            course.enter(Phase.CAPTURING, self._now)
        elif _HUB_BARS.search(name):
            course.loaders.download(name, bar, self._now)
            if (
                course.phase in (Phase.STARTING, Phase.LOADING)
                and course.loaders.main is None
                and "safetensors" in name + "Fetching"
            ):
                course.enter(Phase.DOWNLOADING, self._now)
        elif _WARM_BARS.search(name) and course.phase in (Phase.KV_CACHE, Phase.CAPTURING):
            course.enter(Phase.WARMING_UP, self._now)
        return True

    def _bar_time(self, bar: Bar, at: float | None) -> None:
        """A bar without a time of its own tells the time by its elapsed seconds, if its start is dated."""
        for one in reversed(self._course.loaders.bars):
            if one.total == bar.total and one.started_at is not None and one.done <= bar.done and not one.complete:
                there = one.started_at + (bar.elapsed or 0.0)
                if at is not None and not self._undated:
                    self._alignment.sample(at, there)
                    if self._alignment.live:
                        return
                if self._now is None or there > self._now:
                    if self._now is not None and there - self._now >= SILENCE_S:
                        self._course.silent(there - self._now, self._course.line, self._now)
                    self._now = self._course.now = self._last_at = there
                return

    # -- trouble

    def _trouble(self, line: Line, message: str, place: int) -> None:
        if line.level is None and not line.head:
            # Bare lines: the tables know some (logging switched off), and journalctl hides others.
            if message and self._plain(line, message):
                return
        elif not (line.level in ("ERROR", "CRITICAL", "WARNING", None) or HEADER in message or self._tracebacks.busy):
            return
        speaker = line.speaker
        key = f"{speaker.key}|{'record' if line.head else 'bare'}"
        if HEADER in message or self._tracebacks.busy:
            head = line.head
            if head == "sglang" and HEADER in message:
                # Its records carry a whole traceback, whose further lines have no head.
                key, head = f"{NOBODY.key}|bare", ""
                self._fatal_if(place, message)
            mine, raised = self._tracebacks.feed(key, speaker, message, place, self._now, head)
            if mine and self._course.engine is None and "File " in message:
                self._course.engine = "vllm" if "vllm" in message else "sglang" if "/sglang/" in message else None
            if raised is not None:
                self._raised(line, raised, place)
            if mine:
                return
        if not message:
            return
        announced = self._announced.pop(key, None)
        if announced is not None:
            self._fatal(*announced)
        if ANNOUNCEMENT.search(message):
            # Its traceback follows, and only that tells a failure from an interrupt.
            self._announced[key] = (place, message)
        elif line.level != "WARNING" or "engine core exited unexpectedly" in message:
            self._fatal_if(place, message)
        if message.startswith(("Process ", "Exception ", "EngineCore ", "WorkerProc ", "AsyncLLM ")) or line.uvicorn:
            self._tracebacks.introduce(key, message)
            if message.startswith("Exception in ASGI"):
                self._tracebacks.introduce(f"{speaker.key}|bare", message)
        self._plain_trouble(line, message, place)

    def _plain(self, line: Line, message: str) -> bool:
        if hides_data(message):
            self._course.bars_hidden = True
            return True
        if message[0] in " \t":
            return False
        space = message.find(" ")
        rules = vllm.MESSAGES.get(message[:space] if space > 0 else message)
        if rules is not None:
            for pattern, handler in rules:
                match = pattern.match(message)
                if match is not None:
                    self._handle(line, handler, match)
        return False

    def _raised(self, line: Line, raised: Raised, place: int) -> None:
        announced = self._announced.pop(f"{line.speaker.key}|{'record' if line.head else 'bare'}", None)
        if is_ordered(raised):
            self._interrupt()
            return
        if raised.type.endswith("CancelledError"):
            return
        introduction = raised.introduction
        if is_cleanup(introduction) or introduction.startswith("Exception in thread"):
            return
        if "ASGI" in introduction:
            self._trouble_of(line, raised, place, request=True)
            return
        self._trouble_of(line, raised, place, request=False)
        course = self._course
        if course.stopping and not course.was_ready and kind_of(raised.text) == "ready_timeout":
            # The API server gave up and sent its engines SIGTERM, and says so only after they have ended.
            course.stopping = False
            self._evidence.mark_fatal(place, self._now, course.before_the_end, raised.full)
            course.end(Phase.FAILED, self._now)
            for trouble in self._evidence.troubles:
                trouble.phase = course.before_the_end
        text = raised.full
        if course.stopping:
            return
        fatal = announced is not None or FATAL.search(text) is not None or FATAL.search(introduction) is not None
        if fatal or (course.phase is not Phase.READY and (not raised.in_record or introduction)):
            self._fatal(announced[0] if announced is not None else place, text)

    def _interrupt(self) -> None:
        course = self._course
        if course.phase is Phase.FAILED:
            return
        course.stopping = True
        course.end(Phase.STOPPED, self._now)

    def _trouble_of(self, line: Line, raised: Raised, place: int, *, request: bool) -> None:
        wrapper = is_wrapper(f"{raised.type}: {raised.text}") and not _tells_more(raised)
        self._evidence.add(
            Trouble(
                f"{raised.type}: {raised.text}",
                "pending",
                raised.speaker.name,
                raised.speaker.rank,
                raised.speaker.worker,
                place,
                self._now,
                self._course.phase if self._course.phase is not Phase.FAILED else self._evidence.fatal_phase,
                wrapper,
                False,
                raised,
                request=request,
            )
        )

    def _plain_trouble(self, line: Line, message: str, place: int) -> None:
        hint = HINT.search(message)
        plain = PLAIN.search(message) if line.level not in ("WARNING", "INFO") else None
        error = line.level in ("ERROR", "CRITICAL") and not line.uvicorn and message[0] not in " \t"
        if not (hint or plain or error):
            return
        phase = self._course.phase if self._course.phase is not Phase.FAILED else self._evidence.fatal_phase
        text = " ".join(message.split())
        kind = kind_of(text)
        speaker = line.speaker
        trouble = Trouble(
            text, kind, speaker.name, speaker.rank, speaker.worker, place, self._now, phase, is_wrapper(text), is_consequence(text)
        )
        if hint and not error:
            self._evidence.hint(trouble)
            return
        if message.lstrip().startswith("what():"):
            trouble.text = text.removeprefix("what():").strip()
        if kind == "other" and not trouble.wrapper:
            return
        self._evidence.add(trouble)
        if plain and ": error: " in message and kind == "bad_argument" and self._course.phase is Phase.STARTING:
            self._fatal(place, message)

    def _fatal_if(self, place: int, message: str) -> None:
        if FATAL.search(message):
            self._fatal(place, message)

    def _fatal(self, place: int, text: str) -> None:
        course = self._course
        if course.stopping or course.phase in (Phase.STOPPED, Phase.FAILED):
            return
        self._evidence.mark_fatal(place, self._now, course.phase, text)
        course.end(Phase.FAILED, self._now)

    # -- the picture

    def _picture(self) -> LoadState:
        course = self._course
        bars = course.loaders.bars
        main = course.loaders.main
        load = LoadState(
            engine=course.engine,
            version=course.version,
            model=course.model,
            served_names=course.served_names,
            phase=course.phase,
            ready=course.phase is Phase.READY,
            was_ready=course.was_ready,
            shards=main.loader() if main else None,
            loaders=tuple(bar.loader() for bar in bars),
            load_s=course.figure("load_s"),
            model_load_s=course.figure("model_load_s"),
            download_s=course.figure("download_s"),
            gib_per_gpu=course.figure("gib_per_gpu"),
            checkpoint_gib=course.checkpoint_gib,
            kv_tokens=_whole(course.figure("kv_tokens")),
            kv_gib_per_gpu=course.figure("kv_gib"),
            max_concurrency=course.figure("max_concurrency"),
            engines=course.data or (1 if course.engine and course.tensor else None),
            tensor_parallel=course.tensor,
            pipeline_parallel=course.pipeline,
            data_parallel=course.data,
            max_model_len=course.max_model_len,
            quantization=course.quantization,
            attention_backend=course.attention_backend,
            init_engine_s=course.figure("init_engine_s"),
            engine_started_at=course.engine_started_at,
            capture=course.capture(),
            started_at=course.started_at,
            ready_at=course.ready_at,
            last_line_at=self._last_at,
            phases=course.phases(),
            serving=course.serving,
            failure=self._failure(),
            restarts=self._restarts,
            lines=self._lines,
            errors=self._errors,
            warnings=self._warnings,
            silences=tuple(course.longest_silences()),
            notes=tuple(course.notes.values()),
        )
        offset = self._alignment.offset
        if offset:
            load = moved(load, offset)
        if self._last_arrival is not None and not self._alignment.live:
            # How old the last line really is can't be told yet: it counts from when it was read.
            load = replace(load, last_line_at=self._last_arrival)
        return load

    def _failure(self) -> Failure | None:
        course = self._course
        if course.phase is Phase.FAILED:
            chosen = self._evidence.choose()
            return Failure(
                chosen.kind,
                chosen.phase,
                chosen.cause,
                chosen.process,
                chosen.line,
                advice(chosen, course),
            )
        if course.phase is Phase.READY and len(course.stalls) >= STALLS:
            _, text, line = course.stalls[0]
            seconds = len(course.stalls) * 60
            cause = f"the engine has waited {seconds} s for its workers, so they hang: {text.split('. ')[0]}"
            hang = Verdictless("hang", cause[:200], None, line, Phase.READY)
            return Failure("hang", Phase.READY, hang.cause, None, line, advice(hang, course))
        return None


def _tells_more(raised: Raised) -> bool:
    """A wrapper that holds the cause's own words, of a kind that can be told."""
    text = f"{raised.type}: {raised.text}"
    return "Worker failed with error" in text and kind_of(text) not in ("other", "worker_died", "engine_died")


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def moved(load: LoadState, seconds: float) -> LoadState:
    """The same facts in another clock."""

    def later(at: float | None) -> float | None:
        return None if at is None else at + seconds

    def bar(loader: Loader | None) -> Loader | None:
        return None if loader is None else replace(loader, started_at=later(loader.started_at), last_at=later(loader.last_at))

    return replace(
        load,
        started_at=later(load.started_at),
        ready_at=later(load.ready_at),
        engine_started_at=later(load.engine_started_at),
        last_line_at=later(load.last_line_at),
        shards=bar(load.shards),
        loaders=tuple(moved_bar for one in load.loaders if (moved_bar := bar(one)) is not None),
        capture=bar(load.capture),
        phases=tuple(replace(span, started_at=later(span.started_at)) for span in load.phases),
        silences=tuple(replace(one, at=later(one.at)) for one in load.silences),
        serving=None if load.serving is None else replace(load.serving, at=later(load.serving.at)),
    )
