"""SGLang, releases 0.3 to 0.5."""

from typing import TYPE_CHECKING

from tui.engines.engine import Engine, MetricNames, ServerCommand

if TYPE_CHECKING:
    from tui.core.logs.grammar import Grammar


def _grammar() -> "Grammar":
    from tui.engines.sglang.sglang_log import GRAMMAR

    return GRAMMAR


ENGINE = Engine(
    name="sglang",
    title="SGLang",
    command=ServerCommand(
        patterns=(
            r"(?:.*/)?sglang\nserve(?:\n|$)",
            r"-m\nsglang\.(?:srt\.)?launch_server(?:\n|$)",
            r".*sglang.*/launch_server\.py(?:\n|$)",
        ),
        port=30000,
        mentions=("sglang",),
        options={
            "host": ("--host",),
            "port": ("--port",),
            "model": ("--model-path", "--model"),
            "served_name": ("--served-model-name",),
            "tensor_parallel": ("--tensor-parallel-size", "--tp-size", "--tp"),
            "batched_tokens": ("--chunked-prefill-size",),
            "key": ("--api-key",),
            "tls": ("--ssl-certfile",),
        },
        model_after="serve",
        titles=("sglang::",),
        orphans=("sglang::scheduler", "sglang::detokenizer"),
    ),
    metrics=MetricNames(
        prefix="sglang:",
        running=("num_running_reqs",),
        waiting=("num_queue_reqs",),
        kv_cache=("token_usage",),
        prompt_tokens=("prompt_tokens",),
        generation_tokens=("generation_tokens",),
        finished=("num_requests",),
        prefix_rate=("cache_hit_rate",),
        ttft=("time_to_first_token_seconds",),
    ),
    grammar=_grammar,
    start_markers=(r"server_args=ServerArgs\(",),
    start_texts=("server_args=ServerArgs(",),
    important=(
        r"server_args=|Init torch distr|Load weight (?:begin|end)|KV Cache is allocated|max_total_num_tokens",
        r"[Cc]apture cuda graph|Decode batch|ready to roll",
    ),
)
