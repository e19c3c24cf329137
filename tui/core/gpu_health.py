"""What follows from a sample: how much is free, and what is wrong."""

from collections.abc import Collection, Iterator
from typing import Final

from tui.core.counted import counted
from tui.core.gpu import Gpu, GpuSample, Headroom, MigInstance
from tui.core.gpu_engine import UNKNOWN, Engine
from tui.core.gpu_stragglers import BUSY_PERCENT, stragglers
from tui.core.xid import advice

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


def _mib(value: float) -> str:
    return f"{value:,.0f}"


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


# -- what is wrong -----------------------------------------------------------------------------------------------------------------


def health(sample: GpuSample, leftovers: Collection[int] = (), engine: Engine = UNKNOWN) -> tuple[str, ...]:
    """What is wrong with the GPUs, the worst first, one line each; empty when nothing is.

    `leftovers` are the pids of processes whose engine is gone (`gpu_others.leftovers`).
    """
    return tuple(line for _, line in findings(sample, leftovers, engine))


def findings(sample: GpuSample, leftovers: Collection[int] = (), engine: Engine = UNKNOWN) -> Iterator[tuple[int | None, str]]:
    """The same, each with the number of the GPU in the list that it is about; None where it is about none of them."""
    gpus = sample.gpus
    yield from (_of(gpu.index, gpu.error) for gpu in gpus if gpu.error is not None)
    yield from ((None, one) for one in _missing(sample))
    recent = (xid for xid in sample.xids if sample.wall is None or sample.wall - xid.at < XID_SHOWN_S)
    newest = {(xid.gpu, xid.code): xid for xid in recent}
    for xid in sorted(newest.values(), key=lambda one: -one.at):
        todo = advice(xid.code)
        yield _of(xid.gpu, f"XID {xid.code}, {xid.meaning}" + (f" — {todo}" if todo else ""))
    for gpu in gpus:
        if gpu.unread:
            yield _of(gpu.index, f"the driver fails to read {gpu.unread} — look at dmesg for lines with NVRM")
    yield from (_of(gpu.index, one) for gpu in gpus for one in _memory_faults(gpu))
    yield from (_of(gpu.index, one) for gpu in gpus for one in _limits(gpu))
    yield from (_of(index, one) for index, one in stragglers(sample, engine))
    yield from (_of(gpu.index, one) for gpu in gpus for one in _not_the_engines(gpu, leftovers))


def _of(index: int | None, says: str) -> tuple[int | None, str]:
    return index, f"GPU {index}: {says}" if index is not None else f"a GPU: {says}"


def _missing(sample: GpuSample) -> Iterator[str]:
    """A number that is left out, and a GPU that was there before: a driver that starts again numbers the rest without a gap."""
    present = {gpu.index for gpu in sample.gpus}
    if not present:
        return
    gaps = set() if sample.part else set(range(max(present) + 1)) - present
    yield from (f"GPU {number} is missing: the driver lists {len(present)} of {max(present) + 1}" for number in sorted(gaps))
    now = "" if sample.part else f": the driver lists {len(present)} of {len(present) + len(sample.gone)}, numbered anew"
    yield from (f"GPU {gpu.index} ({gpu.uuid}) is missing, it was here before{now}" for gpu in sample.gone if gpu.index not in gaps)


def _not_the_engines(gpu: Gpu, leftovers: Collection[int]) -> Iterator[str]:
    for process in gpu.processes:
        left = process.pid in leftovers
        if (process.engine is False or left) and (process.memory_mib or 0.0) >= 1.0:
            whose = f"left over from the dead engine: end pid {process.pid}" if left else "not the engine's"
            yield f"{_mib(process.memory_mib or 0.0)} MiB held by {process.name or 'a process'} (pid {process.pid}), {whose}"


def _memory_faults(gpu: Gpu) -> list[str]:
    out = []
    if gpu.ecc_uncorrected:
        out.append(f"{gpu.ecc_uncorrected} uncorrectable ECC errors since the driver started: results may be wrong, reset it")
    if gpu.row_remap_failed:
        out.append("a memory row could not be remapped: have it replaced")
    elif gpu.row_remap_pending:
        out.append("a memory row waits to be remapped: reset it when idle")
    if gpu.page_retirement_pending:
        out.append("a page waits to be retired: reset it when idle")
    if gpu.retired_pages:
        out.append(f"{counted(gpu.retired_pages, 'page')} retired")
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
