"""GPUs that work slower, hotter or with less power than the others of their engine and stage: one holds up all ranks."""

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Final

from tui.core.gpu import Gpu, GpuSample
from tui.core.gpu_engine import UNKNOWN, Engine, together

BUSY_PERCENT: Final = 50.0
CLOCK_SHARE: Final = 0.85
"""Clocks of ranks in step lie closer together than this; a power cap moves all of them."""
POWER_SHARE: Final = 0.6
"""Below this share of the others' power it isn't the part or its place in the case, but its work or its limit."""
HOTTER_C: Final = 15.0
ENOUGH: Final = 3
"""Of two, one is always the hotter one: the upper card of a workstation."""


def stragglers(sample: GpuSample, engine: Engine = UNKNOWN) -> list[tuple[int, str]]:
    """GPU and what is to be said of it. Never across engines or stages: those have work of their own.

    Power is not compared during a load, where ranks wait for each other in turn.
    """
    out = []
    for group in together(sample, engine):
        busy = [one.gpu for one in group.members if one.gpu.utilisation is not None and one.gpu.utilisation >= BUSY_PERCENT]
        if len({gpu.name for gpu in busy}) != 1:
            continue
        for gpu, clock, usual in _beside(busy, lambda one: one.sm_clock_mhz):
            if clock < CLOCK_SHARE * usual:
                out.append((gpu.index, f"runs at {clock:,.0f} MHz where {_others(busy, 'run')} at {usual:,.0f}"))
        for gpu, heat, usual in _beside(busy, lambda one: one.temperature_c):
            if heat > usual + HOTTER_C and len(busy) >= ENOUGH:
                out.append((gpu.index, f"{heat:.0f} °C where the others are at {usual:.0f}"))
        for gpu, power, usual in _beside(busy, lambda one: one.power_w):
            if power < POWER_SHARE * usual and not engine.loading:
                out.append((gpu.index, f"draws {power:.0f} W where {_others(busy, 'draw')} {usual:.0f}"))
    return out


def _others(busy: Sequence[Gpu], verb: str) -> str:
    return f"the others {verb}" if len(busy) > 2 else f"the other {verb}s"


def _beside(gpus: Sequence[Gpu], value: Callable[[Gpu], float | None]) -> Iterator[tuple[Gpu, float, float]]:
    """GPU, its value, and the median of the others'."""
    known = [(gpu, one) for gpu in gpus if (one := value(gpu)) is not None]
    for gpu, own in known:
        others = [one for other, one in known if other is not gpu]
        if others:
            yield gpu, own, median(others)
