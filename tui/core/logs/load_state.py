"""What a server's log says so far: a frozen value that `LogReader.state` returns.

Times are seconds of one clock: live, the host's wall clock as stamped by the follower; offline, the log's own. None is "not settled
by this log", never 0.
"""

from enum import StrEnum

from msgspec import Struct


class Phase(StrEnum):
    STARTING = "starting"
    DOWNLOADING = "downloading"
    LOADING = "loading"
    POST_LOADING = "post_loading"
    COMPILING = "compiling"
    PROFILING = "profiling"
    KV_CACHE = "kv_cache"
    CAPTURING = "capturing"
    WARMING_UP = "warming_up"
    READY = "ready"
    STOPPED = "stopped"
    FAILED = "failed"


class Verdict(StrEnum):
    PROGRESSING = "progressing"
    ON_TIME = "on_time"
    SLOW = "slow"
    STALLED = "stalled"
    HUNG = "hung"
    FAILED = "failed"
    DONE = "done"
    UNKNOWN = "unknown"


class PhaseSpan(Struct, frozen=True):
    name: Phase
    started_at: float | None = None
    seconds: float | None = None
    """None while it lasts, or if the log has no times."""


class Loader(Struct, frozen=True):
    """One progress bar over the weights.

    `what` is "model", "drafter", "pass 2", "download", "prefetch", "engine 1" …; `unit` is "shards", "tensors" or "bytes".
    """

    what: str
    done: float
    total: float
    unit: str = "shards"
    started_at: float | None = None
    step_seconds: tuple[float, ...] = ()
    """Seconds of each step seen, in order; the first one includes the cold start."""
    last_at: float | None = None
    whole_seconds: bool = False
    """Whether steps were told by a clock of whole seconds: one that took 1.2 s may be told as 2."""


class Failure(Struct, frozen=True):
    """Why a start or a server ended. `kind` is one of the contract's kinds, `line` counts from 1."""

    kind: str
    phase: Phase
    cause: str
    process: str | None = None
    line: int | None = None
    advice: str = ""


class Serving(Struct, frozen=True):
    """The server's last statistics line."""

    prompt_tokens_s: float | None = None
    generation_tokens_s: float | None = None
    running: int | None = None
    waiting: int | None = None
    kv_cache_share: float | None = None
    prefix_hit_share: float | None = None
    at: float | None = None


class Silence(Struct, frozen=True):
    """A stretch of a start in which the log said nothing. `line` is the one that ended it."""

    seconds: float
    phase: Phase
    line: int
    at: float | None = None


class LoadState(Struct, frozen=True):
    """The public facts. The reader's private working state lives beside it (see `start_parser.py`), so that this stays a plain
    value."""

    engine: str | None = None
    version: str | None = None
    model: str | None = None
    served_names: tuple[str, ...] = ()
    phase: Phase = Phase.STARTING
    ready: bool = False
    was_ready: bool = False
    shards: Loader | None = None
    loaders: tuple[Loader, ...] = ()
    load_s: float | None = None
    model_load_s: float | None = None
    download_s: float | None = None
    gib_per_gpu: float | None = None
    checkpoint_gib: float | None = None
    kv_tokens: int | None = None
    kv_gib_per_gpu: float | None = None
    max_concurrency: float | None = None
    engines: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    max_model_len: int | None = None
    batched_tokens: int | None = None
    """The most tokens that the engine takes into one step (max_num_batched_tokens)."""
    quantization: str | None = None
    attention_backend: str | None = None
    device: str | None = None
    """The engine's own word: cuda, cpu, xpu …; gpu if only the host tells."""
    eager: bool | None = None
    """Whether neither compilation nor graph capture will come."""
    graph_sizes: int | None = None
    """Batch sizes for which graphs will be captured."""
    compile_cached: bool | None = None
    """Whether compiled code came from an earlier start's cache."""
    init_engine_s: float | None = None
    engine_started_at: float | None = None
    """When the engine processes began: the API server's patience counts from about then."""
    capture: Loader | None = None
    started_at: float | None = None
    """When the server's process started, if that is known; else the time of its first line."""
    first_line_at: float | None = None
    process_started_at: float | None = None
    ready_at: float | None = None
    last_line_at: float | None = None
    alive_at: float | None = None
    """If the last lines only wait for other processes: the time of the last one that did not."""
    connecting: bool = False
    """Whether it connects its ranks (NCCL, HCCL, Gloo), and has said nothing of them since."""
    phases: tuple[PhaseSpan, ...] = ()
    serving: Serving | None = None
    failure: Failure | None = None
    restarts: int = 0
    lines: int = 0
    errors: int = 0
    warnings: int = 0
    silences: tuple[Silence, ...] = ()
    """The longest before it was ready, longest first."""
    notes: tuple[str, ...] = ()
    """Remarks worth showing: hints on what will end this start, streams that do not reach the log …"""
    service: str | None = None
    """The service that is read, if a compose log holds several; None if there is one log of one server."""
    services: tuple[str, ...] = ()
    """Those of them that hold a server."""

    @property
    def heard_at(self) -> float | None:
        """Return when the log last told of anything but waits for other processes."""
        return self.alive_at if self.alive_at is not None else self.last_line_at

    @property
    def foreign(self) -> bool:
        """Tell whether nothing in what was read is of a server: it is another file's text, or there is none."""
        return self.engine is None and self.failure is None and not self.phases and self.phase is Phase.STARTING

    @property
    def recognised(self) -> bool:
        """Tell whether something of a server has been read."""
        return self.lines > 0 and not self.foreign


class ServerStart(Struct, frozen=True):
    """Which start of which server. `host` is the target as configured; `port` a port or the path of a Unix socket.

    Two with the same host and port are one start if boot and start of the process agree, whatever the deployment is called.
    """

    deployment: str
    host: str
    port: str | int | None = None
    boot: str | None = None
    process_started_at: float | None = None
    models: tuple[str, ...] = ()
    """The names under which its model goes: in the log, in the arguments."""


class PastLoad(Struct, frozen=True):
    """One earlier start of a server, from the record: what ETA and verdict compare with. Seconds."""

    total_s: float
    phases: tuple[tuple[Phase, float], ...] = ()
    step_seconds: tuple[float, ...] = ()
    at: float | None = None
    version: str | None = None
    checkpoint_gib: float | None = None
    cold: bool | None = None
    """Whether the page cache was too small to hold the weights when it began; None if that is not known."""


class SignsOfLife(Struct, frozen=True):
    """What moved besides the log, and how many seconds ago it last did; None if unknown."""

    gpu_memory_s: float | None = None
    engine_read_s: float | None = None
    disk_read_s: float | None = None
    network_s: float | None = None
    tokens_s: float | None = None
    """Since the API's token counters last moved while requests run."""
    tokens_moved: bool = False
    """Whether they were seen to move at all, since they are looked at."""
    requests_running: float | None = None
    process_alive: bool | None = None
    read_gib_s: float | None = None
    """What the engine's processes read at the moment, if it can be told: with the checkpoint's size a second estimate."""


class Forecast(Struct, frozen=True):
    """ETA and verdict at one moment; `make_forecast(load, now, history, signs)` makes it (see `forecast.py`)."""

    verdict: Verdict = Verdict.UNKNOWN
    reason: str = ""
    s_per_shard: float | None = None
    elapsed_s: float | None = None
    """Since the bar began."""
    shards_eta_s: float | None = None
    ready_eta_s: float | None = None
    ready_eta_error_s: float | None = None
    """Half the width of the range to show as ±; None if the range is of other servers' starts."""
    ready_low_s: float | None = None
    ready_high_s: float | None = None
    """The range around `ready_eta_s`, never below 0."""
    from_history: bool = False
    """Whether earlier starts of this deployment told `ready_eta_s`; otherwise recorded starts of other servers did."""
    ready_s: float | None = None
    silent_s: float | None = None
    usual_s: float | None = None
    """The whole start, last time."""
    behind_s: float | None = None
    """Against the usual; negative is ahead."""
    ends: str = ""
    """What will end this start before it is ready, as far as can be told; empty if nothing will."""
