"""One start of the simulated server: what it logs, when, and how the GPUs' memory grows meanwhile.

The order and wording are vLLM 0.24's with eight tensor-parallel workers. Durations are the scenario's, divided by the speed; stamps
and printed durations are the wall clock's, so that log and reader agree.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tui.simulator import failure_logs
from tui.simulator.batching import BLOCK, KV_BLOCKS
from tui.simulator.engine_processes import EngineProcesses
from tui.simulator.scenarios import GIB, Scenario
from tui.simulator.server_log import Clock, ServerLog, TqdmBar

VERSION = "0.24.0"
_LOGO = (
    "",
    "       █     █     █▄   ▄█",
    " ▄▄ ▄█ █     █     █ ▀▄▀ █  version {version}",
    "  █▄█▀ █     █     █     █  model   {model}",
    "   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀",
    "",
)
_ROUTES = (
    ("/openapi.json", "GET, HEAD"), ("/docs", "GET, HEAD"), ("/docs/oauth2-redirect", "GET, HEAD"), ("/redoc", "GET, HEAD"),
    ("/load", "GET"), ("/version", "GET"), ("/health", "GET"), ("/metrics", "GET"), ("/tokenize", "POST"), ("/detokenize", "POST"),
    ("/v1/models", "GET"), ("/ping", "GET"), ("/ping", "POST"), ("/invocations", "POST"), ("/v1/chat/completions", "POST"),
    ("/v1/chat/completions/batch", "POST"), ("/v1/responses", "POST"), ("/v1/responses/{response_id}", "GET"),
    ("/v1/responses/{response_id}/cancel", "POST"), ("/v1/completions", "POST"), ("/v1/messages", "POST"),
    ("/v1/messages/count_tokens", "POST"), ("/generative_scoring", "POST"), ("/inference/v1/generate", "POST"),
    ("/scale_elastic_ep", "POST"), ("/is_scaling_elastic_ep", "POST"),
)  # fmt: skip
CONTEXT_MIB = 604
"""What the CUDA context and NCCL take on each GPU before any weight."""
STAGING_MIB = 1_900
"""Buffers in which shards are sorted and repacked; given back after the last one."""


@dataclass(slots=True)
class StartProgress:
    """What the start has done to the GPUs: told to the host whenever it changes."""

    weights_share: float = 0.0
    memory_mib: float = 0.0
    busy: float = 0.0
    phase: str = "starting"


class StartFailed(Exception):
    """The start ended in a failure that the log tells; `status` is the server's exit status."""

    status = 1


@dataclass(slots=True)
class Start:
    """Plays the start on a clock."""

    scenario: Scenario
    log: ServerLog
    port: int
    pid: int
    clock: Clock
    fork: Callable[[], EngineProcesses]
    told: Callable[[StartProgress], None]
    attempt: int = 0
    processes: EngineProcesses = EngineProcesses(0, ())
    progress: StartProgress = field(default_factory=StartProgress)
    _dice: random.Random = field(default_factory=lambda: random.Random(547))
    _loading_began: float = 0.0
    _profiling_began: float = 0.0
    _compiled: float = 0.0

    async def run(self) -> EngineProcesses:
        """Until the API may be opened. Raises StartFailed."""
        await self._starting()
        await self._load_shards()
        await self._post_load()
        await self._compile()
        await self._capture()
        return self.processes

    # -- the speakers ------------------------------------------------------------------------------------------------------------

    @property
    def ranks(self) -> int:
        return max(1, self.scenario.machine.gpus)

    @property
    def api(self) -> str:
        return f"APIServer pid={self.pid}"

    @property
    def engine(self) -> str:
        return f"EngineCore pid={self.processes.engine}"

    def worker(self, rank: int, named: bool = True) -> str:
        if not self.processes.workers:
            return self.engine
        name = f"Worker_TP{rank}" if named else "Worker"
        return f"{name} pid={self.processes.workers[rank]}"

    def _tell(self, **changes: float | str) -> None:
        for name, value in changes.items():
            setattr(self.progress, name, value)
        self.told(self.progress)

    # -- the phases --------------------------------------------------------------------------------------------------------------

    async def _starting(self) -> None:
        model, total = self.scenario.model, self.scenario.times.starting
        say = self.log.record
        self._tell(phase="starting", memory_mib=0.0)
        logo = "\n".join(_LOGO).format(version=VERSION, model=model.path)
        say(self.api, logo, source="api_utils.py:339")
        arguments = {
            "model_tag": model.path,
            "host": "127.0.0.1",
            "port": self.port,
            "model": model.path,
            "max_model_len": model.max_model_len,
            "served_model_name": [model.name],
            "tensor_parallel_size": self.ranks,
            "gpu_memory_utilization": 0.97,
            "kv_cache_dtype": "fp8",
        }
        say(self.api, f"non-default args: {arguments}", source="api_utils.py:273")
        await self.clock.spend(total * 0.28)
        say(self.api, f"Resolved architecture: {model.architecture}", source="model.py:598")
        say(self.api, f"Using max model len {model.max_model_len}", source="model.py:1725")
        say(self.api, "Chunked prefill is enabled with max_num_batched_tokens=8192.", source="scheduler.py:252")
        say(self.api, "Asynchronous scheduling is enabled.", source="vllm.py:1006")
        await self.clock.spend(total * 0.27)
        self.processes = self.fork()
        self._tell()
        say(self.engine, self._configuration(), source="core.py:114")
        say(
            self.engine,
            "Reducing Torch parallelism from 64 threads to 1 to avoid unnecessary CPU contention. Set OMP_NUM_THREADS in the "
            "external "
            "environment to tune this value as needed.",
            source="multiproc_executor.py:1063",
            level="WARNING",
        )
        say(
            self.engine,
            f"DP group leader: node_rank=0, node_rank_within_dp=0, master_addr=127.0.0.1, mq_connect_ip=127.0.0.1 (local), "
            f"world_size={self.ranks}, local_world_size={self.ranks}",
            source="multiproc_executor.py:140",
        )
        await self.clock.spend(total * 0.27)
        for rank in range(self.ranks):
            say(
                self.worker(rank, named=False),
                f"world_size={self.ranks} rank={rank} local_rank={rank} distributed_init_method=tcp://127.0.0.1:36173 backend=nccl",
                source="parallel_state.py:1588",
            )
        self._tell(memory_mib=CONTEXT_MIB * 0.6)
        await self.clock.spend(total * 0.14)
        first = self.worker(0, named=False)
        say(first, "vLLM is using nccl==2.28.9", source="pynccl.py:113")
        say(
            first,
            f"rank 0 in world size {self.ranks} is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank 0, EP rank N/A, EPLB "
            f"rank N/A",
            source="parallel_state.py:1923",
        )
        say(first, "Using V2 Model Runner", source="gpu_worker.py:331")
        self._tell(memory_mib=CONTEXT_MIB)
        await self.clock.spend(total * 0.04)

    def _configuration(self) -> str:
        model = self.scenario.model
        return (
            f"Initializing a V1 LLM engine (v{VERSION}) with config: model='{model.path}', speculative_config=None, "
            f"tokenizer='{model.path}', skip_tokenizer_init=False, tokenizer_mode=auto, revision=None, tokenizer_revision=None, "
            f"trust_remote_code=False, dtype=torch.bfloat16, max_seq_len={model.max_model_len}, download_dir=None, "
            f"load_format=auto, "
            f"tensor_parallel_size={self.ranks}, pipeline_parallel_size=1, data_parallel_size=1, decode_context_parallel_size=1, "
            f"disable_custom_all_reduce=False, quantization={model.quantization}, enforce_eager=False, kv_cache_dtype=fp8, "
            f"device_config=cuda, seed=0, served_model_name={model.name}, enable_prefix_caching=True, enable_chunked_prefill=True"
        )

    async def _load_shards(self) -> None:
        model, times = self.scenario.model, self.scenario.times
        first = self.worker(0)
        for rank in range(self.ranks):
            self.log.record(self.worker(rank), "Loading model from scratch...", source="model_runner.py:281")
        self._tell(phase="loading", busy=0.03, memory_mib=CONTEXT_MIB + STAGING_MIB)
        self.log.record(
            first,
            "Using TRITON_MLA attention backend out of potential backends: ['FLASHINFER_MLA', 'TRITON_MLA'].",
            source="cuda.py:480",
        )
        self.log.record(
            first,
            f"Filesystem type for checkpoints: XFS. Checkpoint size: {model.size_bytes / GIB:.2f} GiB. Available RAM: 1402.18 GiB.",
            source="weight_utils.py:849",
        )
        began = self._loading_began = self.clock.monotonic()
        bar = TqdmBar("Loading safetensors checkpoint shards", model.shards, began, shards=True)
        self.log.line(f"({first}) \r{bar.text(0, began)}")
        for shard in range(1, model.shards + 1):
            await self._shard_trouble(shard)
            seconds = times.shard * (1 + self._dice.uniform(-times.jitter, times.jitter * 1.7))
            if shard == times.slow_at:
                seconds *= times.slow
            await self._grow(shard, seconds)
            self.log.line(f"({first}) \r{bar.text(shard, self.clock.monotonic())}")
        took = self.clock.monotonic() - began
        self.log.line(f"({first}) \r{bar.text(model.shards, began + took, closing=True)}")
        self.log.line(f"({first}) ")
        self.log.record(first, f"Loading weights took {took:.2f} seconds", source="default_loader.py:430")

    async def _grow(self, shard: int, seconds: float) -> None:
        """Spend a shard's time, in which the memory grows evenly on all GPUs; the bar steps at its end."""
        shards = self.scenario.model.shards
        steps = 8
        for step in range(1, steps + 1):
            await self.clock.spend(seconds / steps)
            share = (shard - 1 + step / steps) / shards
            self._tell(weights_share=share, memory_mib=CONTEXT_MIB + STAGING_MIB + share * self._weights_mib)

    @property
    def _weights_mib(self) -> float:
        return self.scenario.model.size_bytes / self.ranks / 2**20

    async def _shard_trouble(self, shard: int) -> None:
        if shard != self.scenario.at_shard:
            return
        if self.scenario.ends == "stall":
            self._tell(busy=0.0)
            await asyncio.Event().wait()
        if self.scenario.ends == "oom":
            rank, held = next(iter(self.scenario.machine.foreign.items()))
            total, ours = self.scenario.machine.total_mib, self.progress.memory_mib
            failure_logs.out_of_memory(self, min(rank, self.ranks - 1), total_mib=total, ours_mib=ours, foreign_mib=held)
            raise StartFailed
        if self.attempt < self.scenario.crashes:
            failure_logs.worker_killed(self)
            raise StartFailed

    async def _post_load(self) -> None:
        times = self.scenario.times
        self._tell(phase="post-load", busy=0.42)
        await self.clock.spend(times.post_load)
        took = self.clock.monotonic() - self._loading_began
        gib = self._weights_mib / 1024
        for rank in range(self.ranks):
            text = f"Model loading took {gib:.2f} GiB and {took + rank * 0.011:.6f} seconds"
            self.log.record(self.worker(rank), text, source="model_runner.py:302")
        self.log.record(self.worker(0), "Using FlashInfer for top-p & top-k sampling.", source="topk_topp_sampler.py:55")
        self._tell(memory_mib=CONTEXT_MIB + self._weights_mib + 1180)

    async def _compile(self) -> None:
        times, first, say = self.scenario.times, self.worker(0), self.log.record
        self._profiling_began = self.clock.monotonic()
        self._tell(phase="compile", busy=0.11)
        dynamo = await self.clock.spend(times.compile * 0.28)
        cache = "/root/.cache/vllm/torch_compile_cache"
        say(
            first,
            f"Using cache directory: {cache}/b56f3e6b54/rank_0_0/backbone for vLLM's torch.compile",
            source="backends.py:1089",
        )
        say(first, f"Dynamo bytecode transform time: {dynamo:.2f} s", source="backends.py:1148")
        graph = await self.clock.spend(times.compile * 0.25)
        say(first, "Cache the graph of compile range (1, 8192) for later use", source="backends.py:378")
        graph += await self.clock.spend(times.compile * 0.29)
        say(first, f"Compiling a graph for compile range (1, 8192) takes {graph:.2f} s", source="backends.py:393")
        saving = await self.clock.spend(times.compile * 0.18)
        say(
            first,
            f"saved AOT compiled function to {cache}/torch_aot_compile/3b081f4a8cb3/rank_0_0/model",
            source="decorators.py:708",
        )
        self._compiled = dynamo + graph + saving
        say(first, f"torch.compile took {self._compiled:.2f} s in total", source="monitor.py:53")
        self._tell(phase="profile", busy=0.71, memory_mib=CONTEXT_MIB + self._weights_mib + 2_950)
        profiled = await self.clock.spend(times.profile)
        say(first, f"Initial profiling/warmup run took {profiled:.2f} s", source="monitor.py:81")
        tokens, limit = KV_BLOCKS * BLOCK, self.scenario.model.max_model_len
        say(first, f"Available KV cache memory: {tokens * 35_136 / GIB:.2f} GiB", source="gpu_worker.py:508")
        self._tell(phase="kv-cache", busy=0.2)
        say(self.engine, f"GPU KV cache size: {tokens:,} tokens", source="kv_cache_utils.py:2146")
        say(
            self.engine,
            f"Maximum concurrency for {limit:,} tokens per request: {tokens / limit:.2f}x",
            source="kv_cache_utils.py:2147",
        )
        self._tell(memory_mib=self.scenario.machine.ready_mib - 1_084)
        await self.clock.spend(times.kv_cache)

    async def _capture(self) -> None:
        times, first, say = self.scenario.times, self.worker(0), self.log.record
        for rank in range(self.ranks):
            say(self.worker(rank), "Compile and warming up model for size 8192", source="gpu_worker.py:648")
        self._tell(phase="capture", busy=0.55)
        began, ready = self.clock.monotonic(), self.scenario.machine.ready_mib
        for part, kind in enumerate(("PIECEWISE", "FULL")):
            bar = TqdmBar(f"Capturing CUDA graphs ({kind})", 51, self.clock.monotonic())
            self.log.raw(f"({first}) \r{bar.text(0, self.clock.monotonic())}".encode())
            for graph in (*range(3, 51, 4), 51):
                await self.clock.spend(times.capture / 2 / 13)
                self.log.raw(f"\r{bar.text(graph, self.clock.monotonic())}".encode())
                self._tell(memory_mib=ready - 1_084 + 1_084 * (part * 51 + graph) / 102)
            self.log.raw(f"\r{bar.text(51, self.clock.monotonic() + 0.001, closing=True)}\n".encode())
        took = self.clock.monotonic() - began
        say(first, "Registering 7300 cuda graph addresses", source="custom_all_reduce.py:213")
        for rank in reversed(range(self.ranks)):
            say(self.worker(rank), f"Graph capturing finished in {took:.0f} secs, took 1.06 GiB", source="model_runner.py:726")
        self._tell(phase="warm-up", busy=0.34, memory_mib=ready)
        await self.clock.spend(times.warm_up)
        for rank in reversed(range(self.ranks)):
            text = "Kernel JIT monitor activated — Triton JIT compilations during inference will be logged as warnings."
            say(self.worker(rank), text, source="jit_monitor.py:60")
        whole = self.clock.monotonic() - self._profiling_began
        text = f"init engine (profile, create kv cache, warmup model) took {whole:.2f} s (compilation: {self._compiled:.2f} s)"
        say(self.engine, text, source="core.py:337")

    def open_api(self) -> None:
        """Log what comes between the engine's readiness and the first request; the port opens with it."""
        say = self.log.record
        say(self.api, "Supported tasks: ['generate']", source="api_server.py:577")
        say(self.api, f"Starting vLLM server on http://127.0.0.1:{self.port}", source="api_server.py:581")
        say(self.api, "Available routes are:", source="launcher.py:37")
        for path, methods in _ROUTES:
            say(self.api, f"Route: {path}, Methods: {methods}", source="launcher.py:46")
        for text in (f"Started server process [{self.pid}]", "Waiting for application startup.", "Application startup complete."):
            self.log.line(f"({self.api}) INFO:     {text}")
        self._tell(phase="ready", busy=0.0, memory_mib=self.scenario.machine.ready_mib)
