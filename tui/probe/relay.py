"""Role "relay": byte streams to TCP and Unix sockets that are within the host's reach, for hosts without forwarding.

    requests   {"do": "open", "id", "host", "port"} or {"do": "open", "id", "path"}
               {"do": "data", "id", "b64"}   {"do": "eof", "id"}: no more will be sent   {"do": "close", "id"}

    {"f": "opened", "id"}   {"f": "data", "id", "b64"}   {"f": "closed", "id"}: the other side ended it
    {"f": "failed", "id", "why", "code"}   code 1: forbidden, 2: nothing listens there, 0: something else

Names are resolved here, on the host, in a thread each, since that may take its time.
"""

import base64
import binascii
import collections
import errno
import os
import selectors
import socket
import threading
from typing import Any, Deque, Dict, List, Optional, Tuple

from tui.probe.leash import Link
from tui.wire.frames import FORBIDDEN, NOTHING_LISTENS

PIECE = 65536
WAITING_LIMIT = 64 << 20
"""Bytes that may wait for a peer that takes none."""
CONNECT_S = 10.0

_CODES = {
    errno.EACCES: FORBIDDEN,
    errno.EPERM: FORBIDDEN,
    errno.ECONNREFUSED: NOTHING_LISTENS,
    errno.ENOENT: NOTHING_LISTENS,
}


class Stream:
    """One connected socket and what waits to be written to it."""

    def __init__(self, number: Any, sock: socket.socket) -> None:
        self.number = number
        self.socket = sock
        self.waiting: Deque[bytes] = collections.deque()
        self.size = 0
        self.ending = False
        self.dropped = False


class Relay:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._watcher = selectors.DefaultSelector()
        self._watcher.register(link.wake_fd, selectors.EVENT_READ, None)
        self._streams: Dict[Any, Stream] = {}
        self._opening: Dict[Any, List[Dict[str, Any]]] = {}
        """Requests for streams that are still being connected."""
        self._connected: Deque[Tuple[Any, Optional[socket.socket], Optional[OSError]]] = collections.deque()
        self._bell, self._ringer = os.pipe()
        self._watcher.register(self._bell, selectors.EVENT_READ, None)

    def run(self) -> None:
        while True:
            for key, events in self._watcher.select():
                stream: Optional[Stream] = key.data
                if stream is None:
                    self._hear(key.fd)
                    continue
                if events & selectors.EVENT_WRITE and not stream.dropped:
                    self._write(stream)
                if events & selectors.EVENT_READ and not stream.dropped:
                    self._read(stream)

    def _hear(self, number: int) -> None:
        if number == self._bell:
            os.read(self._bell, 4096)
            while self._connected:
                self._take(*self._connected.popleft())
            return
        while True:
            request = self._link.request(0)
            if request is None:
                return
            self._obey(request)

    def _obey(self, request: Dict[str, Any]) -> None:
        do, number = request.get("do"), request.get("id")
        if do == "open":
            self._opening[number] = []
            threading.Thread(target=self._connect, args=(number, request), daemon=True).start()
        elif number in self._opening:
            if do == "close":
                del self._opening[number]
            else:
                self._opening[number].append(request)
        elif number in self._streams:
            stream = self._streams[number]
            if do == "data":
                self._send(stream, request)
            elif do == "eof":
                stream.ending = True
                self._write(stream)
            elif do == "close":
                self._drop(stream)

    # -- opening -------------------------------------------------------------------------------------------------------------------

    def _connect(self, number: Any, request: Dict[str, Any]) -> None:
        try:
            if request.get("path") is not None:
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                sock.settimeout(CONNECT_S)
                sock.connect(request["path"])
            else:
                sock = socket.create_connection((request["host"], int(request["port"])), CONNECT_S)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)
        except (OSError, ValueError, KeyError, OverflowError) as error:
            why = error if isinstance(error, OSError) else OSError(errno.EINVAL, "no such address: %s" % error)
            self._connected.append((number, None, why))
        else:
            self._connected.append((number, sock, None))
        os.write(self._ringer, b"!")

    def _take(self, number: Any, sock: Optional[socket.socket], error: Optional[OSError]) -> None:
        if number not in self._opening:  # closed meanwhile
            if sock is not None:
                sock.close()
            return
        later = self._opening.pop(number)
        if sock is None:
            self._fail(number, error or OSError(errno.EIO, "not connected"))
            return
        stream = self._streams[number] = Stream(number, sock)
        self._watcher.register(sock, selectors.EVENT_READ, stream)
        self._link.send({"f": "opened", "id": number})
        for request in later:
            self._obey(request)

    # -- bytes ---------------------------------------------------------------------------------------------------------------------

    def _read(self, stream: Stream) -> None:
        try:
            data = stream.socket.recv(PIECE)
        except BlockingIOError:
            return
        except OSError as error:
            self._drop(stream)
            self._fail(stream.number, error)
            return
        if data:
            self._link.send({"f": "data", "id": stream.number, "b64": base64.b64encode(data).decode("ascii")})
        else:
            self._drop(stream)
            self._link.send({"f": "closed", "id": stream.number})

    def _send(self, stream: Stream, request: Dict[str, Any]) -> None:
        try:
            data = base64.b64decode(request.get("b64", ""))
        except (binascii.Error, TypeError, ValueError):
            return
        stream.waiting.append(data)
        stream.size += len(data)
        if stream.size > WAITING_LIMIT:
            self._drop(stream)
            self._fail(stream.number, OSError(errno.ENOBUFS, "the other side takes no more bytes"))
        else:
            self._write(stream)

    def _write(self, stream: Stream) -> None:
        try:
            while stream.waiting:
                data = stream.waiting[0]
                sent = stream.socket.send(data)
                stream.size -= sent
                if sent < len(data):
                    stream.waiting[0] = data[sent:]
                else:
                    stream.waiting.popleft()
            if stream.ending:
                stream.ending = False
                stream.socket.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError as error:
            self._drop(stream)
            self._fail(stream.number, error)
            return
        more = selectors.EVENT_WRITE if stream.waiting else 0
        self._watcher.modify(stream.socket, selectors.EVENT_READ | more, stream)

    # -- ending --------------------------------------------------------------------------------------------------------------------

    def _drop(self, stream: Stream) -> None:
        stream.dropped = True
        self._watcher.unregister(stream.socket)
        stream.socket.close()
        del self._streams[stream.number]

    def _fail(self, number: Any, error: OSError) -> None:
        why = error.strerror or str(error)
        self._link.send({"f": "failed", "id": number, "why": why, "code": _CODES.get(error.errno or 0, 0)})


def play(arguments: Dict[str, Any], link: Link) -> None:
    Relay(link).run()
