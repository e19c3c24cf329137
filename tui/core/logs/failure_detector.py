"""What goes wrong in one start, as its lines come in: tracebacks, announcements, wrappers, interrupts."""

import re

from tui.core.logs.advice import advice
from tui.core.logs.compose_services import ComposeServices
from tui.core.logs.exceptions import FRAME, HEADER, Raised, Tracebacks
from tui.core.logs.exit_signs import ANNOUNCEMENT, FATAL, HINT, in_short, is_bare, is_crash_dump, is_fatal, is_plain_trouble
from tui.core.logs.failure_kinds import WORDS, is_wrapper, joined, kind_of
from tui.core.logs.grammar import Finding
from tui.core.logs.load_state import Failure, Phase
from tui.core.logs.log_records import DATED, NOBODY, Line
from tui.core.logs.root_cause import Evidence, Trouble, is_cleanup, is_consequence, is_ordered, is_severed
from tui.core.logs.start_parser import StartParser
from tui.engines.registry import grammars

STALLS = 3
"""Waits of 60 s each for a shared memory block after ready: with so many it is a hang, not a long request."""
_REQUESTS = {grammar.record: grammar.requests for grammar in grammars() if grammar.requests}
"""What an engine that writes such records logs of each request, with its prompt: somebody else's words."""
_SOURCES = tuple((grammar.source, grammar.engine) for grammar in grammars() if grammar.source)
_INTRODUCTIONS = ("Process ", "Exception ", *(text for words in WORDS for text in words.introductions))
_FATAL_AT_ANY_LEVEL = joined(*(words.fatal_at_any_level for words in WORDS))
_QUOTING = joined(*(words.quoting for words in WORDS))


_CRASH = re.compile(r"Segfault encountered|Fatal Python error|Caught signal \d+|\*\*\* (?:SIG|Process received)")
_NATIVE_FRAME = re.compile(
    r" *File \"[^\"]*\", line \d+,? in (.+)$|[ \d]\d* +0x[0-9a-f]+ ([\w:~<>]+)|\[[^\]]*\] \[ ?\d+\] \S+\((\w[\w:]*)\+"
)
"""A frame as torch and Python print it, as UCX does, and as Open MPI does."""
_HANDLING = re.compile(
    r"_*(?:sig\w+|restore_rt|kill|raise|abort|pthread_kill|gsignal|libc_start\w*|GI_\w+|<unknown>|0x\w+)(?:\(|$)"
)


class FailureDetector:
    """Read what may be a failure, and end the start when one is certain."""

    def __init__(self, start: StartParser, services: ComposeServices) -> None:
        self._start = start
        self._services = services
        self._evidence = Evidence()
        self._tracebacks = Tracebacks()
        self._announced: dict[str, tuple[int, str]] = {}
        self._now: float | None = None
        self._failure: Failure | None = None
        self._crash: Trouble | None = None
        """A native crash whose stack is being printed."""
        self._other_thread = False
        self._dumped: tuple[int, str] | None = None
        """The first crash dump of a library, which is the end if nothing else tells of one."""

    @property
    def busy(self) -> bool:
        """Tell whether a traceback is open, so that any line may belong to it."""
        return self._tracebacks.busy

    def became_ready(self) -> None:
        """Forget what was said before: it did not keep the server from getting ready, and explains nothing later."""
        self._evidence = Evidence(hints=self._evidence.hints)

    def finish(self) -> None:
        """Take the log as ended: what was announced and not followed by a traceback is a failure."""
        for place, message in list(self._announced.values()):
            self._fatal(place, message)
        self._announced.clear()
        if self._dumped is not None:
            self._fatal(*self._dumped)

    def read(self, line: Line, message: str, place: int, now: float | None) -> None:
        """Read a line that may tell of trouble: an error, a warning, a bare line, or any while a traceback is open."""
        self._now = now
        self._failure = None
        self._name_frame(message)
        if line.head in _REQUESTS and message.startswith(_REQUESTS[line.head]):
            return
        speaker = line.speaker
        key = f"{speaker.key}|{'record' if line.head else 'bare'}"
        if HEADER in message or self._tracebacks.busy or message.startswith(FRAME):
            head = line.head
            if head == DATED and HEADER in message:
                # Records of this kind carry a whole traceback, whose further lines have no head.
                key, head = f"{NOBODY.key}|bare", ""
                self._fatal_if(line, place, message)
            mine, raised = self._tracebacks.feed(key, speaker, message, place, self._now, head)
            if mine and line.level is None:
                line.level = "ERROR"  # for the eye: a bare traceback has no level of its own
            if mine and self._start.engine is None and "File " in message:
                self._start.engine = next((engine for source, engine in _SOURCES if source in message), None)
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
        elif line.level not in ("WARNING", "INFO") or _FATAL_AT_ANY_LEVEL.search(message):
            self._fatal_if(line, place, message)
        if message.startswith(_INTRODUCTIONS) or line.uvicorn:
            self._tracebacks.introduce(key, message)
            if message.startswith("Exception in ASGI"):
                self._tracebacks.introduce(f"{speaker.key}|bare", message)
        if is_bare(line) and is_crash_dump(message):
            self._dumped = self._dumped or (place, message)
            if self._start.phase is Phase.READY:
                self._fatal(place, message)
        self._plain_trouble(line, message, place)

    def _name_frame(self, message: str) -> None:
        """Add to a native crash the first frame of its stack that is no part of the crash handling."""
        if self._crash is None:
            return
        if message.startswith("Thread 0x"):
            self._other_thread = True
        elif message.startswith("Current thread 0x"):
            self._other_thread = False
        frame = _NATIVE_FRAME.match(message)
        if frame is None or self._other_thread:
            return
        name = (frame[1] or frame[2] or frame[3]).strip()
        if not _HANDLING.match(name):
            self._crash.text = f"{self._crash.text} in {name}"
            self._crash = None

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
        start = self._start
        if start.stopping and not start.was_ready and kind_of(raised.text) == "ready_timeout":
            # The API server gave up and sent its engines SIGTERM, and says so only after they have ended.
            start.stopping = False
            self._evidence.mark_fatal(place, self._now, start.before_the_end, raised.full)
            start.end(Phase.FAILED, self._now)
            for trouble in self._evidence.troubles:
                trouble.phase = start.before_the_end
        text = raised.full
        if start.stopping:
            return
        fatal = announced is not None or FATAL.search(text) is not None or FATAL.search(introduction) is not None
        serving = start.phase is Phase.READY or (start.winding_down and start.was_ready)
        if fatal or (not serving and (not raised.in_record or introduction)):
            self._fatal(announced[0] if announced is not None else place, text)

    def _interrupt(self) -> None:
        start = self._start
        if start.phase is Phase.FAILED:
            return
        start.stopping = True
        start.end(Phase.STOPPED, self._now)

    def _trouble_of(self, line: Line, raised: Raised, place: int, *, request: bool) -> None:
        wrapper = is_wrapper(f"{raised.type}: {raised.text}") and not _tells_more(raised) and not is_severed(raised)
        self._evidence.add(
            Trouble(
                f"{raised.type}: {raised.text}",
                "pending",
                raised.speaker.name,
                raised.speaker.rank,
                raised.speaker.worker,
                place,
                self._now,
                self._phase,
                wrapper,
                False,
                raised,
                request=request,
            )
        )

    @property
    def _phase(self) -> Phase:
        """Return the phase to which a trouble that is told now belongs."""
        start = self._start
        if start.phase is Phase.FAILED:
            return self._evidence.fatal_phase
        return start.before_the_end if start.winding_down else start.phase

    def _plain_trouble(self, line: Line, message: str, place: int) -> None:
        hint = HINT.search(message)
        plain = line.level not in ("WARNING", "INFO") and is_plain_trouble(message, bare=is_bare(line))
        error = line.level in ("ERROR", "CRITICAL") and not line.uvicorn and message[0] not in " \t"
        if not (hint or plain or error):
            return
        phase = self._phase
        text = in_short(message)
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
        elif "terminate called after" in message:
            trouble.consequence = True  # it names only the type; its text follows, and often stands before as well
        if kind == "other" and not trouble.wrapper:
            return
        trouble.weak = not plain
        trouble.wrapper = trouble.wrapper or text.endswith(":")  # it points at what follows
        self._evidence.add(trouble)
        if plain and _CRASH.search(text):
            self._crash, self._other_thread = trouble, False
        if plain and ": error: " in message and kind == "bad_argument" and self._start.phase is Phase.STARTING:
            self._fatal(place, message)

    def _fatal_if(self, line: Line, place: int, message: str) -> None:
        if is_fatal(message, bare=is_bare(line), service=self._services.read):
            self._fatal(place, message)

    def _fatal(self, place: int, text: str) -> None:
        start = self._start
        if start.stopping or start.phase is Phase.FAILED or (start.phase is Phase.STOPPED and not start.winding_down):
            return
        if start.was_ready and "CANCELLED AT" in text and "DUE TO" not in text:
            self._interrupt()  # how a job that serves is ended
            return
        self._evidence.mark_fatal(place, self._now, self._phase, text)
        start.end(Phase.FAILED, self._now)

    def failure(self) -> Failure | None:
        """Return why it ended, or hangs; None if it does neither."""
        start = self._start
        if start.phase is Phase.FAILED:
            if self._failure is None:
                self._failure = self._chosen()
            return self._failure
        if start.phase is Phase.READY and len(start.stalls) >= STALLS:
            _, text, line = start.stalls[0]
            seconds = len(start.stalls) * 60
            cause = f"the engine has waited {seconds} s for its workers, so they hang: {text.split('. ')[0]}"
            hang = Finding("hang", cause[:200], None, line, Phase.READY)
            return Failure("hang", Phase.READY, hang.cause, None, line, advice(hang, start))
        return None

    def _chosen(self) -> Failure:
        chosen = self._evidence.choose(whole=bool(self._start.banner or self._start.start_seen or self._start.spans[1:-1]))
        return Failure(
            chosen.kind,
            chosen.phase,
            chosen.cause,
            chosen.process,
            chosen.line,
            advice(chosen, self._start),
        )


def _tells_more(raised: Raised) -> bool:
    """Tell whether a wrapper holds the cause's own words, of a kind that is known."""
    text = f"{raised.type}: {raised.text}"
    return _QUOTING.search(text) is not None and kind_of(text) not in ("other", "worker_died", "engine_died")
