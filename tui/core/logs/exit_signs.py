"""What a single line tells of trouble: that the server has ended, or why it may.

Two voices are kept apart. What the server says of itself counts wherever it stands. What the shell, the kernel, a container's
runtime or a supervisor says of it counts only on a bare line: in a record or an exception the same words are about something that a
request has started, and one request's error is not the server's end.
"""

import re
import signal
from dataclasses import dataclass

from tui.core.logs.failure_kinds import WORDS, joined
from tui.core.logs.log_records import Line
from tui.engines.registry import ENGINES

_ENDED_BY_SIGNAL = r"code=(?:killed|dumped), status=(?:4|6|7|8|9|11)\b"
_EXITED = r"code=exited, status=(?!0\b|130\b|143\b)\d+"

PLAIN = joined(
    r"Memory access fault by GPU|CUDA error|HIP error|NCCL WARN"
    r"|NCCL error|collective operation timeout"
    r"|terminate called after"
    r"|  what\(\):"
    r"|No space left on device|Bus error"
    r"|^[^:]{1,60}: error: |GLIBCXX|nvcc fatal|ptxas fatal|out of memory|Segfault encountered|fallen off the bus"
    r"|low on memory"
    r"|is not compatible with the current PyTorch|died unexpectedly|exit code: -9"
    r"|[Aa]ddress already in use|cannot open shared object|driver on your system is too old"
    r"|hardware error"
    r"|HSA_STATUS_ERROR|MEMORY_APERTURE_VIOLATION|(?i:aicore (?:execution|error|exception|time))|Fatal Python error"
    r"|Caught signal \d+|ibv_\w+ failed|free\(\): invalid|malloc\(\): |double free or corruption|stack smashing detected"
    r"|CUDA driver version|ActorDiedError"
    r"|CUDA_ERROR_"
    r"|placement group|fatal error:|symbol lookup error|uncorrectable",
    *(words.plain for words in WORDS),
)
"""Plain lines (no exception) that may be a cause, whoever says them."""

_PLAIN_OUTSIDE = joined(
    r"could not select device driver|killed by the OOM killer|memory pressure"
    r"|oom-kill|Out of memory: Killed|Killed process|^Killed$|OOMKilled|slurmstepd"
    r"|DUE TO TIME LIMIT|Segmentation fault|NVRM: Xid|core dumped|start operation timed out|probe failed|exec format error"
    rf"|{_EXITED}|{_ENDED_BY_SIGNAL}|failed (?:liveness|startup) probe, will be"
    r"|stop-sigterm|status=137|exit code 137|exited with code 137|Worker exit type: SYSTEM_ERROR",
    *(words.shell for words in WORDS),
)

HINT = joined(
    r"NCCL WARN|is not compatible with the current PyTorch|nvcc fatal|ptxas fatal"
    r"|CUDA initialization"
    r"|cannot open shared object|driver version is insufficient|driver on your system is too old"
    r"|placement group"
    r"|Not enough free disk space|Error parsing config|[Uu]nknown model type|does not recognize this architecture",
    *(words.hints for words in WORDS),
)
"""Warnings that may explain an exception much later."""

FATAL = joined(
    r"error while attempting to bind on address"
    r"|(?:[Ww]orker|[Ss]cheduler|[Rr]ank|pid) .{0,60}died, exit code: (?!-?15\b|0\b|None)"
    r"|(?:RayWorkerProc|[Aa]ctor)\b.{0,80}died unexpectedly|process unexpectedly (?:failed|exited) with exit_?code=(?!0\b)",
    *(words.fatal for words in WORDS),
)
"""What the server says when nothing comes up or goes on any more, also while serving."""

_FATAL_OUTSIDE = joined(
    r"could not select device driver|^Bus error|core dumped\)"
    r"|Memory access fault by GPU|terminate called after|Segfault encountered|(?<!\()Segmentation fault|^Fatal Python error"
    r"|aborting with error : HSA_STATUS|MEMORY_APERTURE_VIOLATION|\*\*\* (?:SIG[A-Z]{3,}|Process received signal)"
    r"|^(?:free\(\): invalid|malloc\(\): |corrupted size)|double free or corruption|stack smashing detected"
    r"|oom-kill|Out of memory: Killed|^Killed$|OOMKilled|slurmstepd: error: .* CANCELLED AT"
    rf"|{_EXITED}|{_ENDED_BY_SIGNAL}|failed (?:liveness|startup) probe, will be|start operation timed out"
    r"|^\(raylet\b[^)]*\) .*Worker exit type: SYSTEM_ERROR",
    *(words.shell for words in WORDS),
)

ANNOUNCEMENT = joined(*(words.announcements for words in WORDS))
"""What a traceback follows."""

_CONTAINER = re.compile(r"(?:(\S{1,120}) )?exited with code (\d+)(?: \(restarting\))?")
_NAMES = "|".join(re.escape(engine.name) for engine in ENGINES)
_SERVICE = re.compile(rf"{_NAMES}|llm|infer|engine|model|server", re.IGNORECASE)
"""How a service that holds a server may be called, if the log does not tell."""

_SHELL = re.compile(
    r"(?:(?:\S{1,200}: )?line \d+: +\d+ |\[\d+\][ +-]+(?:\d+ )?|zsh: )"
    r"(?P<how>Killed|Aborted|Segmentation fault|Bus error|Illegal instruction|Floating point exception|Trace/breakpoint trap)\b"
    r"(?P<what>.*)$"
    r"|fish: Job \d+, '(?P<job>.*)' terminated by signal (?P<signal>SIG[A-Z]+)",
    re.IGNORECASE,
)
_SERVER = re.compile(rf"^\s*(?:\(core dumped\)\s*)?$|{_NAMES}|python|serve|launch|torchrun|exec |\$", re.IGNORECASE)
"""The command that the shell names: the server's, or whatever a script holds in a variable."""

_DUMP = re.compile(r"Caught signal (?:4|6|7|8|11) \(")
_POSSIBLE_CAUSES = " There are some potential root causes."


def is_bare(line: Line) -> bool:
    """Tell whether the line is printed past the server's logging. A log store's own record without a file name is no more than a
    wrapper."""
    return not line.uvicorn and line.head in ("", ":")


def shell_signal(message: str) -> str | None:
    """Return how a shell says that the server was ended: `killed`, `aborted`, `sigsegv`; None if it says nothing of the kind."""
    match = _SHELL.match(message)
    if match is None or not _SERVER.search(match["job"] or match["what"] or ""):
        return None
    return (match["how"] or match["signal"]).lower()


def container_exit(message: str, service: str | None) -> int | None:
    """Return the status with which compose says that the server's container exited. `service` is the one that is read, if known."""
    match = _CONTAINER.fullmatch(message)
    if match is None:
        return None
    name = match[1]
    mine = name is None or (_SERVICE.search(name) is not None if service is None else is_container_of(name, service))
    return int(match[2]) if mine else None


def container_of(message: str) -> str | None:
    """Return the container of which compose says that it exited."""
    match = _CONTAINER.fullmatch(message) if "exited with code " in message else None
    return match[1] if match else None


def is_container_of(name: str, service: str) -> bool:
    """Compare a container's name with a service's: older releases of compose put the project's name before the one that they
    write at each line."""
    return name == service or name.endswith((f"_{service}", f"-{service}"))


def is_fatal(message: str, *, bare: bool, service: str | None = None) -> bool:
    """Tell whether nothing comes up or goes on after this line."""
    if FATAL.search(message):
        return True
    if not bare:
        return False
    if _FATAL_OUTSIDE.search(message) or shell_signal(message):
        return True
    return container_exit(message, service) not in (None, 0, 130, 143)


def is_crash_dump(message: str) -> bool:
    """Tell whether a library (UCX) dumps the stack of a process that a signal ends; others may go on to say what came of it."""
    return "Caught signal " in message and _DUMP.search(message) is not None


def is_plain_trouble(message: str, *, bare: bool) -> bool:
    """Tell whether this line, which is no exception, may be a cause."""
    return PLAIN.search(message) is not None or (bare and (_PLAIN_OUTSIDE.search(message) or shell_signal(message)) is not None)


def in_short(message: str) -> str:
    """Return a message on one line, without what it only supposes; `Killed` however a shell says it."""
    text = " ".join(message.split()).partition(_POSSIBLE_CAUSES)[0]
    return "Killed" if shell_signal(text) in ("killed", "sigkill") else text


_CORES = re.compile(r"Failed core proc\(s\): \{([^}]{0,4000})\}")
_CORE = re.compile(r"'([^']+)': (-?\d+)")
_NAMED = re.compile(
    r"(?:Worker proc|Engine core proc(?:ess)?|RayWorkerProc|Process|Worker) (?P<name>\S+?)"
    r"(?: \(PID: \d+\)| pid \d+)?,? (?:died|exited)\b(?: unexpectedly)?(?:,? (?:with )?\(?exit code:? (?P<code>-?\d+|None))?"
)
_RAY = re.compile(r"Worker PID: (\d+) Worker exit type: SYSTEM_ERROR")
_EXITED_CONTAINER = re.compile(r"(?:exited with code |code=exited, status=)(\d+)")
_UNIT = re.compile(r"code=(?:killed|dumped), status=(\d+)")
_SHELL_EXIT = {
    "aborted": signal.SIGABRT,
    "segmentation fault": signal.SIGSEGV,
    "bus error": signal.SIGBUS,
    "illegal instruction": signal.SIGILL,
    "floating point exception": signal.SIGFPE,
    "trace/breakpoint trap": signal.SIGTRAP,
    "killed": signal.SIGKILL,
}
_SIGNALS = {int(number): number.name for number in signal.Signals}


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of one process. `code` is negative for a signal and None if unknown; `process` is None for the server itself."""

    process: str | None
    code: int | None

    @property
    def signal(self) -> str | None:
        """Return the signal's name, such as `SIGSEGV`; None if it ended by itself."""
        return None if self.code is None or self.code >= 0 else _SIGNALS.get(-self.code, f"signal {-self.code}")

    @property
    def killed(self) -> bool:
        """Tell whether it was killed from outside, as far as can be told."""
        return self.code is None or self.code == -signal.SIGKILL

    @property
    def ordered(self) -> bool:
        """Tell whether it was asked to end."""
        return self.code in (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)

    @property
    def followed(self) -> bool:
        """Tell whether it left by itself or on demand, as what has lost its workers does?"""
        return self.ordered or (self.code is not None and self.code >= 0)

    @property
    def words(self) -> str:
        how = f"exited with code {self.code}" if self.signal is None else f"was ended by {self.signal}"
        return f"{self.process or 'the server'} {how}, and this log does not say why"


def told(texts: list[str]) -> list[Exit]:
    """Return all ends that these texts tell of."""
    found = []
    for text in texts:
        for cores in _CORES.finditer(text):
            found += [Exit(name, int(code)) for name, code in _CORE.findall(cores[1])]
        for match in _NAMED.finditer(text):
            code = match["code"]
            found.append(Exit(match["name"], int(code) if code and code != "None" else None))
        found += [Exit(f"Ray's worker {pid}", None) for pid in _RAY.findall(text)]
        for status in map(int, _EXITED_CONTAINER.findall(text)):
            # Shells and containers tell a signal as 128 and its number.
            found.append(Exit(None, 128 - status if status - 128 in _SIGNALS else status))
        found += [Exit(None, -int(number)) for number in _UNIT.findall(text)]
        how = shell_signal(text)
        if how:
            number = _SHELL_EXIT.get(how) or signal.Signals.__members__.get(how.upper())
            found.append(Exit(None, -int(number) if number else None))
    return found


def first_cause(ends: list[Exit]) -> Exit | None:
    """Return the end that the others followed from: a process that was killed took the others with it, one that crashed did so
    before one
    that left by itself, and one that left with 0 or was asked to go only followed."""

    def rank(end: Exit) -> int:
        if end.code == -signal.SIGKILL:
            return 0
        if end.signal is not None and not end.ordered:
            return 1
        if end.code is None:
            return 2
        return 4 if end.code == 0 or end.ordered else 3

    return min(ends, key=rank, default=None)
