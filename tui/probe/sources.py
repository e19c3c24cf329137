"""Sources of a log beyond files: the journal, containers, pods, any command. Each is a child command on the leash whose output is
followed; each can go on where an earlier run stopped, without losing or repeating a line.

Python 3.8: this runs on the GPU host.
"""

import calendar
import json
import os
import re
import select
import subprocess
import zlib
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from tui.probe.become import Become, denied, environment
from tui.probe.leash import Link
from tui.probe.lines import LONGEST, LineCutter
from tui.probe.outlet import Digest, Outlet
from tui.probe.scan import LineFilter

QUIET_S = 0.6
"""A child that is silent for this long has told its past; what comes now is live."""
FIRST_WORD_S = 15.0
"""What a child gets to say its first word."""
AGAIN_S = 2.0
FLOOD_LINES = 2000
LAST_LINES = 64
LONGEST_RECORD = 1 << 20
"""Bytes of a record; journald tells a line that is no text as a list of numbers."""
JOURNAL_LINES = 50000
_STAMP = re.compile(rb"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d) ?")

Item = NamedTuple("Item", [("text", str), ("stamp", Optional[float]), ("token", Any)])


class Problem(Exception):
    """Why the source can't be read now."""


def follow_source(arguments: Dict[str, Any], link: Link) -> None:
    """Plays role "follow" for a source that is no file."""
    kind = str(arguments["source"])
    if kind == "tmux":
        from tui.probe.panes import PaneFollower

        PaneFollower(arguments, link).run()
        return
    kinds = {"journal": Journal, "docker": Docker, "compose": Compose, "kubectl": Kubectl, "command": Command}
    if kind not in kinds:
        raise ValueError("there is no log source %r" % kind)
    ChildFollower(kinds[kind](arguments, link), arguments, link).run()


class Source:
    """One kind: the command to run, and what its lines mean. `place` is what the client gets as `resume`."""

    records = True
    """Whether each line of its output is one record, which may hold CRs."""

    def __init__(self, arguments: Dict[str, Any], link: Link) -> None:
        self.name = str(arguments.get("name", ""))
        self.place: Dict[str, Any] = dict(arguments.get("from") or {})
        self._link = link

    def argv(self) -> List[str]:
        """The command that tells what came after `place`, or everything since the last start. Raises Problem."""
        raise NotImplementedError

    def item(self, line: bytes) -> Optional[Item]:
        """A line of its output; None for one that was told before. Raises Problem for one that is an error of the command."""
        raise NotImplementedError

    def see(self, item: Item) -> None:
        """Moves `place` behind an item."""
        raise NotImplementedError

    def after_gap(self, items: List[Item]) -> List[Item]:
        """Of what a new child told of the past, what is new."""
        return items

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

    def argv(self) -> List[str]:
        user = ["--user"] if self.name.startswith("user/") else []
        unit = self.name[5:] if user else self.name
        argv = ["journalctl", *user, "-u", unit, "-o", "json", "--all", "--no-pager", "-f"]
        if self.place.get("cursor"):
            return [*argv, "-n", "all", "--after-cursor=" + str(self.place["cursor"])]
        since = self.output(["systemctl", *user, "show", "-p", "ExecMainStartTimestamp", "--value", unit])
        if since and re.search(r"\d\d:\d\d", since):
            return [*argv, "-n", "all", "--since=" + since]
        return [*argv, "-n", str(JOURNAL_LINES)]

    def item(self, line: bytes) -> Optional[Item]:
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

    def item(self, line: bytes) -> Optional[Item]:
        match = _STAMP.match(line)
        if match is None:
            raise Problem(line.decode("utf-8", "replace").strip())
        key = _nanoseconds(match)
        told = self.place.get("ns")
        if told is not None:
            if key < told:
                return None
            if key == told and self._repeated > 0:
                self._repeated -= 1
                return None
        token = (key, match.group(0).strip().decode("ascii"))
        return Item(line[match.end() :].decode("utf-8", "replace"), key / 1e9, token)

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


class Command(Source):
    """`command:…`, run by the host's /bin/sh. It knows no place of its own: the last lines told are looked for in what it says
    when it is run again."""

    records = False

    def argv(self) -> List[str]:
        return ["/bin/sh", "-c", self.name]

    def item(self, line: bytes) -> Optional[Item]:
        return Item(line.decode("utf-8", "replace"), None, zlib.crc32(line))

    def see(self, item: Item) -> None:
        last = list(self.place.get("last") or ())
        last.append(item.token)
        self.place = {"last": last[-LAST_LINES:]}

    def after_gap(self, items: List[Item]) -> List[Item]:
        return items[overlap([item.token for item in items], list(self.place.get("last") or ())) :]


class ChildFollower:
    """Runs a source's command again and again, and tells what is new."""

    def __init__(self, source: Source, arguments: Dict[str, Any], link: Link) -> None:
        self._source = source
        self._link = link
        self._out = Outlet(link)
        self._become = Become(arguments, link)
        self._label = "%s:%s" % (arguments["source"], source.name)
        self._tail = int(arguments.get("tail", 400))
        self._starts = LineFilter([str(text) for text in arguments.get("start_markers") or ()])
        self._important = LineFilter([str(text) for text in arguments.get("important") or ()])
        self._resumed = bool(source.place)
        self._first = True
        self._why: Optional[str] = None
        self._told = False

    def run(self) -> None:
        """For ever."""
        if isinstance(self._source, Journal) and not self._source.name.startswith("user/"):
            self._become.take_over()  # without rights it shows nothing of the system's units, and says so in passing at most
        while True:
            try:
                why = self._run_once()
            except Problem as problem:
                why = str(problem)
            except OSError as error:
                why = "%s: %s" % (error.filename or "the command", os.strerror(error.errno or 0))
            self._caught_up()
            self._say(self._explained(why))
            self._link.request(AGAIN_S)

    def _explained(self, why: Optional[str]) -> Optional[str]:
        """The reason with what would give the missing right; with `become`, this process may end here, and another goes on."""
        if why is None or not denied(why):
            return why
        if not isinstance(self._source, Kubectl):  # its rights are the cluster's, and lie in the user's own files
            self._become.take_over(**{"from": self._source.place or None})
        return "%s (%s)" % (why, self._become.advice())

    def _say(self, why: Optional[str]) -> None:
        if why != self._why or not self._told:
            self._told = True
            self._why = why
            self._out.source(self._label, why=why)

    def _caught_up(self) -> None:
        if self._first:
            self._first = False
            self._out.caught_up()

    def _run_once(self) -> Optional[str]:
        """Follows one child to its end; says why it ended."""
        argv = self._source.argv()
        child = self._link.spawn(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment()
        )
        assert child.stdout is not None
        fd = child.stdout.fileno()
        self._problem: Optional[str] = None
        try:
            cutter = LineCutter(longest=LONGEST_RECORD, only_lf=self._source.records)
            ended = self._tell_past(fd, cutter)
            while not ended:
                ended, items = self._read(fd, cutter, None)
                self._tell(items, live=True)
            child.wait()
            self._link.reaped(child)
            if child.returncode:
                return self._problem or "%s ended with exit status %s" % (argv[0], child.returncode)
            return self._problem or "its command has ended; it is run again"
        except BaseException:
            self._link.kill(child)
            raise
        finally:
            child.stdout.close()

    def _tell_past(self, fd: int, cutter: LineCutter) -> bool:
        """What the child tells of the time before it began. True when it ended meanwhile."""
        digest = Digest(self._tail, self._starts.matches, self._important.matches)
        behind: List[Item] = []
        quiet = FIRST_WORD_S
        fresh = not self._source.place
        while True:
            ended, items = self._read(fd, cutter, quiet)
            if items:
                quiet = QUIET_S
            elif not ended:
                break
            for item in items:
                if fresh:
                    digest.add(item.text, item)
                else:
                    behind.append(item)
            if ended:
                break
        # A command that complains and goes on says nothing more, maybe for ever.
        silent = self._problem is not None and not digest.count and not behind
        if not (silent and ended):
            self._say(self._explained(self._problem) if silent else None)
        if fresh:
            chosen = [item for _, _, item in digest.chosen()]
            if chosen:
                self._out.start(None)
                for item in chosen:
                    self._source.see(item)
                self._send(chosen, live=False)
        else:
            self._tell(self._source.after_gap(behind), live=False)
        self._caught_up()
        return ended

    def _read(self, fd: int, cutter: LineCutter, timeout: Optional[float]) -> Tuple[bool, List[Item]]:
        """(ended, items): waits for bytes, `timeout` seconds at most; an unfinished line is told after a moment of silence."""
        if not select.select([fd], [], [], QUIET_S if timeout is None else timeout)[0]:
            lines = cutter.flush(bars_only=False) if timeout is None and not self._source.records else []
            return False, self._items(lines)
        data = os.read(fd, 1 << 18)
        return not data, self._items(cutter.feed(data) if data else cutter.flush(bars_only=False))

    def _items(self, lines: List[str]) -> List[Item]:
        items = []
        for line in lines:
            try:
                item = self._source.item(line.encode("utf-8", "replace"))
            except Problem as problem:
                self._problem = str(problem) or self._problem
                continue
            if item is not None:
                items.append(item)
        return items

    def _tell(self, items: List[Item], live: bool) -> None:
        if not items:
            return
        if self._problem is None:
            self._say(None)
        for item in items:
            self._source.see(item)
        if len(items) > FLOOD_LINES or self._link.outlet_blocked():
            last = items[-self._tail :]
            chosen = [item for item in items[: -self._tail] if self._important.matches(item.text)][-FLOOD_LINES:]
            self._out.skipped(len(items) - len(last) - len(chosen))
            items = chosen + last
        self._send(items, live)

    def _send(self, items: List[Item], live: bool) -> None:
        lines: List[str] = []
        stamps: List[Optional[float]] = []
        for item in items:
            # One record may hold several lines, or every state of a bar.
            pieces = [piece[:LONGEST] for piece in re.split(r"\r*\n|\r+", item.text)]
            pieces = [piece for piece in pieces if piece] or [""]
            lines += pieces
            stamps += [item.stamp] * len(pieces)
        told = any(stamp is not None for stamp in stamps)
        self._out.lines(lines, dict(self._source.place), live=live, stamps=stamps if told else None)


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
