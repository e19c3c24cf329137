"""The state of one watched deployment, and how events change it: what the screen, `status`, `wait` and the record share."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from tui.core.api_status import ApiStatus, Reach
from tui.core.connection import ConnectionState, Link
from tui.core.expectations import Expected
from tui.core.gpu import GpuSample, with_gone
from tui.core.host_machine import MachineSample
from tui.core.logs.load_state import Forecast, LoadState, PastLoad, Phase, SignsOfLife
from tui.core.memory_trend import MemoryCourse, followed
from tui.core.server_end import Supervisor
from tui.core.trends import Trends, appended, with_api, with_gpus

LOG_LINES = 5000
CLOSED_FOR_SURE = 2
NO_LOG = "none"
"""The source in the configuration where no log is to be followed; a file of that name is `file:none`."""


class LogLine(Struct, frozen=True):
    """One cleaned line. `number` counts the lines of the source from 1 (None where it was found from the tail); `level` is one of
    DEBUG, INFO, WARNING, ERROR, CRITICAL or None."""

    text: str
    level: str | None = None
    number: int | None = None
    at: float | None = None


class LogTail(Struct, frozen=True):
    """The last lines of the log. `seen` counts every line ever appended, so a widget knows which ones are new."""

    lines: tuple[LogLine, ...] = ()
    seen: int = 0
    skipped: int = 0
    source: str = ""
    """What is followed, in words: `/var/log/vllm.log`."""
    problem: str | None = None
    """Why the log can't be read at the moment, and what to do."""
    note: str | None = None
    """How it is read where that isn't as usual."""
    of: str | None = None
    """Whose it is, where that server runs no more and was not watched to its end; stands in `note`, too."""

    @property
    def unread(self) -> bool:
        """Whether it tells nothing: it can't be read, or is not to be."""
        return self.problem is not None or self.source == NO_LOG

    def extended(self, lines: Sequence[LogLine]) -> "LogTail":
        kept = (self.lines + tuple(lines))[-LOG_LINES:]
        return replace(self, lines=kept, seen=self.seen + len(lines))


class ServerSeen(Struct, frozen=True):
    """One server process of the host. `where` is its port, or its Unix socket; `started_at` the host's wall clock."""

    pid: int
    engine: str
    model: str | None = None
    where: str | int | None = None
    user: str | None = None
    started_at: float | None = None
    memory_mib: float | None = None


class HostSeen(Struct, frozen=True):
    """A further host of the deployment, and its GPUs as last seen. It is its own event: the newest of a host counts."""

    host: str
    connection: ConnectionState = ConnectionState()
    gpus: GpuSample | None = None
    ready_memory: MemoryCourse | None = None
    """Kept by the fold, as the first host's."""


class DeploymentState(Struct, frozen=True):
    """Everything known of one deployment at one moment."""

    name: str
    target: str
    connection: ConnectionState = ConnectionState()
    gpus: GpuSample | None = None
    machine: MachineSample | None = None
    load: LoadState | None = None
    forecast: Forecast = Forecast()
    history: tuple[PastLoad, ...] = ()
    api: ApiStatus = ApiStatus()
    signs: SignsOfLife = SignsOfLife()
    log: LogTail = LogTail()
    trends: Trends = Trends()
    server_pid: int | None = None
    """The server's process, where it could be found."""
    orphans: tuple[int, ...] = ()
    """Engine processes whose server is gone: they serve nobody and keep their GPU memory."""
    closed_polls: int = 0
    """How often in a row the API was found closed since the log said ready: one may have crossed with the log's line."""
    servers: tuple["ServerSeen", ...] = ()
    """All servers of the host, youngest last, the watched one among them."""
    undecided: bool = False
    """Several run and nobody said which one is meant; the watched one is a guess."""
    supervisor: Supervisor | None = None
    """What systemd, docker or Kubernetes says of the server, where one of them runs it."""
    others: tuple[HostSeen, ...] = ()
    """The further hosts, in the configuration's order; log and API are the first one's."""
    expected: Expected = Expected()
    """What the configuration expects."""
    ready_memory: MemoryCourse | None = None
    """How memory went since the server was first seen ready: growth counts from there, not from the load."""
    conflict: str | None = None
    """Where the log and the API disagree, in one line; the API wins."""
    misconfigured: str | None = None
    """What is wrong with its configuration: nothing is asked of any host then."""


# -- events ------------------------------------------------------------------------------------------------------------------------


class ConnectionChanged(Struct, frozen=True):
    connection: ConnectionState


class GpusSampled(Struct, frozen=True):
    sample: GpuSample


class MachineSampled(Struct, frozen=True):
    sample: MachineSample


class LogRead(Struct, frozen=True):
    lines: tuple[LogLine, ...]
    load: LoadState
    skipped: int = 0


class LogRestarted(Struct, frozen=True):
    """What follows is read from the start of a server again: the pane's lines so far are of an older or a provisional reading."""

    load: LoadState
    keep_lines: bool = False


class LogSourceChanged(Struct, frozen=True):
    source: str
    problem: str | None = None
    note: str | None = None
    of: str | None = None


class ApiPolled(Struct, frozen=True):
    status: ApiStatus


class ForecastMade(Struct, frozen=True):
    forecast: Forecast
    signs: SignsOfLife = SignsOfLife()


class ProcessesSeen(Struct, frozen=True):
    server: int | None
    orphans: tuple[int, ...] = ()
    servers: tuple[ServerSeen, ...] = ()
    undecided: bool = False


class SupervisorTold(Struct, frozen=True):
    supervisor: Supervisor


class HistoryRead(Struct, frozen=True):
    history: tuple[PastLoad, ...]


Event = (
    ConnectionChanged
    | GpusSampled
    | MachineSampled
    | LogRead
    | LogRestarted
    | LogSourceChanged
    | ApiPolled
    | ForecastMade
    | ProcessesSeen
    | SupervisorTold
    | HistoryRead
    | HostSeen
)


class Status:
    """The words of the state chip and of `status`: one of these."""

    CONNECTING = "connecting"
    UNREACHABLE = "unreachable"
    WAITING = "waiting"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    STOPPED = "stopped"
    MISCONFIGURED = "misconfigured"


EXIT_CODES = {
    Status.READY: 0,
    Status.LOADING: 3,
    Status.WAITING: 3,
    Status.CONNECTING: 3,
    Status.FAILED: 4,
    Status.UNREACHABLE: 5,
    Status.STOPPED: 7,
    Status.MISCONFIGURED: 2,
}


def exit_code_of(state: DeploymentState) -> int:
    """The exit code of `status`: 0 ready, 2 misconfigured, 3 loading or starting, 4 failed, 5 unreachable, 7 stopped, 8 refused."""
    if state.connection.link is Link.REFUSED:
        return 8
    return EXIT_CODES[status_of(state)]


def status_of(state: DeploymentState) -> str:
    """The one word for the deployment. The API's word counts for readiness; the log's for everything before and after."""
    if state.misconfigured is not None:
        return Status.MISCONFIGURED
    match state.connection.link:
        case Link.UNREACHABLE | Link.REFUSED | Link.LOST:
            return Status.UNREACHABLE
        case Link.IDLE | Link.CONNECTING | Link.ASKING:
            return Status.CONNECTING
    load, api = state.load, state.api
    if api.ready:
        return Status.READY
    if load is None or not load.lines:
        # No word from a log: a server that answers in part, or whose process is there, is coming up; a closed port is nothing yet.
        if gone_silently(state):
            return Status.FAILED
        return Status.LOADING if api.reach in (Reach.UP, Reach.SICK) or silent_so_far(state) else Status.WAITING
    if load.phase is Phase.FAILED:
        return Status.FAILED
    if load.phase is Phase.STOPPED:
        return Status.STOPPED
    if gone(state):
        return Status.FAILED
    if load.ready or load.phase is Phase.READY:
        return _after_ready(state)
    return Status.LOADING


def silent_so_far(state: DeploymentState) -> str | None:
    """That the server's process is there before anything else tells of it; None where something does, or it is not known yet."""
    unasked = state.api.reach in (Reach.UNKNOWN, Reach.UP)
    if state.server_pid is None or unasked or not state.connection.online or (state.load is not None and state.load.lines):
        return None
    said = "its log is not at hand" if state.log.unread else "no line of it yet"
    return f"the server's process {state.server_pid} is there, {said}"


def gone_silently(state: DeploymentState) -> bool:
    """Whether the server's process was seen and is there no more, without a line in a log that can be read."""
    if state.server_pid is not None or not state.connection.online or (state.load is not None and state.load.lines):
        return False
    return state.signs.process_alive is False and state.api.reach is Reach.CLOSED


def gone(state: DeploymentState) -> bool:
    """Whether a process that was seen is there no more, and the log never said that it ended: what SIGKILL leaves."""
    by = state.supervisor
    if by is not None and by.running is False and by.last_end and state.api.reach is not Reach.UP:
        return True
    return state.signs.process_alive is False and state.server_pid is None and state.api.reach is not Reach.UP


def _after_ready(state: DeploymentState) -> str:
    """The log says ready, the API does not."""
    api = state.api
    if api.health == 200:
        return Status.READY  # up, but the list of models is refused or empty: the conflict line says so
    if api.reach is Reach.SICK:
        return Status.FAILED  # /health answers 503 when the engine has died
    if api.reach is Reach.CLOSED and state.closed_polls >= CLOSED_FOR_SURE:
        # A log that just ends is what SIGKILL leaves; a process that is known to live may listen on another port.
        return Status.LOADING if state.signs.process_alive else Status.STOPPED
    return Status.LOADING


def fold(state: DeploymentState, event: Event) -> DeploymentState:
    """The state after the event. Pure; what an event does not speak of stays, also while the link is lost."""
    match event:
        case ConnectionChanged(connection):
            return _agreed(replace(state, connection=connection))
        case GpusSampled(sample):
            sample = with_gone(state.gpus, sample)
            course = _ready_memory(state, state.ready_memory, sample)
            return replace(state, gpus=sample, trends=with_gpus(state.trends, sample), ready_memory=course)
        case MachineSampled(sample):
            trends = replace(state.trends, disk_read_mb_s=appended(state.trends.disk_read_mb_s, sample.disk_read_mb_s))
            return replace(state, machine=sample, trends=trends)
        case LogRead(lines, load, skipped):
            log = state.log.extended(lines) if lines else state.log
            if skipped:
                log = replace(log, skipped=log.skipped + skipped)
            return _agreed(replace(state, load=load, log=log))
        case LogRestarted(load, keep_lines):
            log = state.log if keep_lines else replace(state.log, lines=(), skipped=0)
            return _agreed(replace(state, load=load, log=log))
        case LogSourceChanged(source, problem, note, of):
            return replace(state, log=replace(state.log, source=source, problem=problem, note=note, of=of))
        case ApiPolled(status):
            closed = status.reach is Reach.CLOSED and state.load is not None and state.load.ready
            count = state.closed_polls + 1 if closed else 0
            return _agreed(replace(state, api=status, closed_polls=count, trends=with_api(state.trends, status)))
        case ForecastMade(forecast, signs):
            return _agreed(replace(state, forecast=forecast, signs=signs))
        case ProcessesSeen(server, orphans, servers, undecided):
            if None not in (server, state.server_pid) and server != state.server_pid:  # another one: its memory begins anew
                others = tuple(replace(one, ready_memory=None) for one in state.others)
                state = replace(state, ready_memory=None, others=others)
            return _agreed(replace(state, server_pid=server, orphans=orphans, servers=servers, undecided=undecided))
        case SupervisorTold(supervisor):
            return replace(state, supervisor=supervisor)
        case HostSeen(host):
            before = next((one for one in state.others if one.host == host), None)
            course = _ready_memory(state, before.ready_memory if before is not None else None, event.gpus)
            if before is None:
                return replace(state, others=(*state.others, replace(event, ready_memory=course)))
            gpus = with_gone(before.gpus, event.gpus) if event.gpus is not None else before.gpus
            seen = replace(event, gpus=gpus, ready_memory=course)
            others = tuple(seen if one.host == host else one for one in state.others)
            return replace(state, others=others)
        case HistoryRead(history):
            return replace(state, history=history)


def _ready_memory(state: DeploymentState, course: MemoryCourse | None, sample: GpuSample | None) -> MemoryCourse | None:
    """The course, begun by the first sample of a ready server and dropped when it is ready no more; an unknown API leaves it."""
    if not state.api.ready:
        return None if state.api.reach is Reach.CLOSED else course
    return followed(course, sample) if sample is not None else course


def _agreed(state: DeploymentState) -> DeploymentState:
    conflict = conflict_of(state)
    return state if conflict == state.conflict else replace(state, conflict=conflict)


def conflict_of(state: DeploymentState) -> str | None:
    """Where the log and the API disagree, in one line with what to look at; None while they agree or one of them is not known."""
    load, api = state.load, state.api
    if state.orphans and not api.ready:
        pids = " ".join(str(pid) for pid in state.orphans)
        return f"an engine without its server still holds GPU memory: kill {pids}"
    if gone_silently(state):
        return "the server's process is gone and left no line to read: look at what started it, and at dmesg"
    if load is None or not load.lines or api.reach is Reach.UNKNOWN or not state.connection.online:
        return None
    if gone(state) and load.phase not in (Phase.FAILED, Phase.STOPPED):
        return "the server's process is gone and its log does not say why: was it killed (dmesg, the supervisor's own log)?"
    if api.ready and not load.ready:
        if load.phase in (Phase.FAILED, Phase.STOPPED):
            return f"the log says {load.phase}, but the API answers: an older server still runs, or the log is another server's"
        return f"the API is ready, the log is still at {load.phase}: is it this server's log, or one without its ready line?"
    if load.ready and not api.ready:
        if api.reach is Reach.CLOSED and state.closed_polls >= CLOSED_FOR_SURE:
            return "the log says ready, but nothing listens at the API's address: is `api` right, or did the server die silently?"
        if api.reach is Reach.SICK:
            return f"the log says ready, but /health answers {api.health}: the engine has died"
        if api.health == 200:
            return f"the server is up, but lists no model: {api.error or 'an empty list'}"
        if api.error:
            return f"the log says ready, but the API does not: {api.error}"
    return None
