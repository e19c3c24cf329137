"""The state of one watched deployment, and how events change it: what the screen, `status`, `wait` and the record share."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tui.core.api import ApiStatus
from tui.core.connection import ConnectionState
from tui.core.gpu import GpuSample
from tui.core.logs.state import LoadState, Outlook, PastLoad
from tui.core.machine import MachineSample

LOG_LINES = 5000
TREND = 240


@dataclass(frozen=True, slots=True)
class LogLine:
    """One cleaned line. `number` counts the lines of the source from 1 (None where it was found from the tail); `level` is one of
    DEBUG, INFO, WARNING, ERROR, CRITICAL or None."""

    text: str
    level: str | None = None
    number: int | None = None
    at: float | None = None


@dataclass(frozen=True, slots=True)
class LogTail:
    """The last lines of the log. `seen` counts every line ever appended, so a widget knows which ones are new."""

    lines: tuple[LogLine, ...] = ()
    seen: int = 0
    skipped: int = 0
    source: str = ""
    """What is followed, in words: `/var/log/vllm.log`."""
    problem: str | None = None
    """Why the log can't be read at the moment, and what to do."""

    def extended(self, lines: Sequence[LogLine]) -> "LogTail":
        kept = (self.lines + tuple(lines))[-LOG_LINES:]
        return replace(self, lines=kept, seen=self.seen + len(lines))


@dataclass(frozen=True, slots=True)
class Trends:
    """One value a sample, the last TREND of them; None where nothing was known."""

    gpu_memory: tuple[tuple[float | None, ...], ...] = ()
    """One tuple a sample, a share (0 to 1) a GPU."""
    gpu_utilisation: tuple[tuple[float | None, ...], ...] = ()
    """Percent."""
    disk_read_mb_s: tuple[float | None, ...] = ()
    generation_tokens_s: tuple[float | None, ...] = ()
    kv_cache_share: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class DeploymentState:
    """Everything known of one deployment at one moment."""

    name: str
    target: str
    connection: ConnectionState = ConnectionState()
    gpus: GpuSample | None = None
    machine: MachineSample | None = None
    load: LoadState | None = None
    outlook: Outlook = Outlook()
    history: tuple[PastLoad, ...] = ()
    api: ApiStatus = ApiStatus()
    log: LogTail = LogTail()
    trends: Trends = Trends()
    conflict: str | None = None
    """Where the log and the API disagree, in one line; the API wins."""


# -- events ------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConnectionChanged:
    connection: ConnectionState


@dataclass(frozen=True, slots=True)
class GpusSampled:
    sample: GpuSample


@dataclass(frozen=True, slots=True)
class MachineSampled:
    sample: MachineSample


@dataclass(frozen=True, slots=True)
class LogRead:
    lines: tuple[LogLine, ...]
    load: LoadState
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class LogSourceChanged:
    source: str
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ApiPolled:
    status: ApiStatus


@dataclass(frozen=True, slots=True)
class OutlookMade:
    outlook: Outlook


@dataclass(frozen=True, slots=True)
class HistoryRead:
    history: tuple[PastLoad, ...]


Event = ConnectionChanged | GpusSampled | MachineSampled | LogRead | LogSourceChanged | ApiPolled | OutlookMade | HistoryRead


class Status:
    """The words of the state chip and of `status`: one of these."""

    CONNECTING = "connecting"
    UNREACHABLE = "unreachable"
    WAITING = "waiting"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    STOPPED = "stopped"
