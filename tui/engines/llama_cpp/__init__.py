"""llama.cpp's `llama-server`."""

from typing import TYPE_CHECKING

from tui.engines.engine import Engine, MetricNames, ServerCommand

if TYPE_CHECKING:
    from tui.core.logs.grammar import Grammar


def _grammar() -> "Grammar":
    from tui.engines.llama_cpp.llama_server_log import GRAMMAR

    return GRAMMAR


ENGINE = Engine(
    name="llama.cpp",
    title="llama.cpp",
    command=ServerCommand(
        patterns=(r"(?:.*/)?llama-server(?:\n|$)",),
        port=8080,
        host="127.0.0.1",
        mentions=("llama-server",),
        options={
            "host": ("--host",),
            "port": ("--port",),
            "model": ("--model", "-m", "--hf-repo", "-hf", "-hfr", "--model-url", "-mu"),
            "served_name": ("--alias", "-a"),
            "key": ("--api-key", "--api-key-file"),
            "tls": ("--ssl-cert-file",),
        },
        variables={"key": "LLAMA_API_KEY"},
    ),
    # Only with --metrics.
    metrics=MetricNames(
        prefix="llamacpp:",
        running=("requests_processing",),
        waiting=("requests_deferred",),
        kv_cache=("kv_cache_usage_ratio",),
        prompt_tokens=("prompt_tokens",),
        generation_tokens=("tokens_predicted",),
    ),
    grammar=_grammar,
    start_markers=(r"common_params_print_info: verbosity = ",),
    start_texts=("common_params_print_info: verbosity = ",),
    important=(
        r"common_params_print_info|load_model: (?:loading|initializing)|model loaded|listening on http|offloaded \d",
        r"print_info: file|buffer size|llama_kv_cache|warming up the model|cleaning up before exit|couldn't bind",
    ),
    noise=("print_timing: ", "launch_slot_: "),
)
