"""The GPUs of several hosts of one deployment: a group a host, as detailed as there is room for."""

from math import ceil

from msgspec import Struct
from msgspec.structs import replace
from textual.content import Content

from tui.core.connection import ConnectionState
from tui.core.deployment import DeploymentState
from tui.core.gpu import Gpu, GpuSample, Uniformity
from tui.core.gpu_findings import ALL, BY_NUMBER, hosts_of, listed, roughly, tightest
from tui.core.gpu_groups import engine_of, leftovers
from tui.core.gpu_health import headroom
from tui.core.presentation import gib, percent
from tui.core.trends import Trends, outgrowth
from tui.widgets.canvas import Moment
from tui.widgets.draw import BE, BG, BW, QUIET, B, E, P, Part, W, label, line, middle, short, spread
from tui.widgets.gpu_rows import SELECTED, GpuRow, greyed, of_none, old_mark, old_words, side_by_side

START = Moment()


class HostGroup(Struct, frozen=True):
    """One host's GPUs; `state` is the deployment's with this host's sample in it, for drawing."""

    host: str
    connection: ConnectionState
    state: DeploymentState
    sample: GpuSample | None
    shown: tuple[Gpu, ...] = ()
    """Those of its GPUs that are listed, in the order of the list."""
    wrong: tuple[str, ...] = ()
    """What is wrong there, the worst first."""
    judged: Uniformity = Uniformity()
    """Whether the host's memory is even; of a deployment over several hosts each has its part."""
    moment: Moment = START

    @property
    def fresh(self) -> bool:
        """Tell whether the sample is current."""
        return self.connection.online and self.sample is not None and not self.sample.late

    @property
    def listed(self) -> GpuSample | None:
        """Return the sample with the listed GPUs alone, for drawing."""
        return replace(self.sample, gpus=self.shown) if self.sample is not None else None

    @property
    def odd(self) -> tuple[int, ...]:
        """Return the GPUs out of line with all others of the host, listed or not."""
        return self.judged.odd


def groups_of(state: DeploymentState, order: str = BY_NUMBER, kind: str = ALL, moment: Moment = START) -> list[HostGroup]:
    """Return the first host and the further ones. One with nothing to list is left out, unless its link is what is wrong."""
    out, engine = [], engine_of(state)
    for n, host in enumerate(hosts_of(state)):
        seen = state
        if n > 0:
            seen = replace(state, gpus=host.sample, connection=host.connection, ready_memory=host.ready_memory)
            seen = replace(seen, trends=Trends(), orphans=())
        shown: tuple[Gpu, ...] = ()
        if host.sample is not None:
            shown = listed(host.sample, order, kind, leftovers(seen), engine, host.alarming)
        out.append(HostGroup(host.host, host.connection, seen, host.sample, shown, host.wrong, host.judged, moment))
    return [group for group in out if kind == ALL or group.shown or not group.connection.online]


def all_gpus(state: DeploymentState, order: str = BY_NUMBER, kind: str = ALL) -> list[tuple[str, Gpu]]:
    """Host and GPU, of all hosts."""
    return [(group.host, gpu) for group in groups_of(state, order, kind) for gpu in group.shown]


def head(group: HostGroup, width: int) -> Content:
    """Return the host's name and what its GPUs come to."""
    sample = group.sample
    if not group.connection.online:
        why = f"○ {group.connection.cause or group.connection.link.value}"
        return spread(width, line((middle(group.host, max(8, width // 2)), B)), line((middle(why, max(8, width // 2 - 2)), BW)))
    if sample is None or not sample.gpus:
        return spread(
            width, line((middle(group.host, width // 2), B)), line(label((sample.note if sample else None) or "no sample yet"))
        )
    judged, fullest = group.judged, headroom(sample)
    used = sorted(gpu.memory_used_mib for gpu in sample.gpus if gpu.memory_used_mib is not None)
    mark: Part = ("✓ even", BG) if judged.even else (f"✗ odd: {', '.join(map(str, judged.odd))}", BE) if judged.odd else ""
    if sample.late:
        mark = old_mark(sample, group.moment)
    left = line((middle(group.host, max(8, width // 3)), B), "  ", mark, (f"  ▲ {len(group.wrong)}" if group.wrong else "", W))
    typical = gib(used[len(used) // 2]) if used else "—"
    level = line(label(f"{len(sample.gpus)} × "), typical, label(" GiB"))
    free = (
        line(label("   "), (percent(fullest.free_share), B), label(" was free" if sample.late else " free"))
        if fullest
        else Content("")
    )
    if sample.late:
        level, free = greyed(level), greyed(free)
    return spread(width, left, line(level, free), free, level)


def cells(group: HostGroup, selected: int | None = None, each: int = 1) -> list[tuple[str, str]]:
    """Return a column for `each` GPUs, as high as the fullest of them."""
    out: list[tuple[str, str]] = []
    odd = group.odd
    for first in range(0, len(group.shown), each):
        some = group.shown[first : first + each]
        shares = [gpu.memory_share for gpu in some if gpu.memory_share is not None]
        bad = any(gpu.error or gpu.index in odd for gpu in some)
        gone = any(gpu.error and gpu.memory_share is None for gpu in some)
        char = "✗" if gone or not shares else "▁▂▃▄▅▆▇█"[min(7, round(max(shares) * 8))]
        out.append((str(some[0].index), SELECTED) if first == selected else (char, QUIET if not group.fresh else E if bad else P))
    return out


def hosts_strip(state: DeploymentState, width: int, moment: Moment) -> Content:
    """Draw all hosts in one line: if there are many GPUs, a column stands for several, so that a faulty one keeps its place."""
    groups = groups_of(state, moment=moment)
    count = sum(len(group.shown) for group in groups)
    most = max((len(group.shown) for group in groups), default=1)
    rights = _in_one_line(state, groups)
    each = 1
    while True:
        parts: list[Part] = []
        for group in groups:
            parts += [*cells(group, each=each), " "]
        bare = line(label("GPUs  "), *parts)
        told = line(bare, (f"{count}", B), label(f" on {len(groups)} hosts  "))
        for left in (told, bare):
            if any(left.cell_length + right.cell_length + 2 <= width for right in rights):
                return spread(width, left, *rights)
        if each >= most:
            return spread(width, line(label("GPUs  "), (f"{count}", B)), *rights)
        each *= 2


def _in_one_line(state: DeploymentState, groups: list[HostGroup]) -> list[Content]:
    """Away, old, odd, faulty, even and headroom, in words and counted: the longest first."""
    away = [group.host for group in groups if not group.connection.online]
    old = [group for group in groups if group.connection.online and group.sample is not None and group.sample.late]
    odd = [group.host for group in groups if group.odd]
    faults = sum(len(group.wrong) for group in groups)
    even = not away and not old and all(group.judged.even for group in groups)
    found = tightest(state)
    share = percent(found[1].free_share) if found else ""
    ages = ", ".join(f"{group.host} {old_words(group.sample, group.moment)}" for group in old if group.sample is not None)
    words: list[tuple[str, str, str]] = []
    if away:
        words.append((f"○ no link to {', '.join(away)}", f"○ {len(away)} away", BW))
    if old:
        words.append((f"○ {ages}", f"○ {len(old)} old", BW))
    if odd:
        words.append((f"✗ odd on {', '.join(odd)}", f"✗ {len(odd)} odd", BE))
    if faults:
        full = [
            one.full_s for group in groups if (one := outgrowth(group.state.ready_memory, group.sample)) and one.full_s is not None
        ]
        words.append((f"▲ {faults}, full in {roughly(min(full))}" if full else f"▲ {faults} to look at", f"▲ {faults}", W))
    if even:
        words.append(("✓ even", "✓ even", BG))
    if share:
        words.append((f"{share} headroom", f"{share} free", B))
    return [
        Content("  ").join(line((full if n < spelt else brief, ink)) for n, (full, brief, ink) in enumerate(words))
        for spelt in range(len(words), -1, -1)  # the last are counted first
    ]


def compact(group: HostGroup, width: int, selected: int | None = None) -> list[GpuRow]:
    """Two lines: the head, and a column a GPU with what the fullest comes to. The selected one shows its number."""
    sample = group.sample
    if sample is None or not sample.gpus:
        return of_none([head(group, width), Content("")])
    columns = cells(group, selected)
    row = line("  ", *columns)
    room = width - row.cell_length - 4
    told = [line(("▲ ", W), short(group.wrong[0], room))] if group.wrong and room >= 16 else []
    widths = [len(text) for text, _ in columns]
    return [GpuRow(head(group, width)), side_by_side(spread(width, row, *told), 2, widths, group.host, group.shown)]


def in_words(groups: list[HostGroup], width: int, room: int, said_already: int = 0) -> list[list[Content]]:
    """Return what is wrong on each host, as many lines as there is room for, the worst of each host first.

    If some are left out, the head counts them.
    """
    out: list[list[Content]] = [[] for _ in groups]
    for rank in range(said_already, max((len(group.wrong) for group in groups), default=0)):
        for said, group in zip(out, groups, strict=True):
            if rank < len(group.wrong) and room > 0:
                said.append(line(("  ▲ ", W), short(group.wrong[rank], width - 4)))
                room -= 1
    return out


def height_of(groups: list[HostGroup], rows_each: int) -> int:
    return sum(1 + rows_each for _ in groups)


def across_for(groups: list[HostGroup], width: int, height: int) -> int | None:
    """Return into how many columns each host's GPUs go so that all fit; None if they don't."""
    most = max((len(group.shown) for group in groups), default=0)
    for across in range(1, max(1, width // 12) + 1):
        if height_of(groups, ceil(most / across)) <= height:
            return across
    return None
