"""Reads what arrived on the connections of requests in flight, with the stamps of its arrival. Python 3.8.

This is where a token's processor time goes: one system call each, and what stands in this loop.
"""

import time
from array import array
from typing import Dict, List, Tuple, Union

from tui.probe.load_net import ANCILLARY, PIECE, TIMESPEC
from tui.probe.load_pool import OUT
from tui.probe.load_stream import Stream

Arrival = Tuple[Stream, bytes, float]
"""The request, the bytes, and when they arrived: seconds of the wall clock."""

Incident = Tuple[Stream, Union[float, OSError, None]]
"""What else happened to the connection of a request: its error, when the server ended it, or neither: it can be written to."""


class Arrivals:
    """All of a turn is read before any of it is understood: a system call leaves the processor's caches to the kernel, and Python
    runs at half its speed behind each one."""

    def __init__(self, streams: Dict[int, Stream]) -> None:
        """`streams`: the requests in flight by file descriptor, as its owner keeps it."""
        self._streams = streams
        self.lags = array("f")
        """Of each read, the seconds from the arrival to its end."""
        self.unstamped = 0
        """Reads without the kernel's stamp: it begins to stamp some time after the first socket asks for it."""

    def read(self, events: List[Tuple[int, int]]) -> Tuple[List[int], List[Arrival], List[Incident]]:
        """Takes what `epoll.poll` told; the first list is of file descriptors that have no request in flight.

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
