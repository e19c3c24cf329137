"""Log sources that a child command tells: it is run again and again, and what is new is sent.

Each can go on at the place where an earlier run stopped, without losing or repeating a line. Beside the lines go frames of what
supervises the server:

    supervisor  {"by": systemd, docker, podman or kubernetes, "name", "running", "restarts", "exit_code", "signal", "oom_killed",
                "reason"}
    previous    {"lines"}: the end of the log of the start before the present one, if the supervisor started the server again

Python 3.8: this runs on the GPU host.
"""

import os
import re
import select
import subprocess
import time
from abc import abstractmethod
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from tui.probe.become import Become, denied, environment
from tui.probe.leash import Link
from tui.probe.log_lines import LONGEST, Digest, LineCutter, Outlet
from tui.probe.log_search import LineFilter
from tui.probe.outputs import LogSource

LAST_LINES = 64
PREVIOUS_LINES = 2000
WORDS = 4096
"""Bytes of a command's stderr that are kept; its last line says why it ended."""
QUIET_S = 0.6
"""Seconds of silence after which a child has told its past; what comes now is live."""
FIRST_WORD_S = 15.0
"""Seconds that a child gets to say its first word."""
COMPLAINED_S = 2.0
"""Seconds that it gets for that once it has complained on its stderr."""
AGAIN_S = 2.0
FLOOD_LINES = 2000
LONGEST_RECORD = 1 << 20
"""Bytes of a record; journald tells a line that is no text as a list of numbers."""
SUPERVISOR_S = 30.0
"""How often systemd is asked; the followed logs of containers end with them, so that is when their supervisor is asked."""

Item = NamedTuple("Item", [("text", str), ("stamp", Optional[float]), ("token", Any)])


class Problem(Exception):
    """The source can't be read now; the message says why."""


class CommandSource(LogSource):
    """A source that a command tells: the command, and what its lines mean. `place` is what the client gets as `resume`."""

    records = True
    """Whether each line of its output is one record, which may hold CRs."""
    log_on_stderr = False
    """Whether the log's lines may come on its stderr; else that holds its own words: why it can't go on."""
    supervised_live = False
    """Whether its supervisor is asked while the command runs; else the command ends with the server, and it is asked then."""
    rights_of_host = True
    """Whether another user of this host may read more (`become`)."""

    def __init__(self, arguments: Dict[str, Any], link: Link) -> None:
        self.name = str(arguments.get("name", ""))
        self.place: Dict[str, Any] = dict(arguments.get("from") or {})
        self._link = link

    @property
    def needs_rights(self) -> bool:
        """Whether it says nothing useful without more rights than the login has."""
        return False

    @classmethod
    def follow(cls, arguments: Dict[str, Any], link: Link) -> None:
        ChildFollower(cls(arguments, link), arguments, link).run()

    @abstractmethod
    def argv(self) -> List[str]:
        """Return the command that tells what came after `place`, or everything since the last start. Raise Problem."""

    def item(self, line: bytes) -> Optional[Item]:
        """Read a line of its output; None for one that was told before. Raise Problem for an error of the command."""
        return self.record(line)

    @abstractmethod
    def record(self, line: bytes) -> Item:
        """Read a line of its output, told before or not. Raise Problem."""

    @abstractmethod
    def see(self, item: Item) -> None:
        """Move `place` behind an item."""

    def after_gap(self, items: List[Item]) -> List[Item]:
        """Return what is new of what another run of the command told of the past."""
        return items

    def supervisor(self) -> Optional[Dict[str, Any]]:
        """Return what supervises the server and how the server last ended; None if nothing supervises it."""
        return None

    def previous(self) -> Optional[List[str]]:
        """Return the command that prints the end of the log of the start before this one; None if there is none."""
        return None

    def output(self, argv: Sequence[str], timeout: float = 10.0, errors: int = subprocess.DEVNULL) -> Optional[str]:
        """Return what a short command prints; None if it fails."""
        try:
            child = self._link.spawn(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
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


class ChildFollower:
    """Run a source's command again and again, and send what is new."""

    def __init__(self, source: CommandSource, arguments: Dict[str, Any], link: Link) -> None:
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
        self._supervisor: Optional[Dict[str, Any]] = None
        self._ask_at = 0.0

    def run(self) -> None:
        """Follow until the client ends it."""
        if self._source.needs_rights:
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
        """Add to the reason what would give the missing right; with `become`, this process may end here, and another goes on."""
        if why is None or not denied(why):
            return why
        if self._source.rights_of_host:
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
        """Follow one child to its end; return why it ended."""
        self._tell_supervisor()
        argv = self._source.argv()
        child = self._link.spawn(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if self._source.log_on_stderr else subprocess.PIPE,
            env=environment(),
        )
        assert child.stdout is not None
        fd = child.stdout.fileno()
        self._errors = child.stderr.fileno() if child.stderr is not None else None
        self._words = b""
        self._lines_told = False
        self._problem: Optional[str] = None
        try:
            cutter = LineCutter(longest=LONGEST_RECORD, only_lf=self._source.records)
            ended = self._tell_past(fd, cutter)
            while not ended:
                ended, items = self._read(fd, cutter, None)
                self._tell(items, live=True)
                if self._source.supervised_live and time.monotonic() > self._ask_at:
                    self._tell_supervisor()
            while self._errors is not None and child.poll() is None:
                self._hear(QUIET_S)
            child.wait()
            self._link.reaped(child)
            self._hear(0.0)
            if child.returncode:
                return self._problem or "%s ended with exit status %s" % (argv[0], child.returncode)
            return (None if self._lines_told else self._problem) or "its command has ended; it is run again"
        except BaseException:
            self._link.kill(child)
            raise
        finally:
            child.stdout.close()
            if child.stderr is not None:
                child.stderr.close()

    def _tell_supervisor(self) -> None:
        self._ask_at = time.monotonic() + SUPERVISOR_S
        facts = self._source.supervisor()
        if facts is None or facts == self._supervisor:
            return
        before = (self._supervisor or {}).get("restarts")
        self._supervisor = facts
        if facts.get("restarts") and facts["restarts"] != before:
            self._tell_previous()
        self._link.send(dict(facts, f="supervisor"))

    def _tell_previous(self) -> None:
        """Send the end of the log before this start: it says why the supervisor had to start the server again."""
        argv = self._source.previous()
        errors = subprocess.STDOUT if self._source.log_on_stderr else subprocess.DEVNULL
        text = self._source.output(argv, errors=errors) if argv is not None else None
        lines = []
        for line in text.rstrip("\n").split("\n") if text else ():
            try:
                lines += self._pieces(self._source.record(line.encode("utf-8", "replace")).text)
            except Problem:
                continue
        if lines:
            self._link.send({"f": "previous", "lines": lines})

    def _tell_past(self, fd: int, cutter: LineCutter) -> bool:
        """Send what the child tells of the time before it began. Return True if it ended meanwhile."""
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
        """Wait `timeout` seconds at most for bytes; return (ended, items). An unfinished line is one after a moment of silence."""
        ends = time.monotonic() + (QUIET_S if timeout is None else timeout)
        while not select.select([fd], [], [], 0.0)[0]:
            left = ends - time.monotonic()
            if left <= 0:
                lines = cutter.flush(bars_only=False) if timeout is None and not self._source.records else []
                return False, self._items(lines)
            if self._hear(left, fd):
                ends = min(ends, time.monotonic() + COMPLAINED_S)
        data = os.read(fd, 1 << 18)
        return not data, self._items(cutter.feed(data) if data else cutter.flush(bars_only=False))

    def _hear(self, timeout: float, *others: int) -> bool:
        """Wait for words on the child's stderr, or for bytes on the other descriptors; return whether there were words."""
        ready = select.select([*others, *([] if self._errors is None else [self._errors])], [], [], timeout)[0]
        if self._errors not in ready:
            return False
        assert self._errors is not None
        data = os.read(self._errors, 1 << 16)
        if not data:
            self._errors = None
            return False
        self._words = (self._words + data)[-WORDS:]
        said = [line.strip() for line in re.split(r"[\r\n]+", self._words.decode("utf-8", "replace")) if line.strip()]
        self._problem = said[-1] if said else self._problem
        return True

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
        self._lines_told = True
        lines: List[str] = []
        stamps: List[Optional[float]] = []
        for item in items:
            # One record may hold several lines, or every state of a bar.
            pieces = self._pieces(item.text)
            lines += pieces
            stamps += [item.stamp] * len(pieces)
        told = any(stamp is not None for stamp in stamps)
        self._out.lines(lines, dict(self._source.place), live=live, stamps=stamps if told else None)

    @staticmethod
    def _pieces(text: str) -> List[str]:
        pieces = [piece[:LONGEST] for piece in re.split(r"\r*\n|\r+", text)]
        return [piece for piece in pieces if piece] or [""]


def overlap(lines: Sequence[Any], last: Sequence[Any], tolerance: int = 0) -> int:
    """Return how many of `lines` were told before, if `last` are the last ones that were.

    So many as `tolerance` of the last may have changed since (a bar that is drawn again).
    """
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
