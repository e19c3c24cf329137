"""Facts about processes from /proc: title, parent, owner, container, bytes read. No command line leaves the host in full, since
one may hold a secret."""

import contextlib
import os
import re
import time
from typing import Any, Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

KNOWN_S = 10.0
"""How long a process's facts are taken as known; engines set their titles some time after they start."""

NAME_LIMIT = 100
_CONTAINER = re.compile(r"(?:docker|libpod|cri-containerd|crio|containerd)[-/:](?:[^/]*/)*?([0-9a-f]{12})[0-9a-f]*|"
                        r"/kubepods[^\n]*/([0-9a-f]{12})[0-9a-f]{52}")  # fmt: skip
_INTERPRETER = re.compile(r"(?:python|pypy|ruby|perl|node|bash|sh)[0-9.]*$")


def read(path: str, limit: int = 65536) -> Optional[bytes]:
    """Return a small file's bytes; None if it can't be read."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(number, limit)
    except OSError:
        return None
    finally:
        os.close(number)


def name_of(command_line: bytes) -> str:
    """Return a process's name from /proc/PID/cmdline: its title if it set one (`VLLM::Worker_TP0`), else the program.

    For an interpreter also what it runs; never further arguments.
    """
    words = [word.decode("utf-8", "replace") for word in command_line.split(b"\0")]
    words = [word for word in words if word.strip()]
    if not words:
        return ""
    first = words[0].strip()
    if "::" in first:
        return first[:NAME_LIMIT]
    name = os.path.basename(first.split(" ")[0]) or first
    if _INTERPRETER.match(name):
        for place, word in enumerate(words[1:], 1):
            if words[place - 1] in ("-X", "-W"):
                continue
            if word == "-m" and place + 1 < len(words):
                return ("%s -m %s" % (name, words[place + 1]))[:NAME_LIMIT]
            if word == "-c":
                break
            if not word.startswith("-"):
                return ("%s %s" % (name, os.path.basename(word)))[:NAME_LIMIT]
    return name[:NAME_LIMIT]


def container_of(cgroup: str) -> Optional[str]:
    """Return the first 12 digits of the container's id in /proc/PID/cgroup; None if it is in none that is known."""
    match = _CONTAINER.search(cgroup)
    return (match.group(1) or match.group(2)) if match else None


class Processes:
    """Remembers what was read, so that asking costs next to nothing."""

    def __init__(self) -> None:
        self._facts: Dict[int, Tuple[float, Dict[str, Any]]] = {}
        self._users: Dict[int, str] = {}
        self._parents: Dict[int, int] = {}

    def facts(self, pid: int, now: float) -> Dict[str, Any]:
        """name, parent, user, container of a process; without what can't be read."""
        known = self._facts.get(pid)
        if known is not None and now < known[0]:
            return known[1]
        if len(self._facts) > 500:
            self._facts.clear()
        facts: Dict[str, Any] = {}
        line = read("/proc/%d/cmdline" % pid, 4096)
        name = name_of(line) if line else ""
        if not name:
            name = (read("/proc/%d/comm" % pid, 64) or b"").decode("utf-8", "replace").strip()
        if name:
            facts["name"] = name
        parent = parent_of(pid)
        if parent is not None:
            facts["parent"] = parent
        container = container_of((read("/proc/%d/cgroup" % pid) or b"").decode("utf-8", "replace"))
        if container is not None:
            facts["container"] = container
        with contextlib.suppress(OSError):
            facts["user"] = self._user(os.stat("/proc/%d" % pid).st_uid)
        self._facts[pid] = (now + KNOWN_S, facts)
        return facts

    def _user(self, uid: int) -> str:
        # /etc/passwd is read as a file: the C library's look-up may ask a directory server, and wait for it
        if not self._users:
            for line in (read("/etc/passwd", 1 << 20) or b"").decode("utf-8", "replace").split("\n"):
                words = line.split(":")
                if len(words) > 2 and words[2].isdigit():
                    self._users.setdefault(int(words[2]), words[0])
            self._users.setdefault(0, "root")
        return self._users.get(uid, "uid %d" % uid)

    @property
    def known(self) -> FrozenSet[int]:
        """Return the processes whose parents the last look for a family could tell."""
        return frozenset(self._parents)

    def family(self, roots: Iterable[int]) -> Set[int]:
        """Return the given processes and all that descend from them. Read the parent only of processes it hasn't seen before."""
        roots = set(roots)
        try:
            alive = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        except OSError:
            return roots
        for gone in self._parents.keys() - alive:
            del self._parents[gone]
        for pid in alive - self._parents.keys():
            parent = parent_of(pid)
            if parent is not None:
                self._parents[pid] = parent
        children: Dict[int, List[int]] = {}
        for pid, parent in self._parents.items():
            children.setdefault(parent, []).append(pid)
        found: Set[int] = set()
        waiting = [pid for pid in roots if pid in alive]
        while waiting:
            pid = waiting.pop()
            if pid not in found:
                found.add(pid)
                waiting.extend(children.get(pid, ()))
        return found


def parent_of(pid: int) -> Optional[int]:
    """Return the parent's pid; None if the process is gone."""
    stat = read("/proc/%d/stat" % pid, 1024)
    if stat is None:
        return None
    try:
        return int(stat[stat.rindex(b")") + 2 :].split(b" ")[1])
    except (ValueError, IndexError):
        return None


def bytes_read(pids: Iterable[int]) -> Optional[int]:
    """Return what these processes fetched from storage or page cache so far (rchar of /proc/PID/io counts both, memory maps not;
    read_bytes counts storage, maps too: the larger one is taken). None if none may be read."""
    total: Optional[int] = None
    for pid in pids:
        io = read("/proc/%d/io" % pid, 512)
        if not io:
            continue
        numbers = {}
        for line in io.splitlines():
            key, _, value = line.partition(b":")
            if value.strip().isdigit():
                numbers[key] = int(value)
        total = (total or 0) + max(numbers.get(b"rchar", 0), numbers.get(b"read_bytes", 0))
    return total


def wall_and_mono() -> Dict[str, float]:
    """Return the two clocks that every frame carries."""
    return {"wall": round(time.time(), 3), "mono": round(time.monotonic(), 4)}


FAMILY_S = 5.0
"""Between two looks, if nothing on a GPU asks for an earlier one."""
HOST = "pid:[4026531836]"
"""The kernel's name of the host's own list of processes (PROC_PID_INIT_INO); a container has another."""


class Kin(NamedTuple):
    """What one look found."""

    family: FrozenSet[int]
    """The engine's processes."""
    judged: FrozenSet[int]
    """Those of which the look could tell whether they are."""

    def has(self, pid: int) -> Optional[bool]:
        """Tell whether a process is the engine's; None for one that came after the look, or that can't be told."""
        if pid in self.family:
            return True
        return False if pid in self.judged else None


NOBODY: Kin = Kin(frozenset(), frozenset())


class Family:
    """Look for the engine's processes. `kin` may be read, and `used` set, by another thread: read it once for one sample."""

    def __init__(self, processes: Processes, in_container: bool, titles: Sequence[str] = ()) -> None:
        self.kin: Optional[Kin] = None
        """None if no processes were told."""
        self.used: FrozenSet[int] = frozenset()
        """The processes that the last sample saw on the GPUs."""
        self.titles = tuple(titles)
        """Beginnings of the titles that an engine's processes set."""
        self._processes = processes
        self._in_container = in_container
        self._roots: Optional[List[int]] = None
        self._judged: FrozenSet[int] = frozenset()
        """By the last look that found one of the roots alive."""
        self._asked: FrozenSet[int] = frozenset()
        """Those on the GPUs before the last look."""
        self._due = 0.0

    def tell(self, roots: Optional[List[int]], now: float) -> None:
        """Take the processes that descend from `roots` for the engine's; None: nobody is known."""
        self._roots = roots
        if roots is None:
            self.kin = None
        else:
            self._look(roots, now)

    def look_if_due(self, now: float) -> None:
        """Look from time to time, and once more for each process that is new on a GPU."""
        if self._roots is None:
            return
        new = self.used - self._asked - self._judged
        if new or now >= self._due:
            self._look(self._roots, now)

    def _look(self, roots: List[int], now: float) -> None:
        self._due = now + FAMILY_S
        self._asked = used = self.used  # before the look: what comes while it goes on is not judged by it
        family = frozenset(self._processes.family(roots))
        known = self._processes.known
        if family:
            # A process of a GPU that /proc hides is another user's, or would be in the family; but in a container the driver may
            # tell the host's numbers, and then it can be anybody's.
            self._judged = known if self._in_container else known | used
        else:
            # All that were told have ended: what is younger than they may be the engine of the server's next start.
            self._judged &= known | used
        self.kin = Kin(family, self._judged)


def in_container() -> bool:
    """Tell whether this process sees a list of processes of its own, not the host's."""
    try:
        return os.readlink("/proc/self/ns/pid") != HOST
    except OSError:
        return False
