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
    """One listed model.

    `id` is safe to show; `called` is the name that requests must use, if the server's own differs from `id`.
    """

    id: str
    max_model_len: int | None = None
    root: str | None = None
    called: str = ""

    @property
    def name(self) -> str:
        """Return the server's own name of it, byte for byte: for requests, never for the screen."""
        return self.called or self.id


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
    """An estimate, out of a histogram's buckets; of the requests since the poll before that had any."""
    ttft_p50_between_ms: tuple[float, float | None] | None = None
    """The bounds of the bucket that it lies in; the last one has no upper bound."""


class ApiStatus(Struct, frozen=True):
    """`received_at` is the client's monotonic clock."""

    reach: Reach = Reach.UNKNOWN
    health: int | None = None
    """HTTP status of /health."""
    models: tuple[ServedModel, ...] = ()
    version: str | None = None
    metrics: ServerMetrics | None = None
    error: str | None = None
    key_refused: bool = False
    """The list of models was answered with 401 or 403."""
    received_at: float | None = None

    def asked(self, wanted: str | None = None) -> str | None:
        """Return the name to put in requests: that of the wanted model, however it was copied from a screen, else the first listed.

        A wanted one that is not listed is asked for as it was written; None if none is wanted and none is listed.
        """
        if wanted is None:
            return self.models[0].name if self.models else None
        return next((model.name for model in self.models if wanted in (model.name, model.id)), wanted)

    def lists(self, name: str) -> bool:
        return any(model.name == name for model in self.models)

    @property
    def ready(self) -> bool:
        """Return whether /health says 200 and a model is listed: readiness is the API's word."""
        return self.reach is Reach.UP and self.health == 200 and bool(self.models)

    @property
    def serves(self) -> bool:
        """Return whether it serves at least those who have its key: it is healthy, and lists its models or refuses to."""
        return self.ready or (self.key_refused and self.health in (200, 401, 403))

    @property
    def down(self) -> bool:
        """Return whether nothing listens, or what does is not healthy."""
        return self.reach in (Reach.CLOSED, Reach.SICK)

    @property
    def engine_died(self) -> bool:
        """Return whether /health answers a server error: vLLM's says 503 when its engine is dead."""
        return self.reach is Reach.SICK and self.health is not None and self.health >= 500
