"""The HTTP/1.1 that a load generator needs: the URL, the bytes of a request, and an incremental reader of responses.

The reader takes chunked bodies (with extensions and trailers), Content-Length, and bodies that end with the connection; interim 1xx
responses are passed over. After RFC 9112. Python 3.8.
"""

from typing import Dict, List, Mapping, NamedTuple, Optional
from urllib.parse import urlsplit

from tui.wire.urls import SOCKET, TOKEN_CHARACTERS, port_of, shown_url, socket_path

MAX_HEAD_BYTES = 64 * 1024
REQUESTED = ("/v1/chat/completions", "/v1/completions", "/v1/models")
"""Paths of requests, which nobody means to have in front of each one."""


class Target(NamedTuple):
    """Where a server listens, and what stands in front of its paths."""

    tls: bool
    host: str
    port: int
    unix: Optional[str]
    prefix: str

    @property
    def where(self) -> str:
        """Return the address in words."""
        return self.unix or "%s:%d" % ("[%s]" % self.host if ":" in self.host else self.host, self.port)

    @property
    def host_header(self) -> str:
        name = "[%s]" % self.host if ":" in self.host else self.host
        return name if self.port == (443 if self.tls else 80) else "%s:%d" % (name, self.port)


def target_of(url: str) -> Target:
    """Read `http://host:port/prefix`, `https://…`, or `unix:/path/of.sock`; a `/v1` at the end is dropped, as each path has it.

    Raises ValueError with the reason.
    """
    if url.startswith(SOCKET):
        path = socket_path(url[len(SOCKET) :])
        if not path.startswith("/"):
            raise ValueError("%r: the path of a Unix socket must be absolute" % url)
        return Target(False, "localhost", 80, path, "")
    shown = shown_url(url)
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("%r is not a URL" % shown) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("%r is not an http:// or https:// URL" % shown)
    try:
        port = port_of(url)
    except ValueError:
        hint = "; write a / in a password as %2F, a ? as %3F, a # as %23" if shown.endswith("…") else ""
        raise ValueError("%r: the port is not a number from 1 to 65535%s" % (shown, hint)) from None
    if parts.query:
        raise ValueError("%r has a query, which requests can't carry: give a key in a header, not in the URL" % shown)
    if parts.fragment:
        raise ValueError("%r has a part that begins with #, which no request carries: leave it out" % shown)
    prefix = parts.path.rstrip("/")
    if end := next((end for end in REQUESTED if prefix.endswith(end)), ""):
        base = shown[: shown.rindex(end)]
        raise ValueError("%r is the address of a request: the base URL is %s" % (shown, base))
    if prefix.endswith("/v1"):
        prefix = prefix[:-3]
    if any(c <= " " or c == "\x7f" for c in prefix):
        raise ValueError("%r has white space in its path" % shown)
    return Target(parts.scheme == "https", parts.hostname, port, None, prefix)


def head_of(target: Target, method: str, path: str, headers: Mapping[str, str], version: str) -> bytes:
    """Return the request line and the headers, without Content-Length and the empty line.

    Raises ValueError for a header that can't be sent as one line.
    """
    lines = ["%s %s%s HTTP/1.1" % (method, target.prefix, path), "Host: " + target.host_header]
    given = {name.lower() for name in headers}
    for name, value in (("User-Agent", "readyroom/" + version), ("Accept", "*/*"), ("Accept-Encoding", "identity")):
        if name.lower() not in given:
            lines.append("%s: %s" % (name, value))
    for name, value in headers.items():
        if not name or not set(name) <= TOKEN_CHARACTERS or any(c in value for c in "\r\n\0"):
            raise ValueError("%r can't be sent as an HTTP header" % name)
        lines.append("%s: %s" % (name, value))
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n"


HEAD, SIZE, DATA, DATA_END, TRAILER, COUNTED, TO_END, DONE = range(8)


class Response:
    """Reads one response piece by piece."""

    __slots__ = ("_left", "_state", "_tail", "headers", "keep", "reason", "status")

    def __init__(self) -> None:
        self._state = HEAD
        self._tail = b""
        self._left = 0
        self.status = 0
        self.reason = ""
        self.headers: Dict[str, str] = {}
        self.keep = True
        """Whether the connection may be used again after this response."""

    @property
    def done(self) -> bool:
        return self._state == DONE

    @property
    def headed(self) -> bool:
        """Return whether its head is known; those of interim responses don't count."""
        return self._state != HEAD

    @property
    def refuses(self) -> bool:
        """Return whether its head is known and has another status than 200."""
        return self._state != HEAD and self.status != 200

    @property
    def between(self) -> bool:
        """Return whether the next byte begins a chunk of a chunked body."""
        return self._state == SIZE and not self._tail

    def feed(self, data: bytes) -> bytes:
        """Return the bytes of the body in this piece.

        Raises ValueError if it isn't HTTP. Bytes behind the end are dropped: the connection is then not to be used again.
        """
        if self._state == SIZE and not self._tail:
            # nearly every piece of a token stream is exactly one chunk
            line = data.find(b"\r\n")
            if 0 < line < 9:
                try:
                    end = line + 2 + int(data[:line], 16)
                except ValueError:  # an extension, or garbage: the slow way knows
                    end = -2
                if end > line + 2 and len(data) == end + 2:
                    return data[line + 2 : end]
        if self._tail:
            data = self._tail + data
            self._tail = b""
        return self._slow(data)

    def _slow(self, data: bytes) -> bytes:
        body: List[bytes] = []
        at = 0
        size = len(data)
        while at < size:
            state = self._state
            if state == HEAD:
                at = self._head(data, at)
                if at < 0:
                    break
            elif state in (DATA, COUNTED):
                piece = data[at : at + self._left]
                body.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if not self._left:
                    self._state = DATA_END if state == DATA else DONE
            elif state == TO_END:
                body.append(data[at:])
                at = size
            elif state == DONE:  # the response stands; what comes next on the connection can't be told
                self.keep = False
                at = size
            else:
                line = data.find(b"\n", at)
                if line < 0:
                    if size - at > MAX_HEAD_BYTES:
                        raise ValueError("a line of the chunked body is too long")
                    self._tail = data[at:]
                    break
                words = data[at:line].rstrip(b"\r")
                at = line + 1
                self._line(words)
        return b"".join(body)

    def _line(self, words: bytes) -> None:
        if self._state == SIZE:
            self._left = _size(words.split(b";", 1)[0].strip())
            self._state = DATA if self._left else TRAILER
        elif self._state == DATA_END:
            if words:
                raise ValueError("a chunk is longer than it says")
            self._state = SIZE
        elif not words:  # the end of the trailers
            self._state = DONE

    def _head(self, data: bytes, at: int) -> int:
        """Read the head that begins at `at`; return where the body begins, or -1 if more is needed."""
        while data[at : at + 1] in (b"\r", b"\n"):  # an empty line behind the response before
            at += 1
        if at == len(data):
            return -1
        end = data.find(b"\r\n\r\n", at)
        skip = 4
        if end < 0:
            end = data.find(b"\n\n", at)
            skip = 2
        if end < 0:
            if len(data) - at > MAX_HEAD_BYTES:
                raise ValueError("the head of the response is too long")
            if not b"HTTP/"[: len(data) - at] == data[at : at + 5]:
                raise ValueError("not HTTP: %r" % data[at : at + 60])
            self._tail = data[at:]
            return -1
        lines = data[at:end].decode("latin-1").replace("\r\n", "\n").split("\n")
        words = lines[0].split(" ", 2)
        if not words[0].startswith("HTTP/1.") or len(words) < 2 or not (words[1].isdigit() and len(words[1]) == 3):
            raise ValueError("not HTTP/1.1: %r" % lines[0][:60])
        self.status = int(words[1])
        self.reason = words[2].strip() if len(words) > 2 else ""
        self.headers = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if colon:
                self.headers[name.strip().lower()] = value.strip()
        if 100 <= self.status < 200:
            return end + skip
        self._body(words[0])
        return end + skip

    def _body(self, version: str) -> None:
        """Find out how the body ends."""
        connection = self.headers.get("connection", "").lower()
        self.keep = "close" not in connection and (version != "HTTP/1.0" or "keep-alive" in connection)
        coding = self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length")
        if self.status in (204, 304):
            self._state = DONE
        elif coding:
            if not coding.endswith("chunked"):
                raise ValueError("transfer coding %r is not supported" % coding)
            self._state = SIZE
        elif length is not None:
            if not length.isdigit():
                raise ValueError("Content-Length %r is not a number" % length[:40])
            self._left = int(length)
            self._state = COUNTED if self._left else DONE
        else:
            self._state = TO_END
            self.keep = False

    def eof(self) -> None:
        """Take the end of the connection. Raises ValueError if the response is not complete."""
        if self._state == TO_END:
            self._state = DONE
        elif self._state != DONE:
            raise ValueError(
                "the connection ended in the middle of the response" if self.status else "the connection ended without a response"
            )


def _size(word: bytes) -> int:
    try:
        size = int(word, 16)
    except ValueError:
        size = -1
    if size < 0 or size > 1 << 40:
        raise ValueError("a chunk's size is not a hexadecimal number: %r" % word[:40])
    return size
