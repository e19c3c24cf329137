"""Whether the GPUs of one engine and pipeline stage hold the same memory; never compared across engines.

`even` is a promise, so it is made only if nothing speaks against it: no rank without a process, no GPU of the group lost or
gone.
"""

from collections.abc import Sequence
from statistics import median
from typing import Final

from tui.core.gpu import GIB_MIB, IN_USE_SHARE, Gpu, GpuSample, Uniformity
from tui.core.gpu_groups import UNKNOWN, EngineLayout, GpuGroup, Member, together

TOLERANCE_MIB: Final = GIB_MIB
TOLERANCE_SHARE: Final = 0.02
CONTEXT_MIB: Final = 600.0
"""What another rank's CUDA context on rank 0's GPU takes at most."""
MOVING_MIB: Final = 8 * GIB_MIB
"""How far ranks may lie apart while a load is under way: a few shards."""
SETTLED_S: Final = 15.0
"""Memory that has been still for this long is compared strictly."""


def tolerance_mib(level: float) -> float:
    """Return how far two GPUs of one engine may lie apart in MiB: 1 GiB or 2 %, whichever is more."""
    return max(TOLERANCE_MIB, TOLERANCE_SHARE * level)


def uniformity(sample: GpuSample, engine: EngineLayout = UNKNOWN) -> Uniformity:
    """Judge whether the GPUs of each engine and pipeline stage hold the same memory.

    `even` is None if that can't be told: one GPU, no values, no sign of which GPUs belong together, one of them not to be seen,
    or a load under way (then `says` holds the range).
    """
    groups = [
        group for group in together(sample, engine) if all(member.gpu.memory_used_mib is not None for member in group.members)
    ]
    if len(groups) == 1 and not groups[0].ranked:
        return _all_alike(groups[0], sample, engine)
    return _judged(groups, sample, engine)


# -- ranks that are named ----------------------------------------------------------------------------------------------------------


def _judged(groups: Sequence[GpuGroup], sample: GpuSample, engine: EngineLayout) -> Uniformity:
    odd: list[int] = []
    levels: list[str] = []
    faults: list[str] = []
    settled = True
    places = _places(groups, sample)
    for number, group in enumerate(groups):
        out, still = _out_of_line(group.members, engine) if len(group.members) > 1 else ([], True)
        rest = [member for member in group.members if member not in out] or list(group.members)
        absent = places.get(number, []) if _in_use(rest) else []
        odd.extend(gpu.index for _, gpu in absent)
        faults.extend(_without(gpu, rank, rest) for rank, gpu in absent)
        odd.extend(member.gpu.index for member in out)
        faults.extend(_verdict(member, rest) for member in out)
        if len(group.members) > 1 or absent:
            levels.append(f"{group.stage} {_level(rest)}".strip())
            settled = settled and still and _whole(group, sample)
    if faults:
        return Uniformity(even=False, odd=tuple(sorted(set(odd))), says="; ".join(faults))
    return Uniformity(even=True if settled and levels else None, says=" · ".join(levels))


def _whole(group: GpuGroup, sample: GpuSample) -> bool:
    """Tell whether all GPUs of the group are seen: all its ranks, or all GPUs of the host if their number isn't known.

    Where there are seven, the eighth may be what is missing: engines have 2, 4, 8 … of them.
    """
    if group.missing or sample.gone:
        return False
    if group.sure or not group.ranked:
        return group.sure
    present = {gpu.index for gpu in sample.gpus}
    lost = any(gpu.error is not None for gpu in sample.gpus) or (not sample.part and len(present) <= max(present))
    count = len(group.members)
    return not lost and (count & (count - 1) == 0 or not any(_free(gpu) for gpu in sample.gpus))


def _free(gpu: Gpu) -> bool:
    """Tell whether a rank that can't be seen may belong on this GPU: it holds nobody's process, or is lost."""
    return gpu.error is not None or (gpu.memory_share is not None and gpu.memory_share < IN_USE_SHARE and not gpu.processes)


def _places(groups: Sequence[GpuGroup], sample: GpuSample) -> dict[int, list[tuple[int | None, Gpu]]]:
    """Return, for each group by its place, the GPUs on which its missing ranks belong, with the rank if it is certain.

    That is plain where ranks and GPUs are numbered alike, or where as many GPUs are free as ranks are missing.
    """
    found: dict[int, list[tuple[int | None, Gpu]]] = {}
    free = {gpu.index: gpu for gpu in sample.gpus if _free(gpu)}
    waiting = []
    for number, group in enumerate(groups):
        count = len(group.missing) + len(group.members)
        # more than are there: its other ranks are on another host
        if not group.missing or (2 * len(group.missing) >= count and count > 2):
            continue
        steps = {member.gpu.index - rank for member in group.members if (rank := member.tensor) is not None}
        alike = [rank + step for step in steps for rank in group.missing] if len(steps) == 1 else []
        if alike and all(index in free for index in alike):
            found[number] = [(rank, free.pop(index)) for rank, index in zip(group.missing, alike, strict=True)]
        else:
            waiting.append(number)
    if free and sum(len(groups[number].missing) for number in waiting) == len(free):
        gpus = iter([free[index] for index in sorted(free)])
        for number in waiting:
            plain = len(waiting) == 1
            found[number] = [(rank if plain else None, next(gpus)) for rank in groups[number].missing]
    return found


def _without(gpu: Gpu, rank: int | None, rest: Sequence[Member]) -> str:
    name = f"TP{rank}" if rank is not None else None
    if gpu.error is None:
        return _verdict(Member(gpu, gpu.memory_used_mib or 0.0, name), rest)
    return f"GPU {gpu.index}{f' ({name})' if name else ''}: {gpu.error}; the engine can't go on without it"


# -- ranks that aren't -------------------------------------------------------------------------------------------------------------


def _all_alike(group: GpuGroup, sample: GpuSample, engine: EngineLayout) -> Uniformity:
    """GPUs that seem to be one engine's. Unless the log tells as much, only a few of many that are out of line are worth a word."""
    members = group.members
    if len(members) < 2 or not _in_use(members):
        return Uniformity()
    odd, still = _out_of_line(members, engine)
    if not odd:
        return Uniformity(even=True if still and _whole(group, sample) else None, says=_level(members))
    told = engine.alone == len(members)
    if not told and (len(members) < 3 or len(odd) * 4 > len(members)):
        return Uniformity()
    rest = [member for member in members if member not in odd] or list(members)
    return Uniformity(
        even=False,
        odd=tuple(member.gpu.index for member in odd),
        says="; ".join(_verdict(member, rest) for member in odd),
    )


# -- the comparison ----------------------------------------------------------------------------------------------------------------


def _in_use(members: Sequence[Member]) -> bool:
    """Tell whether they hold a model, or a part of it by now."""
    total = median([member.gpu.memory_total_mib or 0.0 for member in members])
    return total > 0.0 and median([member.held_mib for member in members]) >= IN_USE_SHARE * total


def _empty(member: Member) -> bool:
    return member.held_mib < IN_USE_SHARE * (member.gpu.memory_total_mib or 0.0)


def _rank_zero(members: Sequence[Member]) -> Member:
    zero = next((member for member in members if member.tensor == 0), None)
    return zero or min(members, key=lambda member: member.gpu.index)


def _moving(members: Sequence[Member]) -> bool:
    """Tell whether memory still changes on some of them, as during a load."""
    return any(member.gpu.memory_still_s is not None and member.gpu.memory_still_s < SETTLED_S for member in members)


def _out_of_line(members: Sequence[Member], engine: EngineLayout) -> tuple[list[Member], bool]:
    """Those out of line, and whether they were compared strictly: not while a load is under way."""
    odd = _odd(members)
    if odd and not engine.ready and _moving(members):
        return _odd(members, MOVING_MIB), False
    return odd, True


def _odd(members: Sequence[Member], slack_mib: float = 0.0) -> list[Member]:
    """Those out of line with the rest, by more than the tolerance or the slack.

    Rank 0 may hold more: other ranks open contexts on its GPU, and it keeps the sampler.
    """
    zero = _rank_zero(members)
    rest = [member.held_mib for member in members if member is not zero]
    # of two of which one is empty, that is the odd one, whichever it is
    level = zero.held_mib if len(members) == 2 and any(_empty(member) for member in members if member is not zero) else median(rest)
    allowed = max(tolerance_mib(level), slack_mib)
    odd = []
    for member in members:
        extra = member.held_mib - level
        limit = allowed + CONTEXT_MIB * (len(members) - 1) if member is zero and extra > 0 else allowed
        if abs(extra) > limit:
            odd.append(member)
    return odd


def _mib(value: float) -> str:
    return f"{value:,.0f}"


def _level(members: Sequence[Member]) -> str:
    """Return `8 × 96,733 MiB`, with the range if they differ a little."""
    low, high = min(member.held_mib for member in members), max(member.held_mib for member in members)
    figure = _mib(low) if _mib(low) == _mib(high) else f"{_mib(low)}–{_mib(high)}"
    return f"{len(members)} × {figure} MiB"


def _verdict(member: Member, rest: Sequence[Member]) -> str:
    """Return which GPU is odd, and what that means."""
    level = median([other.held_mib for other in rest])
    who = f"GPU {member.gpu.index}" + (f" ({member.rank})" if member.rank else "")
    says = f"{who} holds {_mib(member.held_mib)} MiB, {len(rest)} {'hold' if len(rest) > 1 else 'holds'} {_mib(level)}"
    if _empty(member):
        return f"{says}: nothing is loaded there, the tensor-parallel load is broken"
    if member.held_mib < level:
        return f"{says}: its share of the weights or of the KV cache isn't there"
    foreign = [process for process in member.gpu.processes if process.engine is False or process.rank is None]
    if foreign:
        worst = max(foreign, key=lambda process: process.memory_mib or 0.0)
        return f"{says}: another process is there ({worst.name or 'unnamed'}, pid {worst.pid})"
    return f"{says}: something else holds memory there, or an earlier engine left some behind"
