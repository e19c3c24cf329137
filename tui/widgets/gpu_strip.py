"""All GPUs in one line, if they have no pane."""

from collections.abc import Sequence
from math import ceil

from textual.content import Content

from tui.core.deployment import DeploymentState
from tui.core.gpu import GpuSample
from tui.core.gpu_groups import WORTH_MIB, engine_gone, engine_of, others_mib
from tui.core.gpu_health import headroom
from tui.core.gpu_uniformity import uniformity
from tui.core.presentation import gib, percent, whole
from tui.widgets.canvas import Canvas, Moment
from tui.widgets.draw import BE, BW, QUIET, B, G, P, Part, W, label, line, short, spread
from tui.widgets.gpu_facts import alarm_words
from tui.widgets.gpu_hosts import hosts_strip
from tui.widgets.gpu_rows import greyed, old_mark


def strip(state: DeploymentState, width: int, moment: Moment) -> Content:
    """Return all GPUs in one line: a column each, the common figure, even or odd, headroom."""
    if state.others:
        return hosts_strip(state, width, moment)
    sample = state.gpus
    if sample is None:
        return line(label("GPUs  "), label("no sample yet"))
    if not sample.gpus:
        ram = _host_memory(state)
        return spread(width, line(label("GPUs  "), short(sample.note or "none on this host", width - 8 - ram.cell_length)), ram)
    odd = uniformity(sample, engine_of(state)).odd
    gone = engine_gone(state)
    count = len(sample.gpus)
    each = ceil(count / max(8, width // 3))
    columns: list[Part] = []
    for first in range(0, count, each):
        some = sample.gpus[first : first + each]
        shares = [gpu.memory_share for gpu in some if gpu.memory_share is not None]
        bad = any(gpu.error or gpu.index in odd for gpu in some)
        char = "▁▂▃▄▅▆▇█"[min(7, round(max(shares) * 8))] if shares else "✗" if bad else "·"
        foreign_there = any(others_mib(gpu, gone) >= WORTH_MIB for gpu in some)
        columns.append((char, BE if bad else W if foreign_there else P if shares else QUIET))
    apart = [part for column in columns for part in (column, " ")] if count <= 16 else columns
    used = sorted(gpu.memory_used_mib for gpu in sample.gpus if gpu.memory_used_mib is not None)
    judged = uniformity(sample, engine_of(state))
    typical = used[len(used) // 2] if used else None
    level = line((f"{count - len(odd)} × {gib(typical)}", B), label(" GiB  "))
    if sample.late:
        return _as_last_seen(
            sample, [line(label("GPUs  "), *some, level) for some in ((*apart, " "), (*columns, "  "))], width, moment
        )
    even = brief = Content("")
    if judged.even is True:
        even = brief = line(("✓ even", G))
    elif judged.even is False:
        even = line(("✗ odd: GPU " + ", ".join(map(str, judged.odd)), BE))
        brief = line((f"✗ {len(judged.odd)} odd", BE)) if len(judged.odd) > 1 else even
    lefts = [
        line(label("GPUs  "), *apart, " ", level, even),
        line(label("GPUs  "), *columns, "  ", level, even),
        line(label("GPUs  "), *columns, "  ", level, brief),
        line(label("GPUs  "), *columns, "  ", brief),
    ]
    fullest = headroom(sample)
    free = line((whole(fullest.free_mib), B), label(" MiB free")) if fullest else Content("")
    room = line((percent(fullest.free_share), B), label(" headroom")) if fullest else Content("")
    if foreign := sum(others_mib(gpu, gone) for gpu in sample.gpus):
        held, briefly = (line((gib(foreign), BW), label(said)) for said in (" GiB not the engine's", " not ours"))
        share = line((percent(fullest.free_share), B), label(" free")) if fullest else Content("")
        rights = [_together(held, room), _together(briefly, room), _together(briefly, share)] if fullest else []
        return _widest(width, lefts, rights, [held, briefly])
    if alarm := alarm_words(state, sample):
        told = (_together(room, free), room, free)
        return _widest(width, lefts, [line(part, "  ", alarm) for part in told], [line(alarm)])
    heat = max((gpu.temperature_c for gpu in sample.gpus if gpu.temperature_c is not None), default=None)
    busy = [gpu.utilisation for gpu in sample.gpus if gpu.utilisation is not None]
    load = line((whole(sum(busy) / len(busy) if busy else None), B), label(" %  "), (whole(heat), B), label(" °C"))
    second = _together(room, free) if state.api.ready else _together(free, load)
    return _widest(width, lefts, [_together(room, free, load), second, free, room] if fullest else [], [load])


def _together(*said: Content) -> Content:
    return Content("   ").join(said)


def _widest(width: int, lefts: Sequence[Content], rights: Sequence[Content], lesser: Sequence[Content]) -> Content:
    """Return what fits: the left text gives way first, since the right ones hold the headroom; `lesser` are those without it."""
    for some in (rights, lesser):
        for left in lefts:
            if (both := spread(width, left, *some)) is not left:
                return both
    return next((left for left in lefts if left.cell_length <= width), lefts[-1])


def _as_last_seen(sample: GpuSample, lefts: Sequence[Content], width: int, moment: Moment) -> Content:
    """Return the line of an old sample: nothing current can be said, neither even nor free."""
    fullest = headroom(sample)
    was = f", {percent(fullest.free_share)} was free" if fullest else ""
    silent = (f"{sample.silence}{was}", f"silent{was}", "silent")
    old = [line(greyed(left), old_mark(sample, moment)) for left in lefts]
    return _widest(width, old, [line(label(text)) for text in silent], [])


def _host_memory(state: DeploymentState) -> Content:
    """Return what there is to say of memory if no GPU tells its own."""
    machine = state.machine
    if machine is None or machine.ram_total_mib is None or machine.ram_available_mib is None:
        return Content("")
    used = machine.ram_total_mib - machine.ram_available_mib
    return line(label("RAM "), (gib(used), B), label(f" of {gib(machine.ram_total_mib)} GiB"))


class GpuStrip(Canvas):
    """The one-line form, if the GPUs have no pane."""

    DEFAULT_CSS = "GpuStrip { height: 1; }"

    def draw(self, width: int, height: int) -> Content:
        return strip(self.state, width, self.moment)
