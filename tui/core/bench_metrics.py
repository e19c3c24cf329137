"""The figures of a benchmark in one table: their names, units, decimals, which way is better, and the views that show them.

A figure is computed elsewhere (most in `tui.wire.summary`) and stands under its `key` in a point's figures and in `bench --json`.
Every other view takes its rows and columns from METRICS, which is in the order of the columns of `bench --csv`. They are stable: to
show a new figure, add a row at the end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag, IntEnum, auto
from json import dumps
from typing import Any, Literal

from tui.core.bench_result import Point
from tui.core.presentation import DASH


class View(Flag):
    """A place that shows figures."""

    SCREEN = auto()
    """A row of the control room's table."""
    BIG = auto()
    """One of the control room's big figures of a single stream."""
    LINE = auto()
    """The line on stderr that tells of a finished point without a terminal."""
    TABLE = auto()
    """A column of the table that `readyroom bench` prints."""
    FURTHER = auto()
    """A column of the tables below it; left out if no point has anything to tell there."""
    INTERVAL = auto()
    """The 95 % interval as a column of those tables."""
    SERVER = auto()
    """The line that `readyroom bench` prints about the server's side of a point."""
    REPORT = auto()
    """A column of the Markdown report."""
    COMPARISON = auto()
    """A column of a comparison on the screen and in text; its JSON has every figure of which one direction is better."""


class Section(IntEnum):
    """What a figure belongs to; views are in this order, and within a section in that of METRICS."""

    THROUGHPUT = auto()
    REQUESTS = auto()
    SCHEDULE = auto()
    LATENCY = auto()
    TOKENS = auto()
    SERVER = auto()
    MACHINE = auto()
    OUTCOME = auto()


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a point."""

    key: str
    title: str = ""
    unit: str = ""
    digits: int = 0
    """Decimals of a value below 1,000."""
    section: Section = Section.OUTCOME
    views: View = View(0)
    better: Literal["higher", "lower", ""] = ""
    """Which way is better; empty if neither is."""
    short: str = ""
    """The heading in the tables of `readyroom bench`, if title and unit are too long for it."""
    rank: int = 0
    """On the screen high ranks give way first; from OPTIONAL on a row is shown only if some point has a value."""
    open_loop: bool | None = None
    """True: for requests that come at a rate; False: for a number of streams; None: for both."""
    usual: float | None = None
    """A value that is not worth a mention beside other figures."""
    scale: float = 1.0
    """From the unit of the documents to the one that is shown."""
    meaning: str = ""
    """What the figure means, for a line below a table; {limits} are the limits of `--goodput`."""
    read: Callable[[Point], Any] | None = None
    """Reads the value from a point whose figures do not have it under `key`."""
    csv: bool = True
    """Whether it is a column of `bench --csv`."""

    @property
    def heading(self) -> str:
        """Return title and unit: `TTFT p50 ms`."""
        return f"{self.title} {self.unit}".strip()

    @property
    def interval_heading(self) -> str:
        """Return the heading of its 95 % interval: `TTFT 95 %` is that of the median."""
        return f"{self.title.removesuffix(' p50')} 95 %"

    @property
    def column(self) -> str:
        """Return the heading in a table of `readyroom bench`: `TTFT`, `p99`."""
        return self.short or self.title or self.unit

    def raw(self, point: Point) -> float | None:
        """Return the value as the documents have it; None if it is unknown."""
        if self.read is None:
            return point.get(self.key)
        value = self.read(point)
        return float(value) if isinstance(value, int | float) else None

    def value(self, point: Point) -> float | None:
        """Return the value in the unit that is shown; None if it is unknown."""
        return self.shown(self.raw(point))

    def shown(self, raw: float | None) -> float | None:
        """Return a documented value in the unit that is shown."""
        return None if raw is None else raw * self.scale

    def text(self, raw: float | None) -> str:
        """Return a documented value with its decimals; a dash if it is unknown."""
        value = self.shown(raw)
        return DASH if value is None else f"{value:,.{self.digits if abs(value) < 1000 else 0}f}"

    def range_text(self, point: Point) -> str | None:
        """Return the 95 % interval, `47.8–54.9`; None if it is unknown."""
        bounds = point.interval(self.key)
        return None if bounds is None else f"{self.text(bounds[0])}–{self.text(bounds[1])}"

    def words(self, point: Point) -> str | None:
        """Return the value with its name, `TTFT p50 187.0 ms` or `12 completed`; None if there is nothing to say."""
        raw = self.raw(point)
        if not self.says_something(raw):
            return None
        text = self.text(raw)
        return f"{self.title} {text} {self.unit}".strip() if self.unit else f"{text} {self.title}"

    def says_something(self, raw: float | None) -> bool:
        """Return whether a documented value is known, and not the usual one."""
        return raw is not None and (self.usual is None or round(raw * self.scale, self.digits) != self.usual)


OPTIONAL = 4


@dataclass(frozen=True, slots=True)
class Latency:
    """A latency with mean, median, deviation and percentiles; the documents have milliseconds."""

    name: str
    """Its part of the keys: `median_NAME_ms`."""
    title: str
    unit: str = "ms"
    digits: int = 1

    @property
    def scale(self) -> float:
        return 0.001 if self.unit == "s" else 1.0

    def key(self, statistic: str) -> str:
        return f"{statistic}_{self.name}_ms"

    def rows(
        self, median: dict[str, Any], p99: dict[str, Any], section: Section = Section.LATENCY, **both: Any
    ) -> tuple[Metric, ...]:
        """Return the seven rows of the table; `median` and `p99` are fields of those two, `both` of either."""
        rows = []
        for statistic in ("mean", "median", "std", "p50", "p90", "p95", "p99"):
            more = {"median": median, "p99": p99}.get(statistic)
            fields = {} if more is None else {**both, **more}
            better: Literal["lower", ""] = "" if more is None or section is Section.SCHEDULE else "lower"
            title = f"{self.title} {'p50' if statistic == 'median' else statistic}"
            rows.append(
                Metric(self.key(statistic), title, self.unit, self.digits, section, better=better, scale=self.scale, **fields)
            )
        return tuple(rows)


TTFT, TPOT, ITL = Latency("ttft", "TTFT"), Latency("tpot", "TPOT", digits=2), Latency("itl", "ITL")
E2EL, ANSWER, LATE = Latency("e2el", "E2EL", "s", 2), Latency("first_answer", "answer"), Latency("schedule_slip", "late")
LATENCIES = (TTFT, TPOT, ITL, E2EL, ANSWER)


def _only_csv(keys: str) -> tuple[Metric, ...]:
    return tuple(Metric(key) for key in keys.split())


def _bounds(*keys: str) -> tuple[Metric, ...]:
    """Return two columns of CSV for the 95 % interval of each figure."""

    def bound(key: str, which: int) -> Callable[[Point], float | None]:
        return lambda point: None if (bounds := point.interval(key)) is None else bounds[which]

    return tuple(Metric(f"{key}_ci95_{end}", read=bound(key, which)) for key in keys for which, end in enumerate(("low", "high")))


def _gpus(point: Point) -> dict[str, Any]:
    found = point.figures.get("gpu")
    return found if isinstance(found, dict) else {}


def _of_gpus(name: str) -> Callable[[Point], Any]:
    return lambda point: _gpus(point).get(name)


def _fullest_gpu(point: Point) -> float | None:
    return max((used for used in _gpus(point).get("memory_used_mib") or () if used is not None), default=None)


def _per_stream(point: Point) -> float | None:
    total = point.get("output_throughput")
    return None if total is None or point.asked_rate is not None or point.concurrency < 1 else total / point.concurrency


V, S = View, Section
_SHOWN = V.SCREEN | V.TABLE | V.REPORT | V.COMPARISON

METRICS: tuple[Metric, ...] = (
    *_only_csv("date endpoint_type backend label model_id tokenizer_id num_prompts request_rate burstiness max_concurrency"),
    *_only_csv("duration"),
    Metric("completed", "completed", views=V.LINE | V.TABLE | V.REPORT, short="done"),
    Metric("failed", "failed", views=_SHOWN | V.LINE, better="lower"),
    *_only_csv("total_input_tokens total_output_tokens"),
    Metric("request_throughput", "", "req/s", 2, S.REQUESTS, V.SCREEN | V.TABLE | V.REPORT, better="higher", open_loop=True),
    Metric(
        "request_goodput",
        "good",
        "req/s",
        2,
        S.REQUESTS,
        V.SCREEN | V.FURTHER | V.REPORT | V.COMPARISON,
        better="higher",
        short="good/s",
        rank=4,
        meaning="good/s: requests a second within {limits}",
    ),
    Metric(
        "output_throughput",
        "",
        "tok/s",
        1,
        S.THROUGHPUT,
        _SHOWN | V.LINE,
        better="higher",
        meaning="tok/s: output tokens of completed requests / whole run, ramp and drain included",
    ),
    *_only_csv("total_token_throughput max_output_tokens_per_s max_concurrent_requests"),
    Metric(
        "peak_tokens_per_s",
        "peak",
        "tok/s",
        0,
        S.TOKENS,
        V.SCREEN | V.FURTHER,
        rank=5,
        meaning="peak: the busiest second",
    ),
    *_only_csv("rtfx"),
    *TTFT.rows(
        {"views": _SHOWN | V.LINE | V.BIG | V.INTERVAL, "short": "TTFT", "rank": 1},
        {"views": _SHOWN | V.INTERVAL, "short": "p99"},
        meaning="TTFT: first token-bearing chunk − send (the role chunk is none; reasoning is one)",
    ),
    *TPOT.rows(
        {"views": _SHOWN | V.LINE | V.BIG | V.INTERVAL, "short": "TPOT"},
        {"views": _SHOWN, "short": "p99", "rank": 1},
        meaning="TPOT: (last − first) / (tokens − 1), one value a request",
    ),
    *ITL.rows(
        {"views": V.COMPARISON},
        {"views": V.SCREEN | V.TABLE, "rank": 3},
        meaning="ITL: gap between chunks, pooled over all requests",
    ),
    *E2EL.rows(
        {"views": V.TABLE | V.COMPARISON, "short": "E2EL"},
        {"views": V.SCREEN | V.REPORT, "rank": 3},
        meaning="E2EL: last token-bearing chunk − send",
    ),
    *_only_csv("incomplete stopped_early without_usage"),
    Metric("tokens_per_chunk", "tok/chunk", "", 2, S.TOKENS, V.FURTHER, usual=1.0),
    Metric("cached_prompt_tokens", "prompt tokens from the cache", "", 0, S.TOKENS, V.SERVER, usual=0.0),
    Metric("reasoning_tokens", "reasoning", "", 0, S.TOKENS, V.FURTHER, usual=0.0, meaning="reasoning: its tokens"),
    *_only_csv("peak_concurrency connections mean_connect_ms max_connect_ms retried arrived_output_tokens"),
    Metric(
        "steady_output_throughput",
        "steady",
        "tok/s",
        1,
        S.THROUGHPUT,
        _SHOWN | V.INTERVAL,
        better="higher",
        rank=4,
        open_loop=False,
        meaning="steady: the same while all streams were busy",
    ),
    *_only_csv("steady_window_s p99_supported foreign_requests server_running_before server_waiting_before"),
    Metric("server_mean_queue_ms", "queue", "ms", 1, S.SERVER, V.SERVER),
    Metric("server_mean_prefill_ms", "prefill", "ms", 1, S.SERVER, V.SERVER),
    *_only_csv("server_mean_ttft_ms"),
    Metric("server_preemptions", "preemptions", "", 0, S.SERVER, V.SERVER, usual=0.0),
    *_only_csv("server_generation_tokens server_prefix_cache_hit_rate server_peak_running server_peak_waiting"),
    Metric("server_peak_kv_cache", "KV cache up to", "%", 0, S.SERVER, V.SERVER, scale=100.0),
    *_only_csv("client_limited client_workers client_open_files client_cpu client_cpu_s client_us_per_event client_events"),
    *_only_csv("client_lag_p50_ms client_lag_p99_ms client_lag_max_ms client_stamps client_unstamped"),
    *_only_csv("client_chunks_read_together clock_step_ms summary_cpu_s host_cores host_busy_cores"),
    Metric("host_idle_cores", "idle cores", "", 1, S.MACHINE, V.SCREEN | V.FURTHER, rank=5, meaning="idle cores: of the host"),
    Metric("api_server_cpu_cores", "API cores", "", 2, S.MACHINE, V.FURTHER, meaning="API cores: those that the API server used"),
    *_only_csv("foreign_running repeat cut median_ttft_after_burst_ms"),
    *ANSWER.rows(
        {"views": V.SCREEN | V.FURTHER, "short": "answer", "rank": 4}, {}, meaning="answer: the first token after the reasoning, ms"
    ),
    *LATE.rows({"views": V.SCREEN, "rank": 1}, {"views": V.SCREEN}, section=S.SCHEDULE, open_loop=True),
    *_only_csv("unsent_requests expected_tokens_per_s max_num_batched_tokens"),
    Metric("spec_decode_acceptance_rate", "drafts accepted", "%", 0, S.SERVER, V.SERVER),
    *_only_csv("spec_decode_acceptance_length spec_decode_num_drafts spec_decode_draft_tokens spec_decode_accepted_tokens"),
    *_bounds("steady_output_throughput", "median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "p99_tpot_ms", "median_e2el_ms"),
    Metric("errors_by_kind", read=lambda point: dumps(point.figures.get("errors_by_kind") or {}, sort_keys=True)),
    Metric("warnings", read=lambda point: "; ".join(map(str, point.figures.get("warnings") or ()))),
    Metric("gpu_count", read=_of_gpus("count")),
    Metric("gpu_mean_power_w", read=_of_gpus("mean_power_w")),
    Metric("gpu_tokens_per_s_per_gpu", "", "tok/s a GPU", 1, S.MACHINE, V.SERVER, usual=0.0, read=_of_gpus("tokens_per_s_per_gpu")),
    Metric(
        "gpu_tokens_per_joule",
        "",
        "tokens/J",
        2,
        S.MACHINE,
        V.SCREEN | V.SERVER,
        better="higher",
        rank=5,
        usual=0.0,
        read=_of_gpus("tokens_per_joule"),
    ),
    Metric("gpu_fullest_mib", read=_fullest_gpu),
    Metric("tokens_per_s_per_stream", "tok/s each", "", 1, S.THROUGHPUT, V.SCREEN, rank=3, read=_per_stream, csv=False),
)


def in_csv() -> list[Metric]:
    """Return the metrics that are columns of `bench --csv`, in their order."""
    return [metric for metric in METRICS if metric.csv]


def in_view(view: View) -> list[Metric]:
    """Return the metrics of a view, or of any of several, in the order in which they are shown."""
    return sorted((metric for metric in METRICS if view & metric.views), key=lambda metric: metric.section)


def compared() -> list[Metric]:
    """Return the metrics of which one direction is better."""
    return sorted((metric for metric in METRICS if metric.better), key=lambda metric: metric.section)


def metric(key: str) -> Metric:
    """Return the metric of that key. Raises KeyError if there is none."""
    found = next((found for found in METRICS if found.key == key), None)
    if found is None:
        raise KeyError(key)
    return found
