"""Run the load: one epoll loop that keeps requests in flight and records when their tokens arrive.

Nothing else runs in its process (the leash's threads sleep). It costs about ten microseconds a token event. `ClientHealth` says how
late it read and how busy it was, so that a figure that the client limited can be told from one that the server did. Python 3.8.
"""

import select
import time
from typing import Any, Callable, Dict, Optional, Union

from tui.probe.load_connections import ASK_AGAIN_S, IN, OUT, SPARE, Arrivals, ConnectionPool, short_of
from tui.probe.load_net import Connection, has_kernel_stamps, kind_of
from tui.probe.load_schedule import (
    MANY,
    Agenda,
    ClientHealth,
    LoadEndpoint,
    LoadOrder,
    LoadOutcome,
    MakeBody,
    RequestQueue,
    Tally,
    WallClock,
)
from tui.probe.load_stream import LINGER_S, ReplyStream, RequestFailure

TICK_S = 0.25


class LoadLoop:
    """One run of the loop: `run` returns when the order is carried out or `stopping` said so."""

    def __init__(
        self,
        endpoint: LoadEndpoint,
        order: LoadOrder,
        body: MakeBody,
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
        self._bodies = RequestQueue(endpoint.head, body, order, first, step)
        self._stopping = stopping
        self._tick = tick
        self._go = go
        self._poll = select.epoll()
        self._pool = ConnectionPool(self._poll, endpoint, order.connect_timeout_s, self._opening_failed)
        self._streams: Dict[int, ReplyStream] = {}
        """Requests in flight, by the file descriptor of their connection."""
        self._agenda = Agenda(order, self._in_flight)
        self._tally = Tally(order.a_chunk)
        self._arrivals = Arrivals(self._streams)
        self._stopped = ""
        self._kernel = False
        self._rest = 0.0
        self._wake_fd = wake_fd
        self._clock = WallClock()

    # -- the run -------------------------------------------------------------------------------------------------------------------

    def run(self) -> LoadOutcome:
        """Carry the order out. Raises nothing for what the server does: that is in the records."""
        order = self._order
        streams = order.concurrency or 0
        spare = self._agenda.spare
        short = short_of(order, spare)
        if short:
            self._go()
            return self._refused(short)
        if self._wake_fd is not None:
            self._poll.register(self._wake_fd, IN)
        self._bodies.make(streams or spare)
        for slot in range(streams):
            self._pool.connect(slot)
        for _ in range(spare):
            self._pool.connect(SPARE)
        parked = self._pool.connect_all(self._stopping)
        self._kernel = bool(parked) and has_kernel_stamps(parked[0].connection)
        self._go()
        if self._stopping():
            self._stopped = "stopped"
        cpu = time.process_time()
        self._clock = clock = WallClock()
        wall, begin = time.time(), time.monotonic()
        self._agenda.start(begin)
        if order.schedule is not None or self._stopped:
            for opening in parked:
                self._pool.keep(opening.connection)
        else:
            for i, opening in enumerate(parked):
                if order.stagger_s and i:
                    self._pool.keep(opening.connection)
                    self._agenda.postpone(begin + order.stagger_s * i / len(parked), opening.slot)
                else:
                    self._dispatch(opening.connection)
        self._turn(begin)
        end, lasted = time.time(), time.monotonic() - begin
        clock.look(end, begin + lasted)
        for stream in list(self._streams.values()) + self._pool.waiting:
            stream.record.end = end
            self._tally.ended(stream)
        self._close()
        records = sorted(self._tally.records, key=lambda r: r.index)
        cpu = time.process_time() - cpu
        lags, unstamped = self._arrivals.lags, self._arrivals.unstamped
        health = ClientHealth(
            lags, cpu, lasted, len(lags), self._kernel, clock.stepped, unstamped, self._tally.together, self._rest
        )
        ended = self._agenda.dispatch_end
        # both of the clock as it is at the end: what lies between them is how long it was, also if the clock was set meanwhile
        return LoadOutcome(
            records, wall + clock.stepped, end, None if ended is None else ended + clock.ahead, self._stopped, health
        )

    def _refused(self, why: str) -> LoadOutcome:
        """Return the outcome of an order that this machine can't carry out: nothing was sent."""
        now = time.time()
        self._close()
        return LoadOutcome([], now, now, now, why, ClientHealth(self._arrivals.lags, 0.0, 0.0, 0, False, 0.0))

    def _turn(self, begin: float) -> None:
        """Turn until the order is carried out.

        Its times are of the monotonic clock: ticks, the end and what is due stay where they are if the wall clock is set.
        """
        order = self._order
        poll = self._poll.poll
        streams = self._streams
        agenda = self._agenda
        now_of = time.monotonic
        next_tick = begin
        moment = 0.0
        deadline = begin + order.duration_s if order.duration_s is not None else float("inf")
        while True:
            now = now_of()
            if now >= next_tick:
                if self._stopping():
                    self._stopped = "stopped"
                self._timeouts(now)
                self._report(now)
                moment = self._tally.moment(len(streams), agenda.elapsed(now)) if self._kernel else 0.0
                if len(streams) >= MANY:
                    self._rest = max(self._rest, moment)
                next_tick = now + TICK_S
            if self._stopped:
                agenda.dispatch_end = now
                break
            if now >= deadline:
                agenda.dispatch_end = deadline
                break
            if order.max_failures is not None and self._tally.in_a_row > order.max_failures:
                self._stopped = "%d requests failed one after the other" % self._tally.in_a_row
                break
            if agenda.due or agenda.later:
                self._start_due(now)
            if not agenda.closed and agenda.is_enough(now):
                agenda.close(now)
            if agenda.closed and not streams and not self._pool.waiting:
                break
            until = next_tick if next_tick < deadline else deadline
            if agenda.due or agenda.later:
                until = min(until, agenda.next_at())
            if self._pool.turned_away:
                self._pool.ask_again()
                until = min(until, now + ASK_AGAIN_S)
            events = poll(until - now if until > now else 0.0, 256)
            woke = now_of()
            others, arrived, incidents = self._arrivals.read(events)
            for fd in others:  # first: what follows may close connections, and give their numbers to new ones
                self._other(fd)
            for stream, data, stamp in arrived:
                try:
                    if stream.feed(data, stamp):
                        stream.judge()
                        self._finish(stream, stamp)
                except RequestFailure as failure:
                    self._fail(stream, failure.kind, str(failure))
            for incident in incidents:
                self._meet(*incident)
            if not agenda.closed:
                self._bodies.make_one_if_short()
            if moment and len(streams) >= MANY:
                now = now_of()
                if now - woke < moment:  # else there is more to do than turns can gather
                    time.sleep(max(0.0, min(moment, until - now)))

    def _meet(self, stream: ReplyStream, what: Union[float, OSError, None]) -> None:
        """Deal with what happened to a request's connection, unless what arrived with it has ended the request."""
        if stream.connection is None or self._streams.get(stream.connection.fd) is not stream:
            return
        if what is None:
            self._flush(stream)
        else:
            self._ended(stream, what)

    # -- starting requests ---------------------------------------------------------------------------------------------------------

    def _next(self, connection: Optional[Connection] = None, due: Optional[float] = None) -> ReplyStream:
        """Make the next request, to be sent on that connection."""
        self._agenda.sent += 1
        record, request = self._bodies.take(None if due is None else due + self._clock.ahead)
        return ReplyStream(connection, record, request, self._to.endpoint, self._order.keep_text)

    def _in_flight(self) -> int:
        return len(self._streams) + len(self._pool.waiting)

    def _start_due(self, now: float) -> None:
        """Send what is due: scheduled requests of an open loop, and slots that waited."""
        agenda = self._agenda
        while (due := agenda.take_due(now)) is not None:
            self._dispatch(None, due)
        while agenda.take_later(now):
            if not agenda.is_enough(now):
                self._dispatch(None)

    def _dispatch(self, connection: Optional[Connection], due: Optional[float] = None) -> None:
        """Begin the next request, on that connection, an idle one, or one that is opened for it first."""
        if self._agenda.is_full():
            self._pool.drop(connection)
            return
        stream = self._next(connection or self._pool.take(), due)
        if stream.connection is None:
            self._pool.connect(0, stream)  # its clock starts when the connection is open
        else:
            self._send(stream)

    def _send(self, stream: ReplyStream) -> None:
        connection = stream.connection
        assert connection is not None
        record = stream.record
        if connection.uses == 0:
            record.connect_s = connection.connect_s
        connection.uses += 1
        self._streams[connection.fd] = stream
        stream.recvmsg = connection.recvmsg
        record.start = stream.heard = stream.moved = time.time()
        stream.sent = time.monotonic()
        try:
            connection.send(stream.body)
            if connection.writing:
                self._poll.modify(connection.fd, IN | OUT)
        except OSError as error:
            self._unsent(stream, connection, error)

    def _flush(self, stream: ReplyStream) -> None:
        connection = stream.connection
        assert connection is not None
        try:
            connection.flush()
            if not connection.writing:
                stream.heard = stream.moved = time.time()
                self._poll.modify(connection.fd, IN)
        except OSError as error:
            self._unsent(stream, connection, error)

    # -- connections ---------------------------------------------------------------------------------------------------------------

    def _opening_failed(self, slot: int, stream: Optional[ReplyStream], kind: str, message: str) -> None:
        if stream is None and slot != SPARE:
            stream = self._next()
        if stream is not None:
            self._count_failure(stream, kind, message, max(slot, 0))

    def _other(self, fd: int) -> None:
        """Deal with an event on a file descriptor that has no request in flight."""
        if fd in self._pool:
            opening = self._pool.advance(fd)
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
            self._pool.hear(fd)

    def _close(self) -> None:
        for stream in list(self._streams.values()):
            self._pool.drop(stream.connection)
        self._pool.close()
        self._poll.close()

    # -- ends of requests ----------------------------------------------------------------------------------------------------------

    def _finish(self, stream: ReplyStream, stamp: float) -> None:
        connection = stream.connection
        assert connection is not None
        record = stream.record
        record.end = stamp
        del self._streams[connection.fd]
        self._tally.completed(stream)
        if stream.response.keep and not connection.writing and not connection.ended:
            connection.idle_since = time.monotonic()
            if self._agenda.wants_another(connection.idle_since):
                self._dispatch(connection)
            else:
                self._pool.keep(connection)
        else:
            self._pool.drop(connection)
            if self._agenda.wants_another(time.monotonic()):
                self._dispatch(None)

    def _ended(self, stream: ReplyStream, what: Union[float, OSError]) -> None:
        """Take the end of a connection: when the server closed it, or the error that broke it."""
        if self._try_again(stream):
            return
        try:
            if isinstance(what, OSError):
                stream.broke(kind_of(what, False), self._pool.words(what))
                what = stream.heard
            else:
                stream.eof(what)
            self._over(stream, what)
        except RequestFailure as failure:
            self._fail(stream, failure.kind, str(failure))

    def _unsent(self, stream: ReplyStream, connection: Connection, error: OSError) -> None:
        """Take an error of sending. What the server said before it closed counts: a proxy refuses a large prompt without reading
        it.
        """
        try:
            stamp = stream.hear_out(connection)
            if stamp is not None:
                self._over(stream, stamp)
                return
        except RequestFailure as failure:
            self._fail(stream, failure.kind, str(failure))
            return
        self._ended(stream, error)

    def _over(self, stream: ReplyStream, stamp: float) -> None:
        """Finish a reply that ended with its connection. Raises RequestFailure if it was not complete."""
        stream.response.keep = False
        stream.judge()
        self._finish(stream, stamp)

    def _try_again(self, stream: ReplyStream) -> bool:
        """Send a request again, once, if its reused connection closed before any byte came: the server had closed it while idle."""
        connection = stream.connection
        if connection is None or not stream.may_go_again(time.monotonic()):
            return False
        self._streams.pop(connection.fd, None)
        self._pool.drop(connection)
        stream.record.retried = True
        self._pool.connect(0, stream)
        return True

    def _fail(self, stream: ReplyStream, kind: str, message: str) -> None:
        if stream.connection is not None:
            self._streams.pop(stream.connection.fd, None)
            self._pool.drop(stream.connection)
        self._count_failure(stream, kind, message)

    def _count_failure(self, stream: ReplyStream, kind: str, message: str, slot: int = 0) -> None:
        now = time.time()
        record = stream.record
        stream.fail(kind, message)
        record.end = now
        if not record.start:
            record.start = now
        self._tally.failure(stream)
        if self._order.concurrency is not None and not self._agenda.closed:
            self._agenda.postpone(time.monotonic() + self._tally.pause(self._order.concurrency), slot)

    def _timeouts(self, now: float) -> None:
        wall = time.time()
        if self._clock.look(wall, now):
            for stream in self._streams.values():
                stream.heard = stream.moved = wall  # a stamp from before can't be held against this clock: silence counts from here
        for stream in list(self._streams.values()):
            if stream.all_said and wall - stream.heard > LINGER_S:
                self._ended(stream, stream.heard)
                continue
            late = stream.overdue(wall, now, self._order.stall_s, self._order.timeout_s)
            if late is not None:
                self._fail(stream, late.kind, str(late))
        self._pool.drop_late(now)
        if self._agenda.due:
            for _ in range(self._pool.renew(self._agenda.spare, now)):
                self._pool.connect(SPARE)

    def _report(self, now: float) -> None:
        agenda = self._agenda
        progress = self._tally.progress(now, self._streams.values())
        progress["sent"] = agenda.sent
        progress["elapsed_s"] = agenda.elapsed(now)
        progress["planned"] = agenda.planned
        progress["stage"] = "draining" if agenda.closed else "measuring"
        self._tick(progress)
