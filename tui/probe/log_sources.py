"""Sources of a log beyond files: the journal, containers, pods, any command. Each is a child command whose output is followed
(`children`); each can go on where an earlier run stopped, without losing or repeating a line.

Python 3.8: this runs on the GPU host.
"""

import calendar
import json
import re
import subprocess
import zlib
from abc import ABC, abstractmethod
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from tui.probe.become import environment
from tui.probe.leash import Link

Ask = Callable[[Sequence[str]], Optional[str]]

_UNIT = ("NRestarts", "Result", "ExecMainCode", "ExecMainStatus", "ActiveState", "SubState", "OOMPolicy")
CLD_KILLED = ("2", "3")
"""ExecMainCode of a process that a signal ended (with or without a core dump)."""


def systemd(ask: Ask, unit: str, user: bool) -> Optional[Dict[str, Any]]:
    """`Result` is of the last end, also while the unit runs again."""
    properties = [word for name in _UNIT for word in ("-p", name)]
    text = ask(["systemctl", *(["--user"] if user else []), "show", *properties, "--", unit])
    found = dict(line.split("=", 1) for line in (text or "").splitlines() if "=" in line)
    if "ActiveState" not in found:
        return None
    facts: Dict[str, Any] = {
        "by": "systemd",
        "name": unit,
        "running": found["ActiveState"] in ("active", "activating", "reloading"),
    }
    if found.get("NRestarts", "").isdigit():
        facts["restarts"] = int(found["NRestarts"])
    result = found.get("Result", "")
    if result:
        facts["reason"] = result
        facts["oom_killed"] = result == "oom-kill"
    status = found.get("ExecMainStatus", "")
    if status.isdigit() and found.get("ExecMainCode", "0") != "0":
        facts["signal" if found["ExecMainCode"] in CLD_KILLED else "exit_code"] = int(status)
    return facts


def docker(ask: Ask, program: str, container: str) -> Optional[Dict[str, Any]]:
    """Of docker or podman."""
    text = ask([program, "inspect", "--type", "container", "-f", "{{.RestartCount}} {{json .State}}", container])
    count, _, state_text = (text or "").partition(" ")
    state = _object(state_text)
    if state is None:
        return None
    facts: Dict[str, Any] = {
        "by": "docker",
        "name": container,
        "running": bool(state.get("Running")) and not state.get("Restarting"),
        "oom_killed": bool(state.get("OOMKilled")),
    }
    if count.isdigit():
        facts["restarts"] = int(count)
    # Of a container that runs, docker tells the status 0 whatever the end before was.
    if not state.get("Running") or state.get("Restarting"):
        if isinstance(state.get("ExitCode"), int):
            facts["exit_code"] = state["ExitCode"]
        if state.get("Error"):
            facts["reason"] = str(state["Error"])
    return facts


def kubernetes(ask: Ask, namespace: str, pod: str, container: Optional[str]) -> Optional[Dict[str, Any]]:
    """Of the container, the pod's first unless it is named."""
    status = (_object(ask(["kubectl", "get", "pod", "-n", namespace, "-o", "json", "--", pod])) or {}).get("status") or {}
    listed: List[Dict[str, Any]] = [one for one in status.get("containerStatuses") or () if isinstance(one, dict)]
    chosen = [one for one in listed if container is None or one.get("name") == container]
    if not chosen:
        return None
    one = chosen[0]
    now, last = one.get("state") or {}, one.get("lastState") or {}
    facts: Dict[str, Any] = {"by": "kubernetes", "name": "%s/%s" % (namespace, pod), "running": "running" in now}
    if isinstance(one.get("restartCount"), int):
        facts["restarts"] = one["restartCount"]
    ended = now.get("terminated") or last.get("terminated")
    if ended:
        facts["exit_code"] = ended.get("exitCode")
        facts["reason"] = ended.get("reason")
        facts["oom_killed"] = ended.get("reason") == "OOMKilled"
    elif now.get("waiting"):
        facts["reason"] = now["waiting"].get("reason")
    return facts


def _object(text: Optional[str]) -> Optional[Dict[str, Any]]:
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


LAST_LINES = 64
JOURNAL_LINES = 50000
PREVIOUS_LINES = 2000
_STAMP = re.compile(rb"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d) ?")

Item = NamedTuple("Item", [("text", str), ("stamp", Optional[float]), ("token", Any)])


class Problem(Exception):
    """Why the source can't be read now."""


class Source(ABC):
    """One kind: the command to run, and what its lines mean. `place` is what the client gets as `resume`."""

    records = True
    """Whether each line of its output is one record, which may hold CRs."""

    def __init__(self, arguments: Dict[str, Any], link: Link) -> None:
        self.name = str(arguments.get("name", ""))
        self.place: Dict[str, Any] = dict(arguments.get("from") or {})
        self._link = link

    @abstractmethod
    def argv(self) -> List[str]:
        """The command that tells what came after `place`, or everything since the last start. Raises Problem."""

    def item(self, line: bytes) -> Optional[Item]:
        """A line of its output; None for one that was told before. Raises Problem for one that is an error of the command."""
        return self.record(line)

    @abstractmethod
    def record(self, line: bytes) -> Item:
        """A line of its output, told before or not. Raises Problem."""

    @abstractmethod
    def see(self, item: Item) -> None:
        """Moves `place` behind an item."""

    def after_gap(self, items: List[Item]) -> List[Item]:
        """Of what a new child told of the past, what is new."""
        return items

    def supervisor(self) -> Optional[Dict[str, Any]]:
        """What supervises the server, and what it says of the server's ends; None where nothing does."""
        return None

    def previous(self) -> Optional[List[str]]:
        """The command that tells the end of the log of the start before the present one; None where there is none."""
        return None

    def output(self, argv: Sequence[str], timeout: float = 10.0) -> Optional[str]:
        """What a short command prints; None where it fails."""
        try:
            child = self._link.spawn(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment(),
            )
        except OSError:
            return None
        try:
            out, _ = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self._link.kill(child)
            return None
        self._link.reaped(child)
        return out.decode("utf-8", "replace").strip() if child.returncode == 0 else None


class Journal(Source):
    """`journal:UNIT`, or `journal:user/UNIT` for the user's own manager. JSON, since plain output hides what holds a colour."""

    def __init__(self, arguments: Dict[str, Any], link: Link) -> None:
        super().__init__(arguments, link)
        self._user = ["--user"] if self.name.startswith("user/") else []
        self._unit = self.name[5:] if self._user else self.name

    def argv(self) -> List[str]:
        if self.place.get("cursor"):
            return [*self._journal(), "-f", "-n", "all", "--after-cursor=" + str(self.place["cursor"])]
        since = self._started()
        if since is not None:
            return [*self._journal(), "-f", "-n", "all", "--since=" + since]
        return [*self._journal(), "-f", "-n", str(JOURNAL_LINES)]

    def _journal(self) -> List[str]:
        # Not `--user -u`: that reads the user's own journal files, and where journals are not kept on disk there are none.
        unit = ["--quiet", "--user-unit"] if self._user else ["--unit"]
        return ["journalctl", *unit, self._unit, "-o", "json", "--all", "--no-pager"]

    def _started(self) -> Optional[str]:
        since = self.output(["systemctl", *self._user, "show", "-p", "ExecMainStartTimestamp", "--value", self._unit])
        return since if since and re.search(r"\d\d:\d\d", since) else None

    def supervisor(self) -> Optional[Dict[str, Any]]:
        return systemd(self.output, self._unit, bool(self._user))

    def previous(self) -> Optional[List[str]]:
        since = self._started()
        return [*self._journal(), "-n", str(PREVIOUS_LINES), "--until=" + since] if since is not None else None

    def record(self, line: bytes) -> Item:
        try:
            entry = json.loads(line)
        except ValueError:
            raise Problem(line.decode("utf-8", "replace").strip()) from None
        message = entry.get("MESSAGE")
        if isinstance(message, list):  # bytes that are no text, or hold an escape
            try:
                message = bytes(message).decode("utf-8", "replace")
            except (ValueError, TypeError):
                message = ""
        stamp = entry.get("__REALTIME_TIMESTAMP")
        return Item(str(message or ""), int(stamp) / 1e6 if stamp else None, entry.get("__CURSOR"))

    def see(self, item: Item) -> None:
        if item.token:
            self.place = {"cursor": item.token}


class Stamped(Source):
    """A command that puts an RFC 3339 stamp before each line and takes one to begin at, inclusive."""

    def __init__(self, arguments: Dict[str, Any], link: Link) -> None:
        super().__init__(arguments, link)
        self._repeated = 0

    def begin(self) -> Optional[str]:
        """The stamp to begin at; after it, what was told already is passed over by `item`."""
        self._repeated = int(self.place.get("seen", 0))
        since = self.place.get("since")
        return None if since is None else str(since)

    def record(self, line: bytes) -> Item:
        match = _STAMP.match(line)
        if match is None:
            raise Problem(line.decode("utf-8", "replace").strip())
        key = _nanoseconds(match)
        token = (key, match.group(0).strip().decode("ascii"))
        return Item(line[match.end() :].decode("utf-8", "replace"), key / 1e9, token)

    def item(self, line: bytes) -> Optional[Item]:
        item = self.record(line)
        key = item.token[0]
        told = self.place.get("ns")
        if told is not None:
            if key < told:
                return None
            if key == told and self._repeated > 0:
                self._repeated -= 1
                return None
        return item

    def see(self, item: Item) -> None:
        key, since = item.token
        seen = int(self.place.get("seen", 0)) + 1 if self.place.get("ns") == key else 1
        self.place = {"since": since, "ns": key, "seen": seen}
        self._repeated = 0


class Docker(Stamped):
    """`docker:NAME`; podman where there is no docker."""

    def container(self) -> str:
        return self.name

    def program(self) -> str:
        found = which("docker") or which("podman")
        if found is None:
            raise Problem("neither docker nor podman is on this host's PATH")
        return found

    def argv(self) -> List[str]:
        program = self.program()
        container = self.container()
        since = self.begin()
        if since is None:
            started = self.output([program, "inspect", "-f", "{{.State.StartedAt}}", container])
            since = started if started and started[:4].isdigit() and not started.startswith("0001") else None
        when = ["--since", since] if since else []
        return [program, "logs", "--timestamps", "--follow", *when, container]

    def supervisor(self) -> Optional[Dict[str, Any]]:
        try:
            return docker(self.output, self.program(), self.container())
        except Problem:
            return None

    def previous(self) -> Optional[List[str]]:
        program, container = self.program(), self.container()
        started = self.output([program, "inspect", "-f", "{{.State.StartedAt}}", container])
        if not started or not started[:4].isdigit():
            return None
        return [program, "logs", "--timestamps", "--until", started, "--tail", str(PREVIOUS_LINES), container]


class Compose(Docker):
    """`compose:SERVICE` or `compose:PROJECT/SERVICE`: the service's newest container."""

    def container(self) -> str:
        project, _, service = self.name.rpartition("/")
        wanted = ["--filter", "label=com.docker.compose.service=" + service]
        if project:
            wanted += ["--filter", "label=com.docker.compose.project=" + project]
        found = self.output([self.program(), "ps", "--all", "--format", "{{.ID}}", *wanted])
        if not found:
            raise Problem("no container of the compose service %s" % self.name)
        return found.split()[0]


class Kubectl(Stamped):
    """`kubectl:NS/POD[/CONTAINER]`."""

    def argv(self) -> List[str]:
        words = self.name.split("/")
        if len(words) < 2:
            raise Problem("a pod is named NAMESPACE/POD or NAMESPACE/POD/CONTAINER, not %s" % self.name)
        since = self.begin()
        container = ["-c", words[2]] if len(words) > 2 else []
        when = ["--since-time=" + since] if since else []
        return ["kubectl", "logs", "--timestamps", "--follow", "-n", words[0], words[1], *container, *when]

    def supervisor(self) -> Optional[Dict[str, Any]]:
        words = self.name.split("/")
        return kubernetes(self.output, words[0], words[1], words[2] if len(words) > 2 else None) if len(words) > 1 else None

    def previous(self) -> Optional[List[str]]:
        words = self.name.split("/")
        container = ["-c", words[2]] if len(words) > 2 else []
        tail = "--tail=%d" % PREVIOUS_LINES
        return ["kubectl", "logs", "--timestamps", "--previous", tail, "-n", words[0], words[1], *container]


class Command(Source):
    """`command:…`, run by the host's /bin/sh. It knows no place of its own: the last lines told are looked for in what it says
    when it is run again."""

    records = False

    def argv(self) -> List[str]:
        return ["/bin/sh", "-c", self.name]

    def record(self, line: bytes) -> Item:
        return Item(line.decode("utf-8", "replace"), None, zlib.crc32(line))

    def see(self, item: Item) -> None:
        last = list(self.place.get("last") or ())
        last.append(item.token)
        self.place = {"last": last[-LAST_LINES:]}

    def after_gap(self, items: List[Item]) -> List[Item]:
        return items[overlap([item.token for item in items], list(self.place.get("last") or ())) :]


KINDS: Dict[str, Callable[[Dict[str, Any], Link], Source]] = {
    "journal": Journal,
    "docker": Docker,
    "compose": Compose,
    "kubectl": Kubectl,
    "command": Command,
}


def overlap(lines: Sequence[Any], last: Sequence[Any], tolerance: int = 0) -> int:
    """How many of `lines` were told before, when `last` are the last ones that were. With `tolerance`, so many of the last may have
    been changed since (a bar that is drawn again)."""
    for short in range(tolerance + 1):
        known = list(last[: len(last) - short])
        if not known:
            return 0
        size = len(known)
        for begin in range(len(lines) - size, -1, -1):
            if lines[begin + size - 1] == known[-1] and list(lines[begin : begin + size]) == known:
                return begin + size
        for size in range(min(len(known) - 1, len(lines)), 0, -1):
            if list(lines[:size]) == known[-size:]:
                return size
    return 0


def which(program: str) -> Optional[str]:
    """The program's path on this host, also where the login's PATH is a poor one."""
    import shutil

    return shutil.which(program, path=environment()["PATH"])


def _nanoseconds(match: Any) -> int:
    parts = [int(match.group(number)) for number in range(1, 7)]
    seconds = calendar.timegm((parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]))
    zone = match.group(8)
    if zone != b"Z":
        digits = zone[1:].replace(b":", b"")
        offset = int(digits[:2]) * 3600 + int(digits[2:]) * 60
        seconds -= offset if zone[:1] == b"+" else -offset
    return seconds * 1_000_000_000 + int((match.group(7) or b"0").ljust(9, b"0"))
