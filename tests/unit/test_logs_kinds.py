"""What kind of failure the texts of vLLM, PyTorch, NCCL, the hub, Ray and the kernel tell of."""

from pathlib import Path

import pytest

from tui.core.logs.failure_kinds import is_wrapper, kind_of

TEXTS = [
    tuple(line.split("\t"))
    for line in (Path(__file__).parent.parent / "data" / "logs" / "kinds.tsv").read_text(encoding="utf-8").splitlines()
]

WRAPPERS = [
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.",
    "RuntimeError: Engine process failed to start. See stack trace for the root cause.",
    "RuntimeError: Worker failed with error 'CUDA out of memory', please check the stack trace above for the root cause",
    "RuntimeError: Executor failed.",
    "RuntimeError: cancelled",
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.",
    "Worker proc VllmWorker-5 died unexpectedly (exit code: None), shutting down executor.",
    "ChildProcessError: worker died",
    "RuntimeError: Process ApiServer_0 (PID: 1893) died with exit code 1",
]


@pytest.mark.parametrize(("kind", "text"), TEXTS)
def test_kinds(kind: str, text: str) -> None:
    assert kind_of(text) == kind


@pytest.mark.parametrize("text", WRAPPERS)
def test_wrappers(text: str) -> None:
    assert is_wrapper(text)


@pytest.mark.parametrize(("kind", "text"), [pair for pair in TEXTS if "root cause" not in pair[1] and "Bus error" not in pair[1]])
def test_a_cause_is_no_wrapper(kind: str, text: str) -> None:
    assert not is_wrapper(text)
