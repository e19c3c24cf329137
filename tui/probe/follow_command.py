"""Follows the output of a child command that tells a log: runs it again and again, and tells what is new.

Beside the lines go frames of what supervises the server:

    supervisor  {"by": systemd, docker or kubernetes, "name", "running", "restarts", "exit_code", "signal", "oom_killed", "reason"}
    previous    {"lines"}: the end of the log of the start before the present one, where the supervisor started the server again

Python 3.8: this runs on the GPU host.
"""

import os
import re
import select
import subprocess
import time
import zlib
from typing import Any, Dict, List, Optional, Tuple

from tui.probe.become import Become, denied, environment
from tui.probe.leash import Link
from tui.probe.log_lines import LONGEST, Digest, LineCutter, Outlet
from tui.probe.log_search import LineFilter
from tui.probe.log_sources import KINDS, LAST_LINES, Item, Journal, Kubectl, Problem, Source, overlap

QUIET_S = 0.6
"""A child that is silent for this long has told its past; what comes now is live."""
FIRST_WORD_S = 15.0
"""What a child gets to say its first word."""
AGAIN_S = 2.0
FLOOD_LINES = 2000
LONGEST_RECORD = 1 << 20
"""Bytes of a record; journald tells a line that is no text as a list of numbers."""
SUPERVISOR_S = 30.0
"""How often systemd is asked; the followed logs of containers end with them, so that is when their supervisor is asked."""


def follow_source(arguments: Dict[str, Any], link: Link) -> None:
    """Plays role "follow" for a source that is no file."""
    kind = str(arguments["source"])
    if kind == "tmux":
        PaneFollower(arguments, link).run()
        return
    if kind not in KINDS:
        raise ValueError("there is no log source %r" % kind)
    ChildFollower(KINDS[kind](arguments, link), arguments, link).run()


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
        self._supervisor: Optional[Dict[str, Any]] = None
        self._ask_at = 0.0

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
        self._tell_supervisor()
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
                if isinstance(self._source, Journal) and time.monotonic() > self._ask_at:
                    self._tell_supervisor()
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
        """The end of the log before the present start: why the supervisor had to start the server again."""
        argv = self._source.previous()
        text = self._source.output(argv) if argv is not None else None
        lines = []
        for line in text.rstrip("\n").split("\n") if text else ():
            try:
                lines += self._pieces(self._source.record(line.encode("utf-8", "replace")).text)
            except Problem:
                continue
        if lines:
            self._link.send({"f": "previous", "lines": lines})

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
            pieces = self._pieces(item.text)
            lines += pieces
            stamps += [item.stamp] * len(pieces)
        told = any(stamp is not None for stamp in stamps)
        self._out.lines(lines, dict(self._source.place), live=live, stamps=stamps if told else None)

    @staticmethod
    def _pieces(text: str) -> List[str]:
        pieces = [piece[:LONGEST] for piece in re.split(r"\r*\n|\r+", text)]
        return [piece for piece in pieces if piece] or [""]


EVERY_S = 1.0
HISTORY = 20000
RECENT = 2000
REDRAWN = 4
"""Lines at the end that a program may have drawn again."""


class PaneFollower:
    """The last line of a pane is still being written: it is told when it changes, and not again when the next one follows it."""

    def __init__(self, arguments: Dict[str, Any], link: Link) -> None:
        self._link = link
        self._out = Outlet(link)
        self._name = str(arguments.get("name", ""))
        socket, _, target = self._name.partition(":") if self._name.startswith("/") else ("", "", self._name)
        self._server = ["-S", socket] if socket else []
        self._target = target
        self._become = Become(arguments, link)
        self._tail = int(arguments.get("tail", 400))
        self._starts = LineFilter([str(text) for text in arguments.get("start_markers") or ()])
        self._important = LineFilter([str(text) for text in arguments.get("important") or ()])
        place: Dict[str, Any] = dict(arguments.get("from") or {})
        self._known: List[int] = list(place.get("last") or ())
        self._open: Optional[int] = place.get("open")
        self._why: Optional[str] = None
        self._said = False

    def run(self) -> None:
        """For ever."""
        first = True
        fresh = not self._known and self._open is None
        before: Optional[List[str]] = None
        while True:
            lines = self._capture(HISTORY if first else RECENT)
            if lines is not None and lines != before:
                before = lines
                if fresh:
                    self._tell_past(lines)
                    fresh = False
                else:
                    self._tell_new(lines, live=not first)
            if first:
                self._out.caught_up()
                first = False
            self._link.request(EVERY_S)

    def _capture(self, history: int) -> Optional[List[str]]:
        """The pane's lines, without the empty ones at the end; None where it can't be read."""
        argv = ["tmux", *self._server, "capture-pane", "-p", "-J", "-t", self._target, "-S", "-%d" % history]
        try:
            child = self._link.spawn(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
            )
        except OSError as error:
            self._say("tmux can't be run: %s" % error.strerror)
            return None
        try:
            out, errors = child.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._link.kill(child)
            self._say("tmux does not answer")
            return None
        self._link.reaped(child)
        if child.returncode:
            why = errors.decode("utf-8", "replace").strip() or "tmux failed"
            if denied(why):
                self._become.take_over(**{"from": self._place() if self._known else None})
                why = "%s (%s)" % (why, self._become.advice())
            self._say(why)
            return None
        self._say(None)
        return [line.rstrip() for line in out.decode("utf-8", "replace").rstrip("\n ").split("\n")]

    def _say(self, why: Optional[str]) -> None:
        if why != self._why or not self._said:
            self._said = True
            self._why = why
            self._out.source("tmux:" + self._name, why=why)

    def _tell_past(self, lines: List[str]) -> None:
        digest = Digest(self._tail, self._starts.matches, self._important.matches)
        for line in lines:
            digest.add(line)
        self._out.start(None)
        self._remember(lines)
        self._out.lines([line for _, line, _ in digest.chosen()], self._place(), live=False)

    def _tell_new(self, lines: List[str], live: bool) -> None:
        marks = [_mark(line) for line in lines]
        done, last = lines[:-1], lines[-1]
        new = done[overlap(marks[:-1], self._known, REDRAWN) :]
        if new and _mark(new[0]) == self._open:
            new = new[1:]
        if last and marks[-1] != self._open:
            new = [*new, last]
        self._remember(lines)
        self._out.lines(new, self._place(), live=live)

    def _remember(self, lines: List[str]) -> None:
        self._known = [_mark(line) for line in lines[:-1][-LAST_LINES:]]
        self._open = _mark(lines[-1]) if lines[-1] else None

    def _place(self) -> Dict[str, Any]:
        return {"last": list(self._known), "open": self._open}


def _mark(line: str) -> int:
    return zlib.crc32(line.encode("utf-8", "replace"))
