"""What every host adapter offers, and the errors that it raises.

HostError
├── Unreachable          no route, refused, timed out, name not known, link lost         exit 5, retried
├── Refused              host key unknown or changed, authentication failed              exit 8, never retried unasked
├── NotPermitted         connected, but this (forwarding, a file, a command) isn't allowed
├── PortClosed           nothing listens on that port of the host
└── ProbeFailed          the probe ended or could not start (no python3 …)
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tui.core.connection import ConnectionState

if TYPE_CHECKING:
    import httpx  # 150 ms that the first paint must not wait for
    from anyio.abc import ByteStream


class HostError(Exception):
    """`cause` is one cleaned line of what happened; `advice` one line of what to do next."""

    def __init__(self, cause: str, advice: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.advice = advice


class Unreachable(HostError):
    """The host can't be reached now; trying again later makes sense."""


class UnknownName(Unreachable):
    """No name service knows a host of that name: misspelt, or a network is missing."""


class Refused(HostError):
    """The host's key or the login was refused; only the user can change that."""


class NotPermitted(HostError):
    """The host is there, but this isn't allowed."""


class PortClosed(HostError):
    """Nothing listens on that port of the host yet."""


class ProbeFailed(HostError):
    """The probe ended or could not start."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A finished command: exit status (None when a signal ended it), raw output."""

    status: int | None
    stdout: bytes
    stderr: bytes


class Asker(Protocol):
    """How a login asks the person: a dialog in the control room, the terminal in commands, nobody if there is none."""

    async def trust_host_key(self, host: str, key_type: str, fingerprint: str) -> bool:
        """Return whether to accept and remember the unknown key; `fingerprint` is SHA256:…"""

    async def secret(self, host: str, prompt: str, echo: bool) -> str | None:
        """Return the answer to a passphrase, password or keyboard-interactive prompt; None cancels the login."""


class ProbeStream(Protocol):
    """A running probe role. Iterating yields its frames (dicts, see `tui.wire.frames`); it ends when the probe does.

    Raises ProbeFailed or Unreachable while iterating. Heartbeats are sent by the stream itself.
    """

    def __aiter__(self) -> AsyncIterator[dict[str, Any]]: ...

    async def send(self, message: Mapping[str, Any]) -> None: ...

    async def close(self) -> None: ...


class CommandStream(Protocol):
    """A foreign command that runs on the host until it ends or is closed; it wears the leash, and needs no Python there.

    Iterating yields its output as it comes and ends with the command. Raises Unreachable while iterating.
    """

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def how_it_ended(self) -> str:
        """After the end, in one cleaned line: the exit status and the last words on stderr."""

    async def close(self) -> None: ...


class Host(Protocol):
    """A machine that runs a server, reached over SSH, a command prefix, or being this one.

    Made disconnected; `connect` may be called again after a loss. `async with` guarantees `close`.
    """

    name: str

    async def __aenter__(self) -> "Host": ...

    async def __aexit__(self, *exc: object) -> None: ...

    @property
    def connection(self) -> ConnectionState: ...

    async def connect(self) -> None:
        """Open the connection. Raises Unreachable or Refused."""

    async def wait_lost(self) -> HostError:
        """Wait until the connection is lost; return the reason. Never returns for the local host."""

    async def run(self, argv: Sequence[str], *, input: bytes = b"", timeout: float = 10.0) -> Completed:
        """Run one short command under the leash, words quoted. Raises Unreachable, NotPermitted or TimeoutError."""

    async def start_probe(self, role: str, arguments: Mapping[str, Any]) -> ProbeStream:
        """Ship the probe and start one role of it. Raises ProbeFailed (no python3 …) or Unreachable."""

    async def stream(self, argv: Sequence[str]) -> CommandStream:
        """Start a command that goes on (`nvidia-smi -lms`), on the leash: gone within 10 s of a client's death or a frozen link.

        Raises NotPermitted (no shell there, a word with a newline in it, too many at once) or Unreachable.
        """

    def transport(self, *, verify: Any = True, uds: str | None = None) -> "httpx.AsyncBaseTransport":
        """Return a transport whose connections are opened from that host.

        No TCP port is opened here. PortClosed and NotPermitted surface as httpx.ConnectError with that error as its __cause__.
        `uds` is a Unix socket of the host, instead of host and port.
        """

    async def open_stream(self, host: str, port: int, path: str | None = None) -> "ByteStream":
        """Open a byte stream from that host to a TCP port, or to a Unix socket if there is a `path`.

        Raises PortClosed, NotPermitted or Unreachable.
        """

    async def close(self) -> None: ...
