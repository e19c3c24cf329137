"""The course of one start, as it is read: facts, phases, bars. Mutable; `LoadState` is its frozen picture."""

import re

from tui.core.logs.bars import Bar
from tui.core.logs.loaders import Loaders
from tui.core.logs.records import Speaker
from tui.core.logs.serving import Statistics
from tui.core.logs.state import Loader, Phase, PhaseSpan, Silence

SILENCES = 5
SILENCE_S = 10.0
"""Shorter pauses are not worth a word."""

_CHANGING = re.compile(r"\s*\([^()]*=[^()]*\)")
"""What SGLang writes anew into a bar's name at each refresh: `(bs=160 avail_mem=9.40 GB)`."""


class Course:
    """What one start has shown so far. The handlers of an engine's table write it."""

    def __init__(self) -> None:
        self.engine: str | None = None
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
        self._ranked: dict[str, tuple[int, float]] = {}
        self.silences: list[Silence] = []
        self.now: float | None = None
        self.line = 0

    # -- phases

    def enter(self, phase: Phase, at: float | None) -> None:
        """Goes to a phase; back from ready, stopped and failed leads only a new start."""
        if phase is self.phase or self.phase in (Phase.READY, Phase.STOPPED, Phase.FAILED):
            if not self.spans:
                self.spans.append((phase, at))
            return
        if not self.spans:
            self.spans.append((self.phase, self.started_at))
        self.phase = phase
        self.spans.append((phase, at))

    def end(self, phase: Phase, at: float | None) -> None:
        """Stopped or failed, from wherever it was."""
        if self.phase is phase:
            return
        if not self.spans:
            self.spans.append((self.phase, self.started_at))
        self.phase = phase
        self.spans.append((phase, at))

    def shift(self, seconds: float) -> None:
        """Moves all times: they were told by arrivals before the log's own clock was known."""
        if self.started_at is not None:
            self.started_at += seconds
        self.spans = [(phase, None if at is None else at + seconds) for phase, at in self.spans]
        for bar in self.loaders.bars:
            bar.started_at = None if bar.started_at is None else bar.started_at + seconds
            bar.last_at = None if bar.last_at is None else bar.last_at + seconds

    def silent(self, seconds: float, line: int, at: float) -> None:
        """Notes that nothing was said for so long; only the longest are kept."""
        self.silences.append(Silence(seconds, self.phase, line, at))
        if len(self.silences) > 2 * SILENCES:
            self.silences = self.longest_silences()

    def longest_silences(self) -> list[Silence]:
        return sorted(self.silences, key=lambda one: -one.seconds)[:SILENCES]

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor of vLLM's version; the newest is assumed where the log does not tell."""
        match = re.match(r"v?(\d+)\.(\d+)", self.version or "")
        return (int(match[1]), int(match[2])) if match else (99, 0)

    @property
    def before_the_end(self) -> Phase:
        """The last phase before it stopped or failed."""
        return next((phase for phase, _ in reversed(self.spans) if phase not in (Phase.STOPPED, Phase.FAILED)), self.phase)

    def become_ready(self, at: float | None) -> None:
        if self.phase in (Phase.STOPPED, Phase.FAILED, Phase.READY):
            return
        self.was_ready = True
        self.ready_at = at
        self.enter(Phase.READY, at)

    def phases(self) -> tuple[PhaseSpan, ...]:
        spans = []
        for (phase, at), following in zip(self.spans, [*self.spans[1:], None], strict=False):
            seconds = None
            if following is not None and at is not None and following[1] is not None:
                seconds = max(0.0, following[1] - at)
            spans.append(PhaseSpan(phase, at, seconds))
        return tuple(spans)

    # -- figures that ranks print, each its own

    def ranked(self, name: str, value: float, speaker: Speaker) -> None:
        """Keeps rank 0's figure, or the first where no rank is named."""
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
