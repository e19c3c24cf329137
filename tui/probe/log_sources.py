"""The role "follow": one source of a server's log, from its last start on, for as long as the client wants.

Arguments: `source` (a prefix of `tui.wire.log_prefixes`), `path` or `name`, `from` (the place that an earlier
run gave as `resume`, or null), `start_markers` and `important` (regular expressions), `noise` (plain texts of lines that never
matter), `tail` (last lines that are always sent), `become` (words before a command that may read more). Frames:

    source    what is followed (`path`, `inode`, `size`), or `why` it can't be now; it goes on trying
    start     what follows begins at the last start of a server; `quiet`: the same lines again, more completely, for the reader only
    lines     `lines` as they stand there; `wall` and `mono` of the host where they are live, else when the last was `written`;
              `first` number; `resume`
    skipped   `count` lines were left out, because they came faster than they can be sent, or are of no weight
    rotated, truncated
    caught_up what there was at attach has been sent; what comes now is live

Python 3.8: this runs on the GPU host.
"""

import json
import os
import re
import subprocess
import zlib
from typing import Any, Dict, List, Optional, Tuple, Type

from tui.probe.become import Become
from tui.probe.container_sources import Compose, Docker, Kubectl, Podman
from tui.probe.follow import FileFollower
from tui.probe.follow_command import LAST_LINES, PREVIOUS_LINES, CommandSource, Item, Problem, overlap
from tui.probe.follow_pane import TmuxPane
from tui.probe.leash import Link
from tui.probe.outputs import FoundLog, LogSource, ProcessOutput

JOURNAL_LINES = 50000
_PROPERTIES = ("NRestarts", "Result", "ExecMainCode", "ExecMainStatus", "ActiveState", "SubState", "OOMPolicy")
CLD_KILLED = ("2", "3")
"""ExecMainCode of a process that a signal ended (with or without a core dump)."""
_UNIT = re.compile(r"/([^/\n]+\.service)")
_USER_UNIT = re.compile(r"/user@\d+\.service/(?:[^\n]*/)?([^/\n]+\.service)")


class File(LogSource):
    """`file:PATH`."""

    prefix = "file"

    @classmethod
    def recognise(cls, output: ProcessOutput) -> Optional[FoundLog]:
        return output.file()

    @classmethod
    def follow(cls, arguments: Dict[str, Any], link: Link) -> None:
        FileFollower(arguments, link).run()


class Journal(CommandSource):
    """`journal:UNIT`, or `journal:user/UNIT` for the user's own manager. JSON, since plain output hides what holds a colour."""

    prefix = "journal"
    supervised_live = True

    def __init__(self, arguments: Dict[str, Any], link: Link) -> None:
        super().__init__(arguments, link)
        self._user = ["--user"] if self.name.startswith("user/") else []
        self._unit = self.name[5:] if self._user else self.name

    @classmethod
    def recognise(cls, output: ProcessOutput) -> Optional[FoundLog]:
        if not output.is_socket and output.target is not None:
            return None
        match = _USER_UNIT.search(output.cgroup)
        if match:
            return FoundLog("journal:user/" + match.group(1), None)
        match = _UNIT.search(output.cgroup)
        return FoundLog("journal:" + match.group(1), None) if match and not match.group(1).startswith("user@") else None

    @property
    def needs_rights(self) -> bool:
        # Without rights it shows nothing of the system's units, and says so in passing at most.
        return not self._user

    def argv(self) -> List[str]:
        if self.place.get("cursor"):
            return [*self._journal(), "-f", "-n", "all", "--after-cursor=" + str(self.place["cursor"])]
        since = self._started()
        if since is not None:
            return [*self._journal(), "-f", "-n", "all", "--since=" + since]
        if self._unknown() and self.output([*self._journal(), "-n", "1"], timeout=2.0, errors=subprocess.STDOUT) == "":
            raise Problem("there is no unit %s on this host, and no line of it in the journal" % self._unit)
        return [*self._journal(), "-f", "-n", str(JOURNAL_LINES)]

    def _journal(self) -> List[str]:
        # Not `--user -u`: that reads the user's own journal files, and where journals are not kept on disk there are none.
        unit = ["--quiet", "--user-unit"] if self._user else ["--unit"]
        return ["journalctl", *unit, self._unit, "-o", "json", "--all", "--no-pager"]

    def _started(self) -> Optional[str]:
        since = self.output(["systemctl", *self._user, "show", "-p", "ExecMainStartTimestamp", "--value", self._unit])
        return since if since and re.search(r"\d\d:\d\d", since) else None

    def _unknown(self) -> bool:
        """Return whether systemd knows of no such unit, or there is no systemd."""
        return self.output(["systemctl", *self._user, "show", "-p", "LoadState", "--value", "--", self._unit]) in (
            None,
            "not-found",
        )

    def supervisor(self) -> Optional[Dict[str, Any]]:
        properties = [word for name in _PROPERTIES for word in ("-p", name)]
        return unit_state(self.output(["systemctl", *self._user, "show", *properties, "--", self._unit]), self._unit)

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


class ShellCommand(CommandSource):
    """`command:…`, run by the host's /bin/sh; the log is what it prints on its stdout.

    It knows no place of its own: the last lines told are looked for in what it says when it is run again.
    """

    prefix = "command"
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


SOURCES: Tuple[Type[LogSource], ...] = (TmuxPane, Kubectl, Podman, Docker, Compose, Journal, File, ShellCommand)
"""Every kind of source, in the order in which they are asked whether they recognise a server's output."""


def play(arguments: Dict[str, Any], link: Link) -> None:
    """Follow a source until the client ends it. Raise ValueError if no source has that prefix."""
    prefix = str(arguments.get("source", File.prefix))
    for source in SOURCES:
        if source.prefix == prefix:
            return source.follow(arguments, link)
    raise ValueError("there is no log source %r" % prefix)


class LogFinder:
    """Finds the logs of servers by what descriptors 1 and 2 of their processes lead to."""

    def __init__(self, link: Link, become: Become) -> None:
        self._link = link
        self._become = become
        self._known: Dict[str, Dict[str, str]] = {}

    def of(self, pid: int) -> FoundLog:
        """Return the log of a server. Progress bars go to stderr, so that counts more if the two differ."""
        try:
            targets = {number: os.readlink("/proc/%d/fd/%d" % (pid, number)) for number in (1, 2)}
        except OSError:
            unseen = "not allowed to see where the output of process %d goes: %s" % (pid, self._become.advice())
            return self._recognised(pid, 0, None) or FoundLog(None, unseen)
        found = [self._recognised(pid, number, targets[number]) or _unknown(targets[number]) for number in (2, 1)]
        for log in found:
            if log.source is not None:
                other = targets[1] if log is found[0] else targets[2]
                same = targets[1] == targets[2] or found[0].source == found[1].source
                return FoundLog(log.source, None if same else "only one of stdout and stderr goes there; the other one: %s" % other)
        return found[0]

    def _recognised(self, pid: int, number: int, target: Optional[str]) -> Optional[FoundLog]:
        output = ProcessOutput(pid, number, target, self._link, self._known)
        found = (source.recognise(output) for source in SOURCES)
        return next((log for log in found if log is not None), None)


def _unknown(target: str) -> FoundLog:
    """Say why output that no source recognises can't be followed."""
    if target == "/dev/null":
        return FoundLog(None, "its output goes to /dev/null: start it with its output in a file")
    if target.startswith("/dev/"):
        return FoundLog(
            None, "its output goes to the terminal %s, which can't be read: start it in tmux or with a log file" % target
        )
    into = "a pipe" if target.startswith("pipe:") else "a socket"
    return FoundLog(None, "its output goes into %s that can't be read from outside" % into)


def unit_state(text: Optional[str], unit: str) -> Optional[Dict[str, Any]]:
    """Read what `systemctl show` printed of a unit. Its `Result` is of the last end, also while the unit runs again."""
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
