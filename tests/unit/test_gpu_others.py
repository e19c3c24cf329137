"""Memory that is not the engine's, while it lives and after it died, and the steps that free it."""

import pytest
from msgspec.structs import replace

from tui.core.deployment import DeploymentState, ServerSeen
from tui.core.gpu import Gpu, GpuProcess, GpuSample
from tui.core.gpu_groups import engine_gone, held_by_others, leftovers, others_mib, what_to_do
from tui.core.logs.load_state import Failure, LoadState, Phase

TOTAL = 97887.0
FAILED = LoadState(phase=Phase.FAILED, lines=9, tensor_parallel=2, failure=Failure("cuda_oom", Phase.LOADING, "CUDA out of memory"))


def gpu(index: int, used: float, *processes: GpuProcess) -> Gpu:
    return Gpu(index=index, memory_used_mib=used, memory_total_mib=TOTAL, processes=processes)


def state(*gpus: Gpu, load: LoadState = FAILED, orphans: tuple[int, ...] = ()) -> DeploymentState:
    return DeploymentState(name="k", target="t", gpus=GpuSample(gpus=gpus, source="nvml"), load=load, orphans=orphans)


OWN = GpuProcess(1, "VLLM::Worker_TP0", 40000.0, engine=True, rank="TP0")
LENAS = GpuProcess(7, "python finetune.py", 50000.0, user="lena")


@pytest.mark.parametrize(
    ("held", "gone", "mib"),
    [
        (gpu(0, 40400.0, OWN), False, 0.0),
        (gpu(0, 90400.0, OWN, replace(LENAS, engine=False)), False, 50000.0),
        (gpu(0, 50400.0, LENAS), False, 0.0),  # nobody knows whose it is while the engine lives
        (gpu(0, 50400.0, LENAS), True, 50400.0),
        (gpu(0, 50400.0), True, 50400.0),  # the holder is in a container that is not seen from here
        (gpu(0, 40400.0, OWN), True, 0.0),  # it is about to go
        (gpu(0, 400.0), True, 0.0),
    ],
)
def test_how_much_is_not_the_engines(held: Gpu, gone: bool, mib: float) -> None:
    assert others_mib(held, gone) == mib


def test_an_engine_is_gone_when_its_log_ended_and_nothing_answers() -> None:
    assert engine_gone(state())
    assert not engine_gone(state(load=replace(FAILED, phase=Phase.LOADING)))


WORKER = GpuProcess(1327, "VLLM::Worker_TP", 40000.0, engine=False, parent=900)
OTHER_SERVER = ServerSeen(30, "vllm", "another", "port 9000", "lena", 1.0)


@pytest.mark.parametrize(
    ("process", "load", "orphans", "servers", "left"),
    [
        (WORKER, FAILED, (), (), True),
        (WORKER, FAILED, (), (OTHER_SERVER,), False),  # the other server's, for all that can be told
        (WORKER, FAILED, (1327,), (OTHER_SERVER,), True),
        (WORKER, FAILED, (900,), (OTHER_SERVER,), True),  # its EngineCore is left over
        (WORKER, replace(FAILED, phase=Phase.LOADING), (), (), False),
        (WORKER, replace(FAILED, phase=Phase.LOADING), (1327,), (), True),  # it is in the way of the next start
        (replace(WORKER, engine=True), FAILED, (), (), False),  # the engine is ending just now
        (LENAS, FAILED, (), (), False),
    ],
)
def test_what_a_dead_engine_left(
    process: GpuProcess, load: LoadState, orphans: tuple[int, ...], servers: tuple[ServerSeen, ...], left: bool
) -> None:
    seen = replace(state(gpu(0, 50000.0, process), load=load, orphans=orphans), servers=servers)
    assert leftovers(seen) == (frozenset({process.pid}) if left else frozenset())


@pytest.mark.parametrize(
    ("gpus", "orphans", "steps"),
    [
        (
            (gpu(0, 0.0), gpu(1, 50400.0, LENAS)),
            (),
            ["end pid 7 (ask lena), then start again", "or start on another host: 2 GPUs needed, 1 free here"],
        ),
        (
            (gpu(0, 50400.0, LENAS), gpu(1, 0.0), gpu(2, 0.0)),
            (),
            ["end pid 7 (ask lena), then start again", "or start on free ones: CUDA_VISIBLE_DEVICES=1,2"],
        ),
        (
            (gpu(0, 50400.0, replace(LENAS, rank="TP0", user=None)), gpu(1, 50400.0, replace(LENAS, pid=8, user=None))),
            (8,),
            [
                "end what an earlier engine left behind: kill 7 8; then start again",
                "or start on another host: 2 GPUs needed, 0 free here",
            ],
        ),
        ((gpu(0, 60000.0), gpu(1, 0.0), gpu(2, 0.0)), (), ["find who holds GPU 0", "or start on free ones"]),
        ((gpu(0, 90400.0, OWN, replace(LENAS, engine=False)), gpu(1, 0.0)), (), ["end pid 7 (ask lena), then start again"]),
        ((gpu(0, 0.0), gpu(1, 0.0)), (), []),
    ],
)
def test_what_to_do(gpus: tuple[Gpu, ...], orphans: tuple[int, ...], steps: list[str]) -> None:
    told = what_to_do(state(*gpus, orphans=orphans))
    assert len(told) == len(steps)
    assert all(text.startswith(step) for text, step in zip(told, steps, strict=True))


def test_the_fullest_comes_first() -> None:
    held = held_by_others(state(gpu(0, 20000.0), gpu(1, 50400.0, LENAS)))
    assert [(held_gpu.index, processes) for held_gpu, _, processes in held] == [(1, (LENAS,)), (0, ())]
