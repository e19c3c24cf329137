"""Which processes of this host serve a model, and what their arguments say: vLLM and SGLang, in containers too.

Python 3.8: this runs on the GPU host.
"""

import os
import pwd
import re
import time
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from tui.probe.process_table import read

VLLM = "vllm"
SGLANG = "sglang"
PORTS = {VLLM: 8000, SGLANG: 30000}
SETTLED_S = 15.0
"""A process older than this has become what it is: its command line is read once and remembered."""

ORPHANS = ("VLLM::EngineCore", "VLLM::Worker", "VLLM::DPCoordinator", "sglang::scheduler", "sglang::detokenizer")
"""Titles of processes that a server starts: without a server above them they are what is left of a dead one."""
REAPERS = ("systemd", "init", "tini", "dumb-init", "docker-init", "containerd-shim", "conmon", "catatonit", "s6-svscan", "runit")
"""Names of what adopts processes whose parent has ended."""
_PYTHON = re.compile(r"python[0-9.]*$")
_SECRET = re.compile(r"--?(?:[a-z-]*api[-_]?key|[a-z-]*token|[a-z-]*password|[a-z-]*secret)(?:=|$)", re.IGNORECASE)
_SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-asc": "--api-server-count",
}


def engine_of(argv: Sequence[str]) -> Optional[str]:
    """Which server a command line starts; None for anything else, wrappers (`sh -c`, `docker run`, `sudo`) included."""
    words = list(argv)
    if not words:
        return None
    if words[0].startswith(("VLLM::", "vllm::")):
        return VLLM
    if words[0].startswith("sglang::"):
        return SGLANG
    if not _PYTHON.search(os.path.basename(words[0])):
        # A compiled or frozen entry point; a script is always told with its interpreter before it.
        name = os.path.basename(words[0])
        return name if name in (VLLM, SGLANG) and words[1:2] == ["serve"] else None
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "-c"):
        at += 2 if words[at] in ("-X", "-W") else 1
    if words[at : at + 1] == ["-m"]:
        module = words[at + 1] if at + 1 < len(words) else ""
        if module.startswith("vllm.entrypoints.") or (module == VLLM and words[at + 2 : at + 3] == ["serve"]):
            return VLLM
        return SGLANG if module in ("sglang.launch_server", "sglang.srt.launch_server") else None
    script = os.path.basename(words[at]) if at < len(words) else ""
    if script in (VLLM, SGLANG) and words[at + 1 : at + 2] == ["serve"]:
        return script
    if script == "api_server.py" and "vllm" in words[at]:
        return VLLM
    return SGLANG if script == "launch_server.py" and "sglang" in words[at] else None


def options_of(argv: Sequence[str]) -> Dict[str, str]:
    """The long options of a command line; of a repeated one the last. A flag's value is ""."""
    options: Dict[str, str] = {}
    for at, word in enumerate(argv):
        word = _SHORT.get(word, word)
        if not word.startswith("--"):
            continue
        name, equals, value = word.partition("=")
        if not equals:
            following = argv[at + 1] if at + 1 < len(argv) else ""
            value = "" if following.startswith("--") else following
        options[name.replace("_", "-")] = value
    return options


def model_of(argv: Sequence[str], options: Dict[str, str]) -> Optional[str]:
    """The model that a command line names."""
    for name in ("--model", "--model-path"):
        if options.get(name):
            return options[name]
    if "serve" in argv:
        at = list(argv).index("serve") + 1
        if at < len(argv) and not argv[at].startswith("-"):
            return argv[at]
    return None


def without_secrets(argv: Sequence[str]) -> List[str]:
    """A command line that may leave the host: the values of keys and tokens are gone."""
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

    def __init__(self) -> None:
        self._lines: Dict[int, Tuple[float, List[str]]] = {}
        self._boot = _boot_time()
        self._tick = os.sysconf("SC_CLK_TCK")

    def servers(self) -> List[int]:
        """The pids of servers: of several processes with one ancestor among them, the ancestor."""
        now = time.monotonic()
        found: Dict[int, Optional[str]] = {}
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
            engine = engine_of(argv)
            if engine is not None:
                found[pid] = engine
        for pid in set(self._lines) - seen:
            del self._lines[pid]
        return sorted(pid for pid in found if not self._descends(pid, found))

    def argv(self, pid: int) -> List[str]:
        known = self._lines.get(pid)
        return known[1] if known is not None else command_line(pid)

    def forget(self) -> None:
        """Looks at everything anew next time: a pid may have been given to another process."""
        self._lines.clear()

    def _descends(self, pid: int, found: Dict[int, Optional[str]]) -> bool:
        for _ in range(16):
            parent = parent_of(pid)
            if parent in found:  # pid 1 too, which is the server in many a container
                return True
            if parent is None or parent <= 1:
                return False
            pid = parent
        return False

    def started_at(self, pid: int) -> Optional[float]:
        """Wall clock of this host."""
        fields = _stat(pid)
        if fields is None or self._boot is None:
            return None
        return self._boot + int(fields[19]) / self._tick


def command_line(pid: int) -> List[str]:
    """The words of a process's command line; empty for a kernel thread and for one that is gone."""
    raw = read("/proc/%d/cmdline" % pid, 1 << 17) or b""
    words = raw.rstrip(b"\0").split(b"\0") if raw.rstrip(b"\0") else []
    return [word.decode("utf-8", "replace") for word in words]


def parent_of(pid: int) -> Optional[int]:
    fields = _stat(pid)
    return int(fields[1]) if fields is not None else None


def adopted(pid: int) -> bool:
    """Whether who started a process is gone: its parent is one that takes over what others left, of this host or of a container.

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


def owner_of(pid: int) -> Optional[str]:
    """The user's name, or number where it has none here (a container's)."""
    try:
        uid = os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def variable(pid: int, name: str) -> Optional[str]:
    """A variable of a process's environment, "" where it is not set; None where that may not be looked at."""
    raw = read("/proc/%d/environ" % pid, 1 << 20)
    if raw is None:
        return None
    start = name.encode() + b"="
    found = [entry[len(start) :] for entry in raw.split(b"\0") if entry.startswith(start)]
    return found[0].decode("utf-8", "replace") if found else ""


def has_variable(pid: int, name: str) -> Optional[bool]:
    """Whether a variable is set in a process's environment; None where that may not be looked at. Its value is not kept."""
    value = variable(pid, name)
    return None if value is None else bool(value)


def _stat(pid: int) -> Optional[List[bytes]]:
    """The fields of /proc/PID/stat after the name: state first."""
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


def facts_of(pid: int, table: Table) -> Dict[str, Any]:
    """What a server's command line and /proc entry say."""
    argv = table.argv(pid)
    engine = engine_of(argv) or ""
    options = options_of(argv)
    key = "--api-key" in options or has_variable(pid, "VLLM_API_KEY")
    port = options.get("--port", "")
    return {
        "pid": pid,
        "engine": engine,
        "argv": without_secrets(argv),
        "user": owner_of(pid),
        "started_at": table.started_at(pid),
        "model": model_of(argv, options),
        "served_name": options.get("--served-model-name") or None,
        "tensor_parallel": options.get("--tensor-parallel-size") or options.get("--tp") or options.get("--tp-size") or None,
        "needs_key": key,
        "ready_timeout_s": variable(pid, "VLLM_ENGINE_READY_TIMEOUT_S"),
        "job_ends_at": variable(pid, "SLURM_JOB_END_TIME"),
        "asked_port": int(port) if port.isdigit() else None,
        "asked_host": options.get("--host") or None,
        "tls": "--ssl-certfile" in options,
        "uds": _absolute(options.get("--uds", ""), pid),
        "orphan": bool(argv) and argv[0].startswith(ORPHANS) and adopted(pid),
        "interpreter": argv[0] if argv else None,
    }


def _absolute(path: str, pid: int) -> Optional[str]:
    """A path that a process was given, as seen from this host; None for none."""
    if not path:
        return None
    if path.startswith("/"):
        return path
    try:
        return os.path.join(os.readlink("/proc/%d/cwd" % pid), path)
    except OSError:
        return path
