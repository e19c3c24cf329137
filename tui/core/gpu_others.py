"""Memory on a GPU that is not the watched engine's: whose it is, and what to do about it.

While the engine lives, that is what processes hold that are known not to be its own. Once it has died, nobody can tell by parentage
any more, but then whatever is still held is not its: other people's processes, or what an earlier engine left behind.
"""

from collections.abc import Sequence
from typing import Final

from tui.core.counted import counted
from tui.core.deployment import DeploymentState
from tui.core.gpu import IN_USE_SHARE, Gpu, GpuProcess
from tui.core.logs.state import Phase

WORTH_MIB: Final = 1024.0
"""Memory of another process that is worth a word."""
ABOUT_MEMORY: Final = ("cuda_oom", "gpu_memory_in_use", "kv_cache_too_small")
"""Failures that memory of somebody else on a GPU explains."""
WORKERS: Final = ("VLLM::", "vllm::", "sglang::")
"""How the titles of engines' processes begin."""


def engine_gone(state: DeploymentState) -> bool:
    """Whether the engine's start or service has ended and nothing answers in its place."""
    load = state.load
    return load is not None and load.phase in (Phase.FAILED, Phase.STOPPED) and not state.api.ready


def others_of(gpu: Gpu, gone: bool = False) -> tuple[GpuProcess, ...]:
    """The processes there that are not the engine's, the largest first."""
    found = [one for one in gpu.processes if one.engine is False or (gone and one.engine is None)]
    return tuple(sorted(found, key=lambda one: -(one.memory_mib or 0.0)))


def others_mib(gpu: Gpu, gone: bool = False) -> float:
    """Memory that is not the engine's. After its end that is all that is in use, also where the holder can't be seen from here."""
    known = sum(one.memory_mib or 0.0 for one in others_of(gpu, gone))
    used, share = gpu.memory_used_mib, gpu.memory_share
    if gone and used is not None and share is not None and share >= IN_USE_SHARE and not any(one.engine for one in gpu.processes):
        return max(used, known)
    return known


def left_behind(process: GpuProcess, state: DeploymentState) -> bool:
    """Whether it is a process of an engine that is gone: it serves nobody.

    It is an orphan, or a worker of one; or a worker where no server runs any more. Workers of a server that lives are not.
    """
    if process.pid in state.orphans or process.parent in state.orphans:
        return True
    worker = process.rank is not None or process.name.startswith(WORKERS)
    return worker and process.engine is not True and engine_gone(state) and not state.servers


def leftovers(state: DeploymentState) -> frozenset[int]:
    """The pids that hold memory of the GPUs for an engine that is gone."""
    gpus = state.gpus.gpus if state.gpus else ()
    return frozenset(one.pid for gpu in gpus for one in gpu.processes if left_behind(one, state))


def free_gpus(gpus: Sequence[Gpu]) -> list[int]:
    """Indices of the GPUs that hold next to nothing."""
    return [one.index for one in gpus if one.error is None and one.memory_share is not None and one.memory_share < IN_USE_SHARE]


def held_by_others(state: DeploymentState) -> list[tuple[Gpu, float, tuple[GpuProcess, ...]]]:
    """GPU, MiB and holders, for each GPU on which a worthwhile amount is not the engine's; the fullest first."""
    gone = engine_gone(state)
    found = []
    for gpu in state.gpus.gpus if state.gpus else ():
        held = others_mib(gpu, gone)
        if held >= WORTH_MIB:
            found.append((gpu, held, tuple(one for one in others_of(gpu, gone) if (one.memory_mib or 0.0) >= WORTH_MIB)))
    return sorted(found, key=lambda one: -one[1])


def next_steps(state: DeploymentState) -> list[str]:
    """What to do about a failed start: what the GPUs tell goes before what the log can only guess. Empty where nothing failed."""
    failure = state.load.failure if state.load is not None else None
    if failure is None:
        return []
    steps = what_to_do(state) if failure.kind in ABOUT_MEMORY else []
    return steps or ([failure.advice] if failure.advice else [])


def what_to_do(state: DeploymentState) -> list[str]:
    """Steps that free the memory, or go round it; empty where nobody else holds any."""
    held = held_by_others(state)
    if not held:
        return []
    steps = []
    holders = {process.pid: process for _, _, processes in held for process in processes}
    mine = [pid for pid, process in holders.items() if left_behind(process, state)]
    foreign = [process for pid, process in holders.items() if pid not in mine]
    if mine:
        steps.append(f"end what an earlier engine left behind: kill {' '.join(map(str, sorted(mine)))}; then start again")
    if foreign:
        owners = sorted({process.user for process in foreign if process.user})
        pids = ", ".join(str(process.pid) for process in foreign[:4]) + (
            f" and {len(foreign) - 4} more" if len(foreign) > 4 else ""
        )
        ask = f"ask {', '.join(owners)}" if owners else "ask its owner" if len(foreign) == 1 else "ask their owners"
        steps.append(f"end pid {pids} ({ask}), then start again")
    if not holders:
        where = ", ".join(str(gpu.index) for gpu, _, _ in held)
        steps.append(f"find who holds GPU {where} (fuser -v /dev/nvidia*, other containers too), then start again")
    load = state.load
    needed = (load.tensor_parallel or 1) * (load.pipeline_parallel or 1) * (load.data_parallel or 1) if load else 1
    gpus = state.gpus.gpus if state.gpus else ()
    if any(process.engine for gpu in gpus for process in gpu.processes):
        return steps  # its own memory is about to be freed: how many are free can't be told yet
    free = free_gpus(gpus)
    if len(free) >= needed:
        steps.append(f"or start on free ones: CUDA_VISIBLE_DEVICES={','.join(map(str, free[:needed]))}")
    elif load is not None and load.tensor_parallel is not None:
        steps.append(f"or start on another host: {counted(needed, 'GPU')} needed, {len(free)} free here")
    return steps
