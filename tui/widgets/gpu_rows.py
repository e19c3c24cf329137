"""GPUs as rows of one or two lines, their MIG instances below them, and as a grid if there are many."""

from collections.abc import Callable, Collection, Iterable, Sequence
from math import ceil

from msgspec import Struct
from textual.content import Content, Span

from tui.core.deployment import DeploymentState
from tui.core.gpu import GIB_MIB, Gpu, GpuSample, MigInstance
from tui.core.gpu_groups import engine_gone, engine_of, others_mib
from tui.core.gpu_uniformity import uniformity
from tui.core.presentation import DASH, age, gib, percent, whole
from tui.widgets.canvas import Moment, runs
from tui.widgets.draw import BE, BP, BW, QUIET, TRACK, B, E, P, Part, W, bar, fit, label, line, short, sparks

LOW_SHARE = 0.02
"""Below this share of free memory the figure is marked, since it is the first thing to look at; it is no alarm."""


class Column(Struct, frozen=True):
    title: str
    width: int
    text: Callable[[Gpu], str]
    tint: Callable[[Gpu], str] = lambda gpu: ""
    of_instance: Callable[[MigInstance], str] = lambda mig: ""
    """What it says of a MIG instance: nothing if only the whole GPU has such a figure."""


def _free_tint(gpu: Gpu | MigInstance) -> str:
    share = gpu.memory_share
    return B if share is not None and 1 - share < LOW_SHARE else ""


def rank_of(gpu: Gpu) -> str:
    ranks = [process.rank for process in gpu.processes if process.rank]
    pids = [str(process.pid) for process in gpu.processes if process.engine is not False]
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
    """Return as many columns as leave the bar its room; the last ones go first. `gone` says that the engine is no more."""
    chosen = list(FULL if width >= 96 else NARROW)
    if any(others_mib(gpu, gone) for gpu in gpus):
        chosen[1:1] = [OTHERS_NOW if gone else OTHERS]
        if width < 96:
            chosen.remove(UTIL)
    while len(chosen) > 1 and width - 3 - sum(column.width for column in chosen) < (12 if width >= 40 else 8):
        chosen.pop()
    return tuple(chosen)


def cells(gpu: Gpu, columns: Sequence[Column]) -> list[Part]:
    """Return a GPU's figures, right-aligned below the titles."""
    return [(f"{short(column.text(gpu), column.width - 1):>{column.width}}", column.tint(gpu)) for column in columns]


def instance_cells(mig: MigInstance, columns: Sequence[Column]) -> list[Part]:
    """Return a MIG instance's figures, right-aligned below the titles."""
    tint = _free_tint(mig)
    return [
        (f"{short(column.of_instance(mig), column.width - 1):>{column.width}}", tint if column is FREE else "")
        for column in columns
    ]


class Spot(Struct, frozen=True):
    """The cells from `first` to before `end` of a line, in which that GPU of that host is drawn."""

    first: int
    end: int
    host: str
    index: int


class GpuRow(Struct, frozen=True):
    """One line; `spots` is empty if it shows no GPU."""

    text: Content
    spots: tuple[Spot, ...] = ()

    def at(self, column: int) -> Spot | None:
        """Return the GPU that is drawn in that column."""
        return next((spot for spot in self.spots if spot.first <= column < spot.end), None)


def of_gpu(text: Content, width: int, host: str, gpu: Gpu) -> GpuRow:
    """Return a line that belongs to one GPU over its whole width."""
    return GpuRow(text, (Spot(0, width, host, gpu.index),))


def of_none(texts: Iterable[Content]) -> list[GpuRow]:
    """Return lines that show no GPU."""
    return [GpuRow(text) for text in texts]


def side_by_side(text: Content, first: int, widths: Sequence[int], host: str, gpus: Sequence[Gpu]) -> GpuRow:
    """Return a line in which GPUs of one host stand side by side from the column `first` on, with the cells of each."""
    spots = []
    for wide, gpu in zip(widths, gpus, strict=True):
        spots.append(Spot(first, first + wide, host, gpu.index))
        first += wide
    return GpuRow(text, tuple(spots))


SELECTED = "bold reverse $primary"


def old_words(sample: GpuSample, moment: Moment) -> str:
    """Return `25 s old` if the driver does not answer; empty for a current sample."""
    return f"{age(moment.since(sample.received_at))} old" if sample.late else ""


def old_mark(sample: GpuSample, moment: Moment) -> Part:
    """Return the age with its sign, in place of even or odd: an old sample is neither."""
    told = old_words(sample, moment)
    return (f"○ {told}", BW) if told else ""


def greyed(one: Content) -> Content:
    """Return the line without its colours, except those of a selection; a bar still ends at its value."""
    kept = {TRACK, SELECTED, BP}
    spans = []
    at = 0
    for text, styles in runs(one):
        mixed = any(isinstance(style, str) and style.endswith("%") for style in styles)
        own = next((style for style in styles if style in kept), None)
        spans.append(Span(at, at + len(text), own or (TRACK if mixed else QUIET)))
        at += len(text)
    return Content(one.plain, spans, strip_control_codes=False)


def as_last_seen(some: Iterable[GpuRow]) -> list[GpuRow]:
    """Return the rows greyed; a click still finds their GPUs."""
    return [GpuRow(greyed(row.text), row.spots) for row in some]


CELL = 12
"""A column of the grid: number, bar, per cent."""
SMALL_BAR = 2
"""The bar of a grid that has no room for figures."""
MIG_BAR = 6


def odd_ones(state: DeploymentState, sample: GpuSample) -> tuple[int, ...]:
    return uniformity(sample, engine_of(state)).odd


# -- rows --------------------------------------------------------------------------------------------------------------------------


def unfolded(gpus: Sequence[Gpu], room: int, selected: int | None) -> frozenset[int]:
    """Return the places in the list below which MIG instances stand: all if there is room.

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
) -> list[GpuRow]:
    """Return the titles, and a row a GPU, of `each` lines; MIG instances below those at the places `shown`."""
    gone = engine_gone(state)
    columns = columns_for(sample.gpus, width, gone)
    folding = any(gpu.mig for gpu in sample.gpus)
    digits = max(len(str(gpu.index)) for gpu in sample.gpus)
    index = max(2, digits + 1) + (1 if selected is not None else 0) + (1 if folding else 0)
    wide = max(1, width - index - sum(column.width for column in columns))
    totals = {gpu.memory_total_mib for gpu in sample.gpus if gpu.memory_total_mib}
    head = f"of {max(totals) / GIB_MIB:.1f} GiB" if len(totals) == 1 else "GiB" if totals else ""
    titles = "".join(f"{column.title:>{column.width}}" for column in columns)
    out = [GpuRow(line(label(f"{'':<{index}}{short(head, wide):<{wide}}{titles}")))]
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
            texts += [_instance(mig, index, wide, columns) for mig in gpu.mig]
        out += [of_gpu(text, width, host, gpu) for text in texts]
    return out


def _second(state: DeploymentState, gpu: Gpu, place: int, index: int, wide: int) -> Content:
    """Return the second line of a GPU: its recent utilisation, its process, its ECC errors."""
    trend = [sample[place] if place < len(sample) else None for sample in state.trends.gpu_utilisation]
    told = rank_of(gpu) or (f"PCIe {pcie_of(gpu)}" if gpu.pcie_width else "")
    ecc = "" if gpu.ecc_uncorrected is None else "  ECC ✓" if not gpu.ecc_uncorrected else f"  ECC ✗ {gpu.ecc_uncorrected}"
    right = line(label(f"   {told}"), (ecc, E if gpu.ecc_uncorrected else QUIET))
    return line(" " * index, sparks(trend, max(1, wide), 100, TRACK), right)


def _instance(mig: MigInstance, index: int, wide: int, columns: Sequence[Column]) -> Content:
    """Return the row of a MIG instance: its profile and its own memory."""
    name = max(0, min(12, wide - MIG_BAR))
    return line(" " * index, label(fit(mig.profile, name)), bar(mig.memory_share, wide - name), *instance_cells(mig, columns))


# -- the grid ----------------------------------------------------------------------------------------------------------------------


def across_of(gpus: Sequence[Gpu], width: int, height: int) -> int | None:
    """Return into how many columns GPUs go so that all are seen; None if they don't fit even as bars alone."""
    if height <= 0:
        return None
    across = ceil(len(gpus) / height)
    least = max(len(str(gpu.index)) for gpu in gpus) + SMALL_BAR + 2
    return across if across <= max(1, width // least) else None


def has_figures(width: int, across: int) -> bool:
    """Tell whether a grid of so many columns has room for figures."""
    return across == 1 or width // across >= CELL


def gpu_grid(
    sample: GpuSample,
    width: int,
    down: int,
    across: int,
    selected: int | None = None,
    odd: Sequence[int] = (),
    host: str = "",
) -> list[GpuRow]:
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
        out.append(GpuRow(line(*parts), tuple(spots)))
    return out
