"""Non-blocking connections that say when their bytes arrived: TCP (with the kernel's arrival stamps), TLS, Unix sockets.

The kernel stamps each packet as it arrives (SO_TIMESTAMPNS); `recvmsg` hands the stamp over with the bytes, so that a busy client
reads late without measuring late. TLS is done by hand with `ssl.MemoryBIO`, so that the stamps survive it. Stamps are seconds of
the wall clock (`time.time`). Where the kernel gives none (Unix sockets, other systems), now is taken instead. Python 3.8.
"""

import contextlib
import errno
import fcntl
import os
import socket
import ssl
import struct
import termios
import time
from array import array
from typing import Any, List, NamedTuple, Optional, Tuple

from tui.probe.load_http import Target

SO_TIMESTAMPNS = 35  # linux/asm-generic/socket.h; the socket module has no name for it before Python 3.14
TIMESPEC = struct.Struct("@ll")
ANCILLARY = socket.CMSG_SPACE(TIMESPEC.size)
READ = 32 * 1024
PIECE = 4 * 1024
"""Read at once of a stream of tokens, each some 250 bytes; what is left is read at the next turn."""
OPEN_FILES = "open_files"
NO_PORTS = "no_ports"
OWN_LIMITS = (OPEN_FILES, NO_PORTS)
"""Kinds of failure that are this machine's own, and say nothing of the server."""

IN_PROGRESS = (0, errno.EINPROGRESS)


class Address(NamedTuple):
    """Where to connect to."""

    family: int
    where: Any
    """As `socket.connect` takes it."""
    server: str = ""
    """In words, the server that a tunnel's socket stands for; empty for an address of the server itself."""


class TunnelError(OSError):
    """A tunnel did not reach the server; the message is its reason."""


def resolve(target: Target) -> List[Address]:
    """Return the addresses of a target, in the order in which to try them. Raises OSError (socket.gaierror) if there are none."""
    if target.unix is not None:
        return [Address(socket.AF_UNIX, target.unix)]
    found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    return [Address(family, where) for family, _, _, _, where in found]


def tls_context(verify: bool, ca: Optional[str]) -> ssl.SSLContext:
    """Make a TLS context that trusts `ca` (PEM text) in addition to the system's authorities. Raises ssl.SSLError for a bad one."""
    context = ssl.create_default_context(cadata=None)
    if ca:
        context.load_verify_locations(cadata=ca)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


class Connection:
    """One connection. `advance` while `open` is False; then `send` and `receive`. All of them raise OSError (ssl.SSLError too)."""

    __slots__ = (
        "_connected",
        "_context",
        "_incoming",
        "_line",
        "_name",
        "_out",
        "_outgoing",
        "_tls",
        "_where",
        "asked",
        "begun",
        "connect_s",
        "ended",
        "fd",
        "idle_since",
        "open",
        "recvmsg",
        "sock",
        "uses",
    )

    def __init__(self, address: Address, context: Optional[ssl.SSLContext] = None, name: str = "") -> None:
        self._where = address.where
        self._connected = False
        """Whether the socket is; a tunnel's line or a TLS handshake may be to come."""
        self._line: Optional[bytes] = b"" if address.server else None
        """What came of a tunnel's first line, until it is complete."""
        self._context = context
        self._name = name
        self._tls: Optional[ssl.SSLObject] = None
        self._out = b""
        self.open = False
        self.ended = False
        """Whether TLS has said that nothing follows: a server may then wait for our goodbye before it closes."""
        self.uses = 0
        self.idle_since = 0.0
        """By the monotonic clock, as `begun` is."""
        self.connect_s = 0.0
        self.begun = time.monotonic()
        self.sock = socket.socket(address[0], socket.SOCK_STREAM)
        try:
            self.sock.setblocking(False)
            if address[0] != socket.AF_UNIX:
                self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with contextlib.suppress(OSError):
                    self.sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            self.asked = self.ask()
        except BaseException:
            self.sock.close()
            raise
        self.fd = self.sock.fileno()
        self.recvmsg = self.sock.recvmsg if context is None else None
        """The socket's own, if nothing needs to be decrypted: what `receive` does, for a caller in a hurry."""

    def ask(self) -> bool:
        """Ask for the connection; return False if a Unix socket's queue is full: ask again in a while."""
        code = self.sock.connect_ex(self._where)
        if code == errno.EAGAIN:
            return False
        if code not in IN_PROGRESS:
            raise OSError(code, errno.errorcode.get(code, "connect"))
        return True

    def advance(self) -> None:
        """Go on with connecting after the socket became writable or readable; set `open` at the end."""
        if not self._connected:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, errno.errorcode.get(code, "connect"))
            self._connected = True
        if self._line is not None and not self._is_through():
            return
        if self._tls is None:
            if self._context is None:
                self._opened()
                return
            self._incoming = ssl.MemoryBIO()
            self._outgoing = ssl.MemoryBIO()
            self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_hostname=self._name or None)
        else:
            self._fill()
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._drain()
            return
        except ssl.SSLError:
            self._drain()  # the alert that tells the server why
            raise
        self._drain()
        self._opened()

    def _is_through(self) -> bool:
        """Read a tunnel's first line; return whether it is complete. Raises TunnelError if it tells a reason."""
        try:
            data = self.sock.recv(READ)
        except BlockingIOError:
            return False
        if not data:
            raise TunnelError("the tunnel to the server was closed")
        self._line = (self._line or b"") + data
        if not self._line.endswith(b"\n"):
            return False
        if self._line != b"\n":
            raise TunnelError(self._line.decode("utf-8", "replace").strip())
        self._line = None
        return True

    def _opened(self) -> None:
        self.open = True
        self.idle_since = time.monotonic()
        self.connect_s = self.idle_since - self.begun

    @property
    def listening(self) -> bool:
        """Return whether what the other side says is missing for it to open: a tunnel's line, a TLS handshake."""
        return self._connected and not self.open

    @property
    def writing(self) -> bool:
        """Return whether bytes still wait to be sent: call `flush` once the socket is writable."""
        return bool(self._out)

    def send(self, data: bytes) -> None:
        if self._tls is None:
            self._out += data
            self.flush()
        else:
            self._tls.write(data)
            self._drain()

    def flush(self) -> None:
        while self._out:
            try:
                self._out = self._out[self.sock.send(self._out) :]
            except BlockingIOError:
                return

    def _drain(self) -> None:
        data = self._outgoing.read()
        if data:
            self._out += data
        self.flush()

    def _fill(self) -> None:
        try:
            data = self.sock.recv(READ)
        except BlockingIOError:
            return
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def receive(self) -> Tuple[Optional[bytes], float]:
        """Return the next bytes and when they arrived; None if there are none now, b"" at the end of the stream."""
        try:
            data, ancillary, _, _ = self.sock.recvmsg(READ, ANCILLARY)
        except BlockingIOError:
            return None, 0.0
        if ancillary and ancillary[0][1] == SO_TIMESTAMPNS:
            seconds, nanoseconds = TIMESPEC.unpack(ancillary[0][2])
            stamp = seconds + nanoseconds * 1e-9
        else:
            stamp = time.time()
        if self._tls is None:
            return data, stamp
        return self._decrypt(data), stamp

    def _decrypt(self, data: bytes) -> Optional[bytes]:
        assert self._tls is not None
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        pieces = []
        ended = not data
        try:
            while True:
                piece = self._tls.read(READ)
                if not piece:
                    ended = True
                    break
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            ended = True
        self._drain()  # answers to key updates
        self.ended = ended
        if pieces:
            return b"".join(pieces)
        return b"" if ended else None

    def stays_idle(self) -> bool:
        """Read what came while no request is in flight; return whether the connection can still carry one."""
        try:
            return self.receive()[0] is None and not self.ended
        except OSError:
            return False

    def unsent(self) -> int:
        """Return how many bytes the other side has not taken yet, here and in the kernel."""
        queued = array("i", [0])
        with contextlib.suppress(OSError):
            fcntl.ioctl(self.fd, termios.TIOCOUTQ, queued)
        return len(self._out) + queued[0]

    def close(self) -> None:
        self.sock.close()


def has_kernel_stamps(connection: Connection) -> bool:
    """Return whether the kernel stamps what arrives on this connection."""
    try:
        return bool(connection.sock.getsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS)) and connection.sock.family != socket.AF_UNIX
    except OSError:
        return False


def words_of(error: BaseException, where: str) -> str:
    """Say what an error of a connection to `where` means."""
    if isinstance(error, TunnelError):
        return str(error)
    if isinstance(error, ssl.SSLError):
        return "TLS with %s failed: %s" % (where, getattr(error, "verify_message", "") or error.reason or error)
    if isinstance(error, socket.gaierror):
        return "the name in %s can't be resolved: %s" % (where, error.strerror or error)
    number = getattr(error, "errno", None) or 0
    if number == errno.ECONNREFUSED:
        return "nothing listens on %s" % where
    if number == errno.ENOENT:
        return "there is no socket %s" % where
    if number in (errno.EMFILE, errno.ENFILE):
        return "no connection to %s: %s on this side (ulimit -n)" % (where, os.strerror(number).lower())
    if number == errno.EADDRNOTAVAIL:
        return "no connection to %s: no local port is left on this side (net.ipv4.ip_local_port_range)" % where
    if number in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return "no route to %s: %s" % (where, os.strerror(number))
    if isinstance(error, (TimeoutError, socket.timeout)) or number == errno.ETIMEDOUT:
        return "%s does not answer" % where
    if number in (errno.ECONNRESET, errno.EPIPE):
        return "%s closed the connection" % where
    if number in errno.errorcode:
        return "%s: %s" % (where, os.strerror(number))
    return "%s: %s" % (where, error)


def where_of(address: Address) -> str:
    """Return an address in words."""
    where = address.where
    if address.server or address.family == socket.AF_UNIX:
        return address.server or str(where)
    return "%s:%d" % ("[%s]" % where[0] if ":" in where[0] else where[0], where[1])


def keep_stamping() -> Optional[socket.socket]:
    """Open a socket that keeps the kernel stamping while it is open; return None if the kernel has no stamps.

    Linux stamps what arrives only while some socket asks for it, and begins to do so in the background: without this, the first
    packets after a moment without connections would have no stamp.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:
        sock.close()
        return None
    return sock


def kind_of(error: BaseException, connecting: bool) -> str:
    """Return the kind of failure that an exception means."""
    if isinstance(error, ssl.SSLError):
        return "tls"
    if isinstance(error, socket.gaierror):
        return "name_unknown"
    number = getattr(error, "errno", None)
    if number in (errno.EMFILE, errno.ENFILE):
        return OPEN_FILES
    if connecting:
        if number == errno.EADDRNOTAVAIL:
            return NO_PORTS
        return "connection_refused" if number == errno.ECONNREFUSED else "connect"
    return "reset"
