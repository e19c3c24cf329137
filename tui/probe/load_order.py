"""What one run of the load generator is asked to do, and what comes of it. Python 3.8."""

from array import array
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

from tui.probe.load_net import Address
from tui.wire.record import Record

Body = Callable[[int], Tuple[bytes, int]]
"""The JSON body of the request of that number, and the output tokens that it asks for."""


class Endpoint(NamedTuple):
    """Where requests go."""

    addresses: Sequence[Address]
    context: Any
    """The TLS context, or None."""
    name: str
    head: bytes
    """Request line and headers, without Content-Length and the empty line."""
    endpoint: str


class Order(NamedTuple):
    """What one loop has to do. Exactly one of `concurrency` (closed loop) and `schedule` (open loop) drives it."""

    concurrency: Optional[int] = None
    schedule: Optional[Sequence[float]] = None
    """Seconds after the beginning at which requests are due."""
    gate: Optional[int] = None
    """The most requests in flight of an open loop."""
    requests: Optional[int] = None
    """Exactly so many requests."""
    duration_s: Optional[float] = None
    """Cut what is in flight after this time."""
    at_least: int = 0
    at_least_s: float = 0.0
    at_most_s: Optional[float] = None
    """Without a number or a duration: send until both lower limits are met, or until the upper one is."""
    stagger_s: float = 0.0
    """Spread the first requests over this time instead of sending them in one burst."""
    connect_timeout_s: float = 10.0
    stall_s: float = 120.0
    timeout_s: float = 6 * 3600.0
    keep_text: bool = False
    max_failures: Optional[int] = None
    """Give up after so many failures in a row, over all streams."""
    a_chunk: Optional[float] = None
    """Tokens in a chunk, as far as they are known: for the rate that is told until a request has ended."""

    def is_enough(self, sent: int, elapsed: float) -> bool:
        """Whether no more requests of a closed loop need to be sent."""
        if self.requests is not None:
            return sent >= self.requests
        if self.duration_s is not None:
            return False
        if self.at_most_s is not None and elapsed >= self.at_most_s:
            return True
        return sent >= self.at_least and elapsed >= self.at_least_s


class Health(NamedTuple):
    """How the client itself fared."""

    lags: array  # type: ignore[type-arg]
    """Reading minus arrival of each piece, in seconds."""
    cpu_s: float
    wall_s: float
    events: int
    kernel_stamps: bool
    clock_step_s: float
    """By how much the wall clock was stepped meanwhile."""
    unstamped: int = 0
    """Reads that the kernel had not stamped: now was taken instead."""
    together: int = 0
    """Token-bearing chunks that were read together with a later one of their stream, and have its stamp."""
    rest_s: float = 0.0
    """For how long at most the loop let arrivals gather after a turn (`Tally.moment`): so late it read by design."""


class Outcome(NamedTuple):
    """What a run recorded."""

    records: List[Record]
    begin: float
    end: float
    dispatch_end: Optional[float]
    """When sending ended by time; None when it ended with the last request."""
    stopped: str
    """Why it ended before its order was carried out; empty otherwise."""
    health: Health
