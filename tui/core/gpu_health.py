"""What follows from a sample: how much is free, and what is wrong."""

from collections.abc import Callable, Collection, Iterator, Sequence
from statistics import median
from typing import Final

from tui.core.gpu import Gpu, GpuSample, Headroom, MigInstance
from tui.core.gpu_groups import UNKNOWN, EngineLayout, together
from tui.core.presentation import counted

BUSY_PERCENT: Final = 50.0
CLOCK_SHARE: Final = 0.85
"""Clocks of ranks in step lie closer together than this; a power cap moves all of them."""
POWER_SHARE: Final = 0.6
"""Below this share of the others' power it isn't the part or its place in the case, but its work or its limit."""
HOTTER_C: Final = 15.0
ENOUGH: Final = 3
"""Of two, one is always the hotter one: the upper card of a workstation."""


def stragglers(sample: GpuSample, engine: EngineLayout = UNKNOWN) -> list[tuple[int, str]]:
    """GPU and what is to be said of it. Never across engines or stages: those have work of their own.

    Power is not compared during a load, where ranks wait for each other in turn.
    """
    out = []
    for group in together(sample, engine):
        busy = [
            member.gpu for member in group.members if member.gpu.utilisation is not None and member.gpu.utilisation >= BUSY_PERCENT
        ]
        if len({gpu.name for gpu in busy}) != 1:
            continue
        for gpu, clock, usual in _beside(busy, lambda one: one.sm_clock_mhz):
            if clock < CLOCK_SHARE * usual:
                out.append((gpu.index, f"runs at {clock:,.0f} MHz while {_others(busy, 'run')} at {usual:,.0f}"))
        for gpu, heat, usual in _beside(busy, lambda one: one.temperature_c):
            if heat > usual + HOTTER_C and len(busy) >= ENOUGH:
                out.append((gpu.index, f"{heat:.0f} °C while the others are at {usual:.0f}"))
        for gpu, power, usual in _beside(busy, lambda one: one.power_w):
            if power < POWER_SHARE * usual and not engine.loading:
                out.append((gpu.index, f"draws {power:.0f} W while {_others(busy, 'draw')} {usual:.0f}"))
    return out


def _others(busy: Sequence[Gpu], verb: str) -> str:
    return f"the others {verb}" if len(busy) > 2 else f"the other {verb}s"


def _beside(gpus: Sequence[Gpu], value: Callable[[Gpu], float | None]) -> Iterator[tuple[Gpu, float, float]]:
    """GPU, its value, and the median of the others'."""
    known = [(gpu, one) for gpu in gpus if (one := value(gpu)) is not None]
    for gpu, own in known:
        others = [amount for other, amount in known if other is not gpu]
        if others:
            yield gpu, own, median(others)


_APPLICATION = "the program on it did something wrong, or an earlier error made it"
_RESET = "reset the GPU or reboot; if it comes back, have the GPU replaced"

MEANINGS: Final[dict[int, tuple[str, str]]] = {
    13: ("graphics engine exception", _APPLICATION),
    31: ("GPU memory page fault", _APPLICATION),
    32: ("corrupted push buffer", "a bad driver, PCIe link or program"),
    38: ("driver firmware error", "restart the driver"),
    43: ("GPU stopped processing", _APPLICATION),
    44: ("fault during a context switch", "restart the engine"),
    45: ("work cleaned up after an earlier error", "look at the errors before it, or at who killed the program"),
    48: ("uncorrectable (double-bit) ECC error", _RESET),
    61: ("internal micro-controller warning", _RESET),
    62: ("internal micro-controller halt", _RESET),
    63: ("memory row remapped or page retired", "takes effect at the next reset of the GPU"),
    64: ("row remapping or page retirement failed", _RESET),
    68: ("video decoder exception", _APPLICATION),
    69: ("graphics engine class error", _APPLICATION),
    74: ("NVLink error", "check the links with nvidia-smi nvlink -s; reset all GPUs, reseat or replace"),
    79: ("GPU has fallen off the bus", "power, heat, or the board: power-cycle the host"),
    92: ("high rate of correctable ECC errors", "watch it"),
    94: ("contained uncorrectable memory error", "restart the engine; the GPU goes on"),
    95: ("uncontained uncorrectable memory error", _RESET),
    109: ("context switch timeout", "restart the engine; if it comes back, reset the GPU"),
    110: ("security fault", _RESET),
    119: ("GSP firmware does not answer", _RESET),
    120: ("GSP firmware error", _RESET),
    121: ("chip-to-chip link error", "watch it"),
    122: ("SPI read failure", "power-cycle the host"),
    136: ("link training failed", _RESET),
    140: ("uncorrectable ECC error in memory", _RESET),
    143: ("GPU initialisation failed", _RESET),
    144: ("NVLink error (SAW)", _RESET),
    145: ("NVLink error (RLW)", _RESET),
    146: ("NVLink error (TLW)", _RESET),
    147: ("NVLink error (TREX)", _RESET),
    148: ("NVLink error (NVLPW)", _RESET),
    149: ("NVLink error (NETIR)", _RESET),
    150: ("NVLink error (MSE)", _RESET),
    154: ("the action that recovers the GPU changed", "nvidia-smi -q names it under GPU Recovery Action"),
    155: ("NVLink error told by software", _RESET),
    156: ("resource retirement", "takes effect at the next reset of the GPU"),
    158: ("GPU fatal timeout", _RESET),
    171: ("uncorrectable DRAM error", _RESET),
    172: ("uncorrectable SRAM error", _RESET),
}
"""Code: what happened, what to do."""


def meaning(code: int) -> str:
    """Return what the XID code means, in a few words; never empty."""
    known = MEANINGS.get(code)
    return known[0] if known else "not in the catalogue of common codes"


def advice(code: int) -> str | None:
    """Return what to do about the code, or whose fault it is."""
    known = MEANINGS.get(code)
    return known[1] if known else None


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
    """Return the GPU with the least free memory; None if none is known.

    Of a GPU that is divided into MIG instances it is the fullest of them: an engine has one of those, never the rest of the GPU.
    """
    found = [room for gpu in sample.gpus for room in _instances_room(gpu) or _room(gpu.index, gpu)]
    return min(found, key=lambda one: one.free_mib, default=None)


def _room(index: int, part: Gpu | MigInstance, mig: str | None = None) -> list[Headroom]:
    free, total = part.free_mib, part.memory_total_mib
    return [Headroom(index, free, free / total, total, mig)] if free is not None and total else []


def _instances_room(gpu: Gpu) -> list[Headroom]:
    return [room for mig in gpu.mig for room in _room(gpu.index, mig, mig.profile)]


# -- what is wrong -----------------------------------------------------------------------------------------------------------------


def health(sample: GpuSample, leftovers: Collection[int] = (), engine: EngineLayout = UNKNOWN) -> tuple[str, ...]:
    """Return what is wrong with the GPUs, the worst first, one line each; empty if nothing is.

    `leftovers` are the pids of processes whose engine is gone (`gpu_others.leftovers`).
    """
    return tuple(line for _, line in findings(sample, leftovers, engine))


def findings(
    sample: GpuSample, leftovers: Collection[int] = (), engine: EngineLayout = UNKNOWN
) -> Iterator[tuple[int | None, str]]:
    """Yield the same lines, each with the index of the GPU that it is about; None if it is about no single one."""
    gpus = sample.gpus
    yield from (_of(gpu.index, gpu.error) for gpu in gpus if gpu.error is not None)
    yield from ((None, says) for says in _missing(sample))
    recent = (xid for xid in sample.xids if sample.wall is None or sample.wall - xid.at < XID_SHOWN_S)
    newest = {(xid.gpu, xid.code): xid for xid in recent}
    for xid in sorted(newest.values(), key=lambda one: -one.at):
        todo = advice(xid.code)
        yield _of(xid.gpu, f"XID {xid.code}, {xid.meaning}" + (f" — {todo}" if todo else ""))
    for gpu in gpus:
        if gpu.unread:
            yield _of(gpu.index, f"the driver fails to read {gpu.unread} — look at dmesg for lines with NVRM")
    yield from (_of(gpu.index, fault) for gpu in gpus for fault in _memory_faults(gpu))
    yield from (_of(gpu.index, limit) for gpu in gpus for limit in _limits(gpu))
    yield from (_of(index, says) for index, says in stragglers(sample, engine))
    yield from (_of(gpu.index, says) for gpu in gpus for says in _not_the_engines(gpu, leftovers))


def _of(index: int | None, says: str) -> tuple[int | None, str]:
    return index, f"GPU {index}: {says}" if index is not None else f"a GPU: {says}"


def _missing(sample: GpuSample) -> Iterator[str]:
    """Yield a line for an index that is left out, and for a GPU that was there before: a driver that starts again leaves no gap."""
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
            f" at {gpu.temperature_c:.0f} °C"
            if gpu.temperature_c is not None and any("thermal" in reason for reason in slowed)
            else ""
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
