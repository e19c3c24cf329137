"""The output of a process on the host, and what a source of logs must be able to do with it.

Python 3.8: this runs on the GPU host.
"""

import os
import re
import shutil
import stat
import subprocess
import time
from abc import ABC, abstractmethod
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from tui.probe.become import environment
from tui.probe.leash import Link
from tui.probe.machine_counters import mount_of
from tui.probe.process_table import in_container, read
from tui.probe.server_processes import Table, command_line

PIPES_IN_A_ROW = 4
_CONTAINER = re.compile(r"(docker|libpod|containerd|crio)[^\n]*?([0-9a-f]{64})|(/kubepods)[^\n]*?([0-9a-f]{64})")
_PIPE = re.compile(r"pipe:\[\d+\]")

FoundLog = NamedTuple("FoundLog", [("source", Optional[str]), ("why", Optional[str])])
"""A log as `PREFIX:NAME`, or None with the reason why there is none to follow; `why` may also remark on a log that was found."""


class LogSource(ABC):
    """One kind of log source."""

    prefix: str
    """What `log = …` begins with, as in `tui.wire.log_prefixes`."""

    @classmethod
    def recognise(cls, output: "ProcessOutput") -> Optional[FoundLog]:
        """Return the log that this output goes to; None if it is no source of this kind."""
        return None

    @classmethod
    @abstractmethod
    def follow(cls, arguments: Dict[str, Any], link: Link) -> None:
        """Follow the source that the role's arguments name until the client ends it."""


class ProcessOutput:
    """One output stream of a process. `target` is what its descriptor leads to; None if this login may not see that."""

    def __init__(self, pid: int, number: int, target: Optional[str], link: Link, known: Dict[str, Dict[str, str]]) -> None:
        """`known` keeps what sources have asked the host for, for the outputs looked at in the same round."""
        self.pid = pid
        self.number = number
        self.target = target
        self.known = known
        self._link = link
        self.cgroup = (read("/proc/%d/cgroup" % pid) or b"").decode("utf-8", "replace")

    @property
    def is_pipe(self) -> bool:
        return self.target is not None and _PIPE.match(self.target) is not None

    @property
    def is_socket(self) -> bool:
        return self.target is not None and self.target.startswith("socket:")

    @property
    def is_terminal(self) -> bool:
        return self.target is not None and self.target.startswith(("/dev/pts/", "/dev/tty"))

    @property
    def container(self) -> Optional[Tuple[str, str]]:
        """The runtime (docker, libpod, containerd, crio or kubepods) and the container's id, by the process's cgroup.

        None if it runs in no container, or if its output goes elsewhere than to the runtime.
        """
        match = _CONTAINER.search(self.cgroup) if self.is_pipe or self.target is None else None
        if match is None:
            return None
        runtime = "kubepods" if "kubepods" in self.cgroup else match.group(1)
        return runtime, match.group(2) or match.group(4)

    def file(self) -> Optional[FoundLog]:
        """Return the file that it goes to, also through a pipe to a program such as `tee`; None if it is no file."""
        if self.target is None or self.target == "/dev/null" or self.is_socket or self.is_terminal:
            return None
        return file_behind_pipe(self.target) if self.is_pipe else file_of(self.pid, self.number, self.target)

    def ask(self, argv: List[str]) -> Optional[str]:
        """Return what a short command prints; None if it fails."""
        try:
            child = self._link.spawn(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()
            )
        except OSError:
            return None
        try:
            out, _ = child.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            self._link.kill(child)
            return None
        self._link.reaped(child)
        return out.decode("utf-8", "replace") if child.returncode == 0 else None


def file_of(pid: int, number: int, target: str) -> FoundLog:
    """Return the file that a descriptor of a process has open, as a source that names it from outside its container."""
    deleted = target.endswith(" (deleted)")
    path = "/proc/%d/fd/%d" % (pid, number)
    try:
        there = os.stat(path)
    except OSError:
        return FoundLog(None if deleted else "file:" + target, None)
    if not stat.S_ISREG(there.st_mode):
        return FoundLog(None, "its output goes to %s, which can't be followed" % target)
    try:
        named = os.stat(target)
        if (named.st_dev, named.st_ino) == (there.st_dev, there.st_ino):
            return FoundLog("file:" + target, None)
    except OSError:
        pass
    # Deleted, or a path of a container's own files: the descriptor leads there all the same.
    inside = "/proc/%d/root%s" % (pid, target)
    if not deleted and os.path.exists(inside):
        return FoundLog("file:" + inside, None)
    return FoundLog("file:" + path, "its log was deleted, but the server still writes to it" if deleted else None)


def file_behind_pipe(pipe: str, depth: int = 0) -> Optional[FoundLog]:
    """Return the file that the reader of a pipe writes: `tee FILE`, `rotatelogs FILE`, `cat > FILE`, also behind `| ts |`."""
    seen: List[str] = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            if os.readlink("/proc/%d/fd/0" % pid) != pipe:
                continue
            written = _written(pid)
            further = os.readlink("/proc/%d/fd/1" % pid)
        except OSError:
            continue
        for number, target in written:
            output = file_of(pid, number, target)
            if output.source is not None:
                return output
        if _PIPE.match(further) and further != pipe and depth < PIPES_IN_A_ROW:
            output_of_next = file_behind_pipe(further, depth + 1)
            if output_of_next is not None:
                return output_of_next
        argv = command_line(pid)
        if argv:
            seen.append("%s (pid %d)" % (os.path.basename(argv[0]), pid))
    if not seen:
        return None
    return FoundLog(None, "its output goes into a pipe to %s, which writes no file: end it with `| tee FILE`" % ", ".join(seen[:3]))


def _written(pid: int) -> List[Tuple[int, str]]:
    """Return the regular files that a process has open for writing: what it opened itself, then its stdout.

    Of `tee LOG > OTHER` both hold the same, and the first was named for it. A deleted stdout is what somebody's own output went
    to, and stderr is the reader's own.
    """
    found = []
    for name in sorted(os.listdir("/proc/%d/fd" % pid), key=int):
        number = int(name)
        if number in (0, 2):
            continue
        path = "/proc/%d/fd/%d" % (pid, number)
        info = read("/proc/%d/fdinfo/%d" % (pid, number), 4096) or b""
        match = re.search(rb"^flags:\s*([0-7]+)", info, re.MULTILINE)
        if match and int(match.group(1), 8) & os.O_ACCMODE != os.O_RDONLY and os.path.isfile(path):
            target = os.readlink(path)
            if number != 1 or not target.endswith(" (deleted)"):
                found.append((number, target))
    return sorted(found, key=lambda written: written[0] == 1)


QUIET_S = 5.0
"""A log that was written to so lately has a writer."""
UNSURE_QUIET_S = 1800.0
"""The same where a writer may be out of sight: another user's, another host's, another container's."""
OWN_FILES = ("overlay", "tmpfs")
"""File systems that nobody outside of a container writes to."""
LOCAL_FILES = (*OWN_FILES, "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs")
NAMED_PID = re.compile(rb"\bpid=(\d{1,9})\b")
LOOKED_THROUGH = 64 << 10


def abandoned(path: str, fd: int) -> bool:
    """Return whether a log's writers are gone: nobody has it open, and no process lives that its lines name."""
    status = os.fstat(fd)
    age = time.time() - status.st_mtime
    if age < QUIET_S:
        return False
    table = Table([])
    for match in NAMED_PID.finditer(os.pread(fd, LOOKED_THROUGH, max(0, status.st_size - LOOKED_THROUGH))):
        began = table.started_at(int(match.group(1)))
        if began is not None and began < status.st_mtime:  # a later one was given its number
            return False
    hidden = False
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            if pid != os.getpid() and _writes(pid, os.path.basename(os.path.realpath(path)), status):
                return False
        except PermissionError:
            hidden = True
        except OSError:
            continue
    mount = mount_of(os.path.realpath(path), (read("/proc/self/mountinfo", 1 << 20) or b"").decode("utf-8", "replace"))
    files = mount[2] if mount is not None else ""
    seen = not hidden and files in (OWN_FILES if in_container() else LOCAL_FILES)
    return seen or age > UNSURE_QUIET_S


def _writes(pid: int, name: str, status: os.stat_result) -> bool:
    """Return whether a process has the file of this name and status open for writing. Raise OSError."""
    for number in os.listdir("/proc/%d/fd" % pid):
        at = "/proc/%d/fd/%s" % (pid, number)
        try:
            if name not in os.readlink(at):
                continue
            there = os.stat(at)
        except OSError:
            continue
        info = read("/proc/%d/fdinfo/%s" % (pid, number), 4096) or b""
        match = re.search(rb"^flags:\s*([0-7]+)", info, re.MULTILINE)
        reads = match is not None and int(match.group(1), 8) & os.O_ACCMODE == os.O_RDONLY
        if (there.st_dev, there.st_ino) == (status.st_dev, status.st_ino) and not reads:
            return True
    return False


def which(program: str) -> Optional[str]:
    """Return the program's path on this host, also if the login's PATH is a poor one."""
    return shutil.which(program, path=environment()["PATH"])
