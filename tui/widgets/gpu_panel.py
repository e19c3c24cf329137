"""The GPUs: a bar each, as rows, in columns, or as one strip; what is odd, what is free, what is wrong."""

from collections.abc import Sequence
from math import ceil
from typing import ClassVar

from msgspec.structs import replace
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Click

from tui.core.deployment import DeploymentState
from tui.core.gpu import Gpu, GpuSample
from tui.core.gpu_findings import ALL, BY_NUMBER, KINDS, ORDERS, hosts_of, serving
from tui.core.gpu_groups import WORTH_MIB, engine_gone, engine_of, others_mib
from tui.core.gpu_uniformity import uniformity
from tui.core.presentation import gib
from tui.messages import GpuOpened
from tui.widgets.canvas import Canvas, Moment, drawn
from tui.widgets.draw import BE, BG, BP, BW, QUIET, W, bar, label, line, spread, stale, warning
from tui.widgets.gpu_facts import gpu_facts, gpu_trends, headroom_block, headroom_words, over_all_hosts, unmet_of_gpus
from tui.widgets.gpu_hosts import HostGroup, across_for, all_gpus, compact, groups_of, head, in_words
from tui.widgets.gpu_rows import (
    GpuRow,
    across_of,
    as_last_seen,
    gpu_grid,
    gpu_rows,
    has_figures,
    odd_ones,
    of_none,
    old_mark,
    old_words,
    unfolded,
)
from tui.widgets.gpu_strip import strip


def summary(state: DeploymentState, sample: GpuSample, moment: Moment) -> Content:
    """Return one line: whether memory is the same on all of them; of an old sample, how old it is."""
    judged = uniformity(sample, engine_of(state))
    if sample.late:
        return line(old_mark(sample, moment), label(f"  {judged.says}"))
    if judged.even is True:
        return line(("✓ even ", BG), label(f" {judged.says}"))
    if judged.even is False:
        return line(("✗ odd ", BE), f" {judged.says}")
    return line(label(judged.says)) if judged.says else Content("")


def legend(state: DeploymentState, sample: GpuSample) -> Content:
    """Explain ▒, if it is drawn."""
    gone = engine_gone(state)
    held = {gpu.index: mib for gpu in sample.gpus if (mib := others_mib(gpu, gone)) >= WORTH_MIB}
    if not held:
        return Content("")
    where = f"GPU {next(iter(held))}" if len(held) == 1 else f"{len(held)} GPUs"
    return line(("▒ ", W), label("not the engine's: "), (gib(sum(held.values())), BW), label(f" GiB on {where}"))


def notes(sample: GpuSample, moment: Moment, found: Sequence[str], width: int = 0) -> list[Content]:
    """Return what is wrong or unusual, one line each, broken at the width."""
    said = list(found)
    if sample.late:
        said.append(f"{sample.silence}: last known values, {old_words(sample, moment)}")
    out = [part for text in said for part in (warning(text, width) if width else [line(("▲ ", W), text)])]
    if sample.note:
        out += Content(sample.note).stylize(QUIET).wrap(max(8, width)) if width else [line(label(sample.note))]
    elif sample.source == "nvidia-smi":
        out.append(line(label("read with nvidia-smi: NVML is not available there")))
    return out


class GpuPanel(Canvas):
    """The pane at the left; `full` is the tab of its own, with more columns and a row that can be chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("enter", "open", "details", show=False),
    ]

    selected: drawn[int] = drawn(0)
    """The place in the list."""
    order: drawn[str] = drawn(BY_NUMBER)
    kind: drawn[str] = drawn(ALL)

    def __init__(self, *, full: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self.full = full
        self.can_focus = full
        self._rows: list[GpuRow] = []
        """What was drawn last."""

    def note(self) -> Content | None:
        """Return how old the sample is if it is an old one, for the border."""
        sample = self.state.gpus
        return stale(self.moment.since(sample.received_at)) if sample is not None else None

    def next_order(self) -> None:
        """Sort by the next key: number, memory, utilisation, temperature, power."""
        names = list(ORDERS)
        self.order = names[(names.index(self.order) + 1) % len(names)]

    def next_kind(self) -> None:
        """List the next kind: all, those in use, those with findings."""
        self.kind = KINDS[(KINDS.index(self.kind) + 1) % len(KINDS)]
        self.selected = 0

    @property
    def arranged(self) -> bool:
        """Tell whether the list differs from the driver's."""
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
        if 0 <= event.y < len(self._rows) and (spot := self._rows[event.y].at(event.x)) is not None:
            self.post_message(GpuOpened(spot.index, spot.host))

    def draw(self, width: int, height: int) -> Content | list[Content]:
        """Draw, and keep what was drawn: a click is looked up in it."""
        self._rows = self._drawing(width, height)
        return [row.text for row in self._rows]

    def _drawing(self, width: int, height: int) -> list[GpuRow]:
        if self.state.others:
            groups = groups_of(self.state, *((self.order, self.kind) if self.full else (BY_NUMBER, ALL)), self.moment)
            above = of_none([line(label(self._arrangement))] if self.arranged else [])
            kept = int(height > 3 * len(groups))  # the headroom of all never goes
            body = _hosts(groups, width, height - len(above) - kept, self.selected if self.full else None)
            rows = [*above, *(body[: height - len(above)] or [GpuRow(line(label("no GPU matches")))])]
            below = of_none(over_all_hosts(self.state, width))
            apart = of_none([Content("")] if below and height - len(rows) > len(below) else [])
            return [*rows, *apart, *below[: max(0, height - len(rows) - len(apart))]]
        sample = self.state.gpus
        if sample is None:
            return [GpuRow(line(label("no sample yet")))]
        if not sample.gpus:
            return of_none([*warning(sample.note or "no GPU on this host", width), *_machine_memory(self.state, width)])
        top, body = self._top_and_body(sample, width, height)
        said = [
            *_first(self.state, sample, width, bool(top), self.moment),
            *(line(("▲ ", W), unmet) for unmet in unmet_of_gpus(self.state)),
            legend(self.state, sample),
            *notes(sample, self.moment, hosts_of(self.state)[0].found, width if self.full else 0),
        ]
        said = [text for text in said if text]
        if self.arranged:
            said.insert(0, line(label(self._arrangement)))
        left = height - len(top) - len(body)
        if not any(gpu.memory_total_mib for gpu in sample.gpus):
            said = [*_machine_memory(self.state, width), *said]
        gap = [Content("")] if left > len(said) else []
        out = [*of_none(top), *body, *of_none([*gap, *said[: max(0, left - len(gap))]])]
        shown = self._listed()
        if self.full and (room := height - len(out)) >= 4 and self.selected < len(shown):
            chosen = shown[self.selected][1]
            about = [line((f"GPU {chosen.index}", BP), label("   up and down select, enter shows details"))]
            unseen = sum(spot.index == chosen.index for row in body for spot in row.spots) == 1
            facts = gpu_facts(chosen, width, unseen, old_words(sample, self.moment))
            about += [*gpu_trends(self.state, sample.gpus.index(chosen), width), *facts]
            out += of_none([Content(""), *about[: room - 1]])
        return out

    def _top_and_body(self, sample: GpuSample, width: int, height: int) -> tuple[list[Content], list[GpuRow]]:
        """Return the free memory in large figures, if there is room for it, and the GPUs.

        A row a GPU goes before large figures, those go before a grid with figures, and that before one without. Whatever is
        chosen leaves the lines below it that never go.
        """
        listed = replace(sample, gpus=tuple(gpu for _, gpu in self._listed())) if self.arranged else sample
        if not listed.gpus:
            return [], [GpuRow(line(label("no GPU matches")))]
        large = serving(self.state) and not self.full and width >= 40
        block = headroom_block(self.state, sample, width, self.moment) if large else []
        tops = [block, []] if block else [[]]
        kept = [(top, height - len(top) - self._kept(sample, width, bool(top))) for top in tops]
        odd = odd_ones(self.state, sample)
        selected = self.selected if self.full else None
        host = self._listed()[0][0]
        count = len(listed.gpus)
        for top, room in kept:
            if count + 1 <= room:
                shown = unfolded(listed.gpus, room - 1, selected)
                each = 2 if 2 * count + 1 <= room and not self.full and not any(gpu.mig for gpu in listed.gpus) else 1
                rows = gpu_rows(self.state, listed, width, each, selected, odd, host, shown)
                return top, as_last_seen(rows) if sample.late else rows
        grids = [(top, across, room) for top, room in kept if (across := across_of(listed.gpus, width, room)) is not None]
        grids.sort(key=lambda one: not has_figures(width, one[1]))
        for top, across, _ in grids[:1]:
            grid = gpu_grid(listed, width, ceil(count / across), across, selected, odd, host)
            return top, as_last_seen(grid) if sample.late else grid
        return [], [GpuRow(strip(self.state, width, self.moment))]

    def _kept(self, sample: GpuSample, width: int, big: bool) -> int:
        """Return how many lines below the GPUs never give way: even or odd, and headroom."""
        return len(_first(self.state, sample, width, big, self.moment)) + (1 if self.arranged else 0)


def _first(state: DeploymentState, sample: GpuSample, width: int, big: bool, moment: Moment) -> list[Content]:
    """Return even or odd, and the headroom unless it stands above in large figures: in one line if they fit."""
    judged = summary(state, sample, moment)
    words = headroom_words(state, sample) if serving(state) and not big else []
    both = spread(width, judged, *words) if judged else judged
    if not words or both is not judged:
        return [both] if both else []
    alone = next((word for word in words if word.cell_length <= width), words[-1])
    return [judged, alone] if judged else [alone]


def _hosts(groups: list[HostGroup], width: int, height: int, selected: int | None) -> list[GpuRow]:
    """Draw a group for each host: rows, columns, or two lines each, whichever fits; one line each if lines are scarce.

    A line for what is wrong on a host goes before rows.
    """
    faulty = sum(bool(group.wrong) for group in groups)
    across = across_for(groups, width, height - faulty) or across_for(groups, width, height)
    blocks: list[list[GpuRow]] = []
    before = 0
    for group in groups:
        sample = group.listed
        count = len(group.shown)
        here = selected - before if selected is not None else None
        if across is None:
            block = compact(group, width, here)[: 2 if 2 * len(groups) <= height else 1]
        else:
            block = [GpuRow(head(group, width))]
            if sample is not None and sample.gpus:
                each = gpu_rows(group.state, sample, width, 1, here, group.odd, group.host)[1:] if across == 1 else []
                body = each or gpu_grid(sample, width, ceil(count / across), across, here, group.odd, group.host)
                block += body if group.fresh else as_last_seen(body)
        blocks.append(block)
        before += count
    words = in_words(groups, width, height - sum(map(len, blocks)), int(across is None))
    return [row for block, said in zip(blocks, words, strict=True) for row in (*block, *of_none(said))]


def _machine_memory(state: DeploymentState, width: int) -> list[Content]:
    machine = state.machine
    if machine is None or machine.ram_total_mib is None or machine.ram_available_mib is None:
        return []
    used = machine.ram_total_mib - machine.ram_available_mib
    told = f" {gib(used)} of {gib(machine.ram_total_mib)} GiB"
    return [Content(""), line(label("RAM ", 5), bar(used / machine.ram_total_mib, max(4, width - 5 - len(told))), told)]
