"""Writes logs in the formats of vLLM's releases, for tables of situations that no recording holds."""

import json
from collections.abc import Sequence
from typing import Any

from tui.core.logs.load_state import LoadState
from tui.core.logs.log_reader import LogReader
from tui.core.text import LineSplitter

FRAMES = ('  File "/usr/lib/python3/dist-packages/vllm/v1/worker/gpu_worker.py", line 1, in f', "    self.x()")
WORKER_WRAPPER = (
    "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause."
)
ENGINE_WRAPPER = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
DEAD = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."
SHARDS = "Loading safetensors checkpoint shards"


def bar(done: float, total: float, elapsed: str = "00:10", rate: str = "1.00s/it", name: str = SHARDS) -> str:
    """Return one refresh of a shard bar."""
    return f"{name}: {int(100 * done / total):3d}% Completed | {done:g}/{total:g} [{elapsed}<00:10, {rate:>9}]"


def read(text: str) -> LoadState:
    """Return what the log says at its end."""
    reader, splitter = LogReader(2026), LineSplitter()
    for line in splitter.feed(text.encode()) + splitter.flush():
        reader.feed(line)
    reader.finish()
    return reader.state


class Log:
    """A log that grows line by line, a second each."""

    def __init__(self, old: bool = False) -> None:
        self.lines: list[str] = []
        self._seconds = 0
        self._old = old
        """The record format before 0.8, without an opening bracket."""

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"

    def clock(self, step: int = 1) -> str:
        self._seconds += step
        return f"11-29 {10 + self._seconds // 3600:02d}:{self._seconds // 60 % 60:02d}:{self._seconds % 60:02d}"

    def say(self, process: str, message: str, level: str = "INFO", where: str = "x.py:1", step: int = 1) -> "Log":
        """Add a record. `process` is `Worker_TP0 pid=20`, or empty."""
        prefix = f"({process}) " if process else ""
        place = f"{where}]" if self._old else f"[{where}]"
        self.lines.append(f"{prefix}{level} {self.clock(step)} {place} {message}")
        return self

    def raw(self, *lines: str) -> "Log":
        self.lines += lines
        return self

    def fails(self, process: str, said: str, exception: str, where: str = "core.py:1", frames: Sequence[str] = FRAMES) -> "Log":
        """Add a traceback in records of one process, after the line that announces it."""
        self.say(process, said, "ERROR", where)
        for line in ("Traceback (most recent call last):", *frames, *exception.split("\n")):
            self.say(process, line, "ERROR", where, step=0)
        return self

    def raises(self, exception: str, process: str = "", said: str = "", frames: Sequence[str] = FRAMES) -> "Log":
        """Add a bare traceback, as Python prints it."""
        prefix = f"({process}) " if process else ""
        lines = ([said] if said else []) + ["Traceback (most recent call last):", *frames, *exception.split("\n")]
        return self.raw(*(prefix + line for line in lines))

    def starts(
        self,
        version: str = "0.24.0",
        tensor: int = 2,
        data: int = 1,
        api: str = "APIServer pid=1",
        engine: str = "EngineCore pid=10",
    ) -> "Log":
        """Add the lines from the logo to the engine's configuration."""
        self.say(api, "", where="api_utils.py:339")
        self.say(api, " ▄▄ ▄█ █     █     █ ▀▄▀ █  version " + version, where="api_utils.py:339", step=0)
        self.say(api, "   █▄█▀ █     █     █     █  model   org/m", where="api_utils.py:339", step=0)
        arguments = {"model": "org/m", "tensor_parallel_size": tensor, "data_parallel_size": data, "port": 8123}
        self.say(api, f"non-default args: {arguments}")
        self.say(api, "Using max model len 32768")
        return self.say(
            engine,
            f"Initializing a V1 LLM engine (v{version}) with config: model='org/m', speculative_config=None, max_seq_len=32768, "
            f"tensor_parallel_size={tensor}, pipeline_parallel_size=1, data_parallel_size=1, quantization=None",
        )

    def loads(self, worker: str = "Worker_TP0 pid=20", total: int = 2) -> "Log":
        """Add weights, memory and KV cache."""
        self.say(worker, "Starting to load model org/m...")
        self.raw(bar(0, total, "00:00", "?it/s"), bar(total, total), bar(total, total), "")
        self.say(worker, "Loading weights took 10.1 seconds")
        self.say(worker, "Model loading took 12.3 GiB memory and 11.0 seconds")
        self.say(worker, "Available KV cache memory: 33.1 GiB")
        self.say("EngineCore pid=10", "GPU KV cache size: 1,000,000 tokens")
        return self.say("EngineCore pid=10", "Maximum concurrency for 32,768 tokens per request: 30.52x")

    def serves(self) -> "Log":
        """Up to ready."""
        self.say("EngineCore pid=10", "init engine (profile, create kv cache, warmup model) took 22.10 s (compilation: 6.00 s)")
        self.say("APIServer pid=1", "Starting vLLM server on http://0.0.0.0:8123")
        return self.raw(
            "INFO:     Started server process [1]",
            "INFO:     Waiting for application startup.",
            "INFO:     Application startup complete.",
        )

    def gives_up(self) -> "Log":
        """Add the wrappers that follow a worker's failure."""
        self.fails("EngineCore pid=10", "EngineCore failed to start.", WORKER_WRAPPER)
        self.raises(WORKER_WRAPPER, said="Process EngineCore:")
        return self.raises(ENGINE_WRAPPER)

    def dies(self, cause: str = "RuntimeError: Executor failed.") -> "Log":
        """Add the end of a serving engine."""
        self.fails("EngineCore pid=10", "EngineCore encountered a fatal error.", cause)
        return self.fails("APIServer pid=1", "AsyncLLM output_handler failed.", DEAD, "async_llm.py:704")


def json_record(message: str, level: str = "INFO", process: str = "APIServer", pid: int = 1, trace: str | None = None) -> str:
    """Return one JSON record of 0.32 and later."""
    record: dict[str, object] = {
        "asctime": "2026-11-29 19:30:33,186",
        "levelname": level,
        "name": "vllm.x",
        "processName": "MainProcess",
        "process": pid,
        "message": message,
        "vllm_process_name": process,
    }
    if trace:
        record["exc_info"] = trace
    return json.dumps(record)


def seen(load: LoadState, field: str) -> Any:
    """Return a fact by its short name."""
    match field:
        case "phase":
            return load.phase.value
        case "shards":
            return load.shards and (load.shards.done, load.shards.total)
        case "others":
            return [(loader.what, loader.done, loader.total) for loader in load.loaders if loader.what != "model"]
        case "kind":
            return load.failure and load.failure.kind
        case "failed_in":
            return load.failure and load.failure.phase.value
        case "process":
            return load.failure and load.failure.process
        case _:
            return getattr(load, field)


def check(text: str, wanted: dict[str, Any]) -> None:
    """Compare what a log says at its end with the right answers; `cause` and `advice` need only be parts of it."""
    load = read(text)
    cause = wanted.get("cause")
    got = {field: seen(load, field) for field in wanted if field not in ("cause", "advice")}
    assert got == {field: value for field, value in wanted.items() if field not in ("cause", "advice")}, load.failure
    if load.failure is not None:
        assert load.failure.advice
        assert load.failure.line
        assert len(load.failure.cause) <= 200
    if cause is not None:
        assert load.failure is not None
        assert cause.lower() in load.failure.cause.lower()
    if "advice" in wanted:
        assert load.failure is not None
        assert wanted["advice"] in load.failure.advice
