"""The server's figures under vLLM V1's names, in Prometheus' exposition format."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

if TYPE_CHECKING:
    from tui.simulator.engine import Generation

_TTFT = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
    160.0,
    640.0,
    2560.0,
)
_ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_LATENCY = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
_ITERATION = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class ServerMetrics:
    """Counters, gauges and histograms of one engine; `exposition()` is what GET /metrics answers."""

    def __init__(self, model: str, kv_blocks: int, block_size: int) -> None:
        self._registry = CollectorRegistry()
        names = ("model_name", "engine")
        values = {"model_name": model, "engine": "0"}

        def gauge(name: str, help: str) -> Gauge:
            return Gauge(f"vllm:{name}", help, names, registry=self._registry).labels(**values)

        def counter(name: str, help: str) -> Counter:
            return Counter(f"vllm:{name}", help, names, registry=self._registry).labels(**values)

        def histogram(name: str, help: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"vllm:{name}", help, names, buckets=buckets, registry=self._registry).labels(**values)

        self._running = gauge("num_requests_running", "Number of requests in model execution batches.")
        self._waiting = gauge("num_requests_waiting", "Number of requests waiting to be processed.")
        self._kv = gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.")
        self._queries = counter("prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.")
        self._hits = counter("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.")
        self._preemptions = counter("num_preemptions", "Cumulative number of preemption from the engine.")
        self._prompt = counter("prompt_tokens", "Number of prefill tokens processed.")
        self._cached = counter("prompt_tokens_cached", "Number of cached prompt tokens (local + external).")
        self._generation = counter("generation_tokens", "Number of generation tokens processed.")
        success = Counter(
            "vllm:request_success",
            "Count of successfully processed requests.",
            (*names, "finished_reason"),
            registry=self._registry,
        )
        self._success = {
            reason: success.labels(**values, finished_reason=reason) for reason in ("stop", "length", "abort", "error")
        }
        self._prompt_size = histogram("request_prompt_tokens", "Number of prefill tokens processed.", _TOKENS)
        self._reply_size = histogram("request_generation_tokens", "Number of generation tokens processed.", _TOKENS)
        self._iteration = histogram("iteration_tokens_total", "Histogram of number of tokens per engine_step.", _ITERATION)
        self._ttft = histogram("time_to_first_token_seconds", "Histogram of time to first token in seconds.", _TTFT)
        self._itl = histogram("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", _ITL)
        self._tpot = histogram(
            "request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds per request.", _ITL
        )
        self._e2e = histogram("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", _LATENCY)
        self._queue = histogram("request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", _LATENCY)
        self._prefill = histogram("request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.", _LATENCY)
        self._decode = histogram("request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", _LATENCY)
        Info("vllm:cache_config", "Information of the LLMEngine CacheConfig", registry=self._registry).info(
            {
                "block_size": str(block_size),
                "cache_dtype": "fp8",
                "enable_prefix_caching": "True",
                "engine": "0",
                "num_gpu_blocks": str(kv_blocks),
                "kv_cache_size_tokens": str(kv_blocks * block_size),
            }
        )
        Gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", registry=self._registry).set(
            time.time()
        )
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.queried = 0
        self.hit = 0

    def exposition(self) -> bytes:
        return generate_latest(self._registry)

    def load(self, running: int, waiting: int, kv_share: float) -> None:
        self._running.set(running)
        self._waiting.set(waiting)
        self._kv.set(kv_share)

    def scheduled(self, generation: Generation) -> None:
        prompt = len(generation.prompt)
        self.prompt_tokens += prompt
        self.queried += prompt
        self.hit += generation.cached
        self._prompt.inc(prompt)
        self._queries.inc(prompt)
        self._hits.inc(generation.cached)
        self._cached.inc(generation.cached)
        if generation.scheduled is not None:
            self._queue.observe(generation.scheduled - generation.arrived)

    def token(self, generation: Generation, now: float) -> None:
        if generation.last_token is None:
            generation.first_token = now
            self._ttft.observe(now - generation.arrived)
        else:
            self._itl.observe(now - generation.last_token)

    def generated(self, tokens: int) -> None:
        self.generation_tokens += tokens
        self._generation.inc(tokens)

    def iteration(self, tokens: int) -> None:
        self._iteration.observe(tokens)

    def finished(self, generation: Generation, reason: str) -> None:
        self._success[reason].inc()
        if reason not in ("stop", "length") or generation.first_token is None or generation.scheduled is None:
            return
        now = time.monotonic()
        self._prompt_size.observe(len(generation.prompt))
        self._reply_size.observe(generation.said)
        self._e2e.observe(now - generation.arrived)
        self._prefill.observe(generation.first_token - generation.scheduled)
        self._decode.observe(now - generation.first_token)
        if generation.said > 1:
            self._tpot.observe((now - generation.first_token) / (generation.said - 1))
