"""What follows from a sample: whether memory is even, how much is free, what is wrong.

Memory is compared over the GPUs of one engine and pipeline stage, where the processes tell who belongs together (workers of one
engine have one parent, and their titles name their ranks); never across engines. Where no process tells, all GPUs are compared, but
only when nearly all agree already: then the one that doesn't is worth a word.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from statistics import median
from typing import Final

from msgspec import Struct

from tui.core.gpu import Gpu, GpuProcess, GpuSample, Headroom, MigInstance, Uniformity
from tui.core.xid import advice

GIB_MIB: Final = 1024.0
TOLERANCE_MIB: Final = GIB_MIB
TOLERANCE_SHARE: Final = 0.02
CONTEXT_MIB: Final = 600.0
"""What another rank's CUDA context on rank 0's GPU takes at most."""
MOVING_MIB: Final = 8 * GIB_MIB
"""How far ranks may lie apart while a load is under way: a few shards."""
SETTLED_S: Final = 15.0
"""Memory that has been still for this long is compared strictly."""
IN_USE_SHARE: Final = 0.02
"""A GPU with less of its memory in use than this holds no model."""
BUSY_PERCENT: Final = 50.0
XID_SHOWN_S: Final = 3600.0
"""How long an XID counts as something wrong now (both stamps are the host's)."""

THROTTLE_WORDS: Final = (
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "thermal slowdown"),
    (0x40, "hardware thermal slowdown"),
    (0x80, "power brake"),
)
"""Bits of NVML's nvmlClocksEventReason*; an idle GPU and set application clocks are no throttling."""
HARMLESS_THROTTLE: Final = frozenset({"power cap", "sync boost"})
"""Normal under full load: the clock that the power limit allows."""

_STAGE = re.compile(r"(?:DP|PP)\d+")
_NO_PARENT: Final = -1
_TENSOR = re.compile(r"TP(\d+)")


class _Member(Struct, frozen=True):
    gpu: Gpu
    held_mib: float
    """Its memory less that of processes that aren't of this group."""
    rank: str | None = None


def _mib(value: float) -> str:
    return f"{value:,.0f}"


def tolerance_mib(level: float) -> float:
    """How far two GPUs of one engine may lie apart: 1 GiB or 2 %, whichever is more."""
    return max(TOLERANCE_MIB, TOLERANCE_SHARE * level)


# -- who belongs together ----------------------------------------------------------------------------------------------------------


def _groups(gpus: Sequence[Gpu]) -> dict[tuple[int, str], list[_Member]]:
    """GPUs by engine (the workers' parent, and their data-parallel rank) and pipeline stage."""
    found: dict[tuple[int, str], list[_Member]] = {}
    for gpu in gpus:
        own: dict[tuple[int, str], list[GpuProcess]] = {}
        for process in gpu.processes:
            if process.engine is not False and process.rank is not None:
                parent = process.parent if process.parent is not None else _NO_PARENT
                own.setdefault((parent, " ".join(_STAGE.findall(process.rank))), []).append(process)
        for key, processes in own.items():
            pids = {process.pid for process in processes}
            others = sum(process.memory_mib or 0.0 for process in gpu.processes if process.pid not in pids)
            held = (gpu.memory_used_mib or 0.0) - others
            found.setdefault(key, []).append(_Member(gpu, max(held, 0.0), processes[0].rank))
    return {key: members for key, members in found.items() if key[0] != _NO_PARENT or _one_engine(members)}


def _one_engine(members: Sequence[_Member]) -> bool:
    """Without parents (nvidia-smi tells none) workers are one engine's if each rank is there once."""
    return len({member.rank for member in members}) == len(members)


def _missing(members: Sequence[_Member]) -> list[int]:
    """Tensor-parallel ranks that no process plays, by the numbers of those that some do."""
    ranks = {int(match.group(1)) for member in members if member.rank and (match := _TENSOR.search(member.rank))}
    return [rank for rank in range(max(ranks) + 1) if rank not in ranks] if ranks else []


def _empty(gpus: Iterable[Gpu]) -> list[Gpu]:
    return [gpu for gpu in gpus if gpu.memory_share is not None and gpu.memory_share < IN_USE_SHARE and not gpu.processes]


# -- the comparison ----------------------------------------------------------------------------------------------------------------


def _rank_zero(members: Sequence[_Member]) -> _Member:
    for member in members:
        if member.rank and (match := _TENSOR.search(member.rank)) and match.group(1) == "0":
            return member
    return min(members, key=lambda member: member.gpu.index)


def _moving(members: Sequence[_Member]) -> bool:
    """Whether memory still changes on some of them, as during a load."""
    return any(member.gpu.memory_still_s is not None and member.gpu.memory_still_s < SETTLED_S for member in members)


def _odd(members: Sequence[_Member], slack_mib: float = 0.0) -> list[_Member]:
    """Those out of line with the rest, by more than the tolerance or the slack.

    Rank 0 may hold more: other ranks open contexts on its GPU, and it keeps the sampler.
    """
    zero = _rank_zero(members)
    level = median([member.held_mib for member in members if member is not zero])
    allowed = max(tolerance_mib(level), slack_mib)
    odd = []
    for member in members:
        extra = member.held_mib - level
        limit = allowed + CONTEXT_MIB * (len(members) - 1) if member is zero and extra > 0 else allowed
        if abs(extra) > limit:
            odd.append(member)
    return odd


def _level(members: Sequence[_Member]) -> str:
    """`8 × 96,733 MiB`, with the range where they differ a little."""
    low, high = min(member.held_mib for member in members), max(member.held_mib for member in members)
    figure = _mib(low) if _mib(low) == _mib(high) else f"{_mib(low)}–{_mib(high)}"
    return f"{len(members)} × {figure} MiB"


def _verdict(member: _Member, rest: Sequence[_Member]) -> str:
    """Which one is odd, and what that means."""
    level = median([one.held_mib for one in rest])
    who = f"GPU {member.gpu.index}" + (f" ({member.rank})" if member.rank else "")
    says = f"{who} holds {_mib(member.held_mib)} MiB, {len(rest)} hold {_mib(level)}"
    total = member.gpu.memory_total_mib or level
    if member.held_mib < IN_USE_SHARE * total:
        return f"{says}: nothing is loaded there, the tensor-parallel load is broken"
    if member.held_mib < level:
        return f"{says}: its share of the weights or of the KV cache isn't there"
    foreign = [process for process in member.gpu.processes if process.engine is False or process.rank is None]
    if foreign:
        worst = max(foreign, key=lambda process: process.memory_mib or 0.0)
        return f"{says}: another process is there ({worst.name or 'unnamed'}, pid {worst.pid})"
    return f"{says}: something else holds memory there, or an earlier engine left some behind"


def uniformity(sample: GpuSample) -> Uniformity:
    """Whether the GPUs of each engine and pipeline stage hold the same memory.

    `even` is None where that can't be told: one GPU, no values, no sign of which GPUs belong together, or a load under way (then
    `says` holds the range).
    """
    gpus = [gpu for gpu in sample.gpus if gpu.memory_used_mib is not None]
    groups = {key: members for key, members in _groups(gpus).items() if len(members) > 1}
    if groups:
        return _judged(list(groups.items()), sample)
    if any(process.engine is not False for gpu in gpus for process in gpu.processes):
        return _unranked(gpus)
    return _all_alike(gpus)


def _judged(groups: Sequence[tuple[tuple[int, str], list[_Member]]], sample: GpuSample) -> Uniformity:
    odd: list[int] = []
    levels, faults = [], []
    settled = True
    for (_, stage), members in groups:
        out = _odd(members)
        if out and _moving(members):
            out = _odd(members, MOVING_MIB)
            settled = False
        rest = [member for member in members if member not in out]
        missing = _missing(members)
        empty = _empty(sample.gpus) + [gpu for gpu in sample.gpus if gpu.error is not None]
        if missing and len(groups) == 1 and len(empty) == len(missing):
            for rank, gpu in zip(missing, empty, strict=True):
                odd.append(gpu.index)
                member = _Member(gpu, gpu.memory_used_mib or 0.0, f"TP{rank}")
                faults.append(
                    _verdict(member, rest or members)
                    if gpu.error is None
                    else f"GPU {gpu.index} (TP{rank}): {gpu.error}; the engine can't go on without it"
                )
        odd.extend(member.gpu.index for member in out)
        faults.extend(_verdict(member, rest or members) for member in out)
        levels.append(f"{stage} {_level(rest or members)}".strip())
    if faults:
        return Uniformity(even=False, odd=tuple(sorted(set(odd))), says="; ".join(faults))
    return Uniformity(even=True if settled else None, says=" · ".join(levels))


def _unranked(gpus: Sequence[Gpu]) -> Uniformity:
    """Processes are there, but name no ranks (engines that set no titles): children of one parent are taken for one engine's."""
    parents = {process.parent for gpu in gpus for process in gpu.processes if process.engine is not False}
    return _all_alike(gpus) if len(parents) == 1 and None not in parents else Uniformity()


def _all_alike(gpus: Sequence[Gpu]) -> Uniformity:
    """All GPUs as one engine's, if that is plausible: at least three, in use, and at most a quarter of them out of line."""
    members = [
        _Member(gpu, (gpu.memory_used_mib or 0.0) - sum(one.memory_mib or 0.0 for one in gpu.processes if one.engine is False))
        for gpu in gpus
    ]
    if len(members) < 2:
        return Uniformity()
    level = median([member.held_mib for member in members])
    total = median([member.gpu.memory_total_mib or 0.0 for member in members])
    if not total or level < IN_USE_SHARE * total:
        return Uniformity()
    odd = _odd(members)
    if not odd:
        return Uniformity(even=True, says=_level(members))
    if _moving(members):
        odd = _odd(members, MOVING_MIB)
        if not odd:
            return Uniformity(says=_level(members))
    if len(members) < 3 or len(odd) * 4 > len(members):
        return Uniformity()
    rest = [member for member in members if member not in odd]
    return Uniformity(
        even=False,
        odd=tuple(member.gpu.index for member in odd),
        says="; ".join(_verdict(member, rest) for member in odd),
    )


# -- headroom ----------------------------------------------------------------------------------------------------------------------


def headroom(sample: GpuSample) -> Headroom | None:
    """The GPU with the least free memory; None when none is known.

    Of a GPU that is divided into MIG instances it is the fullest of them: an engine has one of those, never the rest of the GPU.
    """
    found = [one for gpu in sample.gpus for one in _instances_room(gpu) or _room(gpu.index, gpu)]
    return min(found, key=lambda one: one.free_mib, default=None)


def _room(index: int, part: Gpu | MigInstance, mig: str | None = None) -> list[Headroom]:
    free, total = part.free_mib, part.memory_total_mib
    return [Headroom(index, free, free / total, total, mig)] if free is not None and total else []


def _instances_room(gpu: Gpu) -> list[Headroom]:
    return [room for one in gpu.mig for room in _room(gpu.index, one, one.profile)]


def growth_mib_per_hour(points: Sequence[tuple[float, float]]) -> float | None:
    """How fast memory grows: the slope of a straight line through (seconds, MiB), by least squares. None for less than ten minutes,
    which say nothing of an hour."""
    if len(points) < 3 or points[-1][0] - points[0][0] < 600.0:
        return None
    mean_at = sum(at for at, _ in points) / len(points)
    mean_used = sum(used for _, used in points) / len(points)
    spread = sum((at - mean_at) ** 2 for at, _ in points)
    return sum((at - mean_at) * (used - mean_used) for at, used in points) / spread * 3600.0 if spread else None


# -- what is wrong -----------------------------------------------------------------------------------------------------------------


def health(sample: GpuSample, leftovers: Collection[int] = ()) -> tuple[str, ...]:
    """What is wrong with the GPUs, the worst first, one line each; empty when nothing is.

    `leftovers` are the pids of processes whose engine is gone (`gpu_others.leftovers`).
    """
    out = [f"GPU {gpu.index}: {gpu.error}" for gpu in sample.gpus if gpu.error is not None]
    present = [gpu.index for gpu in sample.gpus]
    if present and not sample.part:
        gone = [number for number in range(max(present) + 1) if number not in present]
        out.extend(f"GPU {number} is missing: the driver lists {len(present)} of {max(present) + 1}" for number in gone)
    recent = (xid for xid in sample.xids if sample.wall is None or sample.wall - xid.at < XID_SHOWN_S)
    newest = {(xid.gpu, xid.code): xid for xid in recent}
    for xid in sorted(newest.values(), key=lambda one: -one.at):
        where = f"GPU {xid.gpu}" if xid.gpu is not None else "a GPU"
        todo = advice(xid.code)
        out.append(f"{where}: XID {xid.code}, {xid.meaning}" + (f" — {todo}" if todo else ""))
    out.extend(
        f"GPU {gpu.index}: the driver fails to read {gpu.unread} — look at dmesg for lines with NVRM"
        for gpu in sample.gpus
        if gpu.unread
    )
    for gpu in sample.gpus:
        out.extend(f"GPU {gpu.index}: {one}" for one in _memory_faults(gpu))
    for gpu in sample.gpus:
        out.extend(f"GPU {gpu.index}: {one}" for one in _limits(gpu))
    out.extend(_stragglers(sample.gpus))
    for gpu in sample.gpus:
        for process in gpu.processes:
            left = process.pid in leftovers
            if (process.engine is False or left) and (process.memory_mib or 0.0) >= 1.0:
                whose = f"left over from the dead engine: end pid {process.pid}" if left else "not the engine's"
                held = f"{_mib(process.memory_mib or 0.0)} MiB held by {process.name or 'a process'} (pid {process.pid})"
                out.append(f"GPU {gpu.index}: {held}, {whose}")
    return tuple(out)


def _memory_faults(gpu: Gpu) -> list[str]:
    out = []
    if gpu.ecc_uncorrected:
        out.append(f"{gpu.ecc_uncorrected} uncorrectable ECC errors since the driver started: results may be wrong, reset it")
    if gpu.row_remap_failed:
        out.append("a memory row could not be remapped: have it replaced")
    elif gpu.row_remap_pending:
        out.append("a memory row waits to be remapped: reset it when idle")
    return out


def _limits(gpu: Gpu) -> list[str]:
    out = []
    slowed = [words for words in gpu.throttle if words not in HARMLESS_THROTTLE]
    if slowed:
        heat = (
            f" at {gpu.temperature_c:.0f} °C" if gpu.temperature_c is not None and any("thermal" in one for one in slowed) else ""
        )
        out.append(f"throttled: {', '.join(slowed)}{heat}")
    if gpu.pcie_width is not None and gpu.pcie_width_max is not None and gpu.pcie_width < gpu.pcie_width_max:
        out.append(f"PCIe link is ×{gpu.pcie_width} of ×{gpu.pcie_width_max}: loading and transfers are slower, reseat it")
    # an idle link falls back to a lower generation, which costs nothing
    busy = gpu.utilisation is not None and gpu.utilisation >= BUSY_PERCENT
    generation, best = gpu.pcie_generation, gpu.pcie_generation_max
    if busy and generation is not None and best is not None and generation < best:
        out.append(f"PCIe runs at generation {generation} of {best} under load")
    if gpu.nvlinks_up is not None and gpu.nvlinks_total is not None and 0 < gpu.nvlinks_up < gpu.nvlinks_total:
        out.append(f"{gpu.nvlinks_total - gpu.nvlinks_up} of {gpu.nvlinks_total} NVLinks are down")
    if gpu.nvlink_errors:
        out.append(f"{gpu.nvlink_errors:,} NVLink errors")
    return out


def _stragglers(gpus: Sequence[Gpu]) -> list[str]:
    """GPUs of equal kind under equal load that run slower or hotter than the rest: they hold up all ranks."""
    busy = [gpu for gpu in gpus if gpu.utilisation is not None and gpu.utilisation >= BUSY_PERCENT]
    if len(busy) < 3 or len({gpu.name for gpu in busy}) > 1:
        return []
    out = []
    clocks = [gpu.sm_clock_mhz for gpu in busy if gpu.sm_clock_mhz is not None]
    heats = [gpu.temperature_c for gpu in busy if gpu.temperature_c is not None]
    for gpu in busy:
        if gpu.sm_clock_mhz is not None and gpu.sm_clock_mhz < 0.85 * median(clocks):
            out.append(f"GPU {gpu.index}: runs at {gpu.sm_clock_mhz:,.0f} MHz where the others run at {median(clocks):,.0f}")
        if gpu.temperature_c is not None and gpu.temperature_c > median(heats) + 15:
            out.append(f"GPU {gpu.index}: {gpu.temperature_c:.0f} °C where the others are at {median(heats):.0f}")
    return out
