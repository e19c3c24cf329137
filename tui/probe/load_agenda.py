"""When the next requests of a run are to be sent, and when it is enough. Times are of one clock, the monotonic one. Python 3.8."""

import heapq
from collections import deque
from typing import Callable, Deque, List, Optional, Tuple

from tui.probe.load_order import Order


class Agenda:
    """What of an order is still to be begun. The loop looks at `due` and `later` in each of its turns."""

    def __init__(self, order: Order, in_flight: Callable[[], int]) -> None:
        self.due: Deque[float] = deque()
        """When the requests of an open loop are due that were not sent yet."""
        self.later: List[Tuple[float, int]] = []
        """Slots of a closed loop that wait, after a failure or for their turn at the beginning: a heap."""
        self.sent = 0
        self.closed = False
        """Whether no more are sent: what is in flight is waited for."""
        self.dispatch_end: Optional[float] = None
        """When sending ended by time; None when it ended with the last request."""
        self._order = order
        self._in_flight = in_flight
        """How many requests are in flight, or wait for their connection."""
        self._begin = 0.0

    def start(self, begin: float) -> None:
        """The run begins at that time."""
        self._begin = begin
        if self._order.schedule is not None:
            self.due.extend(begin + offset for offset in self._order.schedule)

    def elapsed(self, now: float) -> float:
        """Seconds since the beginning."""
        return now - self._begin

    @property
    def planned(self) -> Optional[int]:
        """How many requests there will be; None where that is not settled."""
        return self._order.requests if self._order.schedule is None else len(self._order.schedule)

    @property
    def spare(self) -> int:
        """How many idle connections an open loop keeps ready."""
        schedule = self._order.schedule
        if schedule is None:
            return 0
        rate = len(schedule) / schedule[-1] if schedule and schedule[-1] > 0 else 1.0
        return max(2, min(64, int(rate * 0.1) + 2))

    def is_enough(self, now: float) -> bool:
        """Whether no more requests need to be sent."""
        if self._order.schedule is not None:
            return not self.due
        return self._order.is_enough(self.sent, now - self._begin)

    def close(self, now: float) -> None:
        """Sends no more, since it is enough."""
        self.closed = True
        self.dispatch_end = now if self._order.requests is None and self._order.schedule is None else None

    def wants_another(self, now: float) -> bool:
        """Whether a stream of a closed loop is to send a request again."""
        return self._order.concurrency is not None and not self.closed and not self.is_enough(now)

    def is_full(self) -> bool:
        """Whether as many were sent as were asked for."""
        return self._order.requests is not None and self.sent >= self._order.requests

    def _is_gated(self) -> bool:
        gate = self._order.gate
        return gate is not None and self._in_flight() >= gate

    def postpone(self, at: float, slot: int) -> None:
        """Lets a slot wait until then."""
        heapq.heappush(self.later, (at, slot))

    def next_at(self) -> float:
        """When the next request is to be sent, as far as that is known; infinity where none is."""
        at = self.due[0] if self.due and not self._is_gated() else float("inf")
        return min(at, self.later[0][0]) if self.later else at

    def take_due(self, now: float) -> Optional[float]:
        """Takes out the first request that is due, and may be sent beside those in flight: when it was due. None: there is none."""
        if self.due and self.due[0] <= now and not self._is_gated():
            return self.due.popleft()
        return None

    def take_later(self, now: float) -> bool:
        """Takes out the first slot that has waited; whether there is one."""
        if self.later and self.later[0][0] <= now:
            heapq.heappop(self.later)
            return True
        return False
