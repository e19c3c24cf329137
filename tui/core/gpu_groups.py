"""Which GPUs belong together: those of one engine and pipeline stage.

The processes tell: workers of one engine have one parent, and their titles name their ranks. How many ranks there are to be is in
the log. Where neither tells, nothing is taken to belong together.
"""

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from tui.core.deployment import DeploymentState
from tui.core.gpu import IN_USE_SHARE, Gpu, GpuProcess, GpuSample
from tui.core.logs.load_state import Phase
from tui.core.presentation import counted

WORTH_MIB: Final = 1024.0
"""Memory of another process that is worth a word."""
ABOUT_MEMORY: Final = ("cuda_oom", "gpu_memory_in_use", "kv_cache_too_small")
"""Failures that memory of somebody else on a GPU explains."""


def engine_gone(state: DeploymentState) -> bool:
    """Tell whether the engine's start or service has ended and nothing answers in its place."""
    load = state.load
    return load is not None and load.phase in (Phase.FAILED, Phase.STOPPED) and not state.api.ready


def others_of(gpu: Gpu, gone: bool = False) -> tuple[GpuProcess, ...]:
    """Return the processes on the GPU that are not the engine's, the largest first."""
    found = [process for process in gpu.processes if process.engine is False or (gone and process.engine is None)]
    return tuple(sorted(found, key=lambda one: -(one.memory_mib or 0.0)))


def others_mib(gpu: Gpu, gone: bool = False) -> float:
    """Return the memory that is not the engine's, in MiB.

    After the engine's end that is all that is in use, even if its holder can't be seen.
    """
    known = sum(process.memory_mib or 0.0 for process in others_of(gpu, gone))
    used, share = gpu.memory_used_mib, gpu.memory_share
    if (
        gone
        and used is not None
        and share is not None
        and share >= IN_USE_SHARE
        and not any(process.engine for process in gpu.processes)
    ):
        return max(used, known)
    return known


def engine_titles() -> tuple[str, ...]:
    """Return how the titles of the engines' processes begin."""
    from tui.engines.registry import TITLES  # not needed for the first paint

    return TITLES


def left_behind(process: GpuProcess, state: DeploymentState) -> bool:
    """Tell whether the process is left over from an engine that is gone.

    It is an orphan, or a worker of one; or a worker if no server runs any more. Workers of a server that lives are not.
    """
    if process.pid in state.orphans or process.parent in state.orphans:
        return True
    worker = process.rank is not None or process.name.startswith(engine_titles())
    return worker and process.engine is not True and engine_gone(state) and not state.servers


def leftovers(state: DeploymentState) -> frozenset[int]:
    """Return the pids that hold memory of the GPUs for an engine that is gone."""
    gpus = state.gpus.gpus if state.gpus else ()
    return frozenset(process.pid for gpu in gpus for process in gpu.processes if left_behind(process, state))


def free_gpus(gpus: Sequence[Gpu]) -> list[int]:
    """Return the indices of the GPUs that hold next to nothing."""
    return [gpu.index for gpu in gpus if gpu.error is None and gpu.memory_share is not None and gpu.memory_share < IN_USE_SHARE]


def held_by_others(state: DeploymentState) -> list[tuple[Gpu, float, tuple[GpuProcess, ...]]]:
    """GPU, MiB and holders, for each GPU on which a worthwhile amount is not the engine's; the fullest first."""
    gone = engine_gone(state)
    found = []
    for gpu in state.gpus.gpus if state.gpus else ():
        held = others_mib(gpu, gone)
        if held >= WORTH_MIB:
            found.append(
                (gpu, held, tuple(process for process in others_of(gpu, gone) if (process.memory_mib or 0.0) >= WORTH_MIB))
            )
    return sorted(found, key=lambda one: -one[1])


def next_steps(state: DeploymentState) -> list[str]:
    """Return what to do about a failed start; empty if nothing failed.

    What the GPUs show goes before what the log only suggests.
    """
    failure = state.load.failure if state.load is not None else None
    if failure is None:
        return []
    steps = what_to_do(state) if failure.kind in ABOUT_MEMORY else []
    return steps or ([failure.advice] if failure.advice else [])


def what_to_do(state: DeploymentState) -> list[str]:
    """Return the steps that free the memory, or avoid it; empty if nobody else holds any."""
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


_STAGE = re.compile(r"(?:DP|PP)\d+")
_TENSOR = re.compile(r"(?<![A-Z])TP(\d+)")
_NO_PARENT: Final = -1


class EngineLayout(Struct, frozen=True):
    """What is known of the watched engine beside the GPUs themselves."""

    tensor: int | None = None
    """Tensor-parallel ranks of one stage; None if no log tells."""
    stages: int = 1
    """Pipeline stages times data-parallel engines."""
    hosts: int = 1
    """On how many hosts all of them are."""
    ready: bool = False
    """Whether the API is: memory does not move any more."""
    loading: bool = False

    @property
    def alone(self) -> int | None:
        """Return how many GPUs of a host hold the same memory if all of the engine's GPUs there do."""
        return self.local if self.stages == 1 else None

    @property
    def local(self) -> int | None:
        """Tensor-parallel ranks of one stage on one host, if they are spread evenly."""
        if self.tensor is None:
            return None
        each, rest = divmod(self.tensor * self.stages, self.hosts)
        return min(self.tensor, each) if each and not rest else self.tensor


UNKNOWN: Final = EngineLayout()


def engine_of(state: DeploymentState) -> EngineLayout:
    """Return what the log and the API tell of the engine.

    The log of an engine that is gone tells nothing of what the GPUs hold now.
    """
    load, ready = state.load, state.api.ready
    hosts = 1 + len(state.others)
    if load is None or engine_gone(state):
        return EngineLayout(hosts=hosts, ready=ready)
    return EngineLayout(
        tensor=load.tensor_parallel or None,
        stages=(load.pipeline_parallel or 1) * (load.data_parallel or 1),
        hosts=hosts,
        ready=ready,
        loading=load.recognised and not ready and not load.ready and load.phase is not Phase.READY,
    )


class Member(Struct, frozen=True):
    gpu: Gpu
    held_mib: float
    """Its memory less that of processes that aren't of this group."""
    rank: str | None = None

    @property
    def tensor(self) -> int | None:
        """Return its tensor-parallel rank."""
        match = _TENSOR.search(self.rank) if self.rank else None
        return int(match.group(1)) if match else None


class GpuGroup(Struct, frozen=True):
    """GPUs of one engine and pipeline stage."""

    members: tuple[Member, ...]
    stage: str = ""
    """`PP0`, `DP1 PP0` … or nothing, if there is one."""
    missing: tuple[int, ...] = ()
    """Tensor-parallel ranks that no process plays."""
    sure: bool = False
    """Whether the number of its ranks is known."""
    ranked: bool = True
    """Whether its processes name their ranks."""


def together(sample: GpuSample, engine: EngineLayout = UNKNOWN) -> tuple[GpuGroup, ...]:
    """Return the groups on this host, those of one GPU included; empty if it can't be told which GPUs belong together."""
    gpus = [gpu for gpu in sample.gpus if gpu.error is None or gpu.memory_used_mib is not None]
    if any(process.engine is not False and process.rank is not None for gpu in gpus for process in gpu.processes):
        return _ranked(gpus, len(sample.gpus), engine)
    return _unranked(gpus, engine)


def _ranked(gpus: Sequence[Gpu], listed: int, engine: EngineLayout) -> tuple[GpuGroup, ...]:
    """Group the GPUs by their workers' parent, data-parallel rank and pipeline stage."""
    found: dict[tuple[int, str], list[Member]] = {}
    watched: set[tuple[int, str]] = set()
    for gpu in gpus:
        own: dict[tuple[int, str], list[GpuProcess]] = {}
        for process in gpu.processes:
            if process.engine is not False and process.rank is not None:
                parent = process.parent if process.parent is not None else _NO_PARENT
                key = (parent, " ".join(_STAGE.findall(process.rank)))
                own.setdefault(key, []).append(process)
                if process.engine:
                    watched.add(key)
        for key, processes in own.items():
            pids = {process.pid for process in processes}
            others = [process for process in gpu.processes if process.pid not in pids]
            found.setdefault(key, []).append(Member(gpu, _held(gpu, others), processes[0].rank))
    stages = [stage for _, stage in found]
    out = []
    for key, members in found.items():
        if key[0] == _NO_PARENT and not _one_engine(members):
            continue
        # of two engines the log tells of the watched one only
        told = key in watched or stages.count(key[1]) == 1
        ranks = {rank for member in members if (rank := member.tensor) is not None}
        expected = _expected(ranks, listed, engine) if told else None
        there = expected if expected is not None else range(min(ranks), max(ranks) + 1) if ranks else range(0)
        missing = tuple(rank for rank in there if rank not in ranks)
        out.append(GpuGroup(tuple(members), key[1], missing, expected is not None))
    return tuple(out)


def _held(gpu: Gpu, others: Sequence[GpuProcess]) -> float:
    return max((gpu.memory_used_mib or 0.0) - sum(process.memory_mib or 0.0 for process in others), 0.0)


def _one_engine(members: Sequence[Member]) -> bool:
    """Without parents (nvidia-smi tells none) workers are one engine's if each rank is there once."""
    return len({member.rank for member in members}) == len(members)


def _expected(ranks: set[int], listed: int, engine: EngineLayout) -> range | None:
    """Return the tensor-parallel ranks that a host with so many GPUs should have, judged by those that are there; None if unknown.

    A group over several hosts has a block of equal size on each: ranks 8 to 15 on the second.
    """
    tensor, local = engine.tensor, engine.local
    if tensor is None or local is None or not ranks:
        return range(0) if tensor == 1 else None
    most = max((size for size in range(1, min(tensor, max(listed, 1)) + 1) if tensor % size == 0), default=tensor)
    for size in (min(local, most), most, tensor):
        first = min(ranks) // size * size
        if max(ranks) < first + size <= tensor:
            return range(first, first + size)
    return None


def _unranked(gpus: Sequence[Gpu], engine: EngineLayout) -> tuple[GpuGroup, ...]:
    """Group GPUs whose processes name no rank: an engine that sets no titles, or processes that can't be seen.

    Children of one parent are one engine's, and so are the GPUs in use, or all, if they are as many as the log says.
    """
    if engine.stages > 1 or len(gpus) < 2:
        return ()
    members = [Member(gpu, _held(gpu, [process for process in gpu.processes if process.engine is False])) for gpu in gpus]
    size = engine.alone
    if size is not None:
        in_use = [member for member in members if member.held_mib >= IN_USE_SHARE * (member.gpu.memory_total_mib or 0.0) > 0.0]
        some = next((some for some in (in_use, members) if len(some) == size), None)
        return (GpuGroup(tuple(some), sure=True, ranked=False),) if some and in_use else ()
    own = [member for member in members if any(process.engine is not False for process in member.gpu.processes)]
    parents = {process.parent for member in own for process in member.gpu.processes if process.engine is not False}
    if len(parents) != 1 or None in parents:
        return ()
    return (GpuGroup(tuple(own), sure=len(own) == len(members), ranked=False),)
