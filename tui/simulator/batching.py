"""Continuous batching as vLLM does it: requests join and leave between steps, a step gives each running one a token.

A step takes as long as the batch asks for: 11.9 ms for one stream (81 tok/s with a prompt of 512 tokens), 60 ms with the prefill of
new prompts for 256 (about 4,000 tok/s in all). Blocks of 16 prompt tokens that were seen before are not computed again.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

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


class EngineMetrics:
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


BLOCK = 16
MAX_BATCHED_TOKENS = 8192
MAX_SEQUENCES = 256
KV_BLOCKS = 52_371
FIRST_TOKEN_S = 0.160
"""From the arrival of a request until its prompt can be computed: tokenizing, the queue between the processes, sampling."""
PREFILL_TOKEN_S = 25e-6
_CATCH_UP_S = 0.03
"""How far a step may lie behind its schedule and still be caught up with: this process was late, not the GPUs."""
_STEP_MS = ((1, 11.93), (2, 12.25), (4, 12.7), (8, 13.5), (16, 14.7), (32, 16.8), (64, 20.8), (128, 29.6), (256, 48.0), (512, 96.0))


def step_seconds(streams: int) -> float:
    """Return how long a decoding step takes with that many streams: between the points, linear in the streams."""
    if streams <= 1:
        return _STEP_MS[0][1] / 1000
    for (low, fast), (high, slow) in itertools.pairwise(_STEP_MS):
        if streams <= high:
            return (fast + (slow - fast) * (streams - low) / (high - low)) / 1000
    return _STEP_MS[-1][1] / 1000 * streams / _STEP_MS[-1][0]


Emit = Callable[[str, str | None], None]
"""Called with a token's text and the reason why the reply ends with it, or None."""


@dataclass(slots=True, eq=False)
class Generation:
    """One sequence: a prompt, and the tokens that will be said. `finish` is the reason that its last token carries."""

    prompt: Sequence[int]
    reply: Sequence[str]
    finish: str
    emit: Emit
    fail: Callable[[], None]
    arrived: float = field(default_factory=time.monotonic)
    scheduled: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    cached: int = 0
    to_prefill: int = 0
    said: int = 0
    over: bool = False

    @property
    def blocks(self) -> int:
        return math.ceil((len(self.prompt) + self.said) / BLOCK)


class PrefixCache:
    """Blocks of prompts that were computed before, the oldest forgotten first."""

    def __init__(self, blocks: int = KV_BLOCKS) -> None:
        self._room = blocks
        self._known: OrderedDict[int, None] = OrderedDict()

    def admit(self, prompt: Sequence[int]) -> int:
        """Return how many of the prompt's tokens need no computing; all of its whole blocks are known from now on."""
        chain, hits, missed = 0, 0, False
        for start in range(0, len(prompt) - BLOCK + 1, BLOCK):
            chain = hash((chain, tuple(prompt[start : start + BLOCK])))
            if chain in self._known and not missed:
                hits += 1
                self._known.move_to_end(chain)
            else:
                missed = True
                self._known[chain] = None
        while len(self._known) > self._room:
            self._known.popitem(last=False)
        # The last token is always computed, since its output is what is sampled from.
        return min(hits * BLOCK, max(0, len(prompt) - 1))


class BatchingEngine:
    """Runs until it is closed or killed. `running` and `waiting` are what the statistics tell."""

    def __init__(self, metrics: EngineMetrics) -> None:
        self._metrics = metrics
        self._cache = PrefixCache()
        self._waiting: deque[Generation] = deque()
        self._running: list[Generation] = []
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.dead = False

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def kv_share(self) -> float:
        return min(1.0, sum(generation.blocks for generation in self._running) / KV_BLOCKS)

    async def drained(self) -> None:
        """Until nothing runs or waits any more."""
        await self._idle.wait()

    def submit(self, generation: Generation) -> None:
        self._waiting.append(generation)
        self._idle.clear()
        self._wake.set()

    def abort(self, generation: Generation) -> None:
        """Take a sequence whose client went away out of the batch before the next step."""
        if not generation.over:
            generation.over = True
            self._metrics.finished(generation, "abort")
            if generation in self._waiting:
                self._waiting.remove(generation)

    def die(self) -> None:
        """Fail every request: the engine is dead."""
        self.dead = True
        self._idle.set()
        victims = [*self._running, *self._waiting]
        self._running.clear()
        self._waiting.clear()
        for generation in victims:
            if not generation.over:
                generation.over = True
                self._metrics.finished(generation, "error")
                generation.fail()

    async def run(self) -> None:
        due = 0.0
        while not self.dead:
            if not self._running and not self._waiting:
                self._wake.clear()
                self._idle.set()
                self._tell()
                await self._wake.wait()
            self._admit()
            if not self._running:
                await asyncio.sleep(max(0.001, self._waiting[0].arrived + FIRST_TOKEN_S - time.monotonic()))
                continue
            prefilled, decoding = self._plan()
            takes = prefilled * PREFILL_TOKEN_S + (step_seconds(len(decoding)) if decoding else 0.004)
            # The schedule is kept over steps, so that the rounding of each sleep does not add up.
            due = max(due, time.monotonic() - _CATCH_UP_S) + takes
            if (rest := due - time.monotonic()) > 0:
                await asyncio.sleep(rest)
            self._step(decoding)
            self._metrics.iteration(prefilled + len(decoding))
            self._tell()

    def _tell(self) -> None:
        self._metrics.load(self.running, self.waiting, self.kv_share)

    def _admit(self) -> None:
        now = time.monotonic()
        blocks = sum(generation.blocks for generation in self._running)
        while self._waiting and len(self._running) < MAX_SEQUENCES:
            generation = self._waiting[0]
            if now - generation.arrived < FIRST_TOKEN_S or blocks + generation.blocks > KV_BLOCKS:
                return
            self._waiting.popleft()
            generation.scheduled = now
            generation.cached = self._cache.admit(generation.prompt)
            generation.to_prefill = len(generation.prompt) - generation.cached
            blocks += generation.blocks
            self._running.append(generation)
            self._metrics.scheduled(generation)

    def _plan(self) -> tuple[int, list[Generation]]:
        """Prompt tokens to compute in this step, and the sequences that get a token at its end."""
        self._running = [generation for generation in self._running if not generation.over]
        budget, prefilled = MAX_BATCHED_TOKENS, 0
        decoding: list[Generation] = []
        for generation in self._running:
            if generation.to_prefill:
                part = min(generation.to_prefill, budget)
                budget -= part
                prefilled += part
                generation.to_prefill -= part
            if not generation.to_prefill:
                decoding.append(generation)
        return prefilled, decoding

    def _step(self, decoding: Sequence[Generation]) -> None:
        now, count = time.monotonic(), 0
        for generation in decoding:
            if generation.over:
                continue
            text = generation.reply[generation.said]
            generation.said += 1
            self._metrics.token(generation, now)
            count += 1
            generation.last_token = now
            last = generation.said == len(generation.reply)
            if last:
                generation.over = True
                self._metrics.finished(generation, generation.finish)
            generation.emit(text, generation.finish if last else None)
        self._metrics.generated(count)
        self._running = [generation for generation in self._running if not generation.over]
