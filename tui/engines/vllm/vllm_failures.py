"""vLLM's words for failures, as releases 0.4 to 0.33 have them."""

from tui.core.logs.grammar import FailureWords, Grammar
from tui.engines.vllm.vllm_advice import ADVICE

_ENGINE_DIED = r"engine core exited unexpectedly|Engine core proc"

GRAMMAR = Grammar(
    engine="vllm",
    source="vllm",
    advice=ADVICE,
    more_detail="VLLM_LOGGING_LEVEL=DEBUG",
    failures=FailureWords(
        kinds={
            "gpu_memory_in_use": (
                r"Free memory on device.*(?:on startup )?is less than desired GPU memory utilization|Error in memory profiling"
                r"|Initial free memory .* current free memory"
            ),
            "kv_cache_too_small": (
                r"larger than the maximum number of tokens that can be stored in KV cache|not enough GPU memory available to serve"
                r"|KV cache is needed, which is larger than|No available memory for the cache blocks"
            ),
            "max_model_len_too_large": (
                r"max_model_len \(?\d+\)? is greater than|greater than the derived max_model_len"
                r"|max_model_len.*(?:exceeds|larger than|must be)"
            ),
            "not_enough_gpus": r"World size \(\d+\) is larger than the number of available GPUs|Not enough allowed NUMA",
            "driver_mismatch": r"Failed to infer device type",
            "missing_library": r"vllm: not found",
            "ready_timeout": (
                r"Timed out waiting for engine (?:core )?process|Did not receive response from front-end process"
                r"|ENGINE_READY_TIMEOUT|Timed out waiting for new engine"
            ),
            "unsupported_model": (
                r"implementation of \S+ is not compatible with vLLM|has no vLLM implementation|is not supported by vLLM"
            ),
            "bad_argument": r"vllm.*: error:|LoRA rank \d+ is greater|max_num_\w+ \(\d+\)|not found in (?:reasoning|tool)_parsers",
            "hang": (
                r"RPC call to \S+ timed out|Engine iteration timed out|shared memory broadcast block|execute_model.*timed out"
                r"|sample_tokens.*timed out"
            ),
            "engine_died": _ENGINE_DIED,
        },
        wrappers=(
            r"Got fatal signal|Dumping (?:input data|scheduler)|Engine core initialization failed|Engine process failed to start"
            r"|WorkerProc initialization failed"
            r"|EngineCore (?:encountered an issue|failed to start|encountered a fatal error|hit an exception)"
            r"|Worker failed with error|Executor failed|(?<!Async)(?<!MQ)EngineDeadError"
            r"|AsyncEngineDeadError(?!: Engine iteration)|MQEngineDeadError|Background loop (?:has errored|is)"
            r"|AsyncLLM output_handler failed|RPCServer process died|readiness probe"
            r"|Error executing method|Exception in worker \S+ while processing method"
            r"|WorkerProc (?:failed to start|hit an exception)|Engine loop has died|Failed core proc|Data parallel engine"
            r"|Executor is not running"
        ),
        consequences=r"ensure_kv_transfer_shutdown|Command '\[?'(?:\S*/)?vllm'?[, ].*non-zero exit status",
        plain=r"Failed to infer device",
        hints=r"Failed to import from vllm",
        fatal=(
            r"EngineCore failed to start|EngineCore encountered a fatal error|EngineCore hit an exception"
            r"|Engine core initialization failed|Engine process failed to start|WorkerProc failed to start"
            r"|WorkerProc hit an exception|AsyncLLM output_handler failed"
            r"|EngineDeadError|AsyncEngineDeadError|MQEngineDeadError|Engine loop has died"
            r"|engine core exited unexpectedly|Engine iteration timed out|Background loop has errored"
            r"|Got fatal signal from worker processes|RPCServer process died|Timed out waiting for engine"
            r"|(?:Worker proc|Engine core proc)\b.{0,80}died unexpectedly|Engine core proc .*died"
        ),
        fatal_at_any_level=r"engine core exited unexpectedly",
        shell=r"vllm: (?:command )?not found",
        announcements=(
            r"(?:\b\w{0,40}(?:Engine|Worker)\w{0,40} (?:failed to start|hit an exception|encountered a fatal error)"
            r"|output_handler failed)\.$"
        ),
        introductions=("EngineCore ", "WorkerProc ", "AsyncLLM "),
        quoting=r"Worker failed with error",
        extension_hints=r"Failed to import from vllm",
        engine_ended=("EngineCore", _ENGINE_DIED),
        worker_ended=r"WorkerProc initialization failed|Worker proc|VllmWorker",
    ),
)
"""vLLM's grammar; the messages of a start are registered in `vllm_start` and `vllm_log`."""
