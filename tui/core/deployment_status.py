"""The state of a deployment in one word, decided here and nowhere else, and the reasons for it.

The API's word counts for readiness, the log's for everything before and after. The screen, the commands, their exit codes and the
JSON documents only word what `status_of` returns.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from msgspec.structs import replace

from tui.core.api_status import Reach
from tui.core.connection import LinkState
from tui.core.deployment import DeploymentState, HostSeen
from tui.core.gpu import GIB_MIB
from tui.core.logs.load_state import Failure, Forecast, Phase, PhaseSpan, Verdict
from tui.core.presentation import amounts, duration, failure_title, how_far, name_of, one_of, progress_text, some_of

DOWN_FOR_SURE = 2
"""Polls in a row that must find the API down before a log that says ready is doubted: one may have crossed with its ready line."""

KILLED = "host_oom_or_killed"
UNHEARD = "ended_unheard"
"""Kinds of failures: the log says that it was killed; nothing says how it ended."""
ROOMY_SHARE = 0.85
"""With less of the host's memory in use, the kernel kills nobody for want of it."""


class Status(StrEnum):
    """The value is the one of JSON documents, the label the one for people."""

    CONNECTING = "connecting"
    WAITING = "waiting"
    LOADING = "loading"
    READY = "ready"
    HUNG = "hung"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    MISCONFIGURED = "misconfigured"

    @property
    def label(self) -> str:
        """Return the word in capitals, 11 characters at most."""
        return _LABELS.get(self, self.value.upper())


_LABELS = {Status.LOST: "LINK LOST", Status.MISCONFIGURED: "BAD CONFIG"}

UNREACHED = (Status.LOST, Status.UNREACHABLE, Status.REFUSED)
"""There is no connection to the host, and none is being made for the first time."""

_LINKS = {
    LinkState.IDLE: Status.CONNECTING,
    LinkState.CONNECTING: Status.CONNECTING,
    LinkState.ASKING: Status.CONNECTING,
    LinkState.LOST: Status.LOST,
    LinkState.UNREACHABLE: Status.UNREACHABLE,
    LinkState.REFUSED: Status.REFUSED,
}


def status_of(state: DeploymentState) -> Status:
    """Decide the status of a deployment."""
    status = _of_log_and_api(state)
    return Status.HUNG if status in (Status.READY, Status.LOADING) and hang_of(state) is not None else status


def hang_of(state: DeploymentState) -> str | None:
    """Return why a server that is up, or comes up, does nothing, or None if it does something."""
    server = next((server for server in state.servers if server.pid == state.server_pid), None)
    for process in server.halted if server is not None else ():
        if process.zombie:
            return f"{process.name} (pid {process.pid}) has ended and is a zombie: the server has not noticed, start it again"
        return f"{process.name} (pid {process.pid}) is stopped, as by SIGSTOP: kill -CONT {process.pid} lets it go on"
    return state.forecast.reason if state.forecast.verdict is Verdict.HUNG else None


def _of_log_and_api(state: DeploymentState) -> Status:
    if state.misconfigured is not None:
        return Status.MISCONFIGURED
    if (offline := _LINKS.get(state.connection.link)) is not None:
        return offline
    load, api = state.load, state.api
    if api.ready:
        return Status.READY
    if load is None or not load.recognised:
        return _without_log(state)
    if load.phase is Phase.FAILED:
        return Status.FAILED
    if load.phase is Phase.STOPPED:
        return Status.STOPPED
    if process_gone(state):
        return Status.FAILED
    if load.ready or load.phase is Phase.READY:
        return _after_ready_line(state)
    return Status.LOADING


def _without_log(state: DeploymentState) -> Status:
    """Decide if no log tells anything: an API that answers in part, or a process, is a server that comes up."""
    if process_gone_unheard(state):
        return Status.FAILED
    if state.api.serves:
        return Status.READY
    if state.api.reach in (Reach.UP, Reach.SICK) or process_unheard(state):
        return Status.LOADING
    return Status.WAITING


def _after_ready_line(state: DeploymentState) -> Status:
    """Decide if the log says ready and the API does not."""
    api = state.api
    if api.serves or api.reach is Reach.UNKNOWN:  # nothing contradicts the log before the API has been asked
        return Status.READY
    if state.down_polls < DOWN_FOR_SURE:
        return Status.LOADING
    if api.engine_died:
        return Status.FAILED
    if api.reach is Reach.CLOSED and not state.signs.process_alive:
        # A log that just ends is what SIGKILL leaves; a process that is known to live may listen on another port.
        return Status.STOPPED
    return Status.LOADING


# -- processes without a word ------------------------------------------------------------------------------------------------------


def process_unheard(state: DeploymentState) -> bool:
    """Return whether a server's process is seen before its log or its API tells of it."""
    if state.server_pid is None or state.api.reach in (Reach.UNKNOWN, Reach.UP) or not state.connection.online:
        return False
    return state.load is None or not state.load.recognised


def process_gone_unheard(state: DeploymentState) -> bool:
    """Return whether the server's process was seen and has gone without a line in a log that can be read."""
    if state.server_pid is not None or not state.connection.online or (state.load is not None and state.load.recognised):
        return False
    return state.signs.process_alive is False and state.api.reach is Reach.CLOSED


def process_gone(state: DeploymentState) -> bool:
    """Return whether a process that was seen has gone, whatever its log says: SIGKILL leaves no line."""
    if state.api.reach is Reach.UP:
        return False
    by = state.supervisor
    if by is not None and by.running is False and by.last_end:
        return True
    return state.signs.process_alive is False and state.server_pid is None


def with_unheard_end(state: DeploymentState, at: float | None, memory: tuple[float, float] | None) -> DeploymentState:
    """Return the state with an end that only the processes tell as the failure of its load, so that all show one end and cause.

    `at` is when it was noticed, by the host's clock, if the process was seen before; `memory` is what was in use on the host
    shortly before, and all that it has, in MiB.
    """
    load = state.load
    if load is None or not load.lines or not state.connection.online:
        return state
    if load.failure is not None and load.failure.kind == KILLED and memory is not None and memory[0] < ROOMY_SHARE * memory[1]:
        return replace(state, load=replace(load, failure=replace(load.failure, advice=_advice_on_end(memory))))
    if load.phase in (Phase.FAILED, Phase.STOPPED) or not process_gone(state):
        return state
    by = state.supervisor
    told = f": {by.by} says that it was {by.last_end}" if by is not None and by.last_end else ""
    cause = f"the server's process is gone and its log does not say why{told}"
    failure = Failure(UNHEARD, load.phase, cause, advice=_advice_on_end(memory))
    end = at if at is not None else load.last_line_at
    *before, last = load.phases or (PhaseSpan(load.phase),)
    if last.seconds is None and last.started_at is not None and end is not None:
        last = replace(last, seconds=max(0.0, end - last.started_at))
    phases = (*before, last, PhaseSpan(Phase.FAILED, end))
    was_ready = load.was_ready or load.ready
    return replace(state, load=replace(load, phase=Phase.FAILED, ready=False, was_ready=was_ready, failure=failure, phases=phases))


def _advice_on_end(memory: tuple[float, float] | None) -> str:
    if memory is None or memory[0] >= ROOMY_SHARE * memory[1]:
        return (
            "Look at what started it, and whether the kernel ended it for want of memory: dmesg | grep -i 'killed process', or "
            "its container's OOMKilled."
        )
    used, total = (mib / GIB_MIB for mib in memory)
    return (
        f"The host had memory to spare ({used:.0f} of {total:.0f} GiB in use when it ended): somebody ended it (kill -9), or what "
        "started it did, or the memory limit of its container."
    )


# -- the reasons, in words ---------------------------------------------------------------------------------------------------------


def conflict_of(state: DeploymentState) -> str | None:
    """Return in one line where log, API and processes disagree and what to look at, or None if they agree or are not known.

    Named with it are what a dead server left behind, and the servers that run in its stead.
    """
    parts = (_leftovers(state) or _disagreement(state), another_server(state))
    return "; ".join(part for part in parts if part) or None


def _leftovers(state: DeploymentState) -> str | None:
    if not state.orphans or state.api.ready:
        return None
    pids = " ".join(str(pid) for pid in state.orphans)
    return f"an engine without its server still holds GPU memory: kill {pids}"


def another_server(state: DeploymentState) -> str | None:
    """Return which other servers run on the host while the watched one does not, and how to watch one of them."""
    if state.server_pid is not None or state.undecided or not state.servers:
        return None
    if status_of(state) not in (Status.FAILED, Status.STOPPED, Status.WAITING):
        return None
    ports = [f"port {server.where}" if isinstance(server.where, int) else f"{server.where}" for server in state.servers]
    if len(ports) == 1:
        return f"another server runs on {ports[0]} (key v, or --port)"
    return f"other servers run on {some_of(ports, 4)} (key v, or --port)"


def _disagreement(state: DeploymentState) -> str | None:
    load, api = state.load, state.api
    if process_gone_unheard(state):
        return "the server's process is gone and left no readable log: check what started it, and dmesg"
    if load is None or not load.recognised or api.reach is Reach.UNKNOWN or not state.connection.online:
        return None
    if process_gone(state) and load.phase not in (Phase.FAILED, Phase.STOPPED):
        return "the server's process is gone and its log does not say why: was it killed (dmesg, the supervisor's own log)?"
    if api.ready and not load.ready:
        if load.phase in (Phase.FAILED, Phase.STOPPED):
            return f"the log says {load.phase}, but the API answers: an older server still runs, or the log is another server's"
        return f"the API is ready, the log is still at {load.phase}: is it this server's log, or one without its ready line?"
    if load.ready and not api.ready:
        return _conflict_after_ready_line(state)
    return None


def _conflict_after_ready_line(state: DeploymentState) -> str | None:
    api = state.api
    if api.health == 200:
        return f"the server is up, but lists no model: {api.error or 'an empty list'}"
    if api.down and state.down_polls < DOWN_FOR_SURE:
        return None
    if api.reach is Reach.CLOSED:
        return "the log says ready, but nothing listens at the API's address: is `api` right, or did the server die silently?"
    if api.engine_died:
        return f"the log says ready, but /health answers {api.health}: the engine has died"
    return f"the log says ready, but the API does not: {api.error}" if api.error else None


def unheard_text(state: DeploymentState) -> str | None:
    """Return that the server's process is there before anything else tells of it, or None if that is not so."""
    if not process_unheard(state):
        return None
    said = "its log can't be read" if state.log.unread else "nothing logged yet"
    return f"the server's process {state.server_pid} is running, {said}"


def log_problem(state: DeploymentState) -> str | None:
    """Return why the log tells of no server: it can't be read, or is another program's. None if it does, or is still empty."""
    load = state.load
    if state.log.problem is not None or load is None or not load.lines or load.recognised:
        return state.log.problem
    from tui.engines.registry import titles  # not needed for the first paint

    return f"no line of it is of a {titles()} server yet"


def api_problem(state: DeploymentState) -> str | None:
    """Return what is wrong with what the API answers; None if it is ready, or nothing listens there."""
    return state.api.error if state.api.reach is not Reach.CLOSED and not state.api.serves else None


def detail_of(state: DeploymentState) -> str:
    """Return what a row says beside the status: the cause, the progress, the models; "" if there is nothing to add."""
    load = state.load
    match status_of(state):
        case Status.MISCONFIGURED:
            return state.misconfigured or ""
        case Status.LOST | Status.UNREACHABLE | Status.REFUSED:
            return state.connection.cause or ""
        case Status.HUNG:
            return hang_of(state) or ""
        case Status.READY:
            return some_of(model.id for model in state.api.models)
        case Status.FAILED if load is not None and load.failure is not None:
            return load.failure.cause
        case Status.FAILED:
            return (conflict_of(state) or "").partition(": ")[0]
        case Status.LOADING if load is not None and load.ready:
            return (conflict_of(state) or "the log says ready, the API not yet").partition(": ")[0]
        case Status.LOADING if load is not None and load.recognised:
            eta = state.forecast.ready_eta_s
            return progress_text(load) + (f", ready in about {duration(eta)}" if eta is not None else "")
    return "" if load is not None and load.recognised else log_problem(state) or unheard_text(state) or api_problem(state) or ""


def not_ready_reason(state: DeploymentState) -> str:
    """Return in a few words why the model can't be asked, or "" if it can."""
    if state.api.ready:
        return ""
    load = state.load
    if not state.connection.online and state.api.reach is not Reach.UP:
        return "no connection to the host" + (f": {state.connection.cause}" if state.connection.cause else "")
    if load is not None and load.failure is not None:
        served = load.failure.phase is Phase.READY or load.was_ready
        return f"the server {'died' if served else 'failed to start'}: {failure_title(load.failure)}"
    if load is not None and load.phase is Phase.STOPPED:
        return "the server has been stopped"
    if load is not None and load.phase is Phase.LOADING and load.shards and load.shards.total:
        bar = load.shards
        far = how_far(bar) if bar.unit == "bytes" else f"{one_of(bar)} {' of '.join(amounts(bar))}"
        return f"the model is not up yet: {far}"
    if load is not None and load.recognised and not load.ready:
        return f"the model is not up yet: {name_of(load.phase)}"
    if state.api.error:
        return f"the server does not answer as expected: {state.api.error}"
    return "the model is not up yet"


# -- exit codes and order ----------------------------------------------------------------------------------------------------------

EXIT_CODES = {
    Status.READY: 0,
    Status.MISCONFIGURED: 2,
    Status.LOADING: 3,
    Status.WAITING: 3,
    Status.CONNECTING: 3,
    Status.FAILED: 4,
    Status.HUNG: 4,
    Status.LOST: 5,
    Status.UNREACHABLE: 5,
    Status.STOPPED: 7,
    Status.REFUSED: 8,
}
_GRAVEST_FIRST = (4, 2, 8, 5, 7, 3, 0)


def exit_code_of(state: DeploymentState) -> int:
    """Return 0 ready, 2 misconfigured, 3 loading or starting, 4 failed or hung, 5 unreachable, 7 stopped, 8 refused."""
    return EXIT_CODES[status_of(state)]


def gravest_exit_code(states: Iterable[DeploymentState]) -> int:
    """Return the exit code of the deployment that is worst off; `states` has at least one."""
    return min((exit_code_of(state) for state in states), key=_GRAVEST_FIRST.index)


GRAVITY = {
    Status.FAILED: 0,
    Status.MISCONFIGURED: 0,
    Status.LOST: 1,
    Status.UNREACHABLE: 1,
    Status.REFUSED: 1,
    Status.HUNG: 2,
    Status.STOPPED: 3,
    Status.LOADING: 4,
    Status.CONNECTING: 5,
    Status.WAITING: 6,
    Status.READY: 7,
}
"""Which to look at first; a server that hangs or stalls has 2."""
ORDERS = ("worst first", "by name", "by host", "as configured")


def gravity(state: DeploymentState) -> int:
    """Return how urgent a deployment is; 0 is the worst."""
    if state.forecast.verdict is Verdict.STALLED and state.connection.online:
        return 2
    return GRAVITY[status_of(state)]


def arranged(states: Sequence[DeploymentState], order: str, sought: str = "") -> list[DeploymentState]:
    """Return those whose name, host, model or state contains every word sought, in one of ORDERS; equals stay as configured."""
    words = sought.casefold().split()

    def searched(state: DeploymentState) -> str:
        model = state.load.model if state.load is not None else None
        return " ".join((state.name, state.target, status_of(state).label, model or "")).casefold()

    kept = [state for state in states if all(word in searched(state) for word in words)]
    match order:
        case "worst first":
            return sorted(kept, key=gravity)
        case "by name":
            return sorted(kept, key=lambda state: state.name.casefold())
        case "by host":
            return sorted(kept, key=lambda state: (state.target.casefold(), state.name.casefold()))
    return kept


# -- a settled state ---------------------------------------------------------------------------------------------------------------


def has_settled(state: DeploymentState) -> bool:
    """Return whether everything of a connected deployment has answered, so that its status is no guess of the first seconds."""
    load = state.load
    judged = load is None or not load.recognised or state.forecast != Forecast()
    doubted = load is not None and load.ready and state.api.down and state.down_polls < DOWN_FOR_SURE
    if doubted or (may_hang(state) and hang_of(state) is None) or state.gpus is None or state.api.received_at is None:
        return False
    return judged and all(_has_told(other) for other in state.others)


def may_hang(state: DeploymentState) -> bool:
    """Return whether requests run and no token of them has been seen yet: a first look can't tell a hang from a pause."""
    metrics, load = state.api.metrics, state.load
    if metrics is None or not metrics.running or load is None or not load.ready or not state.connection.online:
        return False
    return state.signs.tokens_s is not None and not state.signs.tokens_moved


def _has_told(other: HostSeen) -> bool:
    """Return whether a further host has told of its GPUs, or can't be reached."""
    return other.gpus is not None or _LINKS.get(other.connection.link) in UNREACHED
