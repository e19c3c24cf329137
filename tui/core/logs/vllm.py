"""vLLM's table: what each message of releases 0.4 to 0.33 says about the course of a start."""

import re

from tui.core.logs.load_state import Phase, Serving
from tui.core.logs.log_records import Line
from tui.core.logs.start_parser import Course
from tui.core.logs.table import MESSAGES, Handler, number, says
from tui.core.logs.vllm_start import LOGO_MODEL, LOGO_VERSION, banner

__all__ = ["LOGO_MODEL", "LOGO_VERSION", "MESSAGES", "Handler", "banner"]

# -- weights -----------------------------------------------------------------------------------------------------------------------


@says(r"Using model weights format ()", "Using")
@says(r"Loading weights with BitsAndBytes quantization()", "Loading")
@says(r"Starting to load model(?: (.+?))?(?:\.\.\.)?$", "Starting")
def _load_begins(course: Course, match: re.Match[str], line: Line) -> None:
    course.start_seen = True
    course.engine = course.engine or "vllm"
    if match[1]:
        course.model = course.model or match[1]
    if _leads(course, line) and (course.phase is Phase.STARTING or line.message.startswith("Starting")):
        course.enter(Phase.LOADING, course.now)


def _leads(course: Course, line: Line) -> bool:
    """Does this process's word move the phase? Other ranks than the first only do before anyone else has spoken."""
    return not (line.speaker.rank and course.phase is not Phase.STARTING)


@says(r"Loading drafter model")
def _drafter(course: Course, match: re.Match[str], line: Line) -> None:
    course.loaders.drafter_announced = True
    course.enter(Phase.LOADING, course.now)


@says(r"Filesystem type for checkpoints: (\S+?)\. Checkpoint size: ([\d.]+) GiB")
def _checkpoint(course: Course, match: re.Match[str], line: Line) -> None:
    if course.checkpoint_gib is None:
        course.checkpoint_gib = float(match[2])
    if match[1].upper().startswith(("NFS", "LUSTRE", "CIFS", "FUSE", "GPFS", "CEPH", "9P")):
        course.notes["filesystem"] = f"weights on {match[1]}: the network storage sets the pace"


@says(r"Time spent downloading weights for .*: ([\d.]+) seconds")
def _downloaded(course: Course, match: re.Match[str], line: Line) -> None:
    course.ranked("download_s", float(match[1]), line.speaker)
    if course.phase is Phase.DOWNLOADING:
        course.enter(Phase.LOADING, course.now)


@says(r"Prefetching checkpoint files: \s*\d+% \((\d+)/(\d+)\)")
def _prefetch(course: Course, match: re.Match[str], line: Line) -> None:
    if not line.speaker.rank:
        course.loaders.prefetch(float(match[1]), float(match[2]), line.speaker.key, course.now)


@says(r"Loading weights took ([\d.]+) seconds")
def _weights_took(course: Course, match: re.Match[str], line: Line) -> None:
    drafter = course.loaders.drafter_announced and course.figure("load_s") is not None
    if not line.speaker.rank:
        course.loaders.weights_took += 1
    if not drafter and course.loaders.model_loading_took == 0 and not course.was_ready:
        course.ranked("load_s", float(match[1]), line.speaker)
    course.loaders.settle()
    if not line.speaker.rank and not course.loaders.incomplete:
        course.enter(Phase.POST_LOADING, course.now)


@says(r"Deserialized (\S+) in ([\d.]+)s", "Deserialized")
def _deserialized(course: Course, match: re.Match[str], line: Line) -> None:
    """Tensorizer draws no bar."""
    course.ranked("load_s", float(match[2]), line.speaker)
    if not line.speaker.rank:
        course.enter(Phase.POST_LOADING, course.now)


@says(r"Loading model weights took ([\d.]+) ?(?:GiB|GB)")
@says(r"Model loading took ([\d.]+) ?(?:GiB|GB)(?: memory)?(?: and ([\d.]+) seconds)?")
def _model_took(course: Course, match: re.Match[str], line: Line) -> None:
    if course.was_ready:
        return
    course.ranked("gib_per_gpu", float(match[1]), line.speaker)
    if match.re.groups > 1 and match[2]:
        course.ranked("model_load_s", float(match[2]), line.speaker)
    if not line.speaker.rank:
        course.loaders.model_loading_took += 1
        if course.phase in (Phase.STARTING, Phase.LOADING, Phase.POST_LOADING, Phase.DOWNLOADING) and not course.loaders.incomplete:
            course.enter(Phase.PROFILING, course.now)


# -- compile, profiling, KV cache --------------------------------------------------------------------------------------------------


@says(r"Using cache directory: .* for vLLM's torch\.compile")
@says(r"Starting torch\.compile", "Starting")
@says(r"Dynamo bytecode transform time")
@says(r"Compiling a graph for")
@says(r"Cache the graph of")
@says(r"Directly (?:load|lookup) (?:the (?:compiled )?graph|AOT compilation)")
@says(r"sav(?:ed|ing) AOT compiled function", "saved", "saving")
@says(r"Warming up model for the compilation")
def _compiling(course: Course, match: re.Match[str], line: Line) -> None:
    if _leads(course, line):
        course.enter(Phase.COMPILING, course.now)


@says(r"torch\.compile (?:takes|took) ([\d.]+) s in total", "torch.compile")
@says(r"Initial profiling/warmup run took")
@says(r"Profiling CUDA graph memory")
@says(r"Encoder cache will be initialized")
@says(r"Warming up done")
def _profiling(course: Course, match: re.Match[str], line: Line) -> None:
    if _leads(course, line):
        course.enter(Phase.PROFILING, course.now)


@says(r"Profiling CUDA graph memory: (.*)")
def _graphs_expected(course: Course, match: re.Match[str], line: Line) -> None:
    counts = re.findall(r"\w+=(\d+) \(largest", match[1])
    if counts:
        course.capture_expected = float(sum(map(int, counts)))


@says(r"Memory profiling takes ([\d.]+) seconds", "Memory")
def _v0_profiled(course: Course, match: re.Match[str], line: Line) -> None:
    if _leads(course, line):
        course.enter(Phase.PROFILING, course.now)


@says(r"model weights take [\d.]+ ?GiB;.*KV Cache is (-?[\d.]+) ?GiB", "model")
def _v0_kv(course: Course, match: re.Match[str], line: Line) -> None:
    course.ranked("kv_gib", float(match[1]), line.speaker)
    if _leads(course, line):
        course.enter(Phase.KV_CACHE, course.now)


@says(r"Available KV cache memory: (-?[\d.]+) GiB")
def _kv_memory(course: Course, match: re.Match[str], line: Line) -> None:
    course.ranked("kv_gib", float(match[1]), line.speaker)
    if not line.speaker.rank:
        course.enter(Phase.KV_CACHE, course.now)


@says(r"Explicitly set \(([\d.]+)/([\d.]+)\) GiB for KV cache")
def _kv_cpu(course: Course, match: re.Match[str], line: Line) -> None:
    course.ranked("kv_gib", float(match[1]), line.speaker)
    if not line.speaker.rank:
        course.enter(Phase.KV_CACHE, course.now)


_CONCURRENCY = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
"""A line of its own to 0.27, behind the tokens on the same line since."""


@says(r"(?:\w+(?: \+ \w+)? )?KV cache size: ([\d,]+) tokens", "GPU", "CPU", "XPU", "TPU", "HPU", "NPU", "KV", "MPS")
def _kv_tokens(course: Course, match: re.Match[str], line: Line) -> None:
    if line.speaker.rank:
        return
    if course.was_ready:
        return
    if course.figure("kv_tokens") is None:
        course.ranked("kv_tokens", float(number(match[1])), line.speaker)
    concurrency = _CONCURRENCY.search(line.message)
    if concurrency:
        _concurrency(course, concurrency, line)
    course.enter(Phase.KV_CACHE, course.now)


@says(_CONCURRENCY.pattern, "Maximum")
def _concurrency(course: Course, match: re.Match[str], line: Line) -> None:
    if course.was_ready:
        return
    course.ranked("max_concurrency", float(match[2]), line.speaker)
    if course.max_model_len is None:
        course.max_model_len = number(match[1])


@says(r"# (?:(\w+) )?blocks: (\d+)(?:, # CPU blocks: (\d+))?", "#")
def _kv_blocks(course: Course, match: re.Match[str], line: Line) -> None:
    if line.speaker.rank or course.was_ready:
        return
    course.ranked("kv_tokens", float(int(match[2]) * course.block_size), line.speaker)
    course.enter(Phase.KV_CACHE, course.now)


@says(r"Overriding num_gpu_blocks=(\d+) with num_gpu_blocks_override=(\d+)")
def _blocks_override(course: Course, match: re.Match[str], line: Line) -> None:
    course.enter(Phase.KV_CACHE, course.now)


# -- capture, warm-up --------------------------------------------------------------------------------------------------------------


@says(r"Capturing (?:the model for CUDA graphs|cudagraphs for decoding|model for .* speculator)", "Capturing")
def _capturing(course: Course, match: re.Match[str], line: Line) -> None:
    if _leads(course, line):
        course.enter(Phase.CAPTURING, course.now)


@says(r"Graph capturing finished in (\d+) secs", "Graph")
def _captured(course: Course, match: re.Match[str], line: Line) -> None:
    if not line.speaker.rank and course.phase is not Phase.WARMING_UP:
        course.enter(Phase.WARMING_UP, course.now)


@says(r"JIT kernel warmup (?:starting|finished)")
@says(r"Warmed (?:up )?")
@says(r"Autotuning FlashInfer")
@says(r"Running FlashInfer autotune")
@says(r"Skipping CUDA graph capture")
@says(r"Warming up (?!model for the compilation|done)", "Warming")
def _warming(course: Course, match: re.Match[str], line: Line) -> None:
    if course.phase in (Phase.KV_CACHE, Phase.CAPTURING):
        course.enter(Phase.WARMING_UP, course.now)


@says(r"init engine \(profile, create kv cache, warmup model\) took ([\d.]+) s", "init")
def _init_engine(course: Course, match: re.Match[str], line: Line) -> None:
    if course.was_ready:
        return
    course.ranked("init_engine_s", float(match[1]), line.speaker)
    course.enter(Phase.WARMING_UP, course.now)


# -- API server --------------------------------------------------------------------------------------------------------------------


@says(r"Starting vLLM (?:API )?server(?: (\d+))? on (\S+)", "Starting")
def _serving_soon(course: Course, match: re.Match[str], line: Line) -> None:
    course.engine = course.engine or "vllm"
    course.serving_soon = True
    course.enter(Phase.WARMING_UP, course.now)
    if course.server_hidden:
        course.become_ready(course.now)


@says(r"Started server process \[(\d+)\]", "Started")
@says(r"Waiting for application startup", "Waiting")
def _uvicorn_starts(course: Course, match: re.Match[str], line: Line) -> None:
    if course.engine != "sglang":
        course.enter(Phase.WARMING_UP, course.now)


@says(r"Application startup complete", "Application")
def _startup_complete(course: Course, match: re.Match[str], line: Line) -> None:
    course.startups += 1
    if course.engine == "sglang":
        return
    course.engine = course.engine or "vllm"
    if course.startups >= course.api_servers:
        course.become_ready(course.now)
    else:
        course.enter(Phase.WARMING_UP, course.now)


@says(r"(?:OpenAI|vLLM gRPC|gRPC)? ?[Ss]erver (?:is ready to accept requests|started on)", "OpenAI", "vLLM", "Server", "gRPC")
def _rust_ready(course: Course, match: re.Match[str], line: Line) -> None:
    course.become_ready(course.now)


# -- serving -----------------------------------------------------------------------------------------------------------------------

_STATS = re.compile(
    r"(?:Engine (\d{3,}): |\d+ Engines Aggregated: )?Avg prompt (?:throughput|tput): ([\d.]+) \S+, "
    r"Avg generation (?:throughput|tput): "
    r"([\d.]+) \S+, (?:Reqs )?Running: (\d+)(?: reqs)?(?:, Swapped: \d+ reqs)?, (?:Waiting|Pending): (\d+)"
)
_KV_USAGE = re.compile(r"KV cache (?:usage|used): ([\d.]+)%")
_PREFIX_HITS = re.compile(r"(?<!External )[Pp]refix cache hit rate: (?:GPU: )?([\d.]+)%")


@says(r"(?:Engine \d{3,}: |\d+ Engines Aggregated: )?Avg prompt (?:throughput|tput): ", "Engine", "Avg", *map(str, range(1, 1025)))
def _stats(course: Course, match: re.Match[str], line: Line) -> None:
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
        course.now,
    )
    course.statistics.take(one, int(stats[1]) if stats[1] else None)
    if float(stats[3]) > 0:
        course.stalls.clear()  # tokens flow: the waits were for a long step, not for a hung worker
    if course.phase is not Phase.READY:
        course.engine = course.engine or "vllm"
        course.become_ready(course.now)


@says(r"No available shared memory broadcast block found in (\d+)", "No")
def _shm_wait(course: Course, match: re.Match[str], line: Line) -> None:
    if course.phase is Phase.READY:
        course.stalls.append((course.now, line.message, course.line))


# -- the end -----------------------------------------------------------------------------------------------------------------------


@says(r"\[shutdown\] .*?trigger received signal=(\w+)", "[shutdown]")
@says(r"\[shutdown\] API server: ", "[shutdown]")
@says(r"Shutdown initiated", "Shutdown")
@says(r"Received signal (?:2|15|SIGINT|SIGTERM)", "Received")
@says(r"Gracefully stopping", "Gracefully")
@says(r"vLLM ZMQ RPC Server was interrupted", "vLLM")
@says(r"DPSupervisor received \S+, shutting down", "DPSupervisor")
@says(r"Shutting down(?: FastAPI HTTP server)?\.?$", "Shutting")
@says(r"Finished server process", "Finished")
@says(r"Application shutdown complete", "Application")
def _stopping(course: Course, match: re.Match[str], line: Line) -> None:
    if course.phase is not Phase.FAILED:
        course.stopping = True
        course.end(Phase.STOPPED, course.now)


@says(r"(?:Terminating|Killing) local vLLM worker processes", "Terminating", "Killing")
def _winding_down(course: Course, match: re.Match[str], line: Line) -> None:
    if course.phase is not Phase.FAILED:
        course.winding_down = True
        course.end(Phase.STOPPED, course.now)


@says(r"Sleep mode freed ([\d.]+) GiB memory", "Sleep")
def _asleep(course: Course, match: re.Match[str], line: Line) -> None:
    course.notes["sleep"] = "asleep: weights and KV cache are off the GPU; POST /wake_up brings it back"


@says(r"It took [\d.]+ seconds to wake up", "It")
def _awake(course: Course, match: re.Match[str], line: Line) -> None:
    course.notes.pop("sleep", None)
