"""The source "tmux:TARGET", or "tmux:/path/of/socket:TARGET" for another user's server: a pane's history and screen, read again and
again; nothing is attached or piped to it.

Python 3.8: this runs on the GPU host.
"""

import subprocess
import zlib
from typing import Any, Dict, List, Optional

from tui.probe.become import Become, denied, environment
from tui.probe.leash import Link
from tui.probe.outlet import Digest, Outlet
from tui.probe.scan import LineFilter
from tui.probe.sources import LAST_LINES, overlap

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
