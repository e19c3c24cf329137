"""Logs of containers and pods, as their runtimes' commands tell them.

Python 3.8: this runs on the GPU host.
"""

import calendar
import json
import os
import re
from typing import Any, Dict, List, Optional, Tuple

from tui.probe.follow_command import PREVIOUS_LINES, CommandSource, Item, Problem
from tui.probe.leash import Link
from tui.probe.outputs import FoundLog, ProcessOutput, which

_STAMP = re.compile(rb"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d) ?")


class StampedSource(CommandSource):
    """A command that puts an RFC 3339 stamp before each line, and takes one to begin at (inclusive)."""

    def __init__(self, arguments: Dict[str, Any], link: Link) -> None:
        super().__init__(arguments, link)
        self._repeated = 0

    def begin(self) -> Optional[str]:
        """Return the stamp to begin at; `item` then leaves out what was told already."""
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


class Docker(StampedSource):
    """`docker:NAME`; podman answers if there is no docker."""

    prefix = "docker"
    supervised_by = "docker"
    log_on_stderr = True  # where docker repeats the container's; its own words there have no stamp
    programs: Tuple[str, ...] = ("docker", "podman")
    start_format = "{{.State.StartedAt}}"
    """The template of `inspect` that prints the container's start as RFC 3339."""

    @classmethod
    def recognise(cls, output: ProcessOutput) -> Optional[FoundLog]:
        found = output.container
        if found is None:
            return None
        if any(which(program) for program in cls.programs):
            return FoundLog("%s:%s" % (cls.prefix, found[1][:12]), None)
        return FoundLog(None, "it runs in the container %s, and neither docker nor podman is on the PATH" % found[1][:12])

    def container(self) -> str:
        """Return the container's name or id. Raise Problem if it can't be found."""
        return self.name

    def program(self) -> str:
        """Return the program that tells its log. Raise Problem if there is none."""
        for program in self.programs:
            path = which(program)
            if path is not None:
                return path
        raise Problem("there is no %s on this host's PATH" % " and no ".join(self.programs))

    def _started(self, program: str, container: str) -> Optional[str]:
        """Return the stamp of the container's last start; None if it never started or can't be inspected."""
        started = self.output([program, "inspect", "--type", "container", "-f", self.start_format, container])
        return started if started and started[:4].isdigit() and not started.startswith("0001") else None

    def argv(self) -> List[str]:
        program = self.program()
        container = self.container()
        since = self.begin() or self._started(program, container)
        when = ["--since", since] if since else []
        return [program, "logs", "--timestamps", "--follow", *when, container]

    def supervisor(self) -> Optional[Dict[str, Any]]:
        try:
            program, container = self.program(), self.container()
        except Problem:
            return None
        text = self.output([program, "inspect", "--type", "container", "-f", STATE, container])
        return container_state(text, self.supervised_by, container)

    def previous(self) -> Optional[List[str]]:
        program, container = self.program(), self.container()
        started = self._started(program, container)
        if started is None:
            return None
        return [program, "logs", "--timestamps", "--until", started, "--tail", str(PREVIOUS_LINES), container]


class Podman(Docker):
    """`podman:NAME`: docker's commands but for the form of a time."""

    prefix = "podman"
    supervised_by = "podman"
    programs = ("podman",)
    start_format = '{{.State.StartedAt.Format "2006-01-02T15:04:05.000000000Z07:00"}}'

    @classmethod
    def recognise(cls, output: ProcessOutput) -> Optional[FoundLog]:
        found = output.container
        return super().recognise(output) if found is not None and found[0] == "libpod" and which("podman") else None


class Compose(Docker):
    """`compose:SERVICE` or `compose:PROJECT/SERVICE`: the service's newest container."""

    prefix = "compose"

    @classmethod
    def recognise(cls, output: ProcessOutput) -> Optional[FoundLog]:
        return None  # docker names its container

    def container(self) -> str:
        project, _, service = self.name.rpartition("/")
        wanted = ["--filter", "label=com.docker.compose.service=" + service]
        if project:
            wanted += ["--filter", "label=com.docker.compose.project=" + project]
        found = self.output([self.program(), "ps", "--all", "--format", "{{.ID}}", *wanted])
        if not found:
            raise Problem("no container of the compose service %s" % self.name)
        return found.split()[0]


class Kubectl(StampedSource):
    """`kubectl:NS/POD[/CONTAINER]`. Its rights are the cluster's, and lie in the user's own files."""

    prefix = "kubectl"
    rights_of_host = False

    @classmethod
    def recognise(cls, output: ProcessOutput) -> Optional[FoundLog]:
        """Return the kubelet's file if it may be read: which pod a container belongs to can't be told from outside."""
        found = output.container
        if found is None or found[0] != "kubepods":
            return None
        folder = "/var/log/containers"
        try:
            names = [name for name in os.listdir(folder) if name.endswith("-%s.log" % found[1])]
        except OSError:
            names = []
        path = os.path.join(folder, names[0]) if names else None
        if path is not None and os.access(path, os.R_OK):
            return FoundLog("file:" + path, None)
        return FoundLog(None, "it runs in a pod: name `log = kubectl:NAMESPACE/POD`")

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
        if len(words) < 2:
            return None
        text = self.output(["kubectl", "get", "pod", "-n", words[0], "-o", "json", "--", words[1]])
        return pod_state(text, words[0], words[1], words[2] if len(words) > 2 else None)

    def previous(self) -> Optional[List[str]]:
        words = self.name.split("/")
        container = ["-c", words[2]] if len(words) > 2 else []
        tail = "--tail=%d" % PREVIOUS_LINES
        return ["kubectl", "logs", "--timestamps", "--previous", tail, "-n", words[0], words[1], *container]


STATE = "{{.RestartCount}} {{json .State}}"


def container_state(text: Optional[str], by: str, container: str) -> Optional[Dict[str, Any]]:
    """Read what `inspect -f STATE` printed of a container (docker or podman)."""
    count, _, state_text = (text or "").partition(" ")
    state = _object(state_text)
    if state is None:
        return None
    facts: Dict[str, Any] = {
        "by": by,
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


def pod_state(text: Optional[str], namespace: str, pod: str, container: Optional[str]) -> Optional[Dict[str, Any]]:
    """Read what `kubectl get pod -o json` printed of a container, the pod's first unless it is named."""
    status = (_object(text) or {}).get("status") or {}
    listed: List[Dict[str, Any]] = [entry for entry in status.get("containerStatuses") or () if isinstance(entry, dict)]
    chosen = [entry for entry in listed if container is None or entry.get("name") == container]
    if not chosen:
        return None
    status = chosen[0]
    now, last = status.get("state") or {}, status.get("lastState") or {}
    facts: Dict[str, Any] = {"by": "kubernetes", "name": "%s/%s" % (namespace, pod), "running": "running" in now}
    if isinstance(status.get("restartCount"), int):
        facts["restarts"] = status["restartCount"]
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


def _nanoseconds(match: Any) -> int:
    parts = [int(match.group(number)) for number in range(1, 7)]
    seconds = calendar.timegm((parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]))
    zone = match.group(8)
    if zone != b"Z":
        digits = zone[1:].replace(b":", b"")
        offset = int(digits[:2]) * 3600 + int(digits[2:]) * 60
        seconds -= offset if zone[:1] == b"+" else -offset
    return seconds * 1_000_000_000 + int((match.group(7) or b"0").ljust(9, b"0"))
