"""vLLM, releases 0.4 to 0.33."""

from typing import TYPE_CHECKING

from tui.engines.engine import Engine, MetricNames, ReadyTimeout, ServerCommand

if TYPE_CHECKING:
    from tui.core.logs.grammar import Grammar


def _grammar() -> "Grammar":
    from tui.engines.vllm.vllm_log import GRAMMAR

    return GRAMMAR


ENGINE = Engine(
    name="vllm",
    title="vLLM",
    command=ServerCommand(
        patterns=(
            r"(?:.*/)?vllm\nserve(?:\n|$)",
            r"-m\nvllm\nserve(?:\n|$)",
            r"-m\nvllm\.entrypoints\.",
            r".*vllm.*/api_server\.py(?:\n|$)",
        ),
        port=8000,
        mentions=("vllm", "VLLM::[AE]"),
        options={
            "host": ("--host",),
            "port": ("--port",),
            "model": ("--model", "--model-path"),
            "served_name": ("--served-model-name",),
            "tensor_parallel": ("--tensor-parallel-size", "-tp"),
            "pipeline_parallel": ("--pipeline-parallel-size", "-pp"),
            "data_parallel": ("--data-parallel-size", "-dp"),
            "batched_tokens": ("--max-num-batched-tokens",),
            "api_servers": ("--api-server-count", "-asc"),
            "key": ("--api-key",),
            "tls": ("--ssl-certfile",),
            "uds": ("--uds",),
        },
        model_after="serve",
        titles=("VLLM::", "vllm::"),
        orphans=("VLLM::EngineCore", "VLLM::Worker", "VLLM::DPCoordinator"),
        variables={"key": "VLLM_API_KEY", "ready_timeout_s": "VLLM_ENGINE_READY_TIMEOUT_S"},
    ),
    # Names changed between V0 and V1 and within V1: `gpu_cache_usage_perc` became `kv_cache_usage_perc`.
    metrics=MetricNames(
        prefix="vllm:",
        running=("num_requests_running",),
        waiting=("num_requests_waiting",),
        kv_cache=("kv_cache_usage_perc", "gpu_cache_usage_perc"),
        prompt_tokens=("prompt_tokens",),
        generation_tokens=("generation_tokens",),
        preemptions=("num_preemptions",),
        finished=("request_success",),
        prefix_queries=("prefix_cache_queries", "gpu_prefix_cache_queries"),
        prefix_hits=("prefix_cache_hits", "gpu_prefix_cache_hits"),
        prefix_rate=("gpu_prefix_cache_hit_rate",),
        ttft=("time_to_first_token_seconds",),
    ),
    grammar=_grammar,
    start_markers=(r"vLLM API server version ", r"vLLM server version ", r"(?:[^\x00-\x7f]| )  version \d+\.\d+"),
    start_texts=("vLLM API server version ", "vLLM server version "),
    important=(
        r"vLLM (?:API )?server version|LLM engine \(v|non-default args:|args: Namespace|Automatically detected platform",
        r"Resolved architecture|Using max model len|Started (?:engine process|\d+ API server|DP Coordinator)|Launching \d+ data",
        r"model   |version \d+\.\d+|Defaulting api_server_count|world size|world_size=|Starting server process",
        r"Starting to load|Loading (?:drafter|weights took|model weights took)|Model loading took",
        r"Time spent downloading|Initializing model took|Deserialized|GGUF shard|Checkpoint size",
        r"[Dd]ynamo bytecode|torch\.compile|Compiling a graph|compiled graph|AOT compil|profiling/warmup|[Mm]emory profiling",
        r"KV [Cc]ache (?:memory|size)|[Bb]locks: \d|Maximum concurrency|CUDA graph|init engine",
        r"Starting vLLM|ready to accept|Avg prompt|fall asleep|wake up|Sleep mode|shared memory broadcast|EngineDead",
    ),
    noise=("Received request ", "Added request "),
    ready_timeout=ReadyTimeout("VLLM_ENGINE_READY_TIMEOUT_S", 600.0, (0, 14)),
)
