"""Where a process's output goes, as a log source that can be followed, or why there is none.

Python 3.8: this runs on the GPU host.
"""

import os
import re
import socket
import stat
import subprocess
from typing import Dict, List, NamedTuple, Optional, Tuple

from tui.probe.become import Become, environment
from tui.probe.leash import Link
from tui.probe.log_sources import which
from tui.probe.process_table import read
from tui.probe.server_processes import command_line

Output = NamedTuple("Output", [("source", Optional[str]), ("why", Optional[str])])

_UNIT = re.compile(r"/([^/\n]+\.service)")
_USER_UNIT = re.compile(r"/user@\d+\.service/(?:[^\n]*/)?([^/\n]+\.service)")
_CONTAINER = re.compile(r"(?:docker|libpod|containerd|crio)[^\n]*?([0-9a-f]{64})|/kubepods[^\n]*?([0-9a-f]{64})")
_PIPE = re.compile(r"pipe:\[\d+\]")
PIPES_IN_A_ROW = 4
TMUX_SERVERS = 20


class Outputs:
    """Looks at descriptors 1 and 2 of processes."""

    def __init__(self, link: Link, become: Become) -> None:
        self._link = link
        self._become = become
        self._panes: Optional[Dict[str, str]] = None

    def of(self, pid: int) -> Output:
        """Where the log of a server is. Progress bars go to stderr, so that counts more where the two differ."""
        links = self._links(pid)
        if links is None:
            container = self._container(pid)
            if container is not None:
                return container
            unit = self._unit(pid)
            if unit is not None:
                return Output(unit, None)
            return Output(None, "not allowed to see where the output of process %d goes: %s" % (pid, self._become.advice()))
        found = [self._destination(pid, number, links[number]) for number in (2, 1)]
        for output in found:
            if output.source is not None:
                other = links[1] if output is found[0] else links[2]
                same = links[1] == links[2] or found[0].source == found[1].source
                return Output(
                    output.source, None if same else "only one of stdout and stderr goes there; the other one: %s" % other
                )
        return found[0]

    def _links(self, pid: int) -> Optional[Dict[int, str]]:
        try:
            return {number: os.readlink("/proc/%d/fd/%d" % (pid, number)) for number in (1, 2)}
        except OSError:
            return None

    def _destination(self, pid: int, number: int, target: str) -> Output:
        if target == "/dev/null":
            return Output(None, "its output goes to /dev/null: start it with its output in a file")
        if target.startswith("/dev/pts/") or target.startswith("/dev/tty"):
            return self._terminal(target)
        container = self._container(pid)
        if _PIPE.match(target):
            return container or self._reader(target) or Output(None, "its output goes into a pipe that can't be read from outside")
        if target.startswith("socket:"):
            unit = self._unit(pid)
            return Output(unit, None) if unit else Output(None, "its output goes into a socket that can't be read from outside")
        return self._file(pid, number, target)

    def _file(self, pid: int, number: int, target: str) -> Output:
        deleted = target.endswith(" (deleted)")
        path = "/proc/%d/fd/%d" % (pid, number)
        try:
            there = os.stat(path)
        except OSError:
            return Output(None if deleted else "file:" + target, None)
        if not stat.S_ISREG(there.st_mode):
            return Output(None, "its output goes to %s, which can't be followed" % target)
        try:
            named = os.stat(target)
            if (named.st_dev, named.st_ino) == (there.st_dev, there.st_ino):
                return Output("file:" + target, None)
        except OSError:
            pass
        # Deleted, or a path of a container's own files: the descriptor leads there all the same.
        inside = "/proc/%d/root%s" % (pid, target)
        if not deleted and os.path.exists(inside):
            return Output("file:" + inside, None)
        return Output("file:" + path, "its log was deleted, but the server still writes to it" if deleted else None)

    def _terminal(self, target: str) -> Output:
        pane = self._tmux().get(target)
        if pane is not None:
            return Output("tmux:" + pane, None)
        return Output(None, "its output goes to the terminal %s, which can't be read: start it in tmux or with a log file" % target)

    def _tmux(self) -> Dict[str, str]:
        """Terminal -> pane, of the user's own tmux server and of the others that may be asked."""
        if self._panes is None:
            self._panes = {}
            for path in ("", *others_tmux()) if which("tmux") else ():
                server = ["-S", path] if path else []
                out = self._ask(["tmux", *server, "list-panes", "-a", "-F", "#{pane_tty} #{pane_id}"])
                for words in (line.split() for line in (out or "").splitlines()):
                    if len(words) == 2:
                        self._panes.setdefault(words[0], "%s:%s" % (path, words[1]) if path else words[1])
        return self._panes

    def _container(self, pid: int) -> Optional[Output]:
        text = (read("/proc/%d/cgroup" % pid) or b"").decode("utf-8", "replace")
        match = _CONTAINER.search(text)
        if match is None:
            return None
        name = match.group(1) or match.group(2)
        if "kubepods" in text:
            path = self._pod_log(name)
            if path is not None:
                return Output("file:" + path, None)
            return Output(None, "it runs in a pod: name `log = kubectl:NAMESPACE/POD`")
        if which("docker") or which("podman"):
            return Output("docker:" + name[:12], None)
        return Output(None, "it runs in the container %s, and neither docker nor podman is on the PATH" % name[:12])

    def _pod_log(self, container: str) -> Optional[str]:
        folder = "/var/log/containers"
        try:
            names = [name for name in os.listdir(folder) if name.endswith("-%s.log" % container)]
        except OSError:
            return None
        path = os.path.join(folder, names[0]) if names else None
        return path if path and os.access(path, os.R_OK) else None

    def _unit(self, pid: int) -> Optional[str]:
        text = (read("/proc/%d/cgroup" % pid) or b"").decode("utf-8", "replace")
        match = _USER_UNIT.search(text)
        if match:
            return "journal:user/" + match.group(1)
        match = _UNIT.search(text)
        return "journal:" + match.group(1) if match and not match.group(1).startswith("user@") else None

    def _reader(self, pipe: str, depth: int = 0) -> Optional[Output]:
        """What reads a pipe, and the file that it writes: `tee FILE`, `rotatelogs FILE`, `cat > FILE`, also behind `| ts |`."""
        seen: List[str] = []
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            try:
                if os.readlink("/proc/%d/fd/0" % pid) != pipe:
                    continue
                written = self._written(pid)
                further = os.readlink("/proc/%d/fd/1" % pid)
            except OSError:
                continue
            for number, target in written:
                output = self._file(pid, number, target)
                if output.source is not None:
                    return output
            if _PIPE.match(further) and further != pipe and depth < PIPES_IN_A_ROW:
                output_of_next = self._reader(further, depth + 1)
                if output_of_next is not None:
                    return output_of_next
            argv = command_line(pid)
            if argv:
                seen.append("%s (pid %d)" % (os.path.basename(argv[0]), pid))
        if not seen:
            return None
        return Output(
            None, "its output goes into a pipe to %s, which writes no file: end it with `| tee FILE`" % ", ".join(seen[:3])
        )

    @staticmethod
    def _written(pid: int) -> List[Tuple[int, str]]:
        """The regular files that a process has open for writing: what it opened itself, then its stdout.

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
        return sorted(found, key=lambda one: one[0] == 1)

    def _ask(self, argv: List[str]) -> Optional[str]:
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


def others_tmux() -> List[str]:
    """The sockets of tmux servers that may be used, but the default one: `tmux -L NAME`, and other users'."""
    default = "/tmp/tmux-%d/default" % os.geteuid()
    try:
        folders = [entry.path for entry in os.scandir("/tmp") if entry.name.startswith("tmux-")]
    except OSError:
        return []
    found = []
    for folder in sorted(folders):
        try:
            found += [entry.path for entry in os.scandir(folder) if entry.path != default and _answers(entry.path)]
        except OSError:
            continue
    return found[:TMUX_SERVERS]


def _answers(path: str) -> bool:
    """Whether somebody listens on a socket: tmux servers that were killed leave theirs behind."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(0.2)
        try:
            client.connect(path)
        except OSError:
            return False
    return True
