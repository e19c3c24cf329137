"""The `log` document, and the report that a person reads."""

from datetime import UTC, datetime
from typing import Any

from tui.core.logs.report_text import lines
from tui.core.logs.state import LoadState, Outlook, Phase

__all__ = ["SCHEMA", "START_MARKERS", "document", "exit_code", "iso", "lines"]

START_MARKERS: tuple[str, ...] = (
    r"vLLM API server version ",
    r"vLLM server version ",
    r"(?:[^\x00-\x7f]| )  version \d+\.\d+",
    r"server_args=ServerArgs\(",
)
"""Regexes of lines that begin a server's start: a follower looks for the last of them to attach fast. They are searched for in
bytes as well as in text, so they name no character beyond ASCII."""

SCHEMA = 1


def document(load: LoadState, outlook: Outlook) -> dict[str, Any]:
    """The JSON of `readyroom log --json`, and of the `load` object inside `status --json`."""
    shards = load.shards
    failure = load.failure
    return {
        "schema": SCHEMA,
        "engine": load.engine,
        "version": load.version,
        "model": load.model,
        "served_names": list(load.served_names),
        "phase": load.phase.value,
        "ready": load.ready,
        "was_ready": load.was_ready,
        "verdict": outlook.verdict.value,
        "verdict_reason": outlook.reason or None,
        "shards": None
        if shards is None
        else {
            "done": shards.done,
            "total": shards.total,
            "percent": round(100 * shards.done / shards.total, 1) if shards.total else None,
            "elapsed_s": _rounded(outlook.elapsed_s),
            "s_per_shard": _rounded(outlook.s_per_shard, 3),
            "eta_s": _rounded(outlook.shards_eta_s),
        },
        "loaders": [{"what": one.what, "done": one.done, "total": one.total, "unit": one.unit} for one in load.loaders],
        "weights": {
            "load_s": load.load_s,
            "model_load_s": load.model_load_s,
            "download_s": load.download_s,
            "gib_per_gpu": load.gib_per_gpu,
            "checkpoint_gib": load.checkpoint_gib,
        },
        "kv_cache": {"tokens": load.kv_tokens, "gib_per_gpu": load.kv_gib_per_gpu, "max_concurrency": load.max_concurrency},
        "engines": load.engines,
        "parallel": {"tensor": load.tensor_parallel, "pipeline": load.pipeline_parallel, "data": load.data_parallel},
        "max_model_len": load.max_model_len,
        "quantization": load.quantization,
        "attention_backend": load.attention_backend,
        "init_engine_s": load.init_engine_s,
        "capture": None if load.capture is None else {"done": load.capture.done, "total": load.capture.total},
        "started_at": iso(load.started_at),
        "ready_s": _rounded(outlook.ready_s),
        "ready_eta_s": _rounded(outlook.ready_eta_s),
        "ends": outlook.ends or None,
        "last_line_at": iso(load.last_line_at),
        "silent_s": _rounded(outlook.silent_s),
        "phases": [
            {"name": span.name.value, "started_at": iso(span.started_at), "seconds": _rounded(span.seconds)} for span in load.phases
        ],
        "serving": None
        if load.serving is None
        else {
            "prompt_tokens_s": load.serving.prompt_tokens_s,
            "generation_tokens_s": load.serving.generation_tokens_s,
            "running": load.serving.running,
            "waiting": load.serving.waiting,
            "kv_cache_share": load.serving.kv_cache_share,
            "prefix_hit_share": load.serving.prefix_hit_share,
            "at": iso(load.serving.at),
        },
        "failure": None
        if failure is None
        else {
            "kind": failure.kind,
            "phase": failure.phase.value,
            "cause": failure.cause,
            "process": failure.process,
            "line": failure.line,
            "advice": failure.advice,
        },
        "silences": [
            {"seconds": _rounded(one.seconds), "phase": one.phase.value, "line": one.line, "at": iso(one.at)}
            for one in load.silences
        ],
        "restarts": load.restarts,
        "lines": load.lines,
        "service": load.service,
        "services": list(load.services),
        "notes": list(load.notes),
    }


def exit_code(load: LoadState) -> int:
    """0 ready, 3 on the way, 4 failed, 7 stopped."""
    if load.phase is Phase.READY:
        return 0
    return {Phase.FAILED: 4, Phase.STOPPED: 7}.get(load.phase, 3)


def iso(at: float | None) -> str | None:
    """A time of the log's own clock, without a zone, since it prints none."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).replace(tzinfo=None).isoformat(timespec="seconds")


def _rounded(number: float | None, digits: int = 1) -> float | None:
    return None if number is None else round(number, digits)
