"""Single plain requests beside the load: models, /tokenize, /metrics. Blocking, on one kept connection. Python 3.8."""

import json
import select
import time
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from tui.probe.load_http import Response, Target, head_of
from tui.probe.load_net import Address, Connection

MAX_REPLY_BYTES = 16 << 20


def json_of(reply: bytes) -> Any:
    """The JSON of a body; None where it is none."""
    try:
        return json.loads(reply.decode("utf-8", "replace"))
    except ValueError:
        return None


class Caller:
    """Asks one server. Not for use by several threads."""

    def __init__(
        self,
        target: Target,
        addresses: Sequence[Address],
        context: Any,
        headers: Mapping[str, str],
        version: str,
        timeout_s: float = 30.0,
    ) -> None:
        self._target = target
        self._addresses = addresses
        self._context = context
        self._headers = dict(headers)
        self._version = version
        self._timeout_s = timeout_s
        self._connection: Optional[Connection] = None

    def __enter__(self) -> "Caller":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def full(self, path: str) -> str:
        """The path that is asked indeed: with what the URL has in front of it."""
        return self._target.prefix + path

    def ask(
        self, method: str, path: str, body: Optional[Dict[str, Any]] = None, within_s: Optional[float] = None
    ) -> Tuple[int, bytes]:
        """Status and body of the reply, which may take the caller's time limit, or `within_s`. Raises OSError (TimeoutError) or
        ValueError when there was none."""
        until = time.monotonic() + (self._timeout_s if within_s is None else within_s)
        fresh = self._connection is None or time.monotonic() - self._connection.idle_since > 3.0
        try:
            try:
                return self._ask(method, path, body, fresh, until)
            except (OSError, ValueError):
                if fresh or time.monotonic() >= until:
                    raise
            return self._ask(method, path, body, True, until)
        except (OSError, ValueError):
            self.close()  # what may still come on it is no answer to the next question
            raise

    def ask_json(self, method: str, path: str, body: Optional[Dict[str, Any]] = None) -> Tuple[int, Any]:
        """As `ask`, with the JSON of the reply (None when it is none)."""
        status, reply = self.ask(method, path, body)
        return status, json_of(reply)

    def _ask(self, method: str, path: str, body: Optional[Dict[str, Any]], fresh: bool, until: float) -> Tuple[int, bytes]:
        if fresh:
            self.close()
            self._connection = self._open(until)
        connection = self._connection
        assert connection is not None
        head = head_of(self._target, method, path, self._headers, self._version)
        data = b"" if body is None else json.dumps(body).encode("ascii")
        connection.send(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(data), data) if body is not None else head + b"\r\n")
        response = Response()
        pieces = []
        size = 0
        while not response.done:
            self._wait(connection, until)
            if connection.writing:
                connection.flush()
            piece, _ = connection.receive()
            if piece is None:
                continue
            if not piece:
                response.eof()
                break
            body_piece = response.feed(piece)
            size += len(body_piece)
            if size > MAX_REPLY_BYTES:
                raise ValueError("the reply is larger than %d bytes" % MAX_REPLY_BYTES)
            pieces.append(body_piece)
        connection.idle_since = time.monotonic()
        if not response.keep:
            self.close()
        return response.status, b"".join(pieces)

    def _open(self, until: float) -> Connection:
        last: Optional[OSError] = None
        for address in self._addresses:
            connection = None
            try:
                connection = Connection(address, self._context, self._target.host)
                while not connection.open:
                    self._wait(connection, until, True)
                    connection.advance()
                return connection
            except OSError as error:
                last = error
                if connection is not None:
                    connection.close()
        raise last or OSError("no address")

    @staticmethod
    def _wait(connection: Connection, until: float, opening: bool = False) -> None:
        left = until - time.monotonic()
        # a socket in the middle of a TLS handshake is writable all the time: then only what is read matters
        writing = connection.writing or (opening and not connection.shaking)
        poll = select.poll()
        poll.register(connection.fd, select.POLLIN | select.POLLOUT if writing else select.POLLIN)
        if left <= 0 or not poll.poll(left * 1000):
            raise TimeoutError("no answer in time")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
