"""Signs of life besides the log: what moved last, and when. They veto a stall (`tui.core.logs.forecast.make_forecast`)."""

from collections import deque
from dataclasses import dataclass, field

from tui.core.api_status import ApiStatus
from tui.core.gpu import GpuSample
from tui.core.host_machine import MachineSample
from tui.core.logs.load_state import SignsOfLife

GPU_STEP_MIB = 1.0
"""Memory that a GPU must gain to count: weights arrive in steps far above this; a context's own jitter is below."""
READ_MB_S = 1.0
"""A rate above it is somebody loading; metadata and log writers stay below."""
NETWORK_MB_S = 2.0
READ_WINDOW_S = 60.0
"""Over so long a time the engine's reads are averaged: shards are read in bursts."""


@dataclass(slots=True)
class SignTracker:
    """Fed with samples as they come; `now` and all stamps are the client's monotonic clock, in seconds."""

    gpu_memory_at: float | None = None
    engine_read_at: float | None = None
    disk_read_at: float | None = None
    network_at: float | None = None
    tokens_at: float | None = None
    tokens_moved: bool = False
    """Whether a later look at the token counters has found them moved."""
    requests_running: float | None = None
    process_alive: bool | None = None
    _gpu_used: dict[str, float] = field(default_factory=dict)
    _engine_read: int | None = None
    _reads: deque[tuple[float, int]] = field(default_factory=deque)
    _tokens: float | None = None

    def see_gpus(self, sample: GpuSample, now: float) -> None:
        for gpu in sample.gpus:
            if gpu.memory_used_mib is None:
                continue
            key = gpu.uuid or str(gpu.index)
            before = self._gpu_used.get(key)
            if before is None or gpu.memory_used_mib < before:
                # The first value says nothing of movement; memory that was freed is a new base, not progress.
                self._gpu_used[key] = gpu.memory_used_mib
                if self.gpu_memory_at is None:
                    self.gpu_memory_at = now
            elif gpu.memory_used_mib - before >= GPU_STEP_MIB:
                self._gpu_used[key] = gpu.memory_used_mib
                self.gpu_memory_at = now

    def see_machine(self, sample: MachineSample, now: float) -> None:
        total = sample.engine_read_bytes
        if total is not None:
            if self._engine_read is None or total > self._engine_read:
                self.engine_read_at = now
            self._engine_read = total
            self._see_reads(total, now)
        elif sample.engine_read_mb_s is not None:
            self.engine_read_at = (
                now if sample.engine_read_mb_s >= READ_MB_S or self.engine_read_at is None else self.engine_read_at
            )
        if sample.disk_read_mb_s is not None and (sample.disk_read_mb_s >= READ_MB_S or self.disk_read_at is None):
            self.disk_read_at = now
        if sample.network_rx_mb_s is not None and (sample.network_rx_mb_s >= NETWORK_MB_S or self.network_at is None):
            self.network_at = now

    def _see_reads(self, total: int, now: float) -> None:
        if self._reads and total < self._reads[-1][1]:  # another process: its counter begins anew
            self._reads.clear()
        self._reads.append((now, total))
        while now - self._reads[0][0] > READ_WINDOW_S:
            self._reads.popleft()

    def read_gib_s(self) -> float | None:
        """Return what the engine's processes read over the last minute, in GiB a second, or None before a quarter of it."""
        if not self._reads:
            return None
        (first, before), (last, after) = self._reads[0], self._reads[-1]
        return (after - before) / 2**30 / (last - first) if last - first >= READ_WINDOW_S / 4 else None

    def see_api(self, status: ApiStatus, now: float) -> None:
        metrics = status.metrics
        if metrics is None:
            self.requests_running = None
            return
        self.requests_running = metrics.running
        tokens = None
        if metrics.generation_tokens is not None or metrics.prompt_tokens is not None:
            tokens = (metrics.generation_tokens or 0.0) + (metrics.prompt_tokens or 0.0)
        # An idle server makes no tokens and is not hung: the clock runs only while requests do.
        if tokens is not None and (tokens != self._tokens or not metrics.running):
            self.tokens_at = now
        if None not in (tokens, self._tokens) and tokens != self._tokens:
            self.tokens_moved = True
        self._tokens = tokens

    def forget(self) -> None:
        """Forget everything after a lost link: nothing was seen meanwhile, so nothing can be called still."""
        self.gpu_memory_at = self.engine_read_at = self.disk_read_at = self.network_at = self.tokens_at = None
        self.process_alive = None
        self.tokens_moved = False
        self._gpu_used.clear()
        self._reads.clear()

    def signs(self, now: float) -> SignsOfLife:
        def since(at: float | None) -> float | None:
            return None if at is None else max(0.0, now - at)

        return SignsOfLife(
            gpu_memory_s=since(self.gpu_memory_at),
            engine_read_s=since(self.engine_read_at),
            disk_read_s=since(self.disk_read_at),
            network_s=since(self.network_at),
            tokens_s=since(self.tokens_at),
            tokens_moved=self.tokens_moved,
            requests_running=self.requests_running,
            process_alive=self.process_alive,
            read_gib_s=self.read_gib_s(),
        )
