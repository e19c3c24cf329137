"""vLLM's table: what each message of releases 0.4 to 0.33 says about a start."""

import re

from tui.core.logs.grammar import number
from tui.core.logs.load_state import Phase, Serving
from tui.core.logs.log_records import Line
from tui.core.logs.start_parser import StartParser
from tui.engines.vllm import vllm_start
from tui.engines.vllm.vllm_failures import GRAMMAR

__all__ = ["GRAMMAR", "vllm_start"]

# -- weights -----------------------------------------------------------------------------------------------------------------------


@GRAMMAR.says(r"Using model weights format ()", "Using")
@GRAMMAR.says(r"Loading weights with BitsAndBytes quantization()", "Loading")
@GRAMMAR.says(r"Starting to load model(?: (.+?))?(?:\.\.\.)?$", "Starting")
def _load_begins(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.start_seen = True
    start.engine = start.engine or "vllm"
    if match[1]:
        start.model = start.model or match[1]
    if _leads(start, line) and (start.phase is Phase.STARTING or line.message.startswith("Starting")):
        start.enter(Phase.LOADING, start.now)


def _leads(start: StartParser, line: Line) -> bool:
    """Tell whether this process's word moves the phase: other ranks than the first do only before anyone has spoken."""
    return not (line.speaker.rank and start.phase is not Phase.STARTING)


@GRAMMAR.says(r"Loading drafter model")
def _drafter(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.loaders.drafter_announced = True
    start.enter(Phase.LOADING, start.now)


@GRAMMAR.says(r"Filesystem type for checkpoints: (\S+?)\. Checkpoint size: ([\d.]+) GiB")
def _checkpoint(start: StartParser, match: re.Match[str], line: Line) -> None:
    if start.checkpoint_gib is None:
        start.checkpoint_gib = float(match[2])
    if match[1].upper().startswith(("NFS", "LUSTRE", "CIFS", "FUSE", "GPFS", "CEPH", "9P")):
        start.notes["filesystem"] = f"weights on {match[1]}: the network storage sets the pace"


@GRAMMAR.says(r"Time spent downloading weights for .*: ([\d.]+) seconds")
def _downloaded(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.ranked("download_s", float(match[1]), line.speaker)
    if start.phase is Phase.DOWNLOADING:
        start.enter(Phase.LOADING, start.now)


@GRAMMAR.says(r"Prefetching checkpoint files: \s*\d+% \((\d+)/(\d+)\)")
def _prefetch(start: StartParser, match: re.Match[str], line: Line) -> None:
    if not line.speaker.rank:
        start.loaders.prefetch(float(match[1]), float(match[2]), line.speaker.key, start.now)


@GRAMMAR.says(r"Loading weights took ([\d.]+) seconds")
def _weights_took(start: StartParser, match: re.Match[str], line: Line) -> None:
    drafter = start.loaders.drafter_announced and start.figure("load_s") is not None
    if not line.speaker.rank:
        start.loaders.weights_took += 1
    if not drafter and start.loaders.model_loading_took == 0 and not start.was_ready:
        start.ranked("load_s", float(match[1]), line.speaker)
    start.loaders.settle()
    if not line.speaker.rank and not start.loaders.incomplete:
        start.enter(Phase.POST_LOADING, start.now)


@GRAMMAR.says(r"Deserialized (\S+) in ([\d.]+)s", "Deserialized")
def _deserialized(start: StartParser, match: re.Match[str], line: Line) -> None:
    """Tensorizer draws no bar."""
    start.ranked("load_s", float(match[2]), line.speaker)
    if not line.speaker.rank:
        start.enter(Phase.POST_LOADING, start.now)


@GRAMMAR.says(r"Loading model weights took ([\d.]+) ?(?:GiB|GB)")
@GRAMMAR.says(r"Model loading took ([\d.]+) ?(?:GiB|GB)(?: memory)?(?: and ([\d.]+) seconds)?")
def _model_took(start: StartParser, match: re.Match[str], line: Line) -> None:
    if start.was_ready:
        return
    start.ranked("gib_per_gpu", float(match[1]), line.speaker)
    if match.re.groups > 1 and match[2]:
        start.ranked("model_load_s", float(match[2]), line.speaker)
    if not line.speaker.rank:
        start.loaders.model_loading_took += 1
        if start.phase in (Phase.STARTING, Phase.LOADING, Phase.POST_LOADING, Phase.DOWNLOADING) and not start.loaders.incomplete:
            start.enter(Phase.PROFILING, start.now)


# -- compile, profiling, KV cache --------------------------------------------------------------------------------------------------


@GRAMMAR.says(r"Using cache directory: .* for vLLM's torch\.compile")
@GRAMMAR.says(r"Starting torch\.compile", "Starting")
@GRAMMAR.says(r"Dynamo bytecode transform time")
@GRAMMAR.says(r"Compiling a graph for")
@GRAMMAR.says(r"Cache the graph of")
@GRAMMAR.says(r"Directly (?:load|lookup) (?:the (?:compiled )?graph|AOT compilation)")
@GRAMMAR.says(r"sav(?:ed|ing) AOT compiled function", "saved", "saving")
@GRAMMAR.says(r"Warming up model for the compilation")
def _compiling(start: StartParser, match: re.Match[str], line: Line) -> None:
    if _leads(start, line):
        start.enter(Phase.COMPILING, start.now)


@GRAMMAR.says(r"Directly (?:load|lookup) (?:the (?:compiled )?graph|AOT compilation)")
def _compile_cached(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.compile_cached = True


@GRAMMAR.says(r"Compiling a graph for")
@GRAMMAR.says(r"Cache the graph of")
def _compiled_anew(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.compile_cached = start.compile_cached or False


@GRAMMAR.says(r"torch\.compile (?:takes|took) ([\d.]+) s in total", "torch.compile")
@GRAMMAR.says(r"Initial profiling/warmup run took")
@GRAMMAR.says(r"Profiling CUDA graph memory")
@GRAMMAR.says(r"Encoder cache will be initialized")
@GRAMMAR.says(r"Warming up done")
def _profiling(start: StartParser, match: re.Match[str], line: Line) -> None:
    if _leads(start, line):
        start.enter(Phase.PROFILING, start.now)


@GRAMMAR.says(r"Profiling CUDA graph memory: (.*)")
def _graphs_expected(start: StartParser, match: re.Match[str], line: Line) -> None:
    counts = re.findall(r"\w+=(\d+) \(largest", match[1])
    if counts:
        start.capture_expected = float(sum(map(int, counts)))


@GRAMMAR.says(r"Memory profiling takes ([\d.]+) seconds", "Memory")
def _v0_profiled(start: StartParser, match: re.Match[str], line: Line) -> None:
    if _leads(start, line):
        start.enter(Phase.PROFILING, start.now)


@GRAMMAR.says(r"model weights take [\d.]+ ?GiB;.*KV Cache is (-?[\d.]+) ?GiB", "model")
def _v0_kv(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.ranked("kv_gib", float(match[1]), line.speaker)
    if _leads(start, line):
        start.enter(Phase.KV_CACHE, start.now)


@GRAMMAR.says(r"Available KV cache memory: (-?[\d.]+) GiB")
def _kv_memory(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.ranked("kv_gib", float(match[1]), line.speaker)
    if not line.speaker.rank:
        start.enter(Phase.KV_CACHE, start.now)


@GRAMMAR.says(r"Explicitly set \(([\d.]+)/([\d.]+)\) GiB for KV cache")
def _kv_cpu(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.ranked("kv_gib", float(match[1]), line.speaker)
    if not line.speaker.rank:
        start.enter(Phase.KV_CACHE, start.now)


_CONCURRENCY = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
"""A line of its own to 0.27, behind the tokens on the same line since."""


@GRAMMAR.says(r"(?:\w+(?: \+ \w+)? )?KV cache size: ([\d,]+) tokens", "GPU", "CPU", "XPU", "TPU", "HPU", "NPU", "KV", "MPS")
def _kv_tokens(start: StartParser, match: re.Match[str], line: Line) -> None:
    if line.speaker.rank:
        return
    if start.was_ready:
        return
    if start.figure("kv_tokens") is None:
        start.ranked("kv_tokens", float(number(match[1])), line.speaker)
    concurrency = _CONCURRENCY.search(line.message)
    if concurrency:
        _concurrency(start, concurrency, line)
    start.enter(Phase.KV_CACHE, start.now)


@GRAMMAR.says(_CONCURRENCY.pattern, "Maximum")
def _concurrency(start: StartParser, match: re.Match[str], line: Line) -> None:
    if start.was_ready:
        return
    start.ranked("max_concurrency", float(match[2]), line.speaker)
    if start.max_model_len is None:
        start.max_model_len = number(match[1])


@GRAMMAR.says(r"# (?:(\w+) )?blocks: (\d+)(?:, # CPU blocks: (\d+))?", "#")
def _kv_blocks(start: StartParser, match: re.Match[str], line: Line) -> None:
    if line.speaker.rank or start.was_ready:
        return
    start.ranked("kv_tokens", float(int(match[2]) * start.block_size), line.speaker)
    start.enter(Phase.KV_CACHE, start.now)


@GRAMMAR.says(r"Overriding num_gpu_blocks=(\d+) with num_gpu_blocks_override=(\d+)")
def _blocks_override(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.enter(Phase.KV_CACHE, start.now)


# -- capture, warm-up --------------------------------------------------------------------------------------------------------------


@GRAMMAR.says(r"Capturing (?:the model for CUDA graphs|cudagraphs for decoding|model for .* speculator)", "Capturing")
def _capturing(start: StartParser, match: re.Match[str], line: Line) -> None:
    if _leads(start, line):
        start.enter(Phase.CAPTURING, start.now)


@GRAMMAR.says(r"Graph capturing finished in (\d+) secs", "Graph")
def _captured(start: StartParser, match: re.Match[str], line: Line) -> None:
    if not line.speaker.rank and start.phase is not Phase.WARMING_UP:
        start.enter(Phase.WARMING_UP, start.now)


@GRAMMAR.says(r"JIT kernel warmup (?:starting|finished)")
@GRAMMAR.says(r"Warmed (?:up )?")
@GRAMMAR.says(r"Autotuning FlashInfer")
@GRAMMAR.says(r"Running FlashInfer autotune")
@GRAMMAR.says(r"Skipping CUDA graph capture")
@GRAMMAR.says(r"Warming up (?!model for the compilation|done)", "Warming")
def _warming(start: StartParser, match: re.Match[str], line: Line) -> None:
    if start.phase in (Phase.KV_CACHE, Phase.CAPTURING):
        start.enter(Phase.WARMING_UP, start.now)


@GRAMMAR.says(r"init engine \(profile, create kv cache, warmup model\) took ([\d.]+) s", "init")
def _init_engine(start: StartParser, match: re.Match[str], line: Line) -> None:
    if start.was_ready:
        return
    start.ranked("init_engine_s", float(match[1]), line.speaker)
    start.enter(Phase.WARMING_UP, start.now)


# -- API server --------------------------------------------------------------------------------------------------------------------


@GRAMMAR.says(r"Starting vLLM (?:API )?server(?: (\d+))? on (\S+)", "Starting")
def _serving_soon(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.engine = start.engine or "vllm"
    start.serving_soon = True
    start.enter(Phase.WARMING_UP, start.now)
    if start.server_hidden:
        start.become_ready(start.now)


@GRAMMAR.says(r"Started server process \[(\d+)\]", "Started")
@GRAMMAR.says(r"Waiting for application startup", "Waiting")
def _uvicorn_starts(start: StartParser, match: re.Match[str], line: Line) -> None:
    if start.startup_is_ready:
        start.enter(Phase.WARMING_UP, start.now)


@GRAMMAR.says(r"Application startup complete", "Application")
def _startup_complete(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.startups += 1
    if not start.startup_is_ready:
        return
    start.engine = start.engine or "vllm"
    if start.startups >= start.api_servers:
        start.become_ready(start.now)
    else:
        start.enter(Phase.WARMING_UP, start.now)


@GRAMMAR.says(
    r"(?:OpenAI|vLLM gRPC|gRPC)? ?[Ss]erver (?:is ready to accept requests|started on)", "OpenAI", "vLLM", "Server", "gRPC"
)
def _rust_ready(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.become_ready(start.now)


# -- serving -----------------------------------------------------------------------------------------------------------------------

_STATS = re.compile(
    r"(?:Engine (\d{3,}): |\d+ Engines Aggregated: )?Avg prompt (?:throughput|tput): ([\d.]+) \S+, "
    r"Avg generation (?:throughput|tput): "
    r"([\d.]+) \S+, (?:Reqs )?Running: (\d+)(?: reqs)?(?:, Swapped: \d+ reqs)?, (?:Waiting|Pending): (\d+)"
)
_KV_USAGE = re.compile(r"KV cache (?:usage|used): ([\d.]+)%")
_PREFIX_HITS = re.compile(r"(?<!External )[Pp]refix cache hit rate: (?:GPU: )?([\d.]+)%")


@GRAMMAR.says(
    r"(?:Engine \d{3,}: |\d+ Engines Aggregated: )?Avg prompt (?:throughput|tput): ", "Engine", "Avg", *map(str, range(1, 1025))
)
def _stats(start: StartParser, match: re.Match[str], line: Line) -> None:
    stats = _STATS.match(line.message)
    if stats is None:
        return
    usage, hits = _KV_USAGE.search(line.message), _PREFIX_HITS.search(line.message)
    one = Serving(
        float(stats[2]),
        float(stats[3]),
        int(stats[4]),
        int(stats[5]),
        float(usage[1]) / 100 if usage else None,
        float(hits[1]) / 100 if hits else None,
        start.now,
    )
    start.statistics.take(one, int(stats[1]) if stats[1] else None)
    if float(stats[3]) > 0:
        start.stalls.clear()  # tokens flow: the waits were for a long step, not for a hung worker
    if start.phase is not Phase.READY:
        start.engine = start.engine or "vllm"
        start.become_ready(start.now)


@GRAMMAR.says(r"No available shared memory broadcast block found in (\d+)", "No")
def _shm_wait(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.waiting = True
    if start.phase is Phase.READY:
        start.stalls.append((start.now, line.message, start.line))


@GRAMMAR.says(r"Waiting for \d+ local, \d+ remote core engine proc\(s\) to start()", "Waiting")
def _core_wait(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.waiting = True


@GRAMMAR.says(r"vLLM is using (?:nccl|hccl|rccl)==", "vLLM")
@GRAMMAR.says(r"Found (?:nccl|hccl|rccl) from (?:library|environment)", "Found")
def _connecting(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.connecting = start.phase is Phase.STARTING


@GRAMMAR.says(r"Exception in worker \S+ while processing method load_model", "Exception")
def _load_failed(start: StartParser, match: re.Match[str], line: Line) -> None:
    """Workers of V0 may log nothing between their start and this."""
    if start.phase is Phase.STARTING:
        start.enter(Phase.LOADING, start.now)


@GRAMMAR.says(r"Status Code: \d+\. Retrying", "Status")
@GRAMMAR.says(r"Retry attempt #\d+\. Sleeping", "Retry")
def _fetching(start: StartParser, match: re.Match[str], line: Line) -> None:
    """Take the retries of the hub's transfer library (hf-xet) for a download."""
    if start.phase is Phase.LOADING and start.loaders.main is None:
        start.enter(Phase.DOWNLOADING, start.now)


# -- the end -----------------------------------------------------------------------------------------------------------------------


@GRAMMAR.says(r"\[shutdown\] .*?trigger received signal=(\w+)", "[shutdown]")
@GRAMMAR.says(r"\[shutdown\] API server: ", "[shutdown]")
@GRAMMAR.says(r"Shutdown initiated", "Shutdown")
@GRAMMAR.says(r"Received signal (?:2|15|SIGINT|SIGTERM)", "Received")
@GRAMMAR.says(r"Gracefully stopping", "Gracefully")
@GRAMMAR.says(r"vLLM ZMQ RPC Server was interrupted", "vLLM")
@GRAMMAR.says(r"DPSupervisor received \S+, shutting down", "DPSupervisor")
@GRAMMAR.says(r"Shutting down(?: FastAPI HTTP server)?\.?$", "Shutting")
@GRAMMAR.says(r"Finished server process", "Finished")
@GRAMMAR.says(r"Application shutdown complete", "Application")
def _stopping(start: StartParser, match: re.Match[str], line: Line) -> None:
    if start.phase is not Phase.FAILED:
        start.stopping = True
        start.end(Phase.STOPPED, start.now)


@GRAMMAR.says(r"(?:Terminating|Killing) local vLLM worker processes", "Terminating", "Killing")
def _winding_down(start: StartParser, match: re.Match[str], line: Line) -> None:
    if start.phase is not Phase.FAILED:
        start.winding_down = True
        start.end(Phase.STOPPED, start.now)


@GRAMMAR.says(r"Sleep mode freed ([\d.]+) GiB memory", "Sleep")
def _asleep(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.notes["sleep"] = "asleep: weights and KV cache are off the GPU; POST /wake_up brings it back"


@GRAMMAR.says(r"It took [\d.]+ seconds to wake up", "It")
def _awake(start: StartParser, match: re.Match[str], line: Line) -> None:
    start.notes.pop("sleep", None)
