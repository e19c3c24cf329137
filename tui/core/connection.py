"""The state of the connection to a host, and when to try again."""

import errno
from enum import StrEnum

from msgspec import Struct

BACK_OFF_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class LinkState(StrEnum):
    """IDLE before the first try; REFUSED is final until the user acts (host key, authentication, a login that needed a person)."""

    IDLE = "idle"
    CONNECTING = "connecting"
    ASKING = "asking"
    ONLINE = "online"
    LOST = "lost"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"


class ConnectionState(Struct, frozen=True):
    """What the status line and the banner show of the connection.

    `since` and `retry_at` are seconds of the client's monotonic clock.
    """

    link: LinkState = LinkState.IDLE
    host: str = ""
    since: float | None = None
    cause: str | None = None
    """One line: what happened, in the words of the host or of the transport, cleaned."""
    advice: str | None = None
    """One line: what to do next."""
    attempt: int = 0
    retry_at: float | None = None
    round_trip_ms: float | None = None

    @property
    def online(self) -> bool:
        return self.link is LinkState.ONLINE


def retry_delay_s(attempt: int, jitter: float) -> float:
    """Return the seconds to wait before try number `attempt` (from 1); `jitter` in [0, 1) spreads them over ±20 %."""
    base = BACK_OFF_S[min(max(attempt, 1), len(BACK_OFF_S)) - 1]
    return base * (0.8 + 0.4 * jitter)


GONE = frozenset({errno.EIO, errno.EPIPE, errno.EBADF, errno.ENXIO})
"""What writing fails with to a terminal that was closed, a pipe whose reader left, or a stream that never was open."""
