"""Smoke prompts with known answers, and the verdict on each reply."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """INCONCLUSIVE: cut by its length before an answer; neither passed nor failed."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class SmokeResult:
    name: str
    outcome: Outcome
    says: str
    """Why, in a few words."""
    reply: str = ""
    seconds: float | None = None
    ttft_ms: float | None = None


@dataclass(frozen=True, slots=True)
class SmokeRun:
    model: str
    planned: int
    results: tuple[SmokeResult, ...] = ()
    finished: bool = False
    started_at: float | None = None
