"""How a server ended, in the words of all who report it, and what is no end at all."""

from collections.abc import Callable
from typing import Any

import pytest
from writing import DEAD, ENGINE_WRAPPER, WORKER_WRAPPER, Log, bar, check, read

from tui.core.logs.load_state import Phase
from tui.core.logs.log_reader import LogReader

W0, W1, ENGINE, API = "Worker_TP0 pid=20", "Worker_TP1 pid=21", "EngineCore pid=10", "APIServer pid=1"
STATS = (
    "Engine 000: Avg prompt throughput: 9.0 tokens/s, Avg generation throughput: 5.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, "
    "GPU KV cache usage: 0.1%"
)


def begun() -> Log:
    return Log().starts().say(W0, "Starting to load model org/m...").raw(bar(5, 64))


def up() -> Log:
    return Log().starts().loads().serves().say(API, STATS)


def v0() -> Log:
    return Log(old=True).say("", "vLLM API server version 0.6.3").say("", "Starting to load model org/m...").raw(bar(3, 30))


def composed(log: Log, *others: str) -> str:
    return "\n".join([*(f"vllm-1   | {line}" for line in log.lines), *others]) + "\n"


# -- what is no end: somebody else's, or one request's


@pytest.mark.parametrize(
    "message",
    [
        "tool sandbox exited with code 1",
        "sandbox-1 exited with code 1",
        "sandbox: Segmentation fault (core dumped)",
        "sandbox: terminate called after throwing an instance of 'std::runtime_error'",
        "container of the tool was OOMKilled",
        "helper.service: Main process exited, code=exited, status=1/FAILURE",
        "tool died unexpectedly",
        "tool runner died, exit code: 3",
        "./tool.sh: line 4: 12345 Killed                  python tool.py",
        "Tool server failed to start.",
        "Callback hit an exception.",
    ],
)
def test_an_error_of_one_request_is_not_the_server_s_end(message: str) -> None:
    for log in (
        up().say(API, message, "ERROR", "serving.py:1"),
        up().fails(API, "Error in chat", f"RuntimeError: {message}", "serving.py:1"),
        up().raw("ERROR:    Exception in ASGI application").raises(f"RuntimeError: {message}"),
    ):
        check(str(log.say(API, STATS)), {"phase": "ready", "kind": None})


def test_a_prompt_about_errors_is_not_the_server_s_end() -> None:
    lines = [
        "[2025-10-16 09:06:00] server_args=ServerArgs(model_path='m')",
        "[2025-10-16 09:06:09] The server is fired up and ready to roll!",
        "[2025-10-16 09:06:10] Receive: obj=GenerateReqInput(text='Why EngineDeadError? Scheduler hit an exception')",
    ]
    check("\n".join(lines) + "\n", {"phase": "ready", "kind": None})
    asked = up().raises("ValueError: x").say(API, "Received request cmpl-1: prompt: 'Why EngineDeadError?', params: x")
    check(str(asked), {"phase": "ready", "kind": None})


@pytest.mark.parametrize(
    "others",
    [
        ["redis-1 exited with code 1"],
        ["redis-1  | bye", "redis-1 exited with code 1"],
        ["redis-1 exited with code 137 (restarting)"],
        ["vllm-1   | redis-server-1 exited with code 1"],
        ["vllm-1   | tool exited with code 1"],
        ["vllm-1 exited with code 143"],
    ],
)
def test_another_service_s_end_is_not_the_server_s(others: list[str]) -> None:
    check(composed(up(), *others), {"phase": "ready", "kind": None})


@pytest.mark.parametrize("line", ["redis-1 exited with code 1", "tool exited with code 1", "./x.sh: line 4: 1 Killed      sleep 9"])
def test_a_bare_line_about_something_else(line: str) -> None:
    check(str(up().raw(line)), {"phase": "ready", "kind": None})


# -- exit codes and signals


def cores(codes: str) -> Log:
    return begun().raises(ENGINE_WRAPPER.replace("{}", codes))


def worker(end: str) -> Log:
    return up().say(ENGINE, f"Worker proc VllmWorker-3 died unexpectedly{end}, shutting down executor.", "ERROR").dies()


Case = tuple[Callable[[], object], str, str | None, str]
ENDS: dict[str, Case] = {
    "the engine left with 1": (
        lambda: cores("{'EngineCore_DP0': 1}"),
        "engine_died",
        "EngineCore_DP0",
        "EngineCore_DP0 exited with code 1",
    ),
    "the engine crashed": (lambda: cores("{'EngineCore_DP0': -11}"), "worker_died", "EngineCore_DP0", "ended by SIGSEGV"),
    "the engine aborted": (lambda: cores("{'EngineCore_DP0': -6}"), "worker_died", "EngineCore_DP0", "ended by SIGABRT"),
    "the engine was asked to end": (lambda: cores("{'EngineCore': -15}"), "killed_by_supervisor", "EngineCore", "ended by SIGTERM"),
    "the engine was killed": (lambda: cores("{'EngineCore': -9}"), "host_oom_or_killed", "EngineCore", "EngineCore was killed"),
    "one was killed and one left": (
        lambda: cores("{'EngineCore_DP0': 1, 'EngineCore_DP1': -9}"),
        "host_oom_or_killed",
        "EngineCore_DP1",
        "EngineCore_DP1 was killed",
    ),
    "nothing is told": (lambda: cores("{}"), "host_oom_or_killed", None, "killed from outside"),
    "its worker vanished, so it left": (
        lambda: cores("{'EngineCore': 1}").raises(WORKER_WRAPPER),
        "host_oom_or_killed",
        None,
        "a worker was killed",
    ),
    "a worker crashed": (lambda: worker(" (exit code: -11)"), "worker_died", "VllmWorker-3", "VllmWorker-3 was ended by SIGSEGV"),
    "a worker was killed": (lambda: worker(" (exit code: -9)"), "host_oom_or_killed", "VllmWorker-3", "VllmWorker-3 was killed"),
    "a worker's code is unknown": (lambda: worker(" (exit code: None)"), "host_oom_or_killed", "VllmWorker-3", "was killed"),
    "a worker, before codes were told": (lambda: worker(""), "host_oom_or_killed", "VllmWorker-3", "was killed"),
    "an API server left with 1": (
        lambda: begun().raises("RuntimeError: Process ApiServer_0 (PID: 1893) died with exit code 1").raises(ENGINE_WRAPPER),
        "engine_died",
        "ApiServer_0",
        "ApiServer_0 exited with code 1",
    ),
    "V0: a worker crashed": (
        lambda: v0().say("", "Worker VllmWorkerProcess pid 134 died, exit code: -11", "ERROR"),
        "worker_died",
        "VllmWorkerProcess",
        "ended by SIGSEGV",
    ),
    "compose: 1": (lambda: composed(begun(), "vllm-1 exited with code 1"), "engine_died", None, "the server exited with code 1"),
    "compose: as it restarts": (
        lambda: composed(begun(), "vllm-1 exited with code 1 (restarting)"),
        "engine_died",
        None,
        "the server exited with code 1",
    ),
    "compose: a project's name": (
        lambda: composed(begun(), "proj_vllm-1 exited with code 2"),
        "engine_died",
        None,
        "the server exited with code 2",
    ),
    "compose: 137": (lambda: composed(begun(), "vllm-1 exited with code 137"), "host_oom_or_killed", None, "137"),
    "compose: 139 is a signal": (lambda: composed(begun(), "vllm-1 exited with code 139"), "worker_died", None, "ended by SIGSEGV"),
    "without a prefix": (lambda: begun().raw("exited with code 3"), "engine_died", None, "the server exited with code 3"),
    "systemd: status": (
        lambda: begun().raw("Nov 29 10:00:11 gpu01 systemd[1]: vllm.service: Main process exited, code=exited, status=1/FAILURE"),
        "engine_died",
        None,
        "the server exited with code 1",
    ),
    "systemd: killed": (
        lambda: begun().raw("Nov 29 10:00:11 gpu01 systemd[1]: vllm.service: Main process exited, code=killed, status=9/KILL"),
        "host_oom_or_killed",
        None,
        "killed",
    ),
    "systemd: a core dump": (
        lambda: begun().raw("Nov 29 10:00:11 gpu01 systemd[1]: vllm.service: Main process exited, code=dumped, status=11/SEGV"),
        "worker_died",
        None,
        "ended by SIGSEGV",
    ),
    "a script's shell: killed": (
        lambda: begun().raw("./serve.sh: line 4: 12345 Killed                  vllm serve org/m --port 8000"),
        "host_oom_or_killed",
        None,
        "the shell saw SIGKILL",
    ),
    "a script's shell: its variable": (
        lambda: begun().raw('./serve.sh: line 4: 12345 Killed                  "${COMMAND[@]}"'),
        "host_oom_or_killed",
        None,
        "the shell saw SIGKILL",
    ),
    "a terminal's shell": (
        lambda: begun().raw("[1]+  Killed                  vllm serve org/m"),
        "host_oom_or_killed",
        None,
        "the shell saw SIGKILL",
    ),
    "zsh": (lambda: begun().raw("zsh: killed     vllm serve org/m"), "host_oom_or_killed", None, "the shell saw SIGKILL"),
    "fish": (
        lambda: begun().raw("fish: Job 1, 'vllm serve org/m' terminated by signal SIGKILL (Forced quit)"),
        "host_oom_or_killed",
        None,
        "the shell saw SIGKILL",
    ),
    "a script's shell: aborted": (
        lambda: begun().raw("./serve.sh: line 4: 12345 Aborted                 (core dumped) vllm serve org/m"),
        "worker_died",
        None,
        "ended by SIGABRT",
    ),
    "a script's shell: an illegal instruction": (
        lambda: begun().raw("./serve.sh: line 4: 12345 Illegal instruction     vllm serve org/m"),
        "worker_died",
        None,
        "ended by SIGILL",
    ),
    "a log store's record of a bare line": (
        lambda: begun().raw('{"timestamp": "2026-11-29T10:00:11Z", "level": "error", "message": "Killed"}'),
        "host_oom_or_killed",
        None,
        "the shell saw SIGKILL",
    ),
    "Ray": (
        lambda: begun().raw(
            "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the"
            " problem, check the logs for the dead worker. RayTask ID: ffff Worker ID: 85b Node ID: e3 Worker IP address: "
            "10.0.16.95 Worker port: 10123 Worker PID: 2345 Worker exit type: SYSTEM_ERROR Worker exit detail: Worker "
            "unexpectedly exits with a connection error code 2. End of file. There are some potential root causes. (1) The "
            "process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called. (3) The "
            "worker is crashed unexpectedly due to SIGSEGV or other unexpected errors."
        ),
        "host_oom_or_killed",
        "Ray's worker 2345",
        "Ray's worker 2345 was killed",
    ),
}


@pytest.mark.parametrize("name", list(ENDS))
def test_how_it_ended(name: str) -> None:
    build, kind, process, cause = ENDS[name]
    check(str(build()), {"phase": "failed", "kind": kind, "process": process, "cause": cause})


def test_a_service_that_ends_alone() -> None:
    """It failed before it wrote anything that only a server writes."""
    check("chat-1  | bash: x: not found\nchat-1 exited with code 127\n", {"phase": "failed", "kind": "engine_died"})


# -- V0 ends its workers


@pytest.mark.parametrize("word", ["Terminating", "Killing"])
@pytest.mark.parametrize(
    ("after", "wanted"),
    [
        (lambda log: log, {"phase": "stopped", "kind": None}),
        (lambda log: log.raises("KeyboardInterrupt"), {"phase": "stopped", "kind": None}),
        (
            lambda log: log.raises(
                "RuntimeError: CUDA out of memory occurred when warming up sampler", said="Process SpawnProcess-1:"
            ),
            {"phase": "failed", "kind": "cuda_oom", "failed_in": "loading"},
        ),
    ],
)
def test_v0_ends_its_workers(word: str, after: Callable[[Log], Log], wanted: dict[str, Any]) -> None:
    check(str(after(v0().say("", f"{word} local vLLM worker processes"))), wanted)


def test_v0_ends_its_workers_while_it_serves() -> None:
    served = v0().raw("INFO:     Application startup complete.").say("", "Terminating local vLLM worker processes")
    check(str(served), {"phase": "stopped", "kind": None, "was_ready": True})
    check(str(served.raises("ValueError: a request's")), {"phase": "stopped", "kind": None})
    failed = (
        v0().say("", "Worker VllmWorkerProcess pid 134 died, exit code: -9", "ERROR").say("", "Killing local vLLM worker processes")
    )
    check(str(failed), {"phase": "failed", "kind": "host_oom_or_killed"})


# -- NCCL's warnings

EFA = "gpu01:211:1404 [1] NCCL WARN NET/OFI Only EFA provider is supported"
TWICE = "gpu01:211:1404 [1] NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000"
SHM = (
    "gpu01:211:1404 [1] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-4m to 33030532 bytes, "
    "error: No space left on device (28)"
)
INVALID = "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)"


def starting(*warnings: str) -> Log:
    return Log().starts().raw(*warnings).fails(W1, "WorkerProc failed to start.", INVALID).gives_up()


def serving(before: str, *warnings: str, step: int = 1) -> Log:
    log = Log().starts().raw(before).loads().serves().say(API, STATS, step=step).raw(*warnings).say(API, STATS, step=step)
    return log.fails(W1, "WorkerProc hit an exception.", INVALID).dies()


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (lambda: starting(EFA, TWICE), {"kind": "nccl", "cause": "invalid usage: NCCL WARN Duplicate GPU", "advice": "Two ranks"}),
        (lambda: starting(TWICE, EFA), {"kind": "nccl", "cause": "invalid usage: NCCL WARN NET/OFI Only EFA"}),
        (lambda: starting(*[EFA] * 900, TWICE), {"kind": "nccl", "cause": "NCCL WARN Duplicate GPU"}),
        (lambda: starting(SHM, EFA), {"kind": "shm_too_small", "cause": "/dev/shm"}),
        (lambda: serving(EFA), {"kind": "nccl", "cause": "invalid usage", "failed_in": "ready"}),
        (lambda: serving(SHM), {"kind": "nccl", "cause": "invalid usage", "failed_in": "ready"}),
        (lambda: serving(EFA, TWICE), {"kind": "nccl", "cause": "invalid usage: NCCL WARN Duplicate GPU"}),
        (lambda: serving(EFA, TWICE, step=600), {"kind": "nccl", "cause": "invalid usage"}),
    ],
)
def test_the_last_warning_before_nccl_s_error_explains_it(build: Callable[[], Log], wanted: dict[str, Any]) -> None:
    text = str(build())
    check(text, {"phase": "failed", **wanted})
    if "NCCL WARN" not in wanted["cause"]:
        failure = read(text).failure
        assert failure is not None
        assert ("NCCL WARN" in failure.cause) == (wanted["kind"] == "shm_too_small")


# -- an end is an end


def test_after_a_request_s_error_a_real_end_is_still_seen() -> None:
    reader = LogReader(2026)
    log = up().fails(API, "Error in chat", "RuntimeError: child process exited with code 1", "serving.py:1").say(API, STATS)
    for line in log.lines:
        reader.feed(line)
    assert reader.state.ready
    for line in Log().fails(API, "AsyncLLM output_handler failed.", DEAD).lines:
        reader.feed(line)
    reader.finish()
    assert reader.state.phase is Phase.FAILED
