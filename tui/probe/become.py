"""Plays a role with more rights, if the configuration names words for that (`become = "sudo -n"`).

The same shipped code is started once more, behind those words, and takes this process's place in front of the client: requests are
passed on to it, its frames go straight to the client. So all that a role reads, and every child that it starts, has those rights,
and the leash holds: a child of root's that an ordinary user started by `sudo` could not be killed by that user; this one ends
itself when its stdin does. Nothing is ever asked: words that want a password are refused, and the refusal is told.

Python 3.8: this runs on the GPU host.
"""

import os
import re
import subprocess
import sys
from typing import Any, Dict, List, Optional

from tui.probe.leash import BEAT, Link
from tui.wire.frames import BEAT_S, encode

ANSWER_S = 10.0
"""A look-up of rights may ask a directory server; more than this is a question to nobody."""
WHERE = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/snap/bin:/opt/bin"
_RIGHTS = "import os; print(os.geteuid())"
_DENIED = re.compile(r"permission denied|not permitted|insufficient permission|not seeing messages from other users", re.IGNORECASE)


class Become:
    """The words of `become` on this host, and whether they work."""

    def __init__(self, arguments: Dict[str, Any], link: Link) -> None:
        self._arguments = arguments
        self._link = link
        self.words: List[str] = [str(word) for word in arguments.get("become") or ()]
        self.refused: Optional[str] = None
        """Why they gave nothing, once they were tried."""

    def take_over(self, **changed: Any) -> None:
        """Play the role anew with more rights, `changed` among its arguments, and end with it. Return if that is not
        possible or gives nothing; `advice` says why."""
        if not self.words or self.refused is not None or os.geteuid() == 0:
            return
        self.refused = self._try()
        if self.refused is None:
            self._play(dict(self._arguments, become=[], **changed))

    def advice(self) -> str:
        """Say what would give a missing right."""
        if os.geteuid() == 0:
            return "even root may not"
        if not self.words:
            return 'set `become = "sudo -n"`, or name a log that may be read'
        return "`%s` does not help: %s" % (" ".join(self.words), self.refused or "it was not tried")

    def _try(self) -> Optional[str]:
        """Why the words can't start this Python with more rights; None when they can."""
        argv = [*self.words, sys.executable, "-I", "-c", _RIGHTS]
        try:
            child = self._link.spawn(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
            )
        except OSError as error:
            return "%s: %s" % (self.words[0], error.strerror)
        try:
            out, errors = child.communicate(timeout=ANSWER_S)
        except subprocess.TimeoutExpired:
            self._link.abandon(child)
            return "no answer within %.0f s" % ANSWER_S
        self._link.reaped(child)
        if child.returncode:
            said = errors.decode("utf-8", "replace").strip().splitlines()
            return said[-1] if said else "exit status %d" % child.returncode
        if out.strip() == b"%d" % os.geteuid():
            return "it changes nothing: still user %d" % os.geteuid()
        return None

    def _play(self, arguments: Dict[str, Any]) -> None:
        from tui.probe.boot import BOOT, opening_with

        child = self._link.spawn(
            [*self.words, sys.executable, "-I", "-c", BOOT],
            stdin=subprocess.PIPE,
            stdout=self._link.output,
            env=environment(),
        )
        assert child.stdin is not None
        line = opening_with(arguments, _shipped())
        try:
            while child.poll() is None:
                child.stdin.write(line)
                child.stdin.flush()
                request = self._link.request(BEAT_S / 2)
                line = BEAT if request is None else encode(request)
        except OSError:  # it has ended
            pass
        self._link.end(child.wait())


def denied(why: str) -> bool:
    """Return whether words of a command or of the kernel say that a right is missing."""
    return _DENIED.search(why) is not None


def environment() -> Dict[str, str]:
    """Return the probe's environment with every usual folder in PATH, and messages in English."""
    path = os.environ.get("PATH", "")
    return dict(os.environ, PATH=path + ":" + WHERE if path else WHERE, LC_ALL="C.UTF-8", SYSTEMD_COLORS="0")


def _shipped() -> bytes:
    """Return the zip that this probe runs from."""
    for place in sys.path:
        if "/fd/" in place:
            with open(place, "rb") as file:
                return file.read()
    raise FileNotFoundError("this probe was not shipped")
