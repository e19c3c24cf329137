"""Situations written in the formats of many releases, with what each must be read as."""

from collections.abc import Callable
from typing import Any

import pytest
from writing import ENGINE_WRAPPER, SHARDS, Log, bar, check, json_record

W0, W1, ENGINE, API = "Worker_TP0 pid=20", "Worker_TP1 pid=21", "EngineCore pid=10", "APIServer pid=1"
Table = dict[str, tuple[Callable[[], object], dict[str, Any]]]


def failing(
    build: Callable[[], Log], kind: str, failed_in: str, cause: str, **more: Any
) -> tuple[Callable[[], object], dict[str, Any]]:
    return build, {"phase": "failed", "kind": kind, "failed_in": failed_in, "cause": cause, **more}


def begun(version: str = "0.24.0") -> Log:
    return Log().starts(version).say(W0, "Starting to load model org/m...")


def up() -> Log:
    return Log().starts().loads().serves()


def old(version: str, old_format: bool = True) -> Log:
    log = Log(old=old_format)
    log.say("", f"vLLM API server version {version}")
    return log.say(
        "",
        f"Initializing an LLM engine (v{version}) with config: model='org/m', speculative_config=None, tokenizer='org/m', "
        "max_seq_len=8192, "
        "load_format=LoadFormat.AUTO, tensor_parallel_size=2, pipeline_parallel_size=1, quantization=fp8, served_model_name=m)",
    )


# -- the way to ready --------------------------------------------------------------------------------------------------------------

OIL = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 1 has a total capacity of 79.15 GiB of which 1.20 GiB "
    "is free."
)


def dp(stage: int) -> Log:
    """Two engines of four ranks, prefixes nested as with the fork start method."""
    log = Log().starts("0.10.2", tensor=4, data=2, engine="EngineCore_DP0 pid=10")
    for engine in (0, 1):
        for rank in range(4):
            place = f"pid={200 + engine * 10 + rank}"
            worker = f"EngineCore_DP{engine} pid=1{engine}) (Worker_DP{engine}_TP{rank}_EP{engine * 4 + rank} {place}"
            log.say(worker, "Starting to load model org/m...")
    first, second = "(EngineCore_DP0 pid=10) (Worker_DP0_TP0_EP0 pid=200) ", "(EngineCore_DP1 pid=11) (Worker_DP1_TP0_EP4 pid=210) "
    log.raw(first + bar(0, 60, "00:00"), second + bar(0, 60, "00:00"), first + bar(30, 60), second + bar(28, 60))
    if stage > 0:
        log.raw(first + bar(60, 60)).say("Worker_DP0_TP0_EP0 pid=200", "Loading weights took 100.0 seconds")
    if stage > 1:
        log.raw(second + bar(60, 60)).say("Worker_DP1_TP0_EP4 pid=210", "Loading weights took 104.0 seconds")
    if stage > 2:
        log.say("EngineCore_DP0 pid=10", "GPU KV cache size: 300,000 tokens").say(
            "EngineCore_DP1 pid=11", "GPU KV cache size: 300,000 tokens"
        )
    return log


def drafter(stage: int) -> Log:
    log = begun().raw(bar(0, 163, "00:00"), bar(163, 163), bar(163, 163)).say(W0, "Loading weights took 100.1 seconds")
    log.say(W0, "Loading drafter model...").raw(bar(0, 163, "00:00"), bar(80, 163))
    if stage:
        log.raw(bar(163, 163)).say(W0, "Loading weights took 5.1 seconds").say(
            W0, "Detected MTP model. Sharing target model weights."
        )
    return log


def v1_080(ready: bool) -> Log:
    log = Log().say("", "Automatically detected platform cuda.").say("", "vLLM API server version 0.8.0")
    log.say(
        "",
        "Initializing a V1 LLM engine (v0.8.0) with config: model='org/m', max_seq_len=8192, tensor_parallel_size=2, "
        "pipeline_parallel_size=1",
    )
    first, second = "VllmWorker rank=0 pid=4", "VllmWorker rank=1 pid=5"
    log.say(second, "Starting to load model org/m...").say(first, "Starting to load model org/m...")
    log.raw(f"({first}) " + bar(0, 2, "00:00"), f"({first}) " + bar(2, 2))
    log.say(second, "Loading weights took 9.00 seconds").say(first, "Loading weights took 8.00 seconds")
    log.say(second, "Model loading took 7.5123 GB and 9.500000 seconds").say(
        first, "Model loading took 7.5122 GB and 8.512345 seconds"
    )
    log.say(first, "Using cache directory: /root/.cache/x for vLLM's torch.compile").say(
        first, "Dynamo bytecode transform time: 9.87 s"
    )
    if ready:
        log.say(first, "torch.compile takes 29.8 s in total")
        for _ in range(2):
            log.say("", "GPU KV cache size: 218,368 tokens").say("", "Maximum concurrency for 8,192 tokens per request: 26.66x")
        log.say(first, "Graph capturing finished in 18 secs, took 0.55 GiB")
        log.say("", "init engine (profile, create kv cache, warmup model) took 66.23 seconds")
        log.say("", "Starting vLLM API server on http://0.0.0.0:8000").raw("INFO:     Application startup complete.")
    return log


def ray_055() -> Log:
    log = old("0.5.5")
    log.lines.insert(
        0, "2024-08-22 18:05:28,004\tINFO worker.py:1603 -- Connecting to existing Ray cluster at address: 10.0.3.7:6379..."
    )
    log.say("", "Starting to load model org/m...").raw(bar(3, 30), "(RayWorkerWrapper pid=9, ip=10.0.3.8) " + bar(3, 30))
    return log.say(
        "RayWorkerWrapper pid=9, ip=10.0.3.8",
        "Loading model weights took 11.0 GB\x1b[32m [repeated 15x across cluster] (Ray deduplicates logs by default.)\x1b[0m",
    )


def pipeline(stage: int) -> Log:
    log = Log().starts("0.16.0")
    for rank in (0, 1):
        log.say(f"Worker_PP{rank}_TP0 pid=2{rank}", "Starting to load model org/m...")
    log.raw("(Worker_PP0_TP0 pid=20) " + bar(5, 10))
    log.say("Worker_PP1_TP0 pid=21", "Loading weights took 50.0 seconds")
    log.say("Worker_PP1_TP0 pid=21", "Model loading took 99.0 GiB memory and 51.0 seconds")
    if stage:
        log.raw("(Worker_PP0_TP0 pid=20) " + bar(10, 10))
        log.say("Worker_PP0_TP0 pid=20", "Loading weights took 60.0 seconds")
        log.say("Worker_PP0_TP0 pid=20", "Model loading took 88.0 GiB memory and 61.0 seconds")
    return log


HUB_BARS = (
    "Fetching 8 files:  12%|█▎        | 1/8 [00:03<00:21,  3.1s/it]",
    "model-00001-of-00008.safetensors:  24%|██▍       | 934M/3.89G [00:04<00:14, 210MB/s]",
)
STARTS: Table = {
    "configured": (
        lambda: Log().starts(),
        {"phase": "starting", "version": "0.24.0", "model": "org/m", "tensor_parallel": 2, "kind": None},
    ),
    "silent download": (begun, {"phase": "loading", "shards": None}),
    "the hub's bars": (lambda: begun().raw(*HUB_BARS), {"phase": "downloading", "shards": None}),
    "downloaded": (
        lambda: begun().raw(*HUB_BARS).say(W0, "Time spent downloading weights for org/m: 312.551 seconds"),
        {"phase": "loading", "download_s": 312.551},
    ),
    "shards after a download": (
        lambda: begun().raw(*HUB_BARS, bar(0, 8, "00:00"), bar(3, 8)),
        {"phase": "loading", "shards": (3, 8)},
    ),
    "Runai's tensors": (
        lambda: begun().raw(bar(120, 3000, name="Loading safetensors using Runai Model Streamer")),
        {"shards": (120, 3000)},
    ),
    "InstantTensor's bytes": (
        lambda: begun().raw("Loading safetensors using InstantTensor loader:  33% Completed | 2.79G/8.38G [00:02<00:05, 938MB/s]"),
        {"shards": (2_790_000_000, 8_380_000_000)},
    ),
    "multi-thread": (lambda: begun().raw(bar(3, 24, name="Multi-thread loading shards")), {"shards": (3, 24)}),
    "pt files": (lambda: begun().raw(bar(1, 2, name="Loading pt checkpoint shards")), {"shards": (1, 2)}),
    "eager": (lambda: begun().raw(bar(1, 2, name="Loading safetensors checkpoint shards (eager)")), {"shards": (1, 2)}),
    "hours": (lambda: begun().raw(f"{SHARDS}:  14% Completed | 12/85 [25:01:01<100:00:00, 7500.10s/it]"), {"shards": (12, 85)}),
    "cut at 80 columns": (
        lambda: begun().raw(
            f"{SHARDS}:  25% Completed | 1/4 [00:00<00:01,  2.86\r{SHARDS}:  50% Completed | 2/4 [00:01<00:01,  1.86"
        ),
        {"shards": (2, 4)},
    ),
    "cut at 60 columns": (
        lambda: begun().raw(f"{SHARDS}:  25% Completed | 1/4 \r{SHARDS}:  50% Completed | 2/4 [0"),
        {"shards": (2, 4)},
    ),
    "prefix on its own line": (
        lambda: begun().raw(
            "(Worker_TP0 pid=20) ", bar(1, 4), "(Worker_TP0 pid=20)  ", bar(2, 4), "(Worker_TP0 pid=20) ", bar(3, 4)
        ),
        {"shards": (3, 4), "others": []},
    ),
    "prefetch": (
        lambda: begun().say(W0, "Prefetching checkpoint files: 40% (24/60)").raw(bar(10, 60)),
        {"shards": (10, 60), "others": [("prefetch", 24, 60)]},
    ),
    "bitsandbytes, second pass": (
        lambda: begun().raw(bar(0, 4, "00:00"), bar(4, 4), bar(4, 4), "", bar(0, 4, "00:00"), bar(2, 4)),
        {"phase": "loading", "shards": (4, 4), "others": [("pass 2", 2, 4)]},
    ),
    "drafter loading": (
        lambda: drafter(0),
        {"phase": "loading", "shards": (163, 163), "others": [("drafter", 80, 163)], "load_s": 100.1},
    ),
    "drafter loaded": (lambda: drafter(1), {"phase": "post_loading", "others": [("drafter", 163, 163)], "load_s": 100.1}),
    "two engines loading": (
        lambda: dp(0),
        {"phase": "loading", "shards": (30, 60), "others": [("engine 1", 28, 60)], "data_parallel": 2},
    ),
    "one engine loaded": (lambda: dp(1), {"phase": "loading", "shards": (60, 60)}),
    "both engines loaded": (lambda: dp(2), {"phase": "post_loading", "load_s": 100.0}),
    "both engines' caches": (lambda: dp(3), {"phase": "kv_cache", "kv_tokens": 300_000, "engines": 2}),
    "the second stage is done first": (lambda: pipeline(0), {"phase": "loading", "shards": (5, 10)}),
    "the first stage counts": (
        lambda: pipeline(1),
        {"phase": "profiling", "gib_per_gpu": 88.0, "load_s": 60.0, "model_load_s": 61.0},
    ),
    "0.8 compiling": (
        lambda: v1_080(False),
        {"phase": "compiling", "load_s": 8.0, "model_load_s": 8.512345, "gib_per_gpu": 7.5122, "version": "0.8.0"},
    ),
    "0.8 ready": (lambda: v1_080(True), {"phase": "ready", "kv_tokens": 218_368, "max_concurrency": 26.66, "init_engine_s": 66.23}),
    "0.5.5 under Ray": (
        ray_055,
        {"phase": "loading", "shards": (3, 30), "gib_per_gpu": 11.0, "version": "0.5.5", "quantization": "fp8"},
    ),
    "0.4.1 blocks": (
        lambda: old("0.4.1").say("", "Loading model weights took 13.4966 GB").say("", "# GPU blocks: 1000, # CPU blocks: 512"),
        {"phase": "kv_cache", "kv_tokens": 16_000, "gib_per_gpu": 13.4966, "max_model_len": 8192},
    ),
    "0.6 profiling in three lines": (
        lambda: (
            old("0.6.6")
            .say("", "Loading model weights took 7.5122 GB")
            .say("", "Memory profiling takes 5.72 seconds\r")
            .say("", "the current vLLM instance can use total_gpu_memory (23.65GiB) x gpu_memory_utilization (0.90) = 21.28GiB\r")
            .say("", "model weights take 7.51GiB; the rest of the memory reserved for KV Cache is 13.02GiB.")
        ),
        {"phase": "kv_cache", "kv_gib_per_gpu": 13.02},
    ),
    "one line for cache and concurrency": (
        lambda: begun("0.30.0").say(
            ENGINE, "XPU KV cache size: 715,392 tokens, Maximum concurrency for 262,144 tokens per request: 2.73x"
        ),
        {"phase": "kv_cache", "kv_tokens": 715_392, "max_concurrency": 2.73},
    ),
    "tagged compile": (lambda: begun("0.32.0").say(W0, "[backbone] Starting torch.compile"), {"phase": "compiling"}),
    "tagged compile done": (
        lambda: begun("0.32.0").say(W0, "[eagle_head] torch.compile took 12.00 s in total"),
        {"phase": "profiling"},
    ),
    "graph sampling is not capture": (
        lambda: begun().say(W0, "Profiling CUDA graph memory: PIECEWISE=51 (largest=512), FULL=35 (largest=256)"),
        {"phase": "profiling"},
    ),
    "capturing": (
        lambda: Log().starts().loads().raw("Capturing CUDA graphs (decode, FULL):  13%|█▎        | 9/67 [00:01<00:07,  8.1it/s]"),
        {"phase": "capturing"},
    ),
    "warm-up after capture": (
        lambda: Log().starts().loads().say(W0, "Graph capturing finished in 10 secs, took 0.82 GiB"),
        {"phase": "warming_up"},
    ),
    "ready": (up, {"phase": "ready", "ready": True, "kv_tokens": 1_000_000, "init_engine_s": 22.1, "restarts": 0, "kind": None}),
    "three of four API servers": (
        lambda: (
            Log()
            .starts()
            .say("MainProcess pid=1", "Started 4 API server processes")
            .raw(*["INFO:     Application startup complete."] * 3)
        ),
        {"phase": "warming_up", "ready": False},
    ),
    "four of four API servers": (
        lambda: (
            Log()
            .starts()
            .say("MainProcess pid=1", "Started 4 API server processes")
            .raw(*["INFO:     Application startup complete."] * 4)
        ),
        {"phase": "ready"},
    ),
    "uvicorn's words hidden": (
        lambda: (
            Log()
            .say(API, "non-default args: {'model': 'org/m', 'uvicorn_log_level': 'warning'}")
            .say(API, "Starting vLLM server on http://0.0.0.0:8000")
        ),
        {"phase": "ready"},
    ),
    "an answer proves it": (
        lambda: (
            Log()
            .starts()
            .say(API, "Starting vLLM server on http://0:1")
            .raw('INFO:     10.0.0.1:2 - "GET /health HTTP/1.1" 200 OK')
        ),
        {"phase": "ready"},
    ),
    "a server a rank": (
        lambda: (
            Log()
            .starts(api="APIServer_DPRank_0 pid=11")
            .starts(api="APIServer_DPRank_1 pid=12")
            .raw("INFO:     Application startup complete.")
        ),
        {"phase": "warming_up", "restarts": 0},
    ),
    "Rust front end": (
        lambda: (
            Log()
            .starts()
            .say(
                "RustFrontend pid=7",
                'OpenAI server is ready to accept requests bind_address="0.0.0.0:8000"',
                where="server/src/lib.rs:336",
            )
        ),
        {"phase": "ready"},
    ),
    "asleep and reloading": (
        lambda: (
            up().say(W0, "Sleep mode freed 12.3 GiB memory, 1.1 GiB memory is still in use.").raw(bar(0, 2, "00:00"), bar(1, 2))
        ),
        {"phase": "ready", "shards": (2, 2), "others": [("reload", 1, 2)], "gib_per_gpu": 12.3},
    ),
    "a restart in the midst": (
        lambda: (
            begun()
            .raw(bar(0, 2, "00:00"), bar(1, 2))
            .starts()
            .say("Worker_TP0 pid=55", "Starting to load model org/m...")
            .raw(bar(0, 2))
        ),
        {"phase": "loading", "shards": (0, 2), "restarts": 1, "was_ready": False},
    ),
    "a restart after ready": (lambda: up().starts(), {"phase": "starting", "was_ready": False, "restarts": 1, "kv_tokens": None}),
    "a new start after an ordered stop": (
        lambda: up().raw("INFO:     Shutting down", "INFO:     Finished server process [1]").starts(),
        {"phase": "starting", "restarts": 0},
    ),
    "headless": (
        lambda: (
            Log()
            .say("", "Launching 8 data parallel engine(s) in headless mode, with head node address tcp://10.0.0.1:1.")
            .starts(data=16, engine="EngineCore_DP8 pid=10")
        ),
        {"phase": "starting", "data_parallel": 16},
    ),
    "a start script's chatter": (
        lambda: Log().raw("Waiting for vLLM... (17/120)", "== NVIDIA Container ==", "Collecting vllm", "").starts(),
        {"phase": "starting", "kind": None},
    ),
}


def waits(log: Log, count: int) -> Log:
    for _ in range(count):
        log.say(ENGINE, "No available shared memory broadcast block found in 60 seconds. This typically happens when …", step=60)
    return log


# -- stops and requests ------------------------------------------------------------------------------------------------------------

STOPS: Table = {
    "SIGTERM to the engine": (
        lambda: up().say(ENGINE, "[shutdown] EngineCore: trigger received signal=SIGTERM"),
        {"phase": "stopped", "was_ready": True},
    ),
    "uvicorn's stop, then EngineDeadError": (
        lambda: (
            up()
            .raw("INFO:     Shutting down")
            .fails(API, "AsyncLLM output_handler failed.", "x.EngineDeadError: EngineCore encountered an issue.")
        ),
        {"phase": "stopped", "kind": None},
    ),
    "interrupt while loading": (
        lambda: begun().raw(bar(5, 64)).fails(W0, "WorkerProc failed to start.", "KeyboardInterrupt").gives_up(),
        {"phase": "stopped", "kind": None, "was_ready": False},
    ),
    "interrupt in the API server": (
        lambda: (
            begun()
            .raises("asyncio.exceptions.CancelledError")
            .raw("", "During handling of the above exception, another exception occurred:", "")
            .raises("KeyboardInterrupt")
        ),
        {"phase": "stopped", "kind": None},
    ),
    "a bad request": (
        lambda: (
            up()
            .raw("ERROR:    Exception in ASGI application")
            .raises("ValueError: prompt too long")
            .raw('INFO:     1.2.3.4:5 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error')
        ),
        {"phase": "ready", "kind": None},
    ),
    "a bad request in records": (
        lambda: up().fails(
            API, "Error in preprocessing prompt inputs", "ValueError: This model's maximum context length is 32768 tokens."
        ),
        {"phase": "ready", "kind": None},
    ),
    "a long step is no hang": (
        lambda: waits(up(), 3).say(
            API,
            "Engine 000: Avg prompt throughput: 9.0 tokens/s, Avg generation throughput: 5.0 tokens/s, "
            "Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.1%",
        ),
        {"phase": "ready", "kind": None},
    ),
    "answers after waits": (
        lambda: waits(up(), 3).raw('INFO:     1.2.3.4:5 - "POST /v1/chat/completions HTTP/1.1" 200 OK'),
        {"phase": "ready", "kind": None},
    ),
    "waits while compiling": (lambda: waits(Log().starts().loads(), 5), {"phase": "kv_cache", "kind": None}),
    "harmless thread": (
        lambda: Log().starts().raises("ConnectionError: no route", said="Exception in thread Thread-1 (_report_usage_worker):"),
        {"phase": "starting", "kind": None},
    ),
}

# -- failures ----------------------------------------------------------------------------------------------------------------------


def worker_fails(exception: str) -> Log:
    return begun().fails(W1, "WorkerProc failed to start.", exception).gives_up()


def serving(exception: str) -> Log:
    return (
        up()
        .fails(W1, "WorkerProc hit an exception.", exception)
        .dies("RuntimeError: Worker failed with error 'x', please check the stack trace")
    )


def headed(log: Log, process: str, exception: str) -> Log:
    for line in ("WorkerProc hit an exception: Traceback (most recent call last):", '  File "x.py", line 1, in f', exception):
        log.say(process, line, "ERROR", step=0)
    return log


def config(exception: str) -> Log:
    return Log().starts().raises(exception)


def validation(what: str) -> Log:
    return config(
        f"pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig\n  Value error, {what} "
        "[type=value_error, "
        "input_value=ArgsKwargs((), {'model_co...}), input_type=ArgsKwargs]\n    For further information visit "
        "https://errors.pydantic.dev/2.11"
    )


NCCL_REMOTE = (
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, remote process exited or there was a network error"
)
FAILURES: Table = {
    "out of memory on one rank": failing(
        lambda: (
            begun()
            .fails(W1, "WorkerProc failed to start.", "torch." + OIL)
            .fails(W0, "WorkerProc failed to start.", NCCL_REMOTE)
            .gives_up()
        ),
        "cuda_oom",
        "loading",
        "1.96 GiB",
        process="Worker_TP1",
        advice="GPU 1",
    ),
    "the survivors speak first": failing(
        lambda: (
            begun()
            .fails(W0, "WorkerProc failed to start.", NCCL_REMOTE)
            .fails(W1, "WorkerProc failed to start.", "torch." + OIL)
            .gives_up()
        ),
        "cuda_oom",
        "loading",
        "1.96 GiB",
    ),
    "out of memory in capture": failing(
        lambda: (
            Log()
            .starts()
            .loads()
            .raw("Capturing CUDA graphs (decode, FULL):  13%|█▎        | 9/67 [00:01<00:07,  8.1it/s]")
            .fails(ENGINE, "EngineCore failed to start.", "torch." + OIL)
        ),
        "cuda_oom",
        "capturing",
        "out of memory",
        advice="--enforce-eager",
    ),
    "V0 out of memory in profiling": failing(
        lambda: (
            old("0.6.3")
            .say("", "Starting to load model org/m...")
            .raw(bar(0, 4, "00:00"), bar(4, 4))
            .say("", "Loading model weights took 15.0811 GB")
            .raises("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB.", said="Process SpawnProcess-1:")
            .raises("RuntimeError: Engine process failed to start")
        ),
        "cuda_oom",
        "profiling",
        "896.00 MiB",
    ),
    "no room for the cache": failing(
        lambda: (
            begun()
            .say(W0, "Loading weights took 10.1 seconds")
            .say(W0, "Model loading took 70.3 GiB memory and 11.0 seconds")
            .say(W0, "Available KV cache memory: -3.21 GiB")
            .fails(
                ENGINE, "EngineCore failed to start.", "ValueError: No available memory for the cache blocks. Try increasing it."
            )
        ),
        "kv_cache_too_small",
        "kv_cache",
        "no available memory",
        advice="70.3 GiB a GPU, -3.21 GiB are left",
    ),
    "killed by the shell's word": failing(
        lambda: begun().raw(bar(5, 64), "Killed"), "host_oom_or_killed", "loading", "SIGKILL", shards=(5, 64)
    ),
    "exit 137": failing(lambda: begun().raw(bar(5, 64), "vllm-1 exited with code 137"), "host_oom_or_killed", "loading", "137"),
    "only an exit code": failing(
        lambda: begun().raw(bar(5, 64)).raises(ENGINE_WRAPPER.replace("{}", "{'EngineCore': -9}")),
        "host_oom_or_killed",
        "loading",
        "killed",
        process="EngineCore",
    ),
    "only wrappers": failing(lambda: begun().raw(bar(5, 64)).gives_up(), "host_oom_or_killed", "loading", "killed from outside"),
    "systemd saw the killer": failing(
        lambda: (
            begun()
            .raw("Nov 29 10:00:11 gpu01 systemd[1]: vllm.service: A process of this unit has been killed by the OOM killer.")
            .gives_up()
        ),
        "host_oom_or_killed",
        "loading",
        "OOM killer",
    ),
    "Slurm's limit": failing(
        lambda: begun().raw("slurmstepd: error: *** JOB 991 ON gpu01 CANCELLED AT 2026-11-29T11:00:00 DUE TO TIME LIMIT ***"),
        "killed_by_supervisor",
        "loading",
        "TIME LIMIT",
    ),
    "systemd's limit": failing(
        lambda: begun().raw("Nov 29 10:00:11 gpu01 systemd[1]: vllm.service: start operation timed out. Terminating."),
        "killed_by_supervisor",
        "loading",
        "timed out",
    ),
    "shared memory": failing(
        lambda: (
            Log()
            .starts()
            .raw(
                "gpu01:211:1404 [1] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-4m to 33030532 bytes, "
                "error: No space left on device (28)"
            )
            .fails(
                W1,
                "WorkerProc failed to start.",
                "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
            )
            .gives_up()
        ),
        "shm_too_small",
        "starting",
        "/dev/shm",
        advice="--ipc=host",
    ),
    "bus error": failing(lambda: begun().raw("Bus error (core dumped)"), "shm_too_small", "loading", "bus error"),
    "disk full": failing(
        lambda: worker_fails("OSError: [Errno 28] No space left on device"), "disk_full", "loading", "No space left"
    ),
    "ready timeout": failing(
        lambda: (
            begun()
            .raw(bar(5, 64))
            .say(ENGINE, "[shutdown] EngineCore: trigger received signal=SIGTERM")
            .raises(
                "TimeoutError: Timed out waiting for engine core processes to start. Waited 600s (configured by "
                "VLLM_ENGINE_READY_TIMEOUT_S)."
            )
        ),
        "ready_timeout",
        "loading",
        "600s",
        advice="VLLM_ENGINE_READY_TIMEOUT_S=10200",
    ),
    "Ray has no room": failing(
        lambda: (
            Log()
            .say("", "Waiting for creating a placement group of specs for 10 seconds. specs=[{'GPU': 1.0}]", "WARNING")
            .fails(
                "",
                "EngineCore failed to start.",
                "ValueError: Cannot provide a placement group of specs=[{'GPU': 1.0}] within 1800 seconds.",
            )
        ),
        "ray_placement",
        "starting",
        "placement group",
    ),
    "gated": failing(
        lambda: (
            config(
                "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-2)\n\nCannot access gated repo "
                "for url "
                "https://huggingface.co/org/m/resolve/main/config.json.\nAccess to model org/m is restricted."
            )
            .raw("", "The above exception was the direct cause of the following exception:", "")
            .raises(
                "OSError: You are trying to access a gated repo.\nMake sure to have access to it at https://huggingface.co/org/m."
            )
        ),
        "hub_auth",
        "starting",
        "401",
        advice="HF_TOKEN",
    ),
    "no name resolution": failing(
        lambda: (
            config("socket.gaierror: [Errno -3] Temporary failure in name resolution")
            .raw("", "During handling of the above exception, another exception occurred:", "")
            .raises(
                "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the "
                "cached files."
            )
        ),
        "hub_unreachable",
        "starting",
        "name resolution",
    ),
    "heads do not split": failing(
        lambda: validation("Total number of attention heads (40) must be divisible by tensor parallel size (3)."),
        "bad_argument",
        "starting",
        "attention heads (40)",
        advice="1, 2, 4, 8",
    ),
    "too long": failing(
        lambda: validation(
            "User-specified max_model_len (65536) is greater than the derived max_model_len (max_position_embeddings=32768)."
        ),
        "max_model_len_too_large",
        "starting",
        "65536",
        advice="32,768",
    ),
    "a value refused in words that no rule knows": failing(
        lambda: config("NotImplementedError: EAGLE3 with pipeline parallel is not there yet."),
        "bad_argument",
        "starting",
        "EAGLE3",
    ),
    "unknown option": failing(
        lambda: Log().raw("usage: vllm serve [model_tag] [options]", "vllm: error: unrecognized arguments: --frobnicate"),
        "bad_argument",
        "starting",
        "--frobnicate",
    ),
    "not enough GPUs": failing(
        lambda: (
            Log()
            .starts()
            .fails(
                ENGINE,
                "EngineCore failed to start.",
                "ValueError: World size (8) is larger than the number of available GPUs (4) in this node. If\n- x",
            )
        ),
        "not_enough_gpus",
        "starting",
        "World size (8)",
        advice="lower --tensor-parallel-size to 4",
    ),
    "build failed": failing(
        lambda: worker_fails(
            "RuntimeError: Ninja build failed. Ninja output:\nninja: Entering directory `/root/x'\n[1/4] c++ -MMD\nFAILED: x.o\n"
            "nvcc fatal   : Unsupported gpu architecture 'compute_120a'\nninja: build stopped: subcommand failed."
        ),
        "compile_error",
        "loading",
        "nvcc fatal : Unsupported gpu architecture",
    ),
    "an assertion without words": failing(
        lambda: (
            begun()
            .fails(
                W0,
                "WorkerProc failed to start.",
                "AssertionError",
                frames=(
                    '  File "/x/vllm/layers/linear.py", line 1252, in weight_loader',
                    "    assert param_data.shape == loaded_weight.shape",
                    "           ^^^^^",
                ),
            )
            .gives_up()
        ),
        "shape_mismatch",
        "loading",
        "param_data.shape == loaded_weight.shape",
    ),
    "JSON records": failing(
        lambda: Log().raw(
            json_record("vLLM server version 0.32.0, serving model org/m"),
            json_record("Starting to load model org/m...", process="Worker", pid=3),
            bar(0, 9, "00:00"),
            bar(4, 9),
            json_record(
                "WorkerProc failed to start.",
                "ERROR",
                "Worker",
                3,
                'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    g()\nsafetensors_rust.SafetensorError: Error '
                "while deserializing header: incomplete metadata, file not fully covered",
            ),
        ),
        "corrupt_checkpoint",
        "loading",
        "incomplete metadata",
        shards=(4, 9),
        process="Worker",
    ),
    "illegal access while serving": failing(
        lambda: serving(
            "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be reported"
        ),
        "cuda_error",
        "ready",
        "illegal memory access",
        was_ready=True,
        process="Worker_TP1",
    ),
    "memory fails": failing(
        lambda: serving("RuntimeError: CUDA error: uncorrectable ECC error encountered"), "gpu_lost", "ready", "uncorrectable"
    ),
    "an Xid explains it": failing(
        lambda: up().raw("NVRM: Xid (PCI:0000:3b:00): 79, pid=2211, GPU has fallen off the bus.").dies(),
        "gpu_lost",
        "ready",
        "fallen off the bus",
    ),
    "a hang": failing(
        lambda: up().dies("TimeoutError: RPC call to execute_model timed out."),
        "hang",
        "ready",
        "execute_model timed out",
        process="EngineCore",
    ),
    "0.8 announces on the header's line": failing(
        lambda: headed(v1_080(False), "VllmWorker rank=1 pid=5", "torch." + OIL).say(
            "", "Got fatal signal from worker processes, shutting down. See stack trace above for root cause issue.", "CRITICAL"
        ),
        "cuda_oom",
        "compiling",
        "1.96 GiB",
        process="VllmWorker rank=1",
    ),
    "V0: rank 0 ends after its workers": failing(
        lambda: (
            old("0.6.3")
            .say("", "Starting to load model org/m...")
            .say("", "Worker VllmWorkerProcess pid 77 died, exit code: -15", "ERROR")
            .say("", "Killing local vLLM worker processes")
            .raises("torch." + OIL, said="Process SpawnProcess-1:")
            .raises("RuntimeError: Engine process failed to start. See stack trace for the root cause.")
        ),
        "cuda_oom",
        "loading",
        "1.96 GiB",
    ),
    "V0: a worker was killed": failing(
        lambda: (
            old("0.6.3")
            .say("", "Starting to load model org/m...")
            .raw(bar(3, 30))
            .say("", "Worker VllmWorkerProcess pid 134 died, exit code: -9", "ERROR")
            .say("", "Killing local vLLM worker processes")
        ),
        "host_oom_or_killed",
        "loading",
        "killed",
    ),
    "Ray's memory monitor": failing(
        lambda: (
            begun()
            .raw(
                "(raylet, ip=10.0.16.95) [2025-04-25 14:53:14,201 E 12 12] (raylet) node_manager.cc:3069: 1 Workers (tasks / "
                "actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons."
            )
            .fails(
                ENGINE,
                "EngineCore failed to start.",
                "ray.exceptions.ActorDiedError: The actor died unexpectedly.",
            )
        ),
        "host_oom_or_killed",
        "loading",
        "1 Workers (tasks / actors) killed due to memory pressure",
    ),
    "the port is taken at the end": failing(
        lambda: (
            old("0.5.5")
            .say("", "Loading model weights took 13.4966 GB")
            .raw("ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use")
        ),
        "port_in_use",
        "profiling",
        "address already in use",
    ),
    "a crash loop shows the last start": failing(
        lambda: (
            worker_fails("OSError: [Errno 28] No space left on device")
            .starts()
            .say("Worker_TP0 pid=99", "Starting to load model org/m...")
            .fails("Worker_TP0 pid=99", "WorkerProc failed to start.", "torch." + OIL)
            .gives_up()
        ),
        "cuda_oom",
        "loading",
        "1.96 GiB",
        restarts=1,
    ),
    "V0 hang": failing(
        lambda: (
            Log(old=True)
            .say(
                "",
                "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 1 reqs, Swapped: 0 "
                "reqs, Pending: 0 reqs",
            )
            .fails("", "Engine iteration timed out. This should never happen!", "asyncio.exceptions.CancelledError")
            .raises("vllm.engine.async_llm_engine.AsyncEngineDeadError: Task finished unexpectedly. This should never happen!")
        ),
        "hang",
        "ready",
        "Engine iteration timed out",
    ),
    "a worker vanished while serving": failing(
        lambda: up().say(ENGINE, "Worker proc VllmWorker-1 died unexpectedly, shutting down executor.", "ERROR").dies(),
        "host_oom_or_killed",
        "ready",
        "VllmWorker-1 was killed",
    ),
    "an old request error is not the cause": failing(
        lambda: (
            up()
            .fails(API, "Error in preprocessing prompt inputs", "ValueError: This model's maximum context length is 32768 tokens.")
            .say(API, "Avg prompt throughput: 0.0 tokens/s", step=3000)
            .dies("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
        ),
        "cuda_oom",
        "ready",
        "2.00 GiB",
    ),
}


@pytest.mark.parametrize("name", list(STARTS))
def test_on_the_way_to_ready(name: str) -> None:
    build, wanted = STARTS[name]
    check(str(build()), wanted)


@pytest.mark.parametrize("name", list(STOPS))
def test_what_is_no_failure(name: str) -> None:
    build, wanted = STOPS[name]
    check(str(build()), wanted)


@pytest.mark.parametrize("name", list(FAILURES))
def test_failures(name: str) -> None:
    build, wanted = FAILURES[name]
    check(str(build()), wanted)
