"""A server that has no room just now is asked again: one such reply to a first request is no reason to measure nothing.

Python 3.8.
"""

from typing import Any, Callable, Dict, Iterator, Optional, Tuple

from tui.probe.load_ask import Caller

NOT_NOW = (429, 502, 503, 504)
"""Statuses that another time, and not another request, would change: the server's, or those of what stands before it."""

AGAIN_S = (1.0, 2.0, 4.0)
"""What is waited before each further attempt, over all requests of one caller: a server that is down is not asked for long."""


class Patient(Caller):
    """Asks through another caller, and again where the server has no room."""

    def __init__(self, caller: Caller, wait: Callable[[float], bool], tell: Callable[[str], None]) -> None:
        """`wait` waits for so many seconds, and says whether to go on; `tell` is told in words what is waited for, and with no
        words that it is over."""
        self._caller = caller
        self._go_on = wait
        self._tell = tell
        self._left: Iterator[float] = iter(AGAIN_S)

    def ask(
        self, method: str, path: str, body: Optional[Dict[str, Any]] = None, within_s: Optional[float] = None
    ) -> Tuple[int, bytes]:
        status, reply = self._caller.ask(method, path, body, within_s)
        waited = False
        while status in NOT_NOW:
            seconds = next(self._left, None)
            if seconds is None:
                break
            self._tell("the server answers %d, asking again" % status)
            waited = True
            if not self._go_on(seconds):
                break
            status, reply = self._caller.ask(method, path, body, within_s)
        if waited:
            self._tell("")
        return status, reply

    def full(self, path: str) -> str:
        return self._caller.full(path)

    def close(self) -> None:
        self._caller.close()
