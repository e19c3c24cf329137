"""GPUs as rows of one or two lines, their MIG instances below them, and as a grid where there are many."""

from collections.abc import Collection, Sequence
from math import ceil

from textual.content import Content

from tui.core.deployment import DeploymentState
from tui.core.gpu import Gpu, GpuSample, MigInstance
from tui.core.gpu_engine import engine_of
from tui.core.gpu_even import uniformity
from tui.core.gpu_others import engine_gone, others_mib
from tui.widgets.figures import BE, BP, QUIET, TRACK, E, P, Part, bar, fit, label, line, short, sparks
from tui.widgets.gpu_cells import Row, Spot, of_gpu
from tui.widgets.gpu_columns import Column, cells, columns_for, instance_cells, pcie_of, rank_of
from tui.widgets.gpu_old import SELECTED
from tui.widgets.numbers import DASH, GIB, gib

CELL = 12
"""A column of the grid: number, bar, per cent."""
SMALL_BAR = 2
"""The bar of a grid that has no room for figures."""
MIG_BAR = 6


def odd_ones(state: DeploymentState, sample: GpuSample) -> tuple[int, ...]:
    return uniformity(sample, engine_of(state)).odd


# -- rows --------------------------------------------------------------------------------------------------------------------------


def unfolded(gpus: Sequence[Gpu], room: int, selected: int | None) -> frozenset[int]:
    """The places in the list below which MIG instances stand: all if there is room.

    If not, the selected one, so that the rest stays where it is; without a selection the first ones.
    """
    divided = [n for n, gpu in enumerate(gpus) if gpu.mig]
    left = room - len(gpus)
    if selected is not None and sum(len(gpus[n].mig) for n in divided) > left:
        divided = [n for n in divided if n == selected]
    shown = set()
    for n in divided:
        if (left := left - len(gpus[n].mig)) < 0:
            break
        shown.add(n)
    return frozenset(shown)


def gpu_rows(
    state: DeploymentState,
    sample: GpuSample,
    width: int,
    each: int,
    selected: int | None,
    odd: Sequence[int] | None = None,
    host: str = "",
    shown: Collection[int] = (),
) -> list[Row]:
    """The titles, and a row a GPU, of `each` lines; MIG instances below those at the places `shown`."""
    gone = engine_gone(state)
    columns = columns_for(sample.gpus, width, gone)
    folding = any(gpu.mig for gpu in sample.gpus)
    digits = max(len(str(gpu.index)) for gpu in sample.gpus)
    index = max(2, digits + 1) + (1 if selected is not None else 0) + (1 if folding else 0)
    wide = max(1, width - index - sum(column.width for column in columns))
    totals = {gpu.memory_total_mib for gpu in sample.gpus if gpu.memory_total_mib}
    head = f"of {max(totals) / GIB:.1f} GiB" if len(totals) == 1 else "GiB" if totals else ""
    titles = "".join(f"{column.title:>{column.width}}" for column in columns)
    out = [Row(line(label(f"{'':<{index}}{short(head, wide):<{wide}}{titles}")))]
    odd = odd_ones(state, sample) if odd is None else odd
    for n, gpu in enumerate(sample.gpus):
        tint = BE if gpu.error or gpu.index in odd else QUIET
        mark = "▌" if selected == n else ""
        room = index - len(mark)
        told = f"{gpu.index}{'▾' if n in shown else '▸'}" if gpu.mig else f"{gpu.index}"
        number: Part = line((mark, BP), (f"{told:<{room}}", BP if mark and tint == QUIET else tint))
        if gpu.error and gpu.memory_used_mib is None:
            row = line(number, ("✗ " + short(gpu.error, width - index - 2), BE))
        else:
            total = gpu.memory_total_mib or 0
            other = others_mib(gpu, gone) / total if total else 0.0
            row = line(number, bar(gpu.memory_share, wide, other, P), *cells(gpu, columns))
        texts = [row]
        if each == 2:
            texts.append(_second(state, gpu, n, index, wide))
        if n in shown:
            texts += [_instance(one, index, wide, columns) for one in gpu.mig]
        out += [of_gpu(text, width, host, gpu) for text in texts]
    return out


def _second(state: DeploymentState, gpu: Gpu, place: int, index: int, wide: int) -> Content:
    """The second line of a GPU: how busy it was, whose it is, its ECC errors."""
    trend = [one[place] if place < len(one) else None for one in state.trends.gpu_utilisation]
    told = rank_of(gpu) or (f"PCIe {pcie_of(gpu)}" if gpu.pcie_width else "")
    ecc = "" if gpu.ecc_uncorrected is None else "  ECC ✓" if not gpu.ecc_uncorrected else f"  ECC ✗ {gpu.ecc_uncorrected}"
    right = line(label(f"   {told}"), (ecc, E if gpu.ecc_uncorrected else QUIET))
    return line(" " * index, sparks(trend, max(1, wide), 100, TRACK), right)


def _instance(mig: MigInstance, index: int, wide: int, columns: Sequence[Column]) -> Content:
    """A MIG instance: what part of the GPU it is, and its own memory."""
    name = max(0, min(12, wide - MIG_BAR))
    return line(" " * index, label(fit(mig.profile, name)), bar(mig.memory_share, wide - name), *instance_cells(mig, columns))


# -- the grid ----------------------------------------------------------------------------------------------------------------------


def across_of(gpus: Sequence[Gpu], width: int, height: int) -> int | None:
    """Into how many columns GPUs go so that all are seen: with figures where that can be, with bars alone where not."""
    if height <= 0:
        return None
    across = ceil(len(gpus) / height)
    least = max(len(str(gpu.index)) for gpu in gpus) + SMALL_BAR + 2
    return across if across <= max(1, width // least) else None


def has_figures(width: int, across: int) -> bool:
    """Whether a grid of so many columns has room for them."""
    return across == 1 or width // across >= CELL


def gpu_grid(
    sample: GpuSample,
    width: int,
    down: int,
    across: int,
    selected: int | None = None,
    odd: Sequence[int] = (),
    host: str = "",
) -> list[Row]:
    """Many GPUs: number, bar, per cent or GiB, in columns."""
    cell = width // across
    index = max(len(str(gpu.index)) for gpu in sample.gpus)
    value = 6 if cell >= 16 else 4 if has_figures(width, across) else 0
    gap = "  " if value else " "
    wide = max(1, cell - index - 1 - value - len(gap))
    out = []
    for row in range(down):
        parts: list[Part] = []
        spots: list[Spot] = []
        at = 0
        for column in range(across):
            if (n := column * down + row) < len(sample.gpus):
                gpu = sample.gpus[n]
                bad = bool(gpu.error) or gpu.index in odd
                share = gpu.memory_share
                text = gib(gpu.memory_used_mib) if value == 6 else DASH if share is None else f"{share * 100:.0f}%"
                text = "lost" if gpu.error and share is None else text
                parts += [
                    (f"{gpu.index:>{index}}", SELECTED if n == selected else BE if bad else QUIET),
                    ("✗", BE) if bad else ("▸" if gpu.mig else " ", QUIET),
                    bar(share, wide),
                    (f"{text:>{value}}" if value else "", BE if bad else ""),
                    gap,
                ]
                spots.append(Spot(at, at + index + 1 + wide + value, host, gpu.index))
                at += index + 1 + wide + value + len(gap)
        out.append(Row(line(*parts), tuple(spots)))
    return out
