"""The state of one watched deployment, and how events change it: what the screen, `status`, `wait` and the record share."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from tui.core.api_status import ApiStatus, Reach
from tui.core.connection import ConnectionState
from tui.core.expectations import Expected
from tui.core.gpu import GpuSample, with_gone
from tui.core.host_machine import MachineSample
from tui.core.logs.load_state import Forecast, LoadState, PastLoad, SignsOfLife
from tui.core.logs.start_parser import with_process_start
from tui.core.server_end import Supervisor
from tui.core.trends import MemoryCourse, Trends, appended, followed, with_api, with_gpus
from tui.wire.log_prefixes import NO_LOG

LOG_LINES = 5000
STARTS_KEPT = 4


class LogLine(Struct, frozen=True):
    """One cleaned line.

    `number` counts the lines of the source from 1 (None if it was found from the tail); `level` is one of DEBUG, INFO, WARNING,
    ERROR, CRITICAL or None.
    """

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
    """How it is read if that isn't as usual."""
    of: str | None = None
    """Whose it is, if that server runs no more and was not watched to its end; stands in `note`, too."""

    @property
    def unread(self) -> bool:
        """Return whether it tells nothing: it can't be read, or is not to be."""
        return self.problem is not None or self.source == NO_LOG

    def extended(self, lines: Sequence[LogLine]) -> "LogTail":
        kept = (self.lines + tuple(lines))[-LOG_LINES:]
        return replace(self, lines=kept, seen=self.seen + len(lines))


class HaltedProcess(Struct, frozen=True):
    """A process of a server that does nothing any more: it is stopped, as by SIGSTOP, or a zombie."""

    pid: int
    name: str
    zombie: bool = False


class ServerSeen(Struct, frozen=True):
    """One server process of the host. `where` is its port, or its Unix socket; `started_at` the host's wall clock."""

    pid: int
    engine: str
    model: str | None = None
    where: str | int | None = None
    user: str | None = None
    started_at: float | None = None
    memory_mib: float | None = None
    halted: tuple[HaltedProcess, ...] = ()


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
    """The server's process, if it could be found."""
    process_starts: tuple[float, ...] = ()
    """When the last processes of the server started, the newest seen first (the host's wall clock)."""
    orphans: tuple[int, ...] = ()
    """Engine processes whose server is gone: they serve nobody and keep their GPU memory."""
    down_polls: int = 0
    """How often in a row the API was found down (closed, or its health bad) since the log said ready."""
    servers: tuple["ServerSeen", ...] = ()
    """All servers of the host, youngest last, the watched one among them."""
    undecided: bool = False
    """Several run and nobody said which one is meant; the watched one is a guess."""
    supervisor: Supervisor | None = None
    """What systemd, docker or Kubernetes says of the server, if one of them runs it."""
    others: tuple[HostSeen, ...] = ()
    """The further hosts, in the configuration's order; log and API are the first one's."""
    expected: Expected = Expected()
    """What the configuration expects."""
    ready_memory: MemoryCourse | None = None
    """How memory went since the server was first seen ready: growth counts from there, not from the load."""
    misconfigured: str | None = None
    """What is wrong with its configuration: nothing is asked of any host then."""

    @property
    def host_now(self) -> float | None:
        """Return the host's clock as far as the log tells: the time of its last line and the silence since."""
        if self.load is None or self.load.heard_at is None:
            return None
        return self.load.heard_at + (self.forecast.silent_s or 0.0)


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
    started_at: float | None = None
    """When the server's process started, or the one last seen, if none runs."""


class SupervisorTold(Struct, frozen=True):
    supervisor: Supervisor


class HistoryRead(Struct, frozen=True):
    history: tuple[PastLoad, ...]
    started_at: float | None = None
    """When the process of the present start began, as an earlier session saw it."""


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


def fold(state: DeploymentState, event: Event) -> DeploymentState:
    """Return the state after the event. What the event does not speak of stays, also while the link is lost."""
    match event:
        case ConnectionChanged(connection):
            return replace(state, connection=connection)
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
            return replace(state, load=with_process_start(load, state.process_starts), log=log)
        case LogRestarted(load, keep_lines):
            log = state.log if keep_lines else replace(state.log, lines=(), skipped=0)
            forecast = state.forecast if load.lines else Forecast()  # what was said of the start before is not of this one
            return replace(state, load=with_process_start(load, state.process_starts), log=log, forecast=forecast)
        case LogSourceChanged(source, problem, note, of):
            return replace(state, log=replace(state.log, source=source, problem=problem, note=note, of=of))
        case ApiPolled(status):
            down = status.down and state.load is not None and state.load.ready
            count = state.down_polls + 1 if down else 0
            return replace(state, api=status, down_polls=count, trends=with_api(state.trends, status))
        case ForecastMade(forecast, signs):
            return replace(state, forecast=forecast, signs=signs)
        case ProcessesSeen(server, orphans, servers, undecided, started_at):
            state = _with_start(state, started_at)
            if None not in (server, state.server_pid) and server != state.server_pid:  # another one: its memory begins anew
                others = tuple(replace(other, ready_memory=None) for other in state.others)
                state = replace(state, ready_memory=None, others=others)
            return replace(state, server_pid=server, orphans=orphans, servers=servers, undecided=undecided)
        case SupervisorTold(supervisor):
            return replace(state, supervisor=supervisor)
        case HostSeen(host):
            before = next((other for other in state.others if other.host == host), None)
            course = _ready_memory(state, before.ready_memory if before is not None else None, event.gpus)
            if before is None:
                return replace(state, others=(*state.others, replace(event, ready_memory=course)))
            gpus = with_gone(before.gpus, event.gpus) if event.gpus is not None else before.gpus
            seen = replace(event, gpus=gpus, ready_memory=course)
            others = tuple(seen if other.host == host else other for other in state.others)
            return replace(state, others=others)
        case HistoryRead(history, started_at):
            return replace(_with_start(state, started_at), history=history)


def _with_start(state: DeploymentState, started_at: float | None) -> DeploymentState:
    """Return the state with the start of a process taken note of, from which its load's clock counts."""
    known = state.process_starts
    if started_at is None or (known and started_at == known[0]):
        return state
    starts = (started_at, *(at for at in known if abs(at - started_at) > 1))[:STARTS_KEPT]
    load = with_process_start(state.load, starts) if state.load is not None else None
    return replace(state, process_starts=starts, load=load)


def _ready_memory(state: DeploymentState, course: MemoryCourse | None, sample: GpuSample | None) -> MemoryCourse | None:
    """Return the course of memory with this sample: begun when a server is first seen ready, dropped when its port is closed."""
    if not state.api.ready:
        return None if state.api.reach is Reach.CLOSED else course
    return followed(course, sample) if sample is not None else course
