"""The columns of the list of GPUs: what each says, how wide, and which of them there is room for."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from tui.core.gpu import Gpu, MigInstance
from tui.core.gpu_others import others_mib
from tui.widgets.figures import BW, QUIET, B, E, Part, W, short
from tui.widgets.numbers import DASH, gib, percent, whole

LOW_SHARE = 0.02
"""Below this share of free memory the figure is marked, since it is the first thing to look at; it is no alarm."""


class Column(Struct, frozen=True):
    title: str
    width: int
    text: Callable[[Gpu], str]
    tint: Callable[[Gpu], str] = lambda gpu: ""
    of_instance: Callable[[MigInstance], str] = lambda mig: ""
    """What it says of a MIG instance: nothing where only the whole GPU has such a figure."""


def _free_tint(gpu: Gpu | MigInstance) -> str:
    share = gpu.memory_share
    return B if share is not None and 1 - share < LOW_SHARE else ""


def rank_of(gpu: Gpu) -> str:
    ranks = [one.rank for one in gpu.processes if one.rank]
    pids = [str(one.pid) for one in gpu.processes if one.engine is not False]
    return "  ".join([*ranks[:1], *(f"pid {pid}" for pid in pids[:1])])


def _ecc(gpu: Gpu) -> str:
    return DASH if gpu.ecc_uncorrected is None else whole(gpu.ecc_uncorrected)


def pcie_of(gpu: Gpu) -> str:
    if gpu.pcie_generation is None or gpu.pcie_width is None:
        return DASH
    return f"{gpu.pcie_generation}×{gpu.pcie_width}"


def _narrow_link(gpu: Gpu) -> str:
    return W if gpu.pcie_width is not None and gpu.pcie_width_max is not None and gpu.pcie_width < gpu.pcie_width_max else QUIET


def _power(gpu: Gpu) -> str:
    return f"{whole(gpu.power_w)}/{whole(gpu.power_limit_w)}"


USED = Column("used", 6, lambda gpu: gib(gpu.memory_used_mib), of_instance=lambda mig: gib(mig.memory_used_mib))
FREE = Column("free", 6, lambda gpu: gib(gpu.free_mib), _free_tint, lambda mig: gib(mig.free_mib))
UTIL = Column("util", 5, lambda gpu: whole(gpu.utilisation))
HEAT = Column("°C", 4, lambda gpu: whole(gpu.temperature_c))
WATT = Column("W", 5, lambda gpu: whole(gpu.power_w))
OTHERS = Column("others", 7, lambda gpu: gib(others_mib(gpu)), lambda gpu: BW if others_mib(gpu) else QUIET)
OTHERS_NOW = Column("others", 7, lambda gpu: gib(others_mib(gpu, True)), lambda gpu: BW if others_mib(gpu, True) else QUIET)
"""The same once the engine is gone."""
LIMIT = Column("W of", 10, _power)
CLOCK = Column("MHz", 6, lambda gpu: whole(gpu.sm_clock_mhz))
LINK = Column("PCIe", 6, pcie_of, _narrow_link)
ECC = Column("ECC", 5, _ecc, lambda gpu: E if gpu.ecc_uncorrected else QUIET)
SHARE = Column("full", 7, lambda gpu: percent(gpu.memory_share), of_instance=lambda mig: percent(mig.memory_share))
RANK = Column("process", 17, rank_of, lambda gpu: QUIET)
NARROW = (USED, FREE, UTIL, HEAT, WATT)
FULL = (USED, FREE, SHARE, UTIL, HEAT, LIMIT, CLOCK, ECC, LINK, RANK)


def columns_for(gpus: Sequence[Gpu], width: int, gone: bool = False) -> tuple[Column, ...]:
    """As many columns as leave the bar its room; the last ones go first. `gone` says that the engine is no more."""
    chosen = list(FULL if width >= 96 else NARROW)
    if any(others_mib(gpu, gone) for gpu in gpus):
        chosen[1:1] = [OTHERS_NOW if gone else OTHERS]
        if width < 96:
            chosen.remove(UTIL)
    while len(chosen) > 1 and width - 3 - sum(column.width for column in chosen) < (12 if width >= 40 else 8):
        chosen.pop()
    return tuple(chosen)


def cells(gpu: Gpu, columns: Sequence[Column]) -> list[Part]:
    """A GPU's figures, right-aligned below the titles."""
    return [(f"{short(column.text(gpu), column.width - 1):>{column.width}}", column.tint(gpu)) for column in columns]


def instance_cells(mig: MigInstance, columns: Sequence[Column]) -> list[Part]:
    """The same of a MIG instance."""
    tint = _free_tint(mig)
    return [(f"{short(one.of_instance(mig), one.width - 1):>{one.width}}", tint if one is FREE else "") for one in columns]
