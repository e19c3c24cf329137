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
from tui.core.gpu_others import engine_gone
from tui.core.logs.state import Phase

_STAGE = re.compile(r"(?:DP|PP)\d+")
_TENSOR = re.compile(r"(?<![A-Z])TP(\d+)")
_NO_PARENT: Final = -1


class Engine(Struct, frozen=True):
    """What is known of the watched engine beside the GPUs themselves."""

    tensor: int | None = None
    """Tensor-parallel ranks of one stage; None where no log tells."""
    stages: int = 1
    """Pipeline stages times data-parallel engines."""
    hosts: int = 1
    """On how many hosts all of them are."""
    ready: bool = False
    """Whether the API is: memory does not move any more."""
    loading: bool = False

    @property
    def alone(self) -> int | None:
        """How many GPUs of a host hold the same, where all of the engine's there do."""
        return self.local if self.stages == 1 else None

    @property
    def local(self) -> int | None:
        """Tensor-parallel ranks of one stage on one host, if they are spread evenly."""
        if self.tensor is None:
            return None
        each, rest = divmod(self.tensor * self.stages, self.hosts)
        return min(self.tensor, each) if each and not rest else self.tensor


UNKNOWN: Final = Engine()


def engine_of(state: DeploymentState) -> Engine:
    """What the log and the API tell. The log of an engine that is gone tells nothing of what the GPUs hold now."""
    load, ready = state.load, state.api.ready
    hosts = 1 + len(state.others)
    if load is None or engine_gone(state):
        return Engine(hosts=hosts, ready=ready)
    return Engine(
        tensor=load.tensor_parallel or None,
        stages=(load.pipeline_parallel or 1) * (load.data_parallel or 1),
        hosts=hosts,
        ready=ready,
        loading=bool(load.lines) and not ready and not load.ready and load.phase is not Phase.READY,
    )


class Member(Struct, frozen=True):
    gpu: Gpu
    held_mib: float
    """Its memory less that of processes that aren't of this group."""
    rank: str | None = None

    @property
    def tensor(self) -> int | None:
        """Its tensor-parallel rank."""
        match = _TENSOR.search(self.rank) if self.rank else None
        return int(match.group(1)) if match else None


class Group(Struct, frozen=True):
    """GPUs of one engine and pipeline stage."""

    members: tuple[Member, ...]
    stage: str = ""
    """`PP0`, `DP1 PP0` … or nothing, where there is one."""
    missing: tuple[int, ...] = ()
    """Tensor-parallel ranks that no process plays."""
    sure: bool = False
    """Whether the number of its ranks is known."""
    ranked: bool = True
    """Whether its processes name their ranks."""


def together(sample: GpuSample, engine: Engine = UNKNOWN) -> tuple[Group, ...]:
    """The groups on this host, also those of one GPU. Empty where it can't be told what belongs together."""
    gpus = [gpu for gpu in sample.gpus if gpu.error is None or gpu.memory_used_mib is not None]
    if any(process.engine is not False and process.rank is not None for gpu in gpus for process in gpu.processes):
        return _ranked(gpus, len(sample.gpus), engine)
    return _unranked(gpus, engine)


def _ranked(gpus: Sequence[Gpu], listed: int, engine: Engine) -> tuple[Group, ...]:
    """By the workers' parent, their data-parallel rank and pipeline stage."""
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
        out.append(Group(tuple(members), key[1], missing, expected is not None))
    return tuple(out)


def _held(gpu: Gpu, others: Sequence[GpuProcess]) -> float:
    return max((gpu.memory_used_mib or 0.0) - sum(process.memory_mib or 0.0 for process in others), 0.0)


def _one_engine(members: Sequence[Member]) -> bool:
    """Without parents (nvidia-smi tells none) workers are one engine's if each rank is there once."""
    return len({member.rank for member in members}) == len(members)


def _expected(ranks: set[int], listed: int, engine: Engine) -> range | None:
    """The tensor-parallel ranks that a host of so many GPUs is to have, by those that are there; None where it is not known.

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


def _unranked(gpus: Sequence[Gpu], engine: Engine) -> tuple[Group, ...]:
    """No process names its rank: engines that set no titles, or processes that can't be seen. Children of one parent are one
    engine's, and so are the GPUs in use, or all, if they are as many as the log says."""
    if engine.stages > 1 or len(gpus) < 2:
        return ()
    members = [Member(gpu, _held(gpu, [one for one in gpu.processes if one.engine is False])) for gpu in gpus]
    size = engine.alone
    if size is not None:
        in_use = [member for member in members if member.held_mib >= IN_USE_SHARE * (member.gpu.memory_total_mib or 0.0) > 0.0]
        some = next((some for some in (in_use, members) if len(some) == size), None)
        return (Group(tuple(some), sure=True, ranked=False),) if some and in_use else ()
    own = [member for member in members if any(one.engine is not False for one in member.gpu.processes)]
    parents = {one.parent for member in own for one in member.gpu.processes if one.engine is not False}
    if len(parents) != 1 or None in parents:
        return ()
    return (Group(tuple(own), sure=len(own) == len(members), ranked=False),)
