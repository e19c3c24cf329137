"""What one run of the load generator is asked to do, and what comes of it. Python 3.8."""

import heapq
import time
from array import array
from collections import deque
from typing import Any, Callable, Collection, Deque, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from tui.probe.load_net import Address
from tui.probe.load_stream import ReplyStream
from tui.wire.request_record import COMPLETED, RequestRecord

MakeBody = Callable[[int], Tuple[bytes, int]]
"""The JSON body of the request of that number, and the output tokens that it asks for."""


class LoadEndpoint(NamedTuple):
    """Where requests go."""

    addresses: Sequence[Address]
    context: Any
    """The TLS context, or None."""
    name: str
    head: bytes
    """Request line and headers, without Content-Length and the empty line."""
    endpoint: str


class LoadOrder(NamedTuple):
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
        """Return whether no more requests of a closed loop need to be sent."""
        if self.requests is not None:
            return sent >= self.requests
        if self.duration_s is not None:
            return False
        if self.at_most_s is not None and elapsed >= self.at_most_s:
            return True
        return sent >= self.at_least and elapsed >= self.at_least_s


class ClientHealth(NamedTuple):
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


class LoadOutcome(NamedTuple):
    """What a run recorded."""

    records: List[RequestRecord]
    begin: float
    end: float
    dispatch_end: Optional[float]
    """When sending ended by time; None when it ended with the last request."""
    stopped: str
    """Why it ended before its order was carried out; empty otherwise."""
    health: ClientHealth


class Agenda:
    """Keep what of an order is still to be begun. The loop looks at `due` and `later` in each of its turns."""

    def __init__(self, order: LoadOrder, in_flight: Callable[[], int]) -> None:
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
        """Begin the run at that time."""
        self._begin = begin
        if self._order.schedule is not None:
            self.due.extend(begin + offset for offset in self._order.schedule)

    def elapsed(self, now: float) -> float:
        """Return the seconds since the beginning."""
        return now - self._begin

    @property
    def planned(self) -> Optional[int]:
        """Return how many requests there will be; None if that is not settled."""
        return self._order.requests if self._order.schedule is None else len(self._order.schedule)

    @property
    def spare(self) -> int:
        """Return how many idle connections an open loop keeps ready."""
        schedule = self._order.schedule
        if schedule is None:
            return 0
        rate = len(schedule) / schedule[-1] if schedule and schedule[-1] > 0 else 1.0
        return max(2, min(64, int(rate * 0.1) + 2))

    def is_enough(self, now: float) -> bool:
        """Return whether no more requests need to be sent."""
        if self._order.schedule is not None:
            return not self.due
        return self._order.is_enough(self.sent, now - self._begin)

    def close(self, now: float) -> None:
        """Send no more, since it is enough."""
        self.closed = True
        self.dispatch_end = now if self._order.requests is None and self._order.schedule is None else None

    def wants_another(self, now: float) -> bool:
        """Return whether a stream of a closed loop is to send a request again."""
        return self._order.concurrency is not None and not self.closed and not self.is_enough(now)

    def is_full(self) -> bool:
        """Return whether as many were sent as were asked for."""
        return self._order.requests is not None and self.sent >= self._order.requests

    def _is_gated(self) -> bool:
        gate = self._order.gate
        return gate is not None and self._in_flight() >= gate

    def postpone(self, at: float, slot: int) -> None:
        """Let a slot wait until then."""
        heapq.heappush(self.later, (at, slot))

    def next_at(self) -> float:
        """Return when the next request is to be sent, as far as that is known; infinity if none is."""
        at = self.due[0] if self.due and not self._is_gated() else float("inf")
        return min(at, self.later[0][0]) if self.later else at

    def take_due(self, now: float) -> Optional[float]:
        """Take out the first request that is due and may be sent beside those in flight; return when it was due, or None."""
        if self.due and self.due[0] <= now and not self._is_gated():
            return self.due.popleft()
        return None

    def take_later(self, now: float) -> bool:
        """Take out the first slot that has waited; return whether there is one."""
        if self.later and self.later[0][0] <= now:
            heapq.heappop(self.later)
            return True
        return False


AHEAD_BYTES = 64 << 20
"""Of bodies made ahead."""


class RequestQueue:
    """Make requests ahead, in order."""

    def __init__(self, head: bytes, body: MakeBody, order: LoadOrder, first: int, step: int) -> None:
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
        """Make one more if too few are ready; call it when there is a moment."""
        if len(self._ready) < self._ahead:
            self.make(1)

    def take(self, due: Optional[float] = None) -> Tuple[RequestRecord, bytes]:
        """Return the next request: its record, and all of its bytes."""
        if not self._ready:
            self.make(1)
        index, body, asked = self._ready.popleft()
        return RequestRecord(index, asked, due), b"%bContent-Length: %d\r\n\r\n%b" % (self._head, len(body), body)


STEP_S = 0.002
"""A smaller difference is a clock that is slewed."""


class WallClock:
    """Notice when the wall clock is set while a run lasts."""

    def __init__(self) -> None:
        self.stepped = 0.0
        """By how much it was set so far, in seconds."""
        self.ahead = time.time() - time.monotonic()
        """What it shows more than the monotonic clock, at the last look."""

    def look(self, now: float, steady: float) -> bool:
        """Compare the wall clock `now` with the monotonic clock; return whether it was set since the last look."""
        drift = now - steady - self.ahead
        self.ahead += drift
        if abs(drift) <= STEP_S:
            return False
        self.stepped += drift
        return True


MANY = 64
"""With so many streams the loop rests for a moment after each turn, so that the next one finds several arrivals: the kernel has
stamped them, and a turn for each would double the CPU that a token costs. How long: see `Tally.moment`."""

RATE_LOOKS = 5
"""The rate of tokens is that of so many last looks: about a second."""

LEAST_S = 0.0002
"""A shorter pause is not worth its system call."""

SHORT_S = 0.0005

LONG_S = 0.002

OF_A_GAP = 8

OF_A_REQUEST = 1000
"""A pause of the loop is at most this part of the time between two tokens of a stream, and of that from a request to its end: the
next request of a stream may wait for it."""

OFTEN = 0.005
"""Above this part of all chunks read together with another of their stream, the loop takes short pauses: a read has one stamp."""


def a_chunk_of(records: Iterable[RequestRecord]) -> Optional[float]:
    """Return the tokens in a chunk, over the completed ones of these requests; None if there are none."""
    tokens = chunks = 0
    for record in records:
        if record.state == COMPLETED:
            tokens += record.tokens
            chunks += len(record.chunks)
    return tokens / chunks if chunks else None


class TokenRate:
    """Tell the tokens a second of about the last second: chunks are seen to come, requests that end tell what one holds."""

    def __init__(self, a_chunk: Optional[float] = None) -> None:
        """`a_chunk` are the tokens in one as far as it is known, until a request has ended."""
        self.looks: Deque[Tuple[float, int]] = deque(maxlen=RATE_LOOKS)
        """When it was looked, and the chunks until then."""
        self._a_chunk = a_chunk
        self._tokens = 0
        self._chunks = 0

    def completed(self, record: RequestRecord) -> None:
        self._tokens += record.tokens
        self._chunks += len(record.chunks)

    def look(self, now: float, chunks: int) -> Optional[float]:
        """Note that so many chunks had come until `now`, in seconds; return the tokens a second, or None if not known yet."""
        self.looks.append((now, chunks))
        then, before = self.looks[0]
        a_chunk = self._tokens / self._chunks if self._chunks else self._a_chunk
        return None if a_chunk is None or now <= then else (chunks - before) / (now - then) * a_chunk


class Tally:
    """Keep the records of requests that ended, in the order in which they ended."""

    def __init__(self, a_chunk: Optional[float] = None) -> None:
        """`a_chunk`: see `TokenRate`."""
        self.records: List[RequestRecord] = []
        self.done = 0
        self.failed = 0
        self.in_a_row = 0
        """Failures since the last success, over all streams."""
        self.together = 0
        """Chunks of the ended requests that were read together with a later one of theirs."""
        self._lasted = 0.0
        self._chunks = 0
        self._often = False
        self._pace = TokenRate(a_chunk)

    def completed(self, stream: ReplyStream) -> None:
        record = stream.record
        self.ended(stream)
        self.done += 1
        self.in_a_row = 0
        self._lasted += record.end - record.start
        self._pace.completed(record)

    def failure(self, stream: ReplyStream) -> None:
        self.ended(stream)
        self.failed += 1
        self.in_a_row += 1

    def ended(self, stream: ReplyStream) -> None:
        """Take the record of a request, whatever ended it: the end of the run, too."""
        self.records.append(stream.record)
        self.together += stream.together
        self._chunks += len(stream.record.chunks)  # those of a failed one have come, too: the count never falls

    def moment(self, streams: int, elapsed: float) -> float:
        """Return for how many seconds a loop with many streams may let arrivals gather; ask it after `progress`.

        0 if requests are too short for a pause. Until one has ended they last at least as long as the run has, `elapsed`.
        """
        (then, before), (now, chunks) = self._pace.looks[0], self._pace.looks[-1]
        self._often = self._often or self.together > OFTEN * max(1, self._chunks)
        if chunks <= before:
            return 0.0
        gap = streams * (now - then) / (chunks - before)
        lasts = self._lasted / self.done if self.done else elapsed
        longest = min(SHORT_S if self._often else LONG_S, gap / OF_A_GAP, lasts / OF_A_REQUEST)
        return longest if longest >= LEAST_S else 0.0

    def pause(self, streams: int) -> float:
        """Return the seconds that a stream waits after a failure: a dead server must not be asked ten thousand times a second."""
        return 0.0 if self.in_a_row <= streams else min(1.0, 0.05 * 2 ** min(5, self.in_a_row // streams))

    def progress(self, now: float, streams: Collection[ReplyStream]) -> Dict[str, Any]:
        """Return the counts of a progress frame."""
        chunks = self._chunks + sum(len(stream.record.chunks) for stream in streams)
        return {
            "in_flight": len(streams),
            "done": self.done,
            "failed": self.failed,
            "chunks": chunks,
            "tokens_s": self._pace.look(now, chunks),
        }
