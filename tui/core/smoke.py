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
    asked: str = ""
    """The prompt, shortened where it is long."""
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class SmokeRun:
    model: str
    planned: int
    results: tuple[SmokeResult, ...] = ()
    finished: bool = False
    started_at: float | None = None

    @property
    def passed(self) -> bool:
        """Whether every prompt was asked and answered right."""
        return self.finished and len(self.results) == self.planned and self.count(Outcome.PASSED) == self.planned

    def count(self, outcome: Outcome) -> int:
        return sum(result.outcome is outcome for result in self.results)
