"""How processes ended, where the log tells no reason: exit codes and signals, in the words of all who report them."""

import re
import signal
from dataclasses import dataclass

from tui.core.logs.signs import shell_signal

_CORES = re.compile(r"Failed core proc\(s\): \{([^}]{0,4000})\}")
_CORE = re.compile(r"'([^']+)': (-?\d+)")
_NAMED = re.compile(
    r"(?:Worker proc|Engine core proc(?:ess)?|RayWorkerProc|Process|Worker) (?P<name>\S+?)"
    r"(?: \(PID: \d+\)| pid \d+)?,? (?:died|exited)\b(?: unexpectedly)?(?:,? (?:with )?\(?exit code:? (?P<code>-?\d+|None))?"
)
_RAY = re.compile(r"Worker PID: (\d+) Worker exit type: SYSTEM_ERROR")
_CONTAINER = re.compile(r"(?:exited with code |code=exited, status=)(\d+)")
_UNIT = re.compile(r"code=(?:killed|dumped), status=(\d+)")
_SHELL = {
    "aborted": signal.SIGABRT,
    "segmentation fault": signal.SIGSEGV,
    "bus error": signal.SIGBUS,
    "illegal instruction": signal.SIGILL,
    "floating point exception": signal.SIGFPE,
    "trace/breakpoint trap": signal.SIGTRAP,
    "killed": signal.SIGKILL,
}
_SIGNALS = {int(one): one.name for one in signal.Signals}


@dataclass(frozen=True, slots=True)
class Exit:
    """One process's end. `code` is negative for a signal, None where it is not told; `process` is None for the server itself."""

    process: str | None
    code: int | None

    @property
    def signal(self) -> str | None:
        """`SIGSEGV`, None where it ended by itself."""
        return None if self.code is None or self.code >= 0 else _SIGNALS.get(-self.code, f"signal {-self.code}")

    @property
    def killed(self) -> bool:
        """Was it killed from outside, as far as can be told?"""
        return self.code is None or self.code == -signal.SIGKILL

    @property
    def ordered(self) -> bool:
        """Was it asked to end?"""
        return self.code in (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)

    @property
    def followed(self) -> bool:
        """Did it leave by itself or on demand, as what has lost its workers does?"""
        return self.ordered or (self.code is not None and self.code >= 0)

    @property
    def words(self) -> str:
        how = f"exited with code {self.code}" if self.signal is None else f"was ended by {self.signal}"
        return f"{self.process or 'the server'} {how}, and this log does not say why"


def told(texts: list[str]) -> list[Exit]:
    """All ends that these texts tell of."""
    found = []
    for text in texts:
        for cores in _CORES.finditer(text):
            found += [Exit(name, int(code)) for name, code in _CORE.findall(cores[1])]
        for match in _NAMED.finditer(text):
            code = match["code"]
            found.append(Exit(match["name"], int(code) if code and code != "None" else None))
        found += [Exit(f"Ray's worker {pid}", None) for pid in _RAY.findall(text)]
        for status in map(int, _CONTAINER.findall(text)):
            # Shells and containers tell a signal as 128 and its number.
            found.append(Exit(None, 128 - status if status - 128 in _SIGNALS else status))
        found += [Exit(None, -int(number)) for number in _UNIT.findall(text)]
        how = shell_signal(text)
        if how:
            number = _SHELL.get(how) or signal.Signals.__members__.get(how.upper())
            found.append(Exit(None, -int(number) if number else None))
    return found


def first_cause(ends: list[Exit]) -> Exit | None:
    """The end that the others followed from: a process that was killed took the others with it, one that crashed did so before one
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
