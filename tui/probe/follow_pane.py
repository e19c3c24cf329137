"""The log in a tmux pane: captured once a second, since tmux tells nobody what is new.

Python 3.8: this runs on the GPU host.
"""

import os
import socket
import subprocess
import zlib
from typing import Any, Dict, List, Optional

from tui.probe.become import Become, denied, environment
from tui.probe.follow_command import LAST_LINES, overlap
from tui.probe.leash import Link
from tui.probe.log_lines import Digest, Outlet
from tui.probe.log_search import LineFilter
from tui.probe.outputs import FoundLog, LogSource, ProcessOutput, which

TMUX_SERVERS = 20
EVERY_S = 1.0
HISTORY = 20000
RECENT = 2000
REDRAWN = 4
"""Lines at the end that a program may have drawn again."""


class TmuxPane(LogSource):
    """`tmux:TARGET`, or `tmux:/SOCKET:TARGET` on another tmux server.

    The last line of a pane is still being written: it is sent when it changes, and not again when the next one follows it.
    """

    prefix = "tmux"

    @classmethod
    def recognise(cls, output: ProcessOutput) -> Optional[FoundLog]:
        if not output.is_terminal or output.target is None:
            return None
        pane = _panes(output).get(output.target)
        return FoundLog("tmux:" + pane, None) if pane is not None else None

    @classmethod
    def follow(cls, arguments: Dict[str, Any], link: Link) -> None:
        cls(arguments, link).run()

    def __init__(self, arguments: Dict[str, Any], link: Link) -> None:
        self._link = link
        self._out = Outlet(link)
        self._name = str(arguments.get("name", ""))
        path, _, target = self._name.partition(":") if self._name.startswith("/") else ("", "", self._name)
        self._server = ["-S", path] if path else []
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
        """Follow until the client ends it."""
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
        """Return the pane's lines without the empty ones at the end; None if it can't be read."""
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


def _panes(output: ProcessOutput) -> Dict[str, str]:
    """Map terminals to panes, of the user's own tmux server and of the others that may be asked."""
    panes = output.known.get("tmux")
    if panes is None:
        panes = output.known["tmux"] = {}
        for path in ("", *_other_servers()) if which("tmux") else ():
            server = ["-S", path] if path else []
            listed = output.ask(["tmux", *server, "list-panes", "-a", "-F", "#{pane_tty} #{pane_id}"])
            for words in (line.split() for line in (listed or "").splitlines()):
                if len(words) == 2:
                    panes.setdefault(words[0], "%s:%s" % (path, words[1]) if path else words[1])
    return panes


def _other_servers() -> List[str]:
    """Return the sockets of tmux servers that may be used, except the default one: `tmux -L NAME`, and other users'."""
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
    """Return whether somebody listens on a socket: tmux servers that were killed leave theirs behind."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(0.2)
        try:
            client.connect(path)
        except OSError:
            return False
    return True
