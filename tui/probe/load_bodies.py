"""Keeps the next requests ready, so that a burst is not spread by the making of prompts. Python 3.8."""

from collections import deque
from typing import Deque, Optional, Tuple

from tui.probe.load_order import Body, Order
from tui.wire.record import Record

AHEAD_BYTES = 64 << 20
"""Of bodies made ahead."""


class Bodies:
    """Requests made ahead, in order."""

    def __init__(self, head: bytes, body: Body, order: Order, first: int, step: int) -> None:
        self._head = head
        self._body = body
        self._most = max(8, order.concurrency or 64)
        self._next = first
        self._step = step
        self._ready: Deque[Tuple[int, bytes, int]] = deque()
        self._ahead = 8
        """How many to keep: streams that began together end together, and all want the next one at once."""

    def make(self, count: int) -> None:
        for _ in range(count):
            body, asked = self._body(self._next)
            self._ready.append((self._next, body, asked))
            self._ahead = min(self._most, max(1, AHEAD_BYTES // len(body)))
            self._next += self._step

    def make_one_if_short(self) -> None:
        """To be called when there is a moment."""
        if len(self._ready) < self._ahead:
            self.make(1)

    def take(self, due: Optional[float] = None) -> Tuple[Record, bytes]:
        """The next request: its record, and all of its bytes."""
        if not self._ready:
            self.make(1)
        index, body, asked = self._ready.popleft()
        return Record(index, asked, due), b"%bContent-Length: %d\r\n\r\n%b" % (self._head, len(body), body)
