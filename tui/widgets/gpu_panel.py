"""The GPUs: a bar each, as rows, in columns, or as one strip; what is odd, what is free, what is wrong."""

from collections.abc import Callable, Sequence
from math import ceil
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Click
from textual.reactive import var

from tui.core.deployment import DeploymentState
from tui.core.findings import hosts_of
from tui.core.gpu import Gpu, GpuSample
from tui.core.gpu_health import uniformity
from tui.core.gpu_order import ALL, BY_NUMBER, KINDS, ORDERS
from tui.core.gpu_others import WORTH_MIB, engine_gone, others_mib
from tui.messages import GpuOpened
from tui.widgets.figure import Figure, Moment
from tui.widgets.figures import (
    BE,
    BG,
    BP,
    BW,
    QUIET,
    TRACK,
    B,
    E,
    P,
    Part,
    W,
    bar,
    label,
    line,
    lines,
    rows,
    short,
    sparks,
    warning,
)
from tui.widgets.gpu_facts import gpu_facts, gpu_trends
from tui.widgets.gpu_headroom import headroom_block, over_all_hosts, unmet_of_gpus
from tui.widgets.gpu_hosts import Group, across_for, all_gpus, compact, groups_of, head, in_words
from tui.widgets.gpu_old import SELECTED, greyed, old_mark, old_words
from tui.widgets.gpu_strip import strip
from tui.widgets.numbers import DASH, GIB, gib, percent, whole

LOW_SHARE = 0.02
"""Below this share of free memory the figure is marked, since it is the first thing to look at; it is no alarm."""


class Column(Struct, frozen=True):
    title: str
    width: int
    text: Callable[[Gpu], str]
    tint: Callable[[Gpu], str] = lambda gpu: ""


def _free_tint(gpu: Gpu) -> str:
    share = gpu.memory_share
    return B if share is not None and 1 - share < LOW_SHARE else ""


def _rank(gpu: Gpu) -> str:
    ranks = [one.rank for one in gpu.processes if one.rank]
    pids = [str(one.pid) for one in gpu.processes if one.engine is not False]
    return "  ".join([*ranks[:1], *(f"pid {pid}" for pid in pids[:1])])


def _ecc(gpu: Gpu) -> str:
    return DASH if gpu.ecc_uncorrected is None else whole(gpu.ecc_uncorrected)


def _pcie(gpu: Gpu) -> str:
    if gpu.pcie_generation is None or gpu.pcie_width is None:
        return DASH
    return f"{gpu.pcie_generation}×{gpu.pcie_width}"


def _narrow_link(gpu: Gpu) -> str:
    return W if gpu.pcie_width is not None and gpu.pcie_width_max is not None and gpu.pcie_width < gpu.pcie_width_max else QUIET


def _power(gpu: Gpu) -> str:
    return f"{whole(gpu.power_w)}/{whole(gpu.power_limit_w)}"


USED = Column("used", 6, lambda gpu: gib(gpu.memory_used_mib))
FREE = Column("free", 6, lambda gpu: gib(gpu.free_mib), _free_tint)
UTIL = Column("util", 5, lambda gpu: whole(gpu.utilisation))
HEAT = Column("°C", 4, lambda gpu: whole(gpu.temperature_c))
WATT = Column("W", 5, lambda gpu: whole(gpu.power_w))
OTHERS = Column("others", 7, lambda gpu: gib(others_mib(gpu)), lambda gpu: BW if others_mib(gpu) else QUIET)
OTHERS_NOW = Column("others", 7, lambda gpu: gib(others_mib(gpu, True)), lambda gpu: BW if others_mib(gpu, True) else QUIET)
"""The same once the engine is gone."""
LIMIT = Column("W of", 10, _power)
CLOCK = Column("MHz", 6, lambda gpu: whole(gpu.sm_clock_mhz))
LINK = Column("PCIe", 6, _pcie, _narrow_link)
ECC = Column("ECC", 5, _ecc, lambda gpu: E if gpu.ecc_uncorrected else QUIET)
SHARE = Column("full", 7, lambda gpu: percent(gpu.memory_share))
RANK = Column("process", 17, _rank, lambda gpu: QUIET)
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


def odd_ones(sample: GpuSample) -> tuple[int, ...]:
    return uniformity(sample).odd


def summary(sample: GpuSample, moment: Moment) -> Content:
    """One line: whether memory is the same on all of them; of an old sample, how old it is."""
    judged = uniformity(sample)
    if sample.late:
        return line(old_mark(sample, moment), label(f"  {judged.says}"))
    if judged.even is True:
        return line(("✓ even ", BG), label(f" {judged.says}"))
    if judged.even is False:
        return line(("✗ odd ", BE), f" {judged.says}")
    return line(label(judged.says)) if judged.says else Content("")


def legend(state: DeploymentState, sample: GpuSample) -> Content:
    """What ▒ is, and where there is some."""
    gone = engine_gone(state)
    held = {gpu.index: mib for gpu in sample.gpus if (mib := others_mib(gpu, gone)) >= WORTH_MIB}
    if not held:
        return Content("")
    where = f"GPU {next(iter(held))}" if len(held) == 1 else f"{len(held)} GPUs"
    return line(("▒ ", W), label("not the engine's: "), (gib(sum(held.values())), BW), label(f" GiB on {where}"))


def notes(sample: GpuSample, moment: Moment, found: Sequence[str], width: int = 0) -> list[Content]:
    """What is wrong or unusual, one line each, or broken at a width."""
    said = list(found)
    if sample.late:
        said.append(f"the driver does not answer: last known values, {old_words(sample, moment)}")
    out = [part for one in said for part in (warning(one, width) if width else [line(("▲ ", W), one)])]
    if sample.note:
        out += Content(sample.note).stylize(QUIET).wrap(max(8, width)) if width else [line(label(sample.note))]
    elif sample.source == "nvidia-smi":
        out.append(line(label("read with nvidia-smi: NVML is not available there")))
    return out


class GpuPanel(Figure):
    """The pane at the left; `full` is the tab of its own, with more columns and a row that can be chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("enter", "open", "details", show=False),
    ]

    selected: var[int] = var(0, init=False)
    """The place in the list."""
    order: var[str] = var(BY_NUMBER, init=False)
    kind: var[str] = var(ALL, init=False)

    def __init__(self, *, full: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self.full = full
        self.can_focus = full

    def watch_selected(self) -> None:
        self.redraw()

    def watch_order(self) -> None:
        self.redraw()

    def watch_kind(self) -> None:
        self.redraw()

    def next_order(self) -> None:
        """By number, memory, utilisation, temperature, power."""
        names = list(ORDERS)
        self.order = names[(names.index(self.order) + 1) % len(names)]

    def next_kind(self) -> None:
        """All, those in use, those of which something is to be said."""
        self.kind = KINDS[(KINDS.index(self.kind) + 1) % len(KINDS)]
        self.selected = 0

    @property
    def arranged(self) -> bool:
        """Whether the list is another one than the driver's."""
        return self.full and (self.order != BY_NUMBER or self.kind != ALL)

    @property
    def _arrangement(self) -> str:
        return f"{self.order}, only those {self.kind}" if self.kind != ALL else self.order

    def _listed(self) -> list[tuple[str, Gpu]]:
        return all_gpus(self.state, self.order, self.kind) if self.full else all_gpus(self.state)

    def watch_has_focus(self, has_focus: bool) -> None:
        super().watch_has_focus(has_focus)
        self.redraw()

    def action_move(self, by: int) -> None:
        if count := len(self._listed()):
            self.selected = (self.selected + by) % count

    def action_open(self) -> None:
        shown = self._listed()
        if self.selected < len(shown):
            host, gpu = shown[self.selected]
            self.post_message(GpuOpened(gpu.index, host))

    def on_mouse_scroll_down(self) -> None:
        if self.full:
            self.action_move(1)

    def on_mouse_scroll_up(self) -> None:
        if self.full:
            self.action_move(-1)

    def on_click(self, event: Click) -> None:
        shown = self._listed()
        if not self.state.others and 0 < event.y <= len(shown):
            self.post_message(GpuOpened(shown[event.y - 1][1].index))

    def draw(self, width: int, height: int) -> Content | list[Content]:
        if self.state.others:
            groups = groups_of(self.state, *((self.order, self.kind) if self.full else (BY_NUMBER, ALL)), self.moment)
            above = [line(label(self._arrangement))] if self.arranged else []
            kept = int(height > 3 * len(groups))  # the headroom of all never goes
            body = _hosts(groups, width, height - len(above) - kept, self.selected if self.full else None)
            out: list[Content | str] = [*above, *(body[: height - len(above)] or [line(label("no GPU is like that"))])]
            below = over_all_hosts(self.state, width)
            return lines([*out, "", *below] if below and height - len(out) > len(below) else [*out, *below[: height - len(out)]])
        sample = self.state.gpus
        if sample is None:
            return rows(line(label("no sample yet")))
        if not sample.gpus:
            return rows(*warning(sample.note or "no GPU on this host", width), *_machine_memory(self.state, width))
        unmet = [line(("▲ ", W), one) for one in unmet_of_gpus(self.state)]
        said = [
            summary(sample, self.moment),
            *unmet,
            legend(self.state, sample),
            *notes(sample, self.moment, hosts_of(self.state)[0].found, width if self.full else 0),
        ]
        said = [one for one in said if one]
        room = height - 1
        top: list[Content] = []
        count = len(sample.gpus)
        served = self.state.api.ready or (self.state.load is not None and self.state.load.ready)
        if served and not self.full and room - 4 - count - 1 >= 1 and width >= 40:
            top = headroom_block(self.state, sample, width, self.moment)
            room -= len(top)
        if self.arranged:
            said.insert(0, line(label(self._arrangement)))
        body = self._body(sample, width, room, len(said))
        if sample.late:
            body = [greyed(one) for one in body] if len(body) > 1 else body
        left = height - len(top) - len(body)
        if not any(gpu.memory_total_mib for gpu in sample.gpus):
            said = [*_machine_memory(self.state, width), *said]
        gap = [""] if left > len(said) else []
        out = [*top, *body, *gap, *said[: max(0, left - len(gap))]]
        shown = self._listed()
        if self.full and (room := height - len(out)) >= 4 and self.selected < len(shown):
            chosen = shown[self.selected][1]
            about = [line((f"GPU {chosen.index}", BP), label("   up and down choose, enter shows it alone"))]
            about += [
                *gpu_trends(self.state, sample.gpus.index(chosen), width),
                *gpu_facts(chosen, width, old_words(sample, self.moment)),
            ]
            out += ["", *about[: room - 1]]
        return lines(out)

    def _body(self, sample: GpuSample, width: int, room: int, said: int) -> list[Content]:
        odd = odd_ones(sample)
        if self.arranged:
            sample = replace(sample, gpus=tuple(gpu for _, gpu in self._listed()))
            if not sample.gpus:
                return [line(label("no GPU is like that"))]
        count = len(sample.gpus)
        if count <= room:
            each = 2 if 2 * count + 2 <= room and not self.full else 1
            return _rows(self.state, sample, width, each, self.selected if self.full else None, odd)
        free = max(1, room + 1 - min(1, said))
        across = min(ceil(count / free), max(1, width // 12))
        if ceil(count / across) <= free:
            return _grid(sample, width, ceil(count / across), across)
        return [strip(self.state, width, self.moment)]


def _hosts(groups: list[Group], width: int, height: int, selected: int | None) -> list[Content]:
    """A group a host: rows, columns, or two lines each, whichever fits; of more hosts than lines one line each. A line for what is
    wrong on a host goes before rows."""
    faulty = sum(bool(group.wrong) for group in groups)
    across = across_for(groups, width, height - faulty) or across_for(groups, width, height)
    blocks: list[list[Content]] = []
    before = 0
    for group in groups:
        sample = group.listed
        count = len(group.shown)
        here = selected - before if selected is not None else None
        if across is None:
            block = compact(group, width, here)[: 2 if 2 * len(groups) <= height else 1]
        else:
            block = [head(group, width)]
            if sample is not None and sample.gpus:
                each = _rows(group.state, sample, width, 1, here, group.odd)[1:] if across == 1 else []
                body = each or _grid(sample, width, ceil(count / across), across, here, group.odd)
                block += body if group.fresh else [greyed(one) for one in body]
        blocks.append(block)
        before += count
    words = in_words(groups, width, height - sum(map(len, blocks)), int(across is None))
    return [one for block, said in zip(blocks, words, strict=True) for one in (*block, *said)]


def _machine_memory(state: DeploymentState, width: int) -> list[Content]:
    machine = state.machine
    if machine is None or machine.ram_total_mib is None or machine.ram_available_mib is None:
        return []
    used = machine.ram_total_mib - machine.ram_available_mib
    told = f" {gib(used)} of {gib(machine.ram_total_mib)} GiB"
    return [Content(""), line(label("RAM ", 5), bar(used / machine.ram_total_mib, max(4, width - 5 - len(told))), told)]


def _rows(
    state: DeploymentState, sample: GpuSample, width: int, each: int, selected: int | None, odd: Sequence[int] | None = None
) -> list[Content]:
    gone = engine_gone(state)
    columns = columns_for(sample.gpus, width, gone)
    index = max(2, max(len(str(gpu.index)) for gpu in sample.gpus) + 1) + (1 if selected is not None else 0)
    wide = max(1, width - index - sum(column.width for column in columns))
    totals = {gpu.memory_total_mib for gpu in sample.gpus if gpu.memory_total_mib}
    head = f"of {max(totals) / GIB:.1f} GiB" if len(totals) == 1 else "GiB" if totals else ""
    out = [
        line(label(f"{'':<{index}}{short(head, wide):<{wide}}" + "".join(f"{column.title:>{column.width}}" for column in columns)))
    ]
    odd = odd_ones(sample) if odd is None else odd
    for n, gpu in enumerate(sample.gpus):
        tint = BE if gpu.error or gpu.index in odd else QUIET
        mark = "▌" if selected == n else ""
        number: Part = line((mark, BP), (f"{gpu.index:<{index - len(mark)}}", BP if mark and tint == QUIET else tint))
        if gpu.error and gpu.memory_used_mib is None:
            row = line(number, ("✗ " + short(gpu.error, width - index - 2), BE))
        else:
            total = gpu.memory_total_mib or 0
            other = others_mib(gpu, gone) / total if total else 0.0
            row = line(number, bar(gpu.memory_share, wide, other, P), *_cells(gpu, columns))
        out.append(row)
        if each == 2:
            trend = [one[n] if n < len(one) else None for one in state.trends.gpu_utilisation]
            told = _rank(gpu) or (f"PCIe {_pcie(gpu)}" if gpu.pcie_width else "")
            ecc = "" if gpu.ecc_uncorrected is None else "  ECC ✓" if not gpu.ecc_uncorrected else f"  ECC ✗ {gpu.ecc_uncorrected}"
            right = line(label(f"   {told}"), (ecc, E if gpu.ecc_uncorrected else QUIET))
            out.append(line(" " * index, sparks(trend, max(1, wide), 100, TRACK), right))
    return out


def _cells(gpu: Gpu, columns: Sequence[Column]) -> list[Part]:
    return [(f"{short(column.text(gpu), column.width - 1):>{column.width}}", column.tint(gpu)) for column in columns]


def _grid(
    sample: GpuSample, width: int, down: int, across: int, selected: int | None = None, odd: Sequence[int] | None = None
) -> list[Content]:
    """Many GPUs: number, bar, per cent or GiB, in columns."""
    cell = width // across
    index = max(len(str(gpu.index)) for gpu in sample.gpus)
    value = 6 if cell >= 16 else 4
    wide = max(1, cell - index - value - 3)
    odd = odd_ones(sample) if odd is None else odd
    out = []
    for row in range(down):
        parts: list[Part] = []
        for column in range(across):
            if (n := column * down + row) < len(sample.gpus):
                gpu = sample.gpus[n]
                bad = bool(gpu.error) or gpu.index in odd
                share = gpu.memory_share
                text = gib(gpu.memory_used_mib) if value == 6 else DASH if share is None else f"{share * 100:.0f}%"
                text = "lost" if gpu.error and share is None else text
                parts += [
                    (f"{gpu.index:>{index}}", SELECTED if n == selected else BE if bad else QUIET),
                    " ",
                    bar(share, wide),
                    (f"{text:>{value}}", BE if bad else ""),
                    "  ",
                ]
        out.append(line(*parts))
    return out
