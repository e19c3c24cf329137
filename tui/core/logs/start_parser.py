"""Collect what one start of a server has shown as its log is read: facts, phases, bars. `snapshot` freezes it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from tui.core.logs.load_state import Failure, Loader, LoadState, Phase, PhaseSpan, Serving, Silence
from tui.core.logs.log_records import Speaker
from tui.core.logs.progress_bars import Bar, Loaders

QUIET_S = 60.0
"""An engine whose statistics are so much older than another one's writes none any more: it is idle."""

Figure = TypeVar("Figure", int, float)


class Statistics:
    """The last statistics of each data-parallel engine, and of the server: the sum over its engines, of shares the mean. What the
    server says of all of them together goes before."""

    def __init__(self) -> None:
        self.server: Serving | None = None
        self._engines: dict[int, Serving] = {}
        self._together = False

    def take(self, said: Serving, engine: int | None) -> None:
        """Take a line of one engine, or of the whole server."""
        if engine is None:
            self.server, self._together = said, True
            return
        self._engines[engine] = said
        if self._together:
            return
        now = said.at
        if now is not None:
            self._engines = {key: known for key, known in self._engines.items() if known.at is None or known.at >= now - QUIET_S}
        engines = self._engines.values()
        self.server = Serving(
            _sum([known.prompt_tokens_s for known in engines]),
            _sum([known.generation_tokens_s for known in engines]),
            _sum([known.running for known in engines]),
            _sum([known.waiting for known in engines]),
            _mean([known.kv_cache_share for known in engines]),
            _mean([known.prefix_hit_share for known in engines]),
            now,
        )

    def last(self, engine: int | None) -> Serving | None:
        """Return what one engine, or the whole server, said last."""
        return self.server if engine is None else self._engines.get(engine)


def _sum(figures: list[Figure | None]) -> Figure | None:
    known = [known for known in figures if known is not None]
    return sum(known[1:], known[0]) if known else None


def _mean(shares: list[float | None]) -> float | None:
    known = [known for known in shares if known is not None]
    return sum(known) / len(known) if known else None


SILENCES = 5
SILENCE_S = 10.0
"""Shorter pauses are not worth a word."""

_CHANGING = re.compile(r"\s*\([^()]*=[^()]*\)")
"""What SGLang writes anew into a bar's name at each refresh: `(bs=160 avail_mem=9.40 GB)`."""


class StartParser:
    """What one start has shown so far. The handlers of an engine's table write it."""

    def __init__(self) -> None:
        self.engine: str | None = None
        self.startup_is_ready = True
        """Does "Application startup complete." mean ready with this engine?"""
        self.version: str | None = None
        self.model: str | None = None
        self.served_names: tuple[str, ...] = ()
        self.phase = Phase.STARTING
        self.spans: list[tuple[Phase, float | None]] = []
        self.was_ready = False
        self.ready_at: float | None = None
        self.started_at: float | None = None
        self.engine_started_at: float | None = None
        self.loaders = Loaders()
        self.captures: dict[str, Loader] = {}
        self.capture_expected: float | None = None
        self.checkpoint_gib: float | None = None
        self.max_model_len: int | None = None
        self.batched_tokens: int | None = None
        self.tensor: int | None = None
        self.pipeline: int | None = None
        self.data: int | None = None
        self.data_local = 0
        self.quantization: str | None = None
        self.attention_backend: str | None = None
        self.device: str | None = None
        self.eager: bool | None = None
        self.graph_sizes: int | None = None
        self.compile_cached: bool | None = None
        self.block_size = 16
        self.statistics = Statistics()
        self.notes: dict[str, str] = {}
        self.banner = False
        self.start_seen = False
        """Does the log hold the start itself? One that begins in the midst tells no time of it."""
        self.banner_speaker = ""
        self.main_pid: int | None = None
        self.api_servers = 1
        self.startups = 0
        self.serving_soon = False
        self.server_hidden = False
        self.stopping = False
        """Was it asked to end?"""
        self.winding_down = False
        """Does V0 end its workers? It does so in an ordered stop, and before it says what it failed of."""
        self.stalls: list[tuple[float | None, str, int]] = []
        self.utilisation: float | None = None
        self.port: int | None = None
        self.platform: str | None = None
        """What the log says of the hardware, in its own words."""
        self.waiting = False
        """Is the line that is being read one that only waits for other processes?"""
        self.alive_at: float | None = None
        """When something else than such waits was last said."""
        self.connecting = False
        """Has it begun to connect its ranks, and told nothing of them since?"""
        self._ranked: dict[str, tuple[int, float]] = {}
        self.silences: list[Silence] = []
        self.now: float | None = None
        self.line = 0

    # -- phases

    def enter(self, phase: Phase, at: float | None) -> None:
        """Go to a phase; back from ready, stopped and failed leads only a new start."""
        if phase is self.phase or self.phase in (Phase.READY, Phase.STOPPED, Phase.FAILED):
            if not self.spans:
                self.spans.append((phase, at))
            return
        if not self.spans:
            self.spans.append((self.phase, self.started_at))
        self.phase = phase
        self.connecting = False
        self.spans.append((phase, at))

    def end(self, phase: Phase, at: float | None) -> None:
        """End the phase, stopped or failed."""
        if self.phase is phase:
            return
        if not self.spans:
            self.spans.append((self.phase, self.started_at))
        self.phase = phase
        self.spans.append((phase, at))

    def shift(self, seconds: float) -> None:
        """Move all times: they were told by arrivals before the log's own clock was known."""
        if self.started_at is not None:
            self.started_at += seconds
        if self.ready_at is not None:
            self.ready_at += seconds
        self.spans = [(phase, None if at is None else at + seconds) for phase, at in self.spans]
        for bar in self.loaders.bars:
            bar.started_at = None if bar.started_at is None else bar.started_at + seconds
            bar.last_at = None if bar.last_at is None else bar.last_at + seconds

    def silent(self, seconds: float, line: int, at: float) -> None:
        """Note that nothing was said for so long; only the longest are kept."""
        self.silences.append(Silence(seconds, self.phase, line, at))
        if len(self.silences) > 2 * SILENCES:
            self.silences = self.longest_silences()

    def longest_silences(self) -> list[Silence]:
        return sorted(self.silences, key=lambda known: -known.seconds)[:SILENCES]

    @property
    def release(self) -> tuple[int, int]:
        """Return major and minor of the engine's version; the newest is assumed if the log does not tell."""
        match = re.match(r"v?(\d+)\.(\d+)", self.version or "")
        return (int(match[1]), int(match[2])) if match else (99, 0)

    @property
    def before_the_end(self) -> Phase:
        """Return the last phase before it stopped or failed."""
        return next((phase for phase, _ in reversed(self.spans) if phase not in (Phase.STOPPED, Phase.FAILED)), self.phase)

    def become_ready(self, at: float | None) -> None:
        if self.phase in (Phase.STOPPED, Phase.FAILED, Phase.READY):
            return
        self.was_ready = True
        self.ready_at = at
        self.enter(Phase.READY, at)

    def phases(self) -> tuple[PhaseSpan, ...]:
        """Return the phases so far, the one that lasts last; none of a log in which no server has spoken yet."""
        if not self.spans and self.engine is not None and self.started_at is not None:
            return (PhaseSpan(self.phase, self.started_at),)
        spans = []
        for (phase, at), following in zip(self.spans, [*self.spans[1:], None], strict=False):
            seconds = None
            if following is not None and at is not None and following[1] is not None:
                seconds = max(0.0, following[1] - at)
            spans.append(PhaseSpan(phase, at, seconds))
        return tuple(spans)

    # -- figures that ranks print, each its own

    def ranked(self, name: str, value: float, speaker: Speaker) -> None:
        """Keep rank 0's figure, or the first if no rank is named."""
        rank = speaker.rank if speaker.rank is not None else (0 if not speaker.worker else 500)
        known = self._ranked.get(name)
        if known is None or rank < known[0]:
            self._ranked[name] = (rank, value)

    def figure(self, name: str) -> float | None:
        known = self._ranked.get(name)
        return known[1] if known else None

    # -- bars

    def capture_bar(self, bar: Bar, at: float | None) -> None:
        name = _CHANGING.sub("", bar.name)
        known = self.captures.get(name)
        started = known.started_at if known else (at - bar.elapsed if at is not None and bar.elapsed is not None else at)
        if known is None or bar.done >= known.done or bar.total != known.total:
            self.captures[name] = Loader(name, int(bar.done), int(bar.total), "graphs", started, (), at)

    def capture(self) -> Loader | None:
        if not self.captures:
            return None
        bars = list(self.captures.values())
        total = max(sum(bar.total for bar in bars), self.capture_expected or 0)
        return Loader("capture", sum(bar.done for bar in bars), total, "graphs", bars[0].started_at, (), bars[-1].last_at)


@dataclass(slots=True)
class Counts:
    """Lines read of the log, over all its starts."""

    lines: int = 0
    errors: int = 0
    warnings: int = 0
    restarts: int = 0


def snapshot(start: StartParser, counts: Counts, failure: Failure | None, last_line_at: float | None) -> LoadState:
    """Return what the start shows now, in the log's own clock."""
    bars = start.loaders.bars
    main = start.loaders.main
    began = start.started_at if start.start_seen or start.phase is Phase.STARTING else None
    return LoadState(
        engine=start.engine,
        version=start.version,
        model=start.model,
        served_names=start.served_names,
        phase=start.phase,
        ready=start.phase is Phase.READY,
        was_ready=start.was_ready,
        shards=main.loader() if main else None,
        loaders=tuple(bar.loader() for bar in bars),
        load_s=start.figure("load_s"),
        model_load_s=start.figure("model_load_s"),
        download_s=start.figure("download_s"),
        gib_per_gpu=start.figure("gib_per_gpu"),
        checkpoint_gib=start.checkpoint_gib,
        kv_tokens=_whole(start.figure("kv_tokens")),
        kv_gib_per_gpu=start.figure("kv_gib"),
        max_concurrency=start.figure("max_concurrency"),
        engines=start.data or (1 if start.engine and start.tensor else None),
        tensor_parallel=start.tensor,
        pipeline_parallel=start.pipeline,
        data_parallel=start.data,
        max_model_len=start.max_model_len,
        batched_tokens=start.batched_tokens,
        quantization=start.quantization,
        attention_backend=start.attention_backend,
        device=start.device,
        eager=start.eager,
        graph_sizes=start.graph_sizes,
        compile_cached=start.compile_cached,
        init_engine_s=start.figure("init_engine_s"),
        engine_started_at=start.engine_started_at,
        capture=start.capture(),
        started_at=began,
        first_line_at=began,
        ready_at=start.ready_at,
        last_line_at=last_line_at,
        alive_at=start.alive_at if start.waiting else None,
        connecting=start.connecting,
        phases=start.phases(),
        serving=start.statistics.server,
        failure=failure,
        restarts=counts.restarts,
        lines=counts.lines,
        errors=counts.errors,
        warnings=counts.warnings,
        silences=tuple(start.longest_silences()),
        notes=tuple(start.notes.values()),
    )


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def shifted(load: LoadState, seconds: float) -> LoadState:
    """Return the same facts in another clock."""

    def later(at: float | None) -> float | None:
        return None if at is None else at + seconds

    def bar(loader: Loader | None) -> Loader | None:
        return None if loader is None else replace(loader, started_at=later(loader.started_at), last_at=later(loader.last_at))

    return replace(
        load,
        started_at=later(load.started_at),
        first_line_at=later(load.first_line_at),
        ready_at=later(load.ready_at),
        engine_started_at=later(load.engine_started_at),
        last_line_at=later(load.last_line_at),
        alive_at=later(load.alive_at),
        shards=bar(load.shards),
        loaders=tuple(moved_bar for known in load.loaders if (moved_bar := bar(known)) is not None),
        capture=bar(load.capture),
        phases=tuple(replace(span, started_at=later(span.started_at)) for span in load.phases),
        silences=tuple(replace(known, at=later(known.at)) for known in load.silences),
        serving=None if load.serving is None else replace(load.serving, at=later(load.serving.at)),
    )


EARLY_S = 5.0
"""A first line may seem so much older than its process: both are in whole seconds, and a boot's time moves with the clock."""
LATE_S = 900.0
"""A first line so long after the process's start is of another zone's clock, or not of this process."""


def with_process_start(load: LoadState, starts: Sequence[float]) -> LoadState:
    """Return the load with its clock begun by the process that wrote it, whose first line comes after its imports.

    `starts` are when processes of the server started, the likeliest first; the load stays as it is if none of them fits.
    """
    first = load.first_line_at
    process = next((at for at in starts if first is not None and -EARLY_S <= first - at < LATE_S), None)
    if first is None or process is None:
        return load
    began = min(process, first)
    phases = load.phases
    if phases and phases[0].name is Phase.STARTING:
        end = phases[1].started_at if len(phases) > 1 else None
        took = end - began if end is not None else phases[0].seconds
        phases = (PhaseSpan(Phase.STARTING, began, took), *phases[1:])
    return replace(load, started_at=began, process_started_at=process, phases=phases)


_LOADER = re.compile(r"[Ll]oading .*(?:checkpoint|shards|Streamer|loader)|Multi-thread loading")
_CAPTURE = re.compile(r"Capturing")
_WARM_UP = re.compile(r"warm-?up|Compiling|Autotun|Pre-compiling|tuning", re.IGNORECASE)
_HUB = re.compile(r"Fetching \d+ files|\.(?:safetensors|bin|json|gguf|pt|model)\b|Downloading")
_NAME = re.compile(r"(?:Loading|Multi-thread|Capturing|Fetching|Downloading|\[Aiter|DeepGEMM|Compiling|JIT).*")
"""Where a bar's own words begin, behind a prefix that nobody knows."""


def read_bar(start: StartParser, bar: Bar, speaker: Speaker, now: float | None) -> None:
    """Read one refresh of a bar."""
    named = _NAME.search(bar.name)
    if named and named[0] != bar.name:
        bar = replace(bar, name=named[0])
    if bar.shards or _LOADER.search(bar.name):
        if start.phase in (Phase.STOPPED, Phase.FAILED) and start.loaders.main is None:
            return
        known = start.loaders.update(bar, speaker.key if speaker.pid is not None else "", now, start.release)
        if not known.complete and known.what != "reload":
            start.enter(Phase.LOADING, now)
    elif _CAPTURE.search(bar.name):
        start.capture_bar(bar, now)
        start.enter(Phase.CAPTURING, now)
    elif _HUB.search(bar.name):
        start.loaders.download(bar.name, bar, now)
        weights = "safetensors" in bar.name or bar.name.startswith("Fetching") or ".bin" in bar.name or ".gguf" in bar.name
        if weights and start.phase in (Phase.STARTING, Phase.LOADING) and start.loaders.main is None:
            start.enter(Phase.DOWNLOADING, now)
    elif _WARM_UP.search(bar.name) and start.phase in (Phase.KV_CACHE, Phase.CAPTURING):
        start.enter(Phase.WARMING_UP, now)
