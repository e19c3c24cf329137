"""Which processes of this host serve a model, and what their arguments say, in containers too.

Which command lines are servers, and which options say what, comes as data: a list of engines, each an object with "name",
"patterns", "port", "host", "options", "model_after", "titles", "orphans" and "variables".

Python 3.8: this runs on the GPU host.
"""

import os
import pwd
import re
import time
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from tui.probe.process_table import Processes, name_of, read

Engine = Dict[str, Any]
COMM_LENGTH = 15
"""The kernel keeps so much of a process's name."""
SETTLED_S = 15.0
"""A process older than this has become what it is: its command line is read once and remembered."""

REAPERS = ("systemd", "init", "tini", "dumb-init", "docker-init", "containerd-shim", "conmon", "catatonit", "s6-svscan", "runit")
"""Names of what adopts processes whose parent has ended."""
_PYTHON = re.compile(r"python[0-9.]*$")
_SECRET = re.compile(r"--?(?:[a-z-]*api[-_]?key|[a-z-]*token|[a-z-]*password|[a-z-]*secret)(?:=|$)", re.IGNORECASE)


def engine_of(argv: Sequence[str], engines: Sequence[Engine]) -> Optional[Engine]:
    """Return the engine whose server a command line starts; None for anything else, wrappers (`sh -c`, `sudo`) included."""
    words = [word.replace("\n", " ") for word in argv]
    if not words:
        return None
    for engine in engines:
        if words[0].startswith(tuple(engine["titles"])):
            return engine
    if _PYTHON.search(os.path.basename(words[0])):
        at = 1
        while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "-c"):
            at += 2 if words[at] in ("-X", "-W") else 1
        words = words[at:]
        if words[:1] == ["-c"]:
            return None
    command = "\n".join(words[: 3 if words[:1] == ["-m"] else 2])
    for engine in engines:
        if any(re.match(pattern, command) for pattern in engine["patterns"]):
            return engine
    return None


def options_of(argv: Sequence[str], engine: Engine) -> Dict[str, str]:
    """Return the options of a command line, of a repeated one the last; a flag's value is ""."""
    short = {option for options in engine["options"].values() for option in options if not option.startswith("--")}
    options: Dict[str, str] = {}
    for at, word in enumerate(argv):
        if not word.startswith("--") and word not in short:
            continue
        name, equals, value = word.partition("=")
        if not equals:
            following = argv[at + 1] if at + 1 < len(argv) else ""
            value = "" if following.startswith("--") else following
        options[name.replace("_", "-")] = value
    return options


def option(asked: str, options: Dict[str, str], engine: Engine) -> Optional[str]:
    """Return what the options say of `asked`, such as "port"; None if nothing does."""
    return next((options[name] for name in engine["options"].get(asked, ()) if options.get(name)), None)


def has_option(asked: str, options: Dict[str, str], engine: Engine) -> bool:
    """Tell whether one of the options for `asked` is there, with a value or without."""
    return any(name in options for name in engine["options"].get(asked, ()))


def model_of(argv: Sequence[str], options: Dict[str, str], engine: Engine) -> Optional[str]:
    """Return the model that a command line names."""
    named = option("model", options, engine)
    word = engine["model_after"]
    if named is None and word and word in argv:
        at = list(argv).index(word) + 1
        if at < len(argv) and not argv[at].startswith("-"):
            return argv[at]
    return named


NO_ENGINE: Engine = {
    "name": "",
    "patterns": [],
    "port": None,
    "host": "0.0.0.0",
    "options": {},
    "model_after": "",
    "titles": [],
    "orphans": [],
    "variables": {},
}
"""Stands for the engine of a process that has become another one since it was found."""


def without_secrets(argv: Sequence[str]) -> List[str]:
    """Return a command line that may leave the host: the values of keys and tokens are gone."""
    words: List[str] = []
    hide = False
    for word in argv:
        if hide:
            words.append("•••")
            hide = False
            continue
        match = _SECRET.match(word)
        if match and match.group(0).endswith("="):
            words.append(match.group(0) + "•••")
        else:
            hide = bool(match)
            words.append(word)
    return words


class Table:
    """The host's processes, remembered between looks so that a look costs a listing of /proc and little else."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.engines = engines
        self._lines: Dict[int, Tuple[float, List[str]]] = {}
        self._boot = _boot_time()
        self._tick = os.sysconf("SC_CLK_TCK")

    def servers(self) -> List[int]:
        """Return the pids of servers: of several processes with one ancestor among them, the ancestor."""
        now = time.monotonic()
        found: Set[int] = set()
        seen: Set[int] = set()
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            pid = int(name)
            seen.add(pid)
            known = self._lines.get(pid)
            if known is None or now < known[0]:
                argv = command_line(pid)
                first = known[0] if known is not None else now + SETTLED_S
                self._lines[pid] = (first, argv)
            else:
                argv = known[1]
            if engine_of(argv, self.engines) is not None and (known is None or runs(pid)):
                found.add(pid)
        for pid in set(self._lines) - seen:
            del self._lines[pid]
        return sorted(pid for pid in found if not self._descends(pid, found))

    def argv(self, pid: int) -> List[str]:
        known = self._lines.get(pid)
        return known[1] if known is not None else command_line(pid)

    def forget(self) -> None:
        """Look at everything anew next time: a pid may have been given to another process."""
        self._lines.clear()

    def _descends(self, pid: int, found: Set[int]) -> bool:
        for _ in range(16):
            parent = parent_of(pid)
            if parent in found:  # pid 1 too, which is the server in many a container
                return True
            if parent is None or parent <= 1:
                return False
            pid = parent
        return False

    def started_at(self, pid: int) -> Optional[float]:
        """Return when a process started, by this host's wall clock."""
        fields = _stat(pid)
        if fields is None or self._boot is None:
            return None
        return self._boot + int(fields[19]) / self._tick


def command_line(pid: int) -> List[str]:
    """Return the words of a process's command line; empty for a kernel thread and for one that is gone."""
    raw = read("/proc/%d/cmdline" % pid, 1 << 17) or b""
    words = raw.rstrip(b"\0").split(b"\0") if raw.rstrip(b"\0") else []
    return [word.decode("utf-8", "replace") for word in words]


def runs(pid: int) -> bool:
    """Tell whether a process runs: one that has ended keeps its pid until its parent takes note.

    One that is ending still runs: its children are not handed over yet, and would seem to be nobody's.
    """
    fields = _stat(pid)
    return fields is not None and fields[0] not in _ENDED


_ENDED = (b"Z", b"X")
"""States of a process: a zombie, dead."""


def parent_of(pid: int) -> Optional[int]:
    fields = _stat(pid)
    return int(fields[1]) if fields is not None else None


def adopted(pid: int) -> bool:
    """Tell whether who started a process is gone: its parent is one that takes over what others left, of this host or of a
    container.

    An engine that a script of somebody's started (`LLM(…)`) has that script as its parent, and is nobody's leftover.
    """
    parent = parent_of(pid)
    if not parent:
        return True
    argv = command_line(parent)
    if argv and _PYTHON.search(os.path.basename(argv[0])):
        return False  # a script can be pid 1 of a container
    status = read("/proc/%d/status" % parent, 1 << 16) or b""
    numbers = re.search(rb"^NSpid:\s*([\d\s]+?)$", status, re.MULTILINE)
    name = (read("/proc/%d/comm" % parent, 64) or b"").strip().decode("utf-8", "replace")
    return parent == 1 or bool(numbers and numbers.group(1).split()[-1] == b"1") or name.startswith(REAPERS)


def halted_of(pid: int, table: Table, processes: Processes) -> List[List[Any]]:
    """Return those of a server's processes that do nothing any more, as [pid, name, state]: "T" is stopped, "Z" a zombie.

    Of zombies only the engine's count, told by their titles: helpers that have ended may well stay for a while.
    """
    engine = engine_of(table.argv(pid), table.engines) or NO_ENGINE
    titles = tuple(title[:COMM_LENGTH] for title in engine["titles"])
    found = []
    for member in sorted(processes.family([pid])):
        fields = _stat(member)
        state = fields[0].decode("ascii", "replace") if fields is not None else ""
        if state not in ("T", "Z"):
            continue
        comm = (read("/proc/%d/comm" % member, 64) or b"").strip().decode("utf-8", "replace")
        title = name_of(read("/proc/%d/cmdline" % member, 4096) or b"")
        name = title if title.startswith(comm) else comm  # the whole of a title that the engine has set
        if state == "T" or (titles and name.startswith(titles)):
            found.append([member, name, state])
    return found


def owner_of(pid: int) -> Optional[str]:
    """Return the user's name, or number if it has none here (a container's)."""
    try:
        uid = os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def variable(pid: int, name: str) -> Optional[str]:
    """Return a variable of a process's environment, "" if it is not set; None if that may not be looked at."""
    raw = read("/proc/%d/environ" % pid, 1 << 20)
    if raw is None:
        return None
    start = name.encode() + b"="
    found = [entry[len(start) :] for entry in raw.split(b"\0") if entry.startswith(start)]
    return found[0].decode("utf-8", "replace") if found else ""


def has_variable(pid: int, name: str) -> Optional[bool]:
    """Tell whether a variable is set in a process's environment; None if that may not be looked at. Its value is not kept."""
    value = variable(pid, name)
    return None if value is None else bool(value)


def _stat(pid: int) -> Optional[List[bytes]]:
    """Return the fields of /proc/PID/stat after the name: state first."""
    raw = read("/proc/%d/stat" % pid, 4096)
    if not raw or b")" not in raw:
        return None
    fields = raw[raw.rindex(b")") + 2 :].split()
    return fields if len(fields) > 20 else None


def _boot_time() -> Optional[float]:
    for line in (read("/proc/stat", 1 << 20) or b"").splitlines():
        if line.startswith(b"btime "):
            return float(line.split()[1])
    return None


def arguments_of(argv: Sequence[str], engines: Sequence[Engine]) -> Dict[str, Any]:
    """Return what a server's command line says; "engine" is the engine itself, "orphan" whether only orphans are called so."""
    engine = engine_of(argv, engines) or NO_ENGINE
    options = options_of(argv, engine)
    port = option("port", options, engine) or ""
    return {
        "engine": engine,
        "argv": without_secrets(argv),
        "model": model_of(argv, options, engine),
        "served_name": option("served_name", options, engine),
        "tensor_parallel": option("tensor_parallel", options, engine),
        "needs_key": has_option("key", options, engine),
        "asked_port": int(port) if port.isdigit() else None,
        "asked_host": option("host", options, engine),
        "tls": has_option("tls", options, engine),
        "uds": option("uds", options, engine),
        "orphan": bool(argv) and argv[0].startswith(tuple(engine["orphans"])),
        "interpreter": argv[0] if argv else None,
    }


def facts_of(pid: int, table: Table) -> Dict[str, Any]:
    """Return what a server's command line and /proc entry say; "engine" is the engine itself."""
    facts = arguments_of(table.argv(pid), table.engines)
    variables = facts["engine"]["variables"]
    key, timeout = variables.get("key"), variables.get("ready_timeout_s")
    facts.update(
        pid=pid,
        user=owner_of(pid),
        started_at=table.started_at(pid),
        needs_key=facts["needs_key"] or (key is not None and bool(has_variable(pid, key))),
        ready_timeout_s=variable(pid, timeout) if timeout else None,
        job_ends_at=variable(pid, "SLURM_JOB_END_TIME"),
        uds=_absolute(facts["uds"] or "", pid),
        orphan=facts["orphan"] and adopted(pid),
    )
    return facts


def _absolute(path: str, pid: int) -> Optional[str]:
    """Return a path that a process was given, as seen from this host; None for none."""
    if not path:
        return None
    if path.startswith("/"):
        return path
    try:
        return os.path.join(os.readlink("/proc/%d/cwd" % pid), path)
    except OSError:
        return path
