"""The load generator: one epoll loop that keeps requests in flight and records when their tokens arrive.

Nothing else runs in its process (the leash's threads sleep). It costs about ten microseconds a token event; `Health` says how late
it read and how busy it was, so that a figure which the client itself limited can be told from one that the server did. Python 3.8.
"""

import heapq
import select
import time
from array import array
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from tui.probe.load_bodies import Bodies
from tui.probe.load_net import ANCILLARY, READ, TIMESPEC, Connection, has_kernel_stamps, kind_of
from tui.probe.load_order import Body, Endpoint, Health, Order, Outcome
from tui.probe.load_pool import IN, OUT, SPARE, ConnectFailed, Opening, Pool
from tui.probe.load_stream import Failure, Stream
from tui.probe.load_tally import Tally
from tui.wire.record import Record

STALE_S = 1.0
"""A connection that was closed while idle says so at once; a server that closes later has failed the request."""

MANY = 64
FEW = 8
"""With many streams, a loop that found few events pauses for a moment, so that the next turn finds several at once: the kernel has
stamped them, and a turn for each would double the CPU that a token costs. How long: see `Tally.moment`."""

TICK_S = 0.25


class Load:
    """One run of the loop: `run` returns when the order is carried out or `stopping` said so."""

    def __init__(
        self,
        endpoint: Endpoint,
        order: Order,
        body: Body,
        *,
        first: int = 0,
        step: int = 1,
        stopping: Callable[[], bool] = lambda: False,
        tick: Callable[[Dict[str, Any]], None] = lambda progress: None,
        go: Callable[[], None] = lambda: None,
        wake_fd: Optional[int] = None,
    ) -> None:
        self._to = endpoint
        self._order = order
        self._bodies = Bodies(endpoint.head, body, order, first, step)
        self._stopping = stopping
        self._tick = tick
        self._go = go
        self._poll = select.epoll()
        self._pool = Pool(self._poll, endpoint, order.connect_timeout_s)
        self._streams: Dict[int, Stream] = {}
        """Requests in flight, by the file descriptor of their connection."""
        self._later: List[Tuple[float, int]] = []
        """Slots that wait after a failure."""
        self._due: Deque[float] = deque()
        self._tally = Tally()
        self._lags = array("f")
        self._sent = 0
        self._begin = 0.0
        self._closed_to_new = False
        self._dispatch_end: Optional[float] = None
        self._stopped = ""
        self._kernel = False
        self._unstamped = 0
        """Reads without the kernel's stamp: it begins to stamp some time after the first socket asks for it."""
        self._wake_fd = wake_fd

    # -- the run -------------------------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Carries the order out. Raises nothing for what the server does: that is in the records."""
        order = self._order
        streams = order.concurrency or 0
        spare = self._spare() if order.schedule is not None else 0
        if self._wake_fd is not None:
            self._poll.register(self._wake_fd, IN)
        self._bodies.make(streams or spare)
        for slot in range(streams):
            self._open(slot)
        for _ in range(spare):
            self._open(SPARE)
        parked = self._connect_all()
        self._go()
        cpu = time.process_time()
        clock = time.time() - time.monotonic()
        self._begin = begin = time.time()
        if order.schedule is not None:
            self._due.extend(begin + offset for offset in order.schedule)
            for opening in parked:
                self._pool.keep(opening.connection)
        else:
            for i, opening in enumerate(parked):
                if order.stagger_s and i:
                    self._pool.keep(opening.connection)
                    heapq.heappush(self._later, (begin + order.stagger_s * i / len(parked), opening.slot))
                else:
                    self._dispatch(opening.connection)
        step = self._turn(begin, clock)
        end = time.time()
        for stream in list(self._streams.values()) + self._pool.waiting:
            stream.record.end = end
            self._tally.ended(stream)
        self._close()
        records = sorted(self._tally.records, key=lambda r: r.index)
        cpu = time.process_time() - cpu
        lags = self._lags
        health = Health(lags, cpu, end - begin, len(lags), self._kernel, step, self._unstamped, self._tally.together)
        return Outcome(records, begin, end, self._dispatch_end, self._stopped, health)

    def _turn(self, begin: float, clock: float) -> float:
        """The loop itself; returns by how much the wall clock was stepped meanwhile."""
        order = self._order
        poll = self._poll.poll
        streams = self._streams
        lags = self._lags
        now_of = time.time
        unpack = TIMESPEC.unpack
        next_tick = begin
        moment = 0.0
        deadline = begin + order.duration_s if order.duration_s is not None else None
        stepped = 0.0
        while True:
            now = now_of()
            if now >= next_tick:
                drift = now - time.monotonic() - clock
                if abs(drift) > 0.002:
                    stepped += drift
                clock += drift
                if self._stopping():
                    self._stopped = "stopped"
                self._timeouts(now)
                self._report(now)
                moment = self._tally.moment(len(streams)) if self._kernel else 0.0
                next_tick = now + TICK_S
            if self._stopped:
                self._dispatch_end = now
                break
            if deadline is not None and now >= deadline:
                self._dispatch_end = deadline
                break
            if order.max_failures is not None and self._tally.in_a_row > order.max_failures:
                self._stopped = "%d requests failed one after the other" % self._tally.in_a_row
                break
            if self._due or self._later:
                self._start_due(now)
            if not self._closed_to_new and self._is_enough(now):
                self._closed_to_new = True
                self._dispatch_end = now if order.requests is None and order.schedule is None else None
            if self._closed_to_new and not streams and not self._pool.waiting:
                break
            wait = next_tick - now
            if deadline is not None:
                wait = min(wait, deadline - now)
            if self._due and not self._is_gated():
                wait = min(wait, self._due[0] - now)
            if self._later:
                wait = min(wait, self._later[0][0] - now)
            until = now + wait
            events = poll(max(0.0, wait), 256)
            for fd, event in events:
                stream = streams.get(fd)
                if stream is None:
                    self._other(fd)
                    continue
                connection = stream.connection
                assert connection is not None
                try:
                    if event & OUT:
                        self._flush(stream, connection)
                    if event & ~OUT:
                        if connection.recvmsg is None:
                            data, stamp = connection.receive()
                            now = now_of()
                        else:  # the same by hand: this is where the time goes
                            data, ancillary, _, _ = connection.recvmsg(READ, ANCILLARY)
                            now = now_of()
                            if ancillary:
                                seconds, nanoseconds = unpack(ancillary[0][2])
                                stamp = seconds + nanoseconds * 1e-9
                            else:
                                stamp = now
                                self._unstamped += bool(data)
                        if data:
                            lags.append(now - stamp)
                            if stream.feed(data, stamp):
                                stream.judge()
                                self._finish(stream, stamp)
                        elif data is not None:
                            self._ended(stream, stamp)
                except Failure as failure:
                    self._fail(stream, failure.kind, str(failure))
                except BlockingIOError:
                    continue
                except OSError as error:
                    self._broken(stream, error)
            if not self._closed_to_new:
                self._bodies.make_one_if_short()
            if moment and len(events) < FEW and len(streams) >= MANY:
                time.sleep(max(0.0, min(moment, until - now_of())))
        return stepped

    # -- starting requests ---------------------------------------------------------------------------------------------------------

    def _record(self, due: Optional[float] = None) -> Tuple[Record, bytes]:
        self._sent += 1
        return self._bodies.take(due)

    def _spare(self) -> int:
        schedule = self._order.schedule or ()
        rate = len(schedule) / schedule[-1] if schedule and schedule[-1] > 0 else 1.0
        return max(2, min(64, int(rate * 0.1) + 2))

    def _is_enough(self, now: float) -> bool:
        if self._order.schedule is not None:
            return not self._due
        return self._order.is_enough(self._sent, now - self._begin)

    def _is_gated(self) -> bool:
        gate = self._order.gate
        return gate is not None and len(self._streams) + len(self._pool.waiting) >= gate

    def _start_due(self, now: float) -> None:
        """Sends what is due: scheduled requests of an open loop, and slots that waited."""
        while self._due and self._due[0] <= now and not self._is_gated():
            self._dispatch(None, self._due.popleft())
        while self._later and self._later[0][0] <= now:
            heapq.heappop(self._later)
            if not self._is_enough(now):
                self._dispatch(None)

    def _dispatch(self, connection: Optional[Connection], due: Optional[float] = None) -> None:
        """Begins the next request, on that connection, an idle one, or one that is opened for it first."""
        if self._order.requests is not None and self._sent >= self._order.requests:
            self._pool.drop(connection)
            return
        record, request = self._record(due)
        stream = self._stream(record, request, connection or self._pool.take())
        if stream.connection is None:
            self._open_for(stream)
        else:
            self._send(stream)

    def _stream(self, record: Record, request: bytes, connection: Optional[Connection] = None) -> Stream:
        return Stream(connection, record, request, self._to.endpoint, self._order.keep_text)

    def _open_for(self, stream: Stream) -> None:
        """Opens a connection for a request; its clock starts when it is open."""
        try:
            self._pool.connect(0, stream)
        except OSError as error:
            self._count_failure(stream, kind_of(error, True), self._pool.words(error))

    def _send(self, stream: Stream) -> None:
        connection = stream.connection
        assert connection is not None
        record = stream.record
        if connection.uses == 0:
            record.connect_s = connection.connect_s
        connection.uses += 1
        self._streams[connection.fd] = stream
        record.start = stream.heard = time.time()
        try:
            connection.send(stream.body)
            if connection.writing:
                self._poll.modify(connection.fd, IN | OUT)
        except OSError as error:
            self._broken(stream, error)

    def _flush(self, stream: Stream, connection: Connection) -> None:
        connection.flush()
        if not connection.writing:
            stream.heard = time.time()
            self._poll.modify(connection.fd, IN)

    # -- connections ---------------------------------------------------------------------------------------------------------------

    def _open(self, slot: int) -> None:
        """Opens a connection ahead of its first request."""
        try:
            self._pool.connect(slot)
        except OSError as error:
            if slot != SPARE:
                self._count_failure(self._stream(*self._record()), kind_of(error, True), self._pool.words(error), slot)

    def _connect_all(self) -> List[Opening]:
        """Waits until the connections of the beginning are open or failed; the open ones."""
        parked: List[Opening] = []
        while self._pool and not self._stopping():
            for fd, _ in self._poll.poll(TICK_S, 256):
                if fd in self._pool:
                    opening = self._advance(fd)
                    if opening is not None:
                        parked.append(opening)
            self._drop_late(time.time())
        if parked:
            self._kernel = has_kernel_stamps(parked[0].connection)
        return parked

    def _advance(self, fd: int) -> Optional[Opening]:
        try:
            return self._pool.advance(fd)
        except ConnectFailed as failed:
            self._opening_failed(failed.opening, failed.kind, str(failed))
            return None

    def _drop_late(self, now: float) -> None:
        for opening, words in self._pool.late(now):
            self._opening_failed(opening, "connect_timeout", words)

    def _opening_failed(self, opening: Opening, kind: str, message: str) -> None:
        stream = opening.stream
        if stream is None and opening.slot != SPARE:
            stream = self._stream(*self._record())
        if stream is not None:
            self._count_failure(stream, kind, message, max(opening.slot, 0))

    def _other(self, fd: int) -> None:
        """Something happened on a file descriptor that has no request in flight."""
        if fd in self._pool:
            opening = self._advance(fd)
            if opening is None:
                return
            if opening.stream is not None:
                self._send(opening.stream)
            else:
                self._pool.keep(opening.connection)
        elif fd == self._wake_fd:
            if self._stopping():
                self._stopped = "stopped"
        else:
            self._pool.hung_up(fd)

    def _close(self) -> None:
        for stream in list(self._streams.values()):
            self._pool.drop(stream.connection)
        self._pool.close()
        self._poll.close()

    # -- ends of requests ----------------------------------------------------------------------------------------------------------

    def _finish(self, stream: Stream, stamp: float) -> None:
        connection = stream.connection
        assert connection is not None
        record = stream.record
        record.end = stamp
        del self._streams[connection.fd]
        self._tally.completed(stream)
        if stream.response.keep and not connection.writing:
            connection.idle_since = time.time()
            if self._order.concurrency is not None and not self._closed_to_new and not self._is_enough(connection.idle_since):
                self._dispatch(connection)
            else:
                self._pool.keep(connection)
        else:
            self._pool.drop(connection)
            if self._order.concurrency is not None and not self._is_enough(time.time()):
                self._dispatch(None)

    def _ended(self, stream: Stream, stamp: float) -> None:
        """The server closed the connection."""
        if self._try_again(stream):
            return
        stream.eof(stamp)
        stream.response.keep = False
        stream.judge()
        self._finish(stream, stamp)

    def _broken(self, stream: Stream, error: OSError) -> None:
        if self._try_again(stream):
            return
        if stream.record.chunks and stream.done:
            stream.response.keep = False
            try:
                stream.judge()
            except Failure as failure:
                self._fail(stream, failure.kind, str(failure))
                return
            self._finish(stream, stream.heard)
            return
        kind = kind_of(error, False)
        self._fail(stream, "cut" if kind == "reset" and stream.record.chunks else kind, self._pool.words(error))

    def _try_again(self, stream: Stream) -> bool:
        """Sends a request again, once, whose reused connection closed before any byte came: the server had closed it while idle."""
        connection = stream.connection
        if connection is None or connection.uses < 2 or stream.record.retried or stream.touched:
            return False
        if time.time() - stream.record.start > STALE_S:
            return False
        self._streams.pop(connection.fd, None)
        self._pool.drop(connection)
        stream.record.retried = True
        self._open_for(stream)
        return True

    def _fail(self, stream: Stream, kind: str, message: str) -> None:
        if stream.connection is not None:
            self._streams.pop(stream.connection.fd, None)
            self._pool.drop(stream.connection)
        self._count_failure(stream, kind, message)

    def _count_failure(self, stream: Stream, kind: str, message: str, slot: int = 0) -> None:
        now = time.time()
        record = stream.record
        stream.fail(kind, message)
        record.end = now
        if not record.start:
            record.start = now
        self._tally.failure(stream)
        if self._order.concurrency is not None and not self._closed_to_new:
            heapq.heappush(self._later, (now + self._tally.pause(self._order.concurrency), slot))

    def _timeouts(self, now: float) -> None:
        order = self._order
        for stream in list(self._streams.values()):
            if now - stream.heard > order.stall_s:
                self._fail(stream, "stalled", "no byte for %g s" % order.stall_s)
            elif now - stream.record.start > order.timeout_s:
                self._fail(stream, "timeout", "not finished after %g s" % order.timeout_s)
        self._drop_late(now)
        if order.schedule is not None and self._due:
            for _ in range(self._pool.renew(self._spare(), now)):
                self._open(SPARE)

    def _report(self, now: float) -> None:
        order = self._order
        progress = self._tally.progress(now, self._streams.values())
        progress["sent"] = self._sent
        progress["elapsed_s"] = now - self._begin
        progress["planned"] = order.requests if order.schedule is None else len(order.schedule)
        progress["stage"] = "draining" if self._closed_to_new else "measuring"
        self._tick(progress)
