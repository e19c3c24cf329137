"""How the simulated server fails: the tracebacks that vLLM 0.24 prints, from the worker up to the API server."""

from __future__ import annotations

import asyncio
import os
import select
import time
from typing import Protocol

from tui.simulator.server_log import ServerLog

_SITE = "/opt/vllm/lib/python3.12/site-packages"
_PYTHON = "/usr/lib/python3.12"
Frame = tuple[str, int, str, str]


class FailingStart(Protocol):
    """Name the processes of a start that fails, as its log names them."""

    log: ServerLog

    @property
    def api(self) -> str: ...

    @property
    def engine(self) -> str: ...

    def worker(self, rank: int) -> str: ...


_WORKER: tuple[Frame, ...] = (
    (f"{_SITE}/vllm/v1/executor/multiproc_executor.py", 745, "worker_main", "worker = WorkerProc(*args, **kwargs)"),
    (f"{_SITE}/vllm/v1/executor/multiproc_executor.py", 583, "__init__", "self.worker.load_model()"),
    (
        f"{_SITE}/vllm/v1/worker/gpu_worker.py",
        384,
        "load_model",
        "self.model_runner.load_model(load_dummy_weights=load_dummy_weights)",
    ),
    (f"{_SITE}/vllm/v1/worker/gpu/model_runner.py", 283, "load_model", "self.model = model_loader.load_model("),
    (f"{_SITE}/vllm/model_executor/model_loader/base_loader.py", 64, "load_model", "self.load_weights(model, model_config)"),
    (f"{_SITE}/vllm/model_executor/model_loader/default_loader.py", 421, "load_weights", "loaded_weights = model.load_weights("),
    (
        f"{_SITE}/vllm/model_executor/models/deepseek_v2.py",
        1612,
        "load_weights",
        "weight_loader(param, loaded_weight, name, shard_id)",
    ),
    (f"{_SITE}/torch/utils/_device.py", 109, "__torch_function__", "return func(*args, **kwargs)"),
)
_ENGINE: tuple[Frame, ...] = (
    (
        f"{_SITE}/vllm/v1/engine/core.py",
        1200,
        "run_engine_core",
        "engine_core = EngineCoreProc(*args, engine_index=dp_rank, **kwargs)",
    ),
    (f"{_SITE}/vllm/v1/engine/core.py", 966, "__init__", "super().__init__("),
    (f"{_SITE}/vllm/v1/engine/core.py", 123, "__init__", "self.model_executor = executor_class(vllm_config)"),
    (f"{_SITE}/vllm/v1/executor/abstract.py", 109, "__init__", "self._init_executor()"),
    (
        f"{_SITE}/vllm/v1/executor/multiproc_executor.py",
        205,
        "_init_executor",
        "self.workers = WorkerProc.wait_for_ready(unready_workers)",
    ),
    (f"{_SITE}/vllm/v1/executor/multiproc_executor.py", 672, "wait_for_ready", "raise e from None"),
)
_PROCESS: tuple[Frame, ...] = (
    (f"{_PYTHON}/multiprocessing/process.py", 314, "_bootstrap", "self.run()"),
    (f"{_PYTHON}/multiprocessing/process.py", 108, "run", "self._target(*self._args, **self._kwargs)"),
    (f"{_SITE}/vllm/v1/engine/core.py", 1235, "run_engine_core", "raise e"),
)
_API: tuple[Frame, ...] = (
    ("/opt/vllm/bin/vllm", 7, "<module>", "sys.exit(main())"),
    (f"{_SITE}/vllm/entrypoints/cli/main.py", 95, "main", "args.dispatch_function(args)"),
    (f"{_SITE}/vllm/entrypoints/cli/serve.py", 148, "cmd", "uvloop.run(run_server(args))"),
    (f"{_PYTHON}/asyncio/runners.py", 118, "run", "return self._loop.run_until_complete(task)"),
    (
        f"{_SITE}/vllm/entrypoints/openai/api_server.py",
        663,
        "run_server",
        "await run_server_worker(listen_address, sock, args, **uvicorn_kwargs)",
    ),
    (
        f"{_SITE}/vllm/entrypoints/openai/api_server.py",
        99,
        "build_async_engine_client",
        "async with build_async_engine_client_from_engine_args(",
    ),
    (f"{_SITE}/vllm/v1/engine/async_llm.py", 146, "__init__", "self.engine_core = EngineCoreClient.make_async_mp_client("),
    (f"{_SITE}/vllm/v1/engine/core_client.py", 963, "__init__", "super().__init__("),
    (f"{_SITE}/vllm/v1/engine/core_client.py", 573, "__init__", "with launch_core_engines("),
    (f"{_SITE}/vllm/v1/engine/utils.py", 1213, "launch_core_engines", "wait_for_engine_startup("),
    (f"{_SITE}/vllm/v1/engine/utils.py", 1272, "wait_for_engine_startup", "raise RuntimeError("),
)
_NCCL = (
    "[rank0]:[W{stamp} ProcessGroupNCCL.cpp:1575] Warning: WARNING: destroy_process_group() was not called before program "
    "exit, which "
    "can leak resources. For more info, please see https://pytorch.org/docs/stable/distributed.html#shutdown (function operator())"
)
_BACKGROUND = (
    "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause."
)
_NOT_STARTED = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "


def traceback(frames: tuple[Frame, ...], exception: str) -> str:
    """Return a traceback as Python prints it."""
    lines = ["Traceback (most recent call last):"]
    for path, number, function, code in frames:
        lines += [f'  File "{path}", line {number}, in {function}', f"    {code}"]
    return "\n".join([*lines, exception])


def _bare(log: ServerLog, who: str, text: str) -> None:
    for line in text.split("\n"):
        log.line(f"({who}) {line}")


def _error(log: ServerLog, who: str, text: str, source: str) -> None:
    """Log an error with its traceback: each line is a record of its own, as the formatter makes them."""
    log.record(who, text, source=source, level="ERROR")


def out_of_memory(start: FailingStart, rank: int, *, total_mib: float, ours_mib: float, foreign_mib: float) -> None:
    """Log that one worker's GPU is full, because a foreign process holds a part of it."""
    total, ours, foreign = total_mib / 1024, ours_mib / 1024, foreign_mib / 1024
    free = max(0.31, total - ours - foreign - 0.55)
    cause = (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.09 GiB. GPU {rank} has a total capacity of "
        f"{total:.2f} GiB of "
        f"which {free * 1024:.2f} MiB is free. Process 20417 has {foreign:.2f} GiB memory in use. Including "
        f"non-PyTorch memory, "
        f"this process has {ours:.2f} GiB memory in use. Of the allocated memory {ours - 0.71:.2f} GiB is allocated by "
        f"PyTorch, and 32.14 "
        "MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  "
        "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    )
    worker = start.worker(rank)
    _error(start.log, worker, "WorkerProc failed to start.\n" + traceback(_WORKER, cause), "multiproc_executor.py:772")
    _engine_failed(start)


def worker_killed(start: FailingStart) -> None:
    """Log the end of a worker that was killed from outside: nothing says why."""
    _engine_failed(start)


def _engine_failed(start: FailingStart) -> None:
    log = start.log
    text = traceback(_ENGINE, _BACKGROUND)
    _error(log, start.engine, "EngineCore failed to start.\n" + text, "core.py:1231")
    _bare(log, start.engine, "Process EngineCore:\n" + traceback(_PROCESS + _ENGINE, _BACKGROUND))
    log.line(_NCCL.format(stamp=time.strftime("%m%d %H:%M:%S.102344623", time.localtime(log.wall()))))
    _bare(log, start.api, traceback(_API, _NOT_STARTED + "{}"))


def engine_killed(start: FailingStart) -> None:
    """Log that the engine itself was killed while it loaded: only the API server is left to say so."""
    _bare(start.log, start.api, traceback(_API, _NOT_STARTED + "{'EngineCore': -9}"))


def engine_died(log: ServerLog, api: str, *, streaming: bool) -> None:
    """While serving: the API server notices that its engine is gone."""
    log.record(
        api, "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup", source="core_client.py:702", level="WARNING"
    )
    for number, text in (
        (655, "start timeout=default"),
        (657, "stopping engine manager"),
        (659, "engine manager stopped"),
        (660, "cleaning up background resources"),
        (662, "complete"),
    ):
        log.record(api, f"[shutdown] MPClient: {text}", source=f"core_client.py:{number}")
    dead = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."
    frames: tuple[Frame, ...] = (
        (f"{_SITE}/vllm/v1/engine/async_llm.py", 660, "output_handler", "outputs = await engine_core.get_output_async()"),
        (f"{_SITE}/vllm/v1/engine/core_client.py", 1061, "get_output_async", "raise self._format_exception(outputs) from None"),
    )
    _error(log, api, "AsyncLLM output_handler failed.\n" + traceback(frames, dead), "async_llm.py:704")
    if streaming:
        outer: tuple[Frame, ...] = (
            (
                f"{_SITE}/vllm/entrypoints/openai/chat_completion/serving.py",
                479,
                "chat_completion_stream_generator",
                "async for res in result_generator:",
            ),
            (f"{_SITE}/vllm/v1/engine/async_llm.py", 579, "generate", "out = q.get_nowait() or await q.get()"),
            (f"{_SITE}/vllm/v1/engine/output_processor.py", 85, "get", "raise output"),
        )
        text = "Error in chat completion stream generator.\n" + traceback(outer + frames, dead)
        _error(log, api, text, "serving.py:812")


def ordered_stop(log: ServerLog, api: str, pid: int) -> None:
    """uvicorn's last words."""
    for text in (
        "Shutting down",
        "Waiting for application shutdown.",
        "Application shutdown complete.",
        f"Finished server process [{pid}]",
    ):
        log.line(f"({api}) INFO:     {text}")


_FLOOD_LIMIT = 2 * 2**30
HOSTILE = (
    b"\x1b]0;owned by the log\x07\x1b[2J\x1b[H\x1b[31mred until the end of time",
    b"(Worker_TP3 pid=1) [bold red]markup[/bold red] [link=file:///etc/passwd]x[/] [/nothing] [@click=app.quit]quit[/]",
    b"\xff\xfe\x00\x00 invalid \xc3\x28 utf-8 \xf0\x9f\x92 cut",
    "\u202egnirts desrever\u202c \u200b\u200d zero width \u2066isolated".encode(),
    b"\x9b31m C1 control \x90 device string \x9c",
    b"A" * 300_000,
    b"Loading safetensors checkpoint shards: 999% Completed | 99999999999999999999/3 [xx:yy<??, nan",
    b"\x08\x08\x08\x08 backspaces \x7f\x00\x01\x02",
)


async def hostile_lines(log: ServerLog) -> None:
    """Log one of the hostile lines every third of a second, for ever."""
    while True:
        for line in HOSTILE:
            log.raw(line + b"\n")
            await asyncio.sleep(0.33)


def flood(leash: int, lines_per_s: int) -> None:
    """Fork a writer of that many lines a second; it ends with the leash, or when it has written 2 GiB."""
    if os.fork():
        return
    try:
        poll = select.poll()
        poll.register(leash, select.POLLIN | select.POLLHUP)
        written, number, due = 0, 0, time.monotonic()
        part = lines_per_s // 50
        while written < _FLOOD_LIMIT:
            head = f"(Worker_TP2 pid={os.getpid()}) DEBUG {time.strftime('%m-%d %H:%M:%S')} [scheduler.py:412] "
            block = "".join(f"{head}step {number + i}: scheduled 1 request, 1 token, budget 8191\n" for i in range(part)).encode()
            number += part
            written += len(block)
            while block:
                block = block[os.write(1, block) :]
            due += 0.02
            if poll.poll(max(0.0, (due - time.monotonic()) * 1000)):
                break
    finally:
        os._exit(0)
