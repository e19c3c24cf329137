"""The connections of one run: those being opened, for whom, and those that wait idle. Python 3.8."""

import contextlib
import select
import time
from collections import OrderedDict
from typing import Dict, List, NamedTuple, Optional, Tuple

from tui.probe.load_net import Connection, kind_of, where_of, words_of
from tui.probe.load_order import Endpoint
from tui.probe.load_stream import Stream

IDLE_LIMIT_S = 3.0
"""A connection that was idle for longer is not used again: servers close theirs after 5 s (uvicorn) and more."""

SPARE_S = 2.0
"""Spare connections are renewed after this time."""

SPARE = -1
"""The slot of a connection that nobody waits for yet."""

IN = select.EPOLLIN if hasattr(select, "EPOLLIN") else 1
OUT = select.EPOLLOUT if hasattr(select, "EPOLLOUT") else 4


class Opening(NamedTuple):
    """A connection on its way: for a slot of a closed loop, for a request that waits for it, or spare."""

    connection: Connection
    slot: int
    stream: Optional[Stream]
    until: float


class ConnectFailed(Exception):
    """A connection could not be opened."""

    def __init__(self, opening: Opening, kind: str, message: str) -> None:
        super().__init__(message)
        self.opening = opening
        self.kind = kind


class Pool:
    """Registers every connection with the loop's epoll; the loop tells it what happens on them."""

    def __init__(self, poll: "select.epoll", to: Endpoint, timeout_s: float) -> None:
        self._poll = poll
        self._to = to
        self._timeout_s = timeout_s
        self._opening: Dict[int, Opening] = {}
        self._idle: "OrderedDict[int, Connection]" = OrderedDict()
        """By their file descriptors, the one that waits longest first."""

    def __len__(self) -> int:
        """How many are being opened."""
        return len(self._opening)

    def __contains__(self, fd: int) -> bool:
        return fd in self._opening

    @property
    def waiting(self) -> List[Stream]:
        """Requests whose connection is being opened."""
        return [opening.stream for opening in self._opening.values() if opening.stream is not None]

    def connect(self, slot: int, stream: Optional[Stream] = None) -> None:
        """Begins to open a connection. Raises OSError when no address can even be tried."""
        last: Optional[OSError] = None
        for address in self._to.addresses:
            try:
                connection = Connection(address, self._to.context, self._to.name)
            except OSError as error:
                last = error
                continue
            self._opening[connection.fd] = Opening(connection, slot, stream, connection.begun + self._timeout_s)
            self._poll.register(connection.fd, IN | OUT)
            if stream is not None:
                stream.connection = connection
            return
        raise last or OSError("no address")

    def advance(self, fd: int) -> Optional[Opening]:
        """Goes on with one that is ready for it; it is returned when it is open. Raises ConnectFailed."""
        opening = self._opening[fd]
        connection = opening.connection
        try:
            connection.advance()
        except OSError as error:
            self._give_up(opening)
            raise ConnectFailed(opening, kind_of(error, True), self.words(error)) from None
        self._poll.modify(fd, IN | OUT if connection.writing else IN)
        if not connection.open:
            return None
        del self._opening[fd]
        return opening

    def late(self, now: float) -> List[Tuple[Opening, str]]:
        """Takes out those that took too long, with the words to say so."""
        found = [opening for opening in self._opening.values() if now > opening.until]
        for opening in found:
            self._give_up(opening)
        return [(opening, "no connection within %g s" % self._timeout_s) for opening in found]

    def words(self, error: OSError) -> str:
        """What an error of one of its connections means."""
        return words_of(error, where_of(self._to.addresses[0]) if self._to.addresses else "the server")

    def _give_up(self, opening: Opening) -> None:
        self._opening.pop(opening.connection.fd, None)
        self.drop(opening.connection)

    def keep(self, connection: Connection) -> None:
        """Lets one wait for its next request."""
        self._idle[connection.fd] = connection

    def take(self) -> Optional[Connection]:
        """One that waits and is fresh enough; None when there is none."""
        now = time.time()
        while self._idle:
            _, connection = self._idle.popitem(last=False)
            if now - connection.idle_since <= IDLE_LIMIT_S:
                return connection
            self.drop(connection)
        return None

    def hear(self, fd: int) -> None:
        """Something came on one that waits: it is kept when TLS alone had something to say, such as the session tickets that follow
        a handshake; else the server closed it, or said something unasked."""
        connection = self._idle.get(fd)
        if connection is not None and not connection.stays_idle():
            del self._idle[fd]
            self.drop(connection)

    def renew(self, count: int, now: float) -> int:
        """Drops spare ones that grew old; how many are missing from `count`."""
        while self._idle and now - next(iter(self._idle.values())).idle_since > SPARE_S:
            self.drop(self._idle.popitem(last=False)[1])
        return count - len(self._idle) - sum(opening.stream is None for opening in self._opening.values())

    def drop(self, connection: Optional[Connection]) -> None:
        """Closes one, once."""
        if connection is None or connection.sock.fileno() < 0:
            return
        with contextlib.suppress(OSError):
            self._poll.unregister(connection.fd)
        connection.close()

    def close(self) -> None:
        for opening in list(self._opening.values()):
            self._give_up(opening)
        while self._idle:
            self.drop(self._idle.popitem(last=False)[1])
