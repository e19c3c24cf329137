"""What to do about a failure: the flag or command to try, with the figures of this log in it."""

from tui.core.logs import advice_host as host
from tui.core.logs import advice_model as model
from tui.core.logs.advice_model import Writer
from tui.core.logs.root_cause import Finding
from tui.core.logs.start_parser import StartParser


def advice(chosen: Finding, start: StartParser) -> str:
    """One or two sentences; never empty."""
    trouble = chosen.trouble
    text = chosen.cause
    if trouble is not None:
        text = f"{trouble.text}\n{trouble.raised.full}" if trouble.raised is not None else trouble.text
    writer = WRITERS.get(chosen.kind, other)
    if start.engine == "sglang":
        written = _SGLANG.get(chosen.kind)
        if written:
            return written
    return " ".join(writer(text, start, chosen).split())


def other(text: str, start: StartParser, chosen: Finding) -> str:
    if "forked subprocess" in text:
        return "Set VLLM_WORKER_MULTIPROC_METHOD=spawn."
    if "ermission denied" in text:
        return "The server's user may not read or write that path: correct its owner or mode, or the mount of the container."
    where = f"line {chosen.line}" if chosen.line else "the log"
    return f"Read the lines around {where}; VLLM_LOGGING_LEVEL=DEBUG says more at the next start."


WRITERS: dict[str, Writer] = {
    "cuda_oom": model.oom,
    "host_oom_or_killed": host.killed,
    "kv_cache_too_small": model.kv_cache,
    "max_model_len_too_large": model.max_model_len,
    "gpu_memory_in_use": model.in_use,
    "missing_file": model.missing_file,
    "corrupt_checkpoint": model.corrupt,
    "shape_mismatch": model.shape,
    "unsupported_model": model.model_unsupported,
    "unsupported_quantization": model.quantization,
    "tokenizer": model.tokenizer,
    "hub_auth": model.auth,
    "hub_unreachable": model.hub,
    "disk_full": host.disk,
    "shm_too_small": host.shm,
    "port_in_use": host.port,
    "bad_argument": model.argument,
    "missing_library": host.library,
    "driver_mismatch": host.driver,
    "no_kernel_image": host.kernel_image,
    "nccl": host.nccl,
    "distributed_timeout": host.timeout,
    "ready_timeout": model.ready_timeout,
    "ray_placement": host.ray,
    "not_enough_gpus": host.gpus,
    "gpu_lost": host.gpu_lost,
    "killed_by_supervisor": host.supervisor,
    "worker_died": host.worker,
    "engine_died": host.engine,
    "compile_error": host.compile,
    "hang": host.hang,
    "cuda_error": host.cuda,
    "gpu_memory_fault": host.memory_fault,
}

_SGLANG = {
    "kv_cache_too_small": (
        "Nothing is left for the KV cache: raise --mem-fraction-static, lower --context-length, or use more GPUs (--tp)."
    ),
    "cuda_oom": (
        "GPU memory ran out: lower --mem-fraction-static, --chunked-prefill-size or --cuda-graph-max-bs, or use more GPUs (--tp)."
    ),
    "hang": (
        "The scheduler does not answer: py-spy dump its processes, look at dmesg for Xid, and restart; --watchdog-timeout sets "
        "when."
    ),
}
