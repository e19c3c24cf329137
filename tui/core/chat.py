"""A conversation: immutable turns, and what was measured of each reply."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delta:
    """One token-bearing chunk as it arrived; `at` is the client's monotonic clock when its bytes came."""

    at: float
    text: str = ""
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """What the user asked and what came back. `error` holds the server's own words, cleaned, in full."""

    asked: str
    reply: str = ""
    reasoning: str = ""
    ttft_ms: float | None = None
    thought_s: float | None = None
    tokens_s: float | None = None
    usage: Usage = Usage()
    seconds: float | None = None
    finish: str | None = None
    """The server's finish reason, "stopped" by the user, or None while it streams."""
    error: str | None = None
    note: str | None = None
    """"no chat template: sent as a plain completion" …"""


@dataclass(frozen=True, slots=True)
class Conversation:
    system: str = ""
    turns: tuple[Turn, ...] = ()
