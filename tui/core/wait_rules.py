"""When a wait for a server is over: `readyroom wait` fed with states, pure.

What a log held before the wait began says little: after `systemctl restart` it still ends in the old crash, and the old server may
still answer. So the first settled state is the baseline, and only what comes after it counts, except for a failure whose process
stays away for the grace time.
"""

from dataclasses import dataclass
from enum import StrEnum

from tui.core.api_status import Reach
from tui.core.connection import LinkState
from tui.core.deployment import DeploymentState
from tui.core.deployment_status import UNHEARD, api_problem
from tui.core.logs.load_state import Phase


class WaitOutcome(StrEnum):
    """GOES_ON: not over yet. ANSWERS: the API says ready; one token has still to prove it."""

    GOES_ON = "goes_on"
    ANSWERS = "answers"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True)
class WaitRules:
    """Times in seconds. `restarts`: how many failed starts a supervisor may make good."""

    new: bool = False
    timeout_s: float | None = None
    grace_s: float = 60.0
    restarts: int = 0


@dataclass(slots=True)
class Waiting:
    """Feed `look` with every state; `now` is any monotonic clock in seconds, the same at every look."""

    rules: WaitRules
    began: float
    why: str = ""
    """What ended it, in one line."""
    _settled: bool = False
    _heard: bool = False
    _restarts: int = 0
    _pid: int | None = None
    _none_ran: bool = False
    _old_end: bool = False
    _had_ended: bool = False
    _renewed: bool = False
    _was_closed: bool = False
    _was_online: bool = False
    _alive_at: float | None = None
    _ended_at: float | None = None
    _failures: int = 0
    _made_good: int = 0
    _supervised: int | None = None
    _cause: str = ""

    @property
    def renewed(self) -> bool:
        """Return whether a start newer than the wait has been seen."""
        return self._renewed

    def look(self, state: DeploymentState, now: float, settled: bool) -> WaitOutcome:
        """Judge a state. `settled`: the log that was there has been read, or can't be."""
        if self.rules.timeout_s is not None and now - self.began >= self.rules.timeout_s:
            self.why = ": ".join(filter(None, [f"not ready within {self.rules.timeout_s:g} s", api_problem(state)]))
            return WaitOutcome.TIMED_OUT
        link = state.connection.link
        if link is LinkState.REFUSED:
            self.why = state.connection.cause or "the login was refused"
            return WaitOutcome.REFUSED
        self._was_online = self._was_online or link is LinkState.ONLINE
        if link is LinkState.UNREACHABLE and not self._was_online:
            self.why = state.connection.cause or "the host can't be reached"
            return WaitOutcome.UNREACHABLE
        if link is not LinkState.ONLINE or not settled:
            return WaitOutcome.GOES_ON
        self._settle(state, now)
        self._follow(state, now)
        if self._answers(state):
            return WaitOutcome.ANSWERS
        ended = self._ended(state, now)
        if ended is WaitOutcome.GOES_ON and self._ended_at is None and self._made_good > self.rules.restarts:
            # Too many, though the next start is under way already.
            times = "a start has failed" if self._made_good == 1 else f"{self._made_good} starts have failed"
            self.why = f"{times} while this waited{f': {self._cause}' if self._cause else ''}"
            return WaitOutcome.FAILED
        return ended

    def _settle(self, state: DeploymentState, now: float) -> None:
        if self._settled:
            return
        self._settled = True
        load = state.load
        self._heard = load is not None and load.recognised
        self._restarts = load.restarts if load else 0
        self._pid = state.server_pid
        self._none_ran = state.server_pid is None and state.signs.process_alive is False
        self._old_end = load is not None and load.phase in (Phase.FAILED, Phase.STOPPED)
        self._had_ended = self._old_end
        self._alive_at = now

    def _follow(self, state: DeploymentState, now: float) -> None:
        load = state.load
        if state.server_pid is not None:
            self._alive_at = now
        if state.api.reach is Reach.CLOSED:
            self._was_closed = True
        begun = load is not None and (load.restarts > self._restarts or (load.recognised and not self._heard))
        other = state.server_pid is not None and (self._none_ran or (self._pid is not None and state.server_pid != self._pid))
        if self._pid is None and not self._renewed:
            self._pid = state.server_pid
        if begun or other:
            self._renewed = True
        self._count_starts(state)
        # An end that a later start in the same log made good is no longer old news.
        if self._old_end and (begun or (load is not None and load.phase not in (Phase.FAILED, Phase.STOPPED))):
            self._old_end = False

    def _count_starts(self, state: DeploymentState) -> None:
        """Count failed starts whose failure was too short to be seen: a supervisor starts the next one within 100 ms."""
        load, by = state.load, state.supervisor
        if load is not None:
            if load.failure is not None and not self._old_end:
                self._cause = load.failure.cause
            self._restarts = min(self._restarts, load.restarts)
            # The first one may be the old start's, or one that somebody broke off by hand.
            self._made_good = max(self._made_good, load.restarts - self._restarts - 1)
        if by is not None and by.restarts is not None:
            if self._supervised is None:
                self._supervised = by.restarts
            more = by.restarts - self._supervised
            if more > 0:
                self._renewed = True
                # What a supervisor makes good by itself has failed; of a start that was over before the wait, one is the old one's.
                self._made_good = max(self._made_good, more - (1 if self._had_ended or self.rules.new else 0))
                if by.before is not None:
                    self._cause = by.before.cause

    def _answers(self, state: DeploymentState) -> bool:
        if not state.api.serves:
            return False
        if not self.rules.new:
            return True
        # The old server answers until its last moment: the new one is told by its log, or by a port that was closed in between.
        says = state.load is not None and state.load.ready and self._renewed
        return says or (self._was_closed and (self._renewed or state.load is None or not state.load.recognised))

    def _ended(self, state: DeploymentState, now: float) -> WaitOutcome:
        load = state.load
        unheard = load is not None and load.failure is not None and load.failure.kind == UNHEARD
        told = load is not None and load.phase in (Phase.FAILED, Phase.STOPPED) and not unheard
        by = state.supervisor
        supervised_end = f"{by.by}: {by.last_end}" if by is not None and by.running is False and by.last_end else None
        told = told or (load is not None and supervised_end is not None)
        # A process that was seen and is no more has ended as well, whatever its log says.
        if load is None or not (told or (state.signs.process_alive is False and state.server_pid is None)):
            self._ended_at = None
            return WaitOutcome.GOES_ON
        if self._ended_at is None:
            self._ended_at = now
            self._failures += 0 if self._old_end else 1
        gone_for = now - max(self._alive_at if self._alive_at is not None else self.began, self._ended_at)
        if load.failure is not None:
            why = load.failure.cause
        elif not told:
            why = "its process is gone, and its log does not say why"
        else:
            why = "it was stopped cleanly" if load.phase is Phase.STOPPED else "its log ends there"
        if supervised_end is not None:
            why += f" ({supervised_end})"
        if state.log.of is not None:
            why += f" (the log is {state.log.of})"
        patient = not told or self._old_end or (self.rules.new and not self._renewed) or self._failures <= self.rules.restarts
        if patient and (gone_for < self.rules.grace_s or state.server_pid is not None):
            return WaitOutcome.GOES_ON
        self.why = why
        return WaitOutcome.FAILED
