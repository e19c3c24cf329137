"""What the server's HTTP API says of itself."""

from enum import StrEnum

from msgspec import Struct


class Reach(StrEnum):
    """CLOSED: nothing listens yet ("not yet", no error). SICK: it answers, but /health does not say 200."""

    UNKNOWN = "unknown"
    CLOSED = "closed"
    SICK = "sick"
    UP = "up"
    ERROR = "error"


class ServedModel(Struct, frozen=True):
    id: str
    max_model_len: int | None = None
    root: str | None = None


class ServerMetrics(Struct, frozen=True):
    """From /metrics: sums over engines. Counters as read; rates per second since the poll before."""

    running: float | None = None
    waiting: float | None = None
    kv_cache_share: float | None = None
    """0 to 1, the fullest engine's."""
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    prompt_tokens_s: float | None = None
    generation_tokens_s: float | None = None
    preemptions: float | None = None
    requests_finished: float | None = None
    prefix_hit_share: float | None = None
    ttft_p50_ms: float | None = None


class ApiStatus(Struct, frozen=True):
    """`received_at` is the client's monotonic clock."""

    reach: Reach = Reach.UNKNOWN
    health: int | None = None
    """HTTP status of /health."""
    models: tuple[ServedModel, ...] = ()
    version: str | None = None
    metrics: ServerMetrics | None = None
    error: str | None = None
    received_at: float | None = None

    @property
    def ready(self) -> bool:
        """Readiness is the API's word: /health says 200 and a model is listed."""
        return self.reach is Reach.UP and self.health == 200 and bool(self.models)
