"""The connections of one run: those being opened, for whom, and those that wait idle. Python 3.8."""

import contextlib
import os
import resource
import select
import time
from array import array
from collections import OrderedDict
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple, Union

from tui.probe.load_net import ANCILLARY, PIECE, TIMESPEC, Connection, kind_of, where_of, words_of
from tui.probe.load_schedule import LoadEndpoint, LoadOrder
from tui.probe.load_stream import ReplyStream

IDLE_LIMIT_S = 3.0
"""A connection that was idle for longer is not used again: servers close theirs after 5 s (uvicorn) and more."""

SPARE_S = 2.0
"""Spare connections are renewed after this time."""

WAIT_S = 0.25
ASK_AGAIN_S = 0.005
"""While a Unix socket's queue is full, it is asked again so often."""

SPARE = -1
"""The slot of a connection that nobody waits for yet."""

IN = select.EPOLLIN if hasattr(select, "EPOLLIN") else 1
OUT = select.EPOLLOUT if hasattr(select, "EPOLLOUT") else 4


class PendingConnection(NamedTuple):
    """A connection on its way: for a slot of a closed loop, for a request that waits for it, or spare."""

    connection: Connection
    slot: int
    stream: Optional[ReplyStream]
    until: float
    """By the monotonic clock."""


Failed = Callable[[int, Optional[ReplyStream], str, str], None]
"""Told of a connection that could not be opened: its slot, the request that waited for it, the kind of failure, and words."""


class ConnectionPool:
    """Registers every connection with the loop's epoll; the loop tells it what happens on them. Its times are of the monotonic
    clock."""

    def __init__(self, poll: "select.epoll", to: LoadEndpoint, timeout_s: float, failed: Failed) -> None:
        self._poll = poll
        self._to = to
        self._timeout_s = timeout_s
        self._failed = failed
        self._opening: Dict[int, PendingConnection] = {}
        self.turned_away: Dict[int, PendingConnection] = {}
        """Those of them that the server's full queue did not take: `ask_again` in a while."""
        self._idle: "OrderedDict[int, Connection]" = OrderedDict()
        """By their file descriptors, the one that waits longest first."""

    def __len__(self) -> int:
        """Return how many are being opened."""
        return len(self._opening)

    def __contains__(self, fd: int) -> bool:
        return fd in self._opening

    @property
    def waiting(self) -> List[ReplyStream]:
        """Return the requests whose connection is being opened."""
        return [opening.stream for opening in self._opening.values() if opening.stream is not None]

    def connect(self, slot: int, stream: Optional[ReplyStream] = None) -> None:
        """Begin to open a connection."""
        last: Optional[OSError] = None
        for address in self._to.addresses:
            try:
                connection = Connection(address, self._to.context, self._to.name)
            except OSError as error:
                last = error
                continue
            opening = PendingConnection(connection, slot, stream, connection.begun + self._timeout_s)
            self._opening[connection.fd] = opening
            if connection.asked:
                self._poll.register(connection.fd, IN | OUT)
            else:
                self.turned_away[connection.fd] = opening
            if stream is not None:
                stream.connection = connection
            return
        why = last or OSError("no address")
        self._failed(slot, stream, kind_of(why, True), self.words(why))

    def connect_all(self, stopping: Callable[[], bool]) -> List[PendingConnection]:
        """Wait until all of them are open or have failed; return the open ones, for the caller to keep or use."""
        opened: Dict[int, PendingConnection] = {}
        while self._opening and not stopping():
            for fd, _ in self._poll.poll(ASK_AGAIN_S if self.turned_away else WAIT_S, 256):
                if fd in self._opening:
                    opening = self.advance(fd)
                    if opening is not None:
                        opened[fd] = opening
                elif fd in opened and not opened[fd].connection.stays_idle():
                    opening = opened.pop(fd)
                    self.drop(opening.connection)
                    self._failed(opening.slot, opening.stream, "closed", "the connection ended before a request was sent")
            if self.turned_away:
                self.ask_again()
            self.drop_late(time.monotonic())
        return list(opened.values())

    def ask_again(self) -> None:
        """Ask once more for those that were turned away."""
        for fd, opening in list(self.turned_away.items()):
            try:
                if not opening.connection.ask():
                    return  # the queue is still full: for the others, too
                del self.turned_away[fd]
                self._poll.register(fd, IN | OUT)
            except OSError as error:
                self._give_up(opening, kind_of(error, True), self.words(error))

    def advance(self, fd: int) -> Optional[PendingConnection]:
        """Go on with one that is ready for it; return it once it is open."""
        opening = self._opening[fd]
        connection = opening.connection
        try:
            connection.advance()
        except OSError as error:
            self._give_up(opening, kind_of(error, True), self.words(error))
            return None
        self._poll.modify(fd, IN | OUT if connection.writing else IN)
        if not connection.open:
            return None
        del self._opening[fd]
        return opening

    def drop_late(self, now: float) -> None:
        """Give up those that take too long."""
        for opening in [opening for opening in self._opening.values() if now > opening.until]:
            self._give_up(opening, "connect_timeout", "no connection within %g s" % self._timeout_s)

    def words(self, error: OSError) -> str:
        """Say what an error of one of its connections means."""
        return words_of(error, where_of(self._to.addresses[0]) if self._to.addresses else "the server")

    def _give_up(self, opening: PendingConnection, kind: str, words: str) -> None:
        self._abandon(opening)
        self._failed(opening.slot, opening.stream, kind, words)

    def _abandon(self, opening: PendingConnection) -> None:
        self._opening.pop(opening.connection.fd, None)
        self.turned_away.pop(opening.connection.fd, None)
        self.drop(opening.connection)

    def keep(self, connection: Connection) -> None:
        """Let one wait for its next request."""
        self._idle[connection.fd] = connection

    def take(self) -> Optional[Connection]:
        """Take out one that waits and is fresh enough; return None if there is none."""
        now = time.monotonic()
        while self._idle:
            _, connection = self._idle.popitem(last=False)
            if now - connection.idle_since <= IDLE_LIMIT_S:
                return connection
            self.drop(connection)
        return None

    def hear(self, fd: int) -> None:
        """Read what came on a waiting one; drop it unless TLS alone had something to say, as the tickets behind a handshake.

        Anything else is the server's end, or something that nobody asked for.
        """
        connection = self._idle.get(fd)
        if connection is not None and not connection.stays_idle():
            del self._idle[fd]
            self.drop(connection)

    def renew(self, count: int, now: float) -> int:
        """Drop spare ones that have grown old; return how many are missing from `count`."""
        while self._idle and now - next(iter(self._idle.values())).idle_since > SPARE_S:
            self.drop(self._idle.popitem(last=False)[1])
        return count - len(self._idle) - sum(opening.stream is None for opening in self._opening.values())

    def drop(self, connection: Optional[Connection]) -> None:
        """Close one, once."""
        if connection is None or connection.sock.fileno() < 0:
            return
        with contextlib.suppress(OSError):
            self._poll.unregister(connection.fd)
        connection.close()

    def close(self) -> None:
        for opening in list(self._opening.values()):
            self._abandon(opening)
        while self._idle:
            self.drop(self._idle.popitem(last=False)[1])


Arrival = Tuple[ReplyStream, bytes, float]
"""The request, the bytes, and when they arrived: seconds of the wall clock."""

Incident = Tuple[ReplyStream, Union[float, OSError, None]]
"""What else happened to the connection of a request: its error, when the server ended it, or neither: it can be written to."""


class Arrivals:
    """Read all of a turn before any of it is understood.

    A system call leaves the processor's caches to the kernel, and Python runs at half its speed behind each one.
    """

    def __init__(self, streams: Dict[int, ReplyStream]) -> None:
        """`streams`: the requests in flight by file descriptor, as its owner keeps it."""
        self._streams = streams
        self.lags = array("f")
        """Of each read, the seconds from the arrival to its end."""
        self.unstamped = 0
        """Reads without the kernel's stamp: it begins to stamp some time after the first socket asks for it."""

    def read(self, events: List[Tuple[int, int]]) -> Tuple[List[int], List[Arrival], List[Incident]]:
        """Read what `epoll.poll` reported; return the descriptors without a request in flight, the arrivals, and the incidents.

        Raises nothing: an error of a connection is an incident.
        """
        others: List[int] = []
        arrived: List[Arrival] = []
        incidents: List[Incident] = []
        find = self._streams.get
        lag = self.lags.append
        now_of = time.time
        unpack = TIMESPEC.unpack
        for fd, event in events:
            stream = find(fd)
            if stream is None:
                others.append(fd)
                continue
            if event & OUT:
                incidents.append((stream, None))
                if not event & ~OUT:
                    continue
            recvmsg = stream.recvmsg
            try:
                if recvmsg is not None:  # what `Connection.receive` does
                    data, ancillary, _, _ = recvmsg(PIECE, ANCILLARY)
                    now = now_of()
                    if ancillary:
                        seconds, nanoseconds = unpack(ancillary[0][2])
                        stamp = seconds + nanoseconds * 1e-9
                    else:
                        stamp = now
                        self.unstamped += bool(data)
                else:
                    connection = stream.connection
                    assert connection is not None
                    data, stamp = connection.receive()
                    now = now_of()
                    if data and connection.ended:
                        incidents.append((stream, stamp))
            except BlockingIOError:
                continue
            except OSError as error:
                incidents.append((stream, error))
                continue
            if data:
                lag(now - stamp)
                arrived.append((stream, data, stamp))
            elif data is not None:
                incidents.append((stream, stamp))
        return others, arrived, incidents


RESERVE = 16
"""Open files beyond the connections and what is open already: a connection of the metrics, a pipe, a name to resolve."""


def most_files() -> Optional[int]:
    """Return how many files each process may have open once it has raised its limit; None is no limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def short_of(order: LoadOrder, spare: int) -> str:
    """Raise this process's limit of open files as far as an order needs; return why that isn't enough, or an empty string.

    The soft limit is often 1,024, for the sake of programs that use `select`, and each process may raise it up to the hard one.
    How many connections an open loop without a gate will need isn't known: it may have a connection for each request, and is never
    refused. What it can't send then is a failure of this machine's own (`OWN_LIMITS`), and told as such. `spare` is the number of
    connections that it keeps ready.
    """
    streams = order.concurrency or order.gate or 0
    most = streams or len(order.schedule or ())
    reserve = _open_now() + spare + RESERVE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    infinite = resource.RLIM_INFINITY
    if soft != infinite and soft < most + reserve:
        soft = most + reserve if hard == infinite else min(hard, most + reserve)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == infinite or streams + reserve <= soft:
        return ""
    return (
        "%d streams need %d open files, and a process of the load generator may have %d: raise the hard limit (ulimit -Hn),"
        " or share the load among processes with --workers" % (streams, streams + reserve, soft)
    )


def _open_now() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return RESERVE
