"""What a benchmark is asked to do and what it found; definitions are vLLM's own (see `tui.wire.summary`)."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

STOPPED_BY_USER = "stopped by the user"
REFUSED = "refused, nothing was sent: "
"""How the reason begins if a point could not be carried out by the machine that the load comes from: it is no point then."""


class Vantage(StrEnum):
    """Where the load generator runs: on the GPU host, here against a URL, or here through the SSH connection."""

    HOST = "host"
    DIRECT = "direct"
    TUNNEL = "tunnel"


@dataclass(frozen=True, slots=True)
class Plan:
    """One benchmark: a point for each concurrency (closed loop) or request rate (open loop)."""

    kind: str = "sweep"
    """"single", "sweep", "rate" or "soak"."""
    concurrency: tuple[int, ...] = (1,)
    request_rate: float | None = None
    burstiness: float = 1.0
    requests: int | None = None
    duration_s: float | None = None
    input_tokens: int = 512
    output_tokens: int = 512
    endpoint: str = "chat"
    model: str | None = None
    extra_body: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    vantage: Vantage | None = None
    thorough: bool = False
    max_failures: int = 0
    goodput: dict[str, float] = field(default_factory=dict)
    shared_prefix_tokens: int = 0
    prompts_file: str | None = None
    prompts_notes: tuple[str, ...] = ()
    """What must be known of the file's prompts: entries that were left out, lengths of replies."""
    prompts_out: str = ""
    """How long the file says that replies should be, if it does: `40` or `12 to 300` tokens."""
    stop_at_knee: bool = False
    repeat_first: bool = False
    """Measure the first point again at the end, to see whether the server drifted meanwhile."""
    seed: int | None = None
    """Of the prompts; None draws a new one for every run, so that no prefix cache can help."""
    max_concurrency: int | None = None
    """The most requests in flight of an open loop (`request_rate`); None sets no limit."""
    token_ids: bool = False
    """Prompts are token ids of an exact number (completions only) instead of natural text."""
    ignore_eos: bool = True
    """Ask the server to go on to the asked length, if it takes that."""
    min_seconds: float | None = None
    """At least so long a point if neither requests nor a duration are given; None: 20, thorough 60."""
    stagger_s: float = 0.0
    """Spread the first requests of a closed loop over this time instead of sending them in one burst."""
    stall_s: float = 120.0
    """Fail a request after this long without an event that came whole (or, before the first, the head of its response)."""
    workers: int = 0
    """Processes of the load generator; 0 lets it choose."""
    save: bool = False
    """Bring the per-request arrays that vLLM's files hold in any case along in each point's `detail`."""
    save_detailed: bool = False
    """Bring all per-request arrays."""
    verify_tls: bool = True


@dataclass(frozen=True, slots=True)
class BenchProgress:
    """The live state of the point being measured; counts so far, rates of the last second."""

    point: int
    points: int
    concurrency: int
    stage: str
    """"preparing", "warm-up", "measuring", "draining", "summing up", "collecting" or "keeping"."""
    in_flight: int = 0
    done: int = 0
    failed: int = 0
    planned: int | None = None
    tokens_s: float | None = None
    elapsed_s: float = 0.0
    left_s: float | None = None
    waiting_s: float | None = None
    """For how long nothing of a reply has come, from the beginning of the stage; None once something did."""
    work: str = ""
    """What is done instead of measuring, in words, for `elapsed_s` so far; the counts mean nothing then."""


RATES = frozenset(
    {"request_throughput", "request_goodput", "output_throughput", "total_token_throughput", "steady_output_throughput"}
)


@dataclass(frozen=True, slots=True)
class Point:
    """A finished point. `figures` has vLLM's own key names plus ours (README "Benchmarks" lists them); a missing figure is None."""

    concurrency: int
    figures: dict[str, Any]
    detail: dict[str, list[Any]] | None = None
    """vLLM's per-request arrays, when they were asked for."""

    def get(self, name: str) -> float | None:
        """Return a figure; None if it is unknown, as a rate of completed requests is if none was completed."""
        if name in RATES and self.figures.get("completed") == 0:
            return None
        value = self.figures.get(name)
        return float(value) if isinstance(value, int | float) else None

    @property
    def asked_rate(self) -> float | None:
        """Return the requests a second that were asked for; None for a closed loop."""
        rate = self.figures.get("request_rate")
        return float(rate) if isinstance(rate, int | float) else None

    def interval(self, name: str) -> tuple[float, float] | None:
        """Return the 95 % interval of a figure; None if it has none."""
        found = self.figures.get(f"{name}_ci95")
        if isinstance(found, list | tuple) and len(found) == 2 and all(isinstance(bound, int | float) for bound in found):
            return found[0], found[1]
        return None


@dataclass(frozen=True, slots=True)
class Result:
    """A whole benchmark as `bench --json` prints it and the record keeps it."""

    endpoint: str
    model: str
    vantage: Vantage
    plan: Plan
    points: tuple[Point, ...] = ()
    deviations: tuple[str, ...] = ()
    stopped: str | None = None
    """Why it ended before its plan: STOPPED_BY_USER, REFUSED and why, "link lost" …; None when complete."""
    started_at: float | None = None
    path: str | None = None
    """Where the result was kept as JSON."""
