"""The GPUs of several hosts of one deployment: a group a host, as detailed as there is room for."""

from math import ceil

from msgspec import Struct
from msgspec.structs import replace
from textual.content import Content

from tui.core.connection import ConnectionState
from tui.core.deployment import DeploymentState
from tui.core.gpu import Gpu, GpuSample
from tui.core.gpu_health import headroom, health, uniformity
from tui.core.gpu_order import ALL, BY_NUMBER, listed
from tui.core.trends import Trends
from tui.widgets.figure import Moment
from tui.widgets.figures import BE, BG, BW, QUIET, B, E, P, Part, W, label, line, middle, spread
from tui.widgets.gpu_old import SELECTED, greyed, old_mark, old_words
from tui.widgets.numbers import gib, percent

START = Moment()


class Group(Struct, frozen=True):
    """One host's GPUs; `state` is the deployment's with this host's sample in it, for drawing."""

    host: str
    connection: ConnectionState
    state: DeploymentState
    sample: GpuSample | None
    shown: tuple[Gpu, ...] = ()
    """Those of its GPUs that are listed, in the order of the list."""
    moment: Moment = START

    @property
    def fresh(self) -> bool:
        """Whether the sample tells of now."""
        return self.connection.online and self.sample is not None and not self.sample.late

    @property
    def listed(self) -> GpuSample | None:
        """The sample with these alone, for drawing."""
        return replace(self.sample, gpus=self.shown) if self.sample is not None else None

    @property
    def odd(self) -> tuple[int, ...]:
        """The GPUs out of line with all others of the host, listed or not."""
        return uniformity(self.sample).odd if self.sample is not None else ()


def groups_of(state: DeploymentState, order: str = BY_NUMBER, kind: str = ALL, moment: Moment = START) -> list[Group]:
    """The first host and the further ones. One of which nothing is to be listed is left out, unless its link is what is wrong."""
    out = [Group(state.target or state.connection.host, state.connection, state, state.gpus, moment=moment)]
    for other in state.others:
        seen = replace(state, gpus=other.gpus, trends=Trends(), connection=other.connection)
        out.append(Group(other.host, other.connection, seen, other.gpus, moment=moment))
    out = [replace(group, shown=listed(group.sample, order, kind) if group.sample is not None else ()) for group in out]
    return [group for group in out if kind == ALL or group.shown or not group.connection.online]


def all_gpus(state: DeploymentState, order: str = BY_NUMBER, kind: str = ALL) -> list[tuple[str, Gpu]]:
    """Host and GPU, of all hosts."""
    return [(group.host, gpu) for group in groups_of(state, order, kind) for gpu in group.shown]


def head(group: Group, width: int) -> Content:
    """The host's name, and what its GPUs come to."""
    sample = group.sample
    if not group.connection.online:
        why = f"○ {group.connection.cause or group.connection.link.value}"
        return spread(width, line((middle(group.host, max(8, width // 2)), B)), line((middle(why, max(8, width // 2 - 2)), BW)))
    if sample is None or not sample.gpus:
        return spread(
            width, line((middle(group.host, width // 2), B)), line(label((sample.note if sample else None) or "no sample yet"))
        )
    judged, fullest = uniformity(sample), headroom(sample)
    used = sorted(gpu.memory_used_mib for gpu in sample.gpus if gpu.memory_used_mib is not None)
    wrong = health(sample)
    mark: Part = ("✓ even", BG) if judged.even else (f"✗ odd: {', '.join(map(str, judged.odd))}", BE) if judged.odd else ""
    if sample.late:
        mark = old_mark(sample, group.moment)
    left = line((middle(group.host, max(8, width // 3)), B), "  ", mark, (f"  ▲ {len(wrong)}" if wrong else "", W))
    typical = gib(used[len(used) // 2]) if used else "—"
    level = line(label(f"{len(sample.gpus)} × "), typical, label(" GiB"))
    free = (
        line(label("   "), (percent(fullest.free_share), B), label(" was free" if sample.late else " free"))
        if fullest
        else Content("")
    )
    if sample.late:
        level, free = greyed(level), greyed(free)
    return spread(width, left, line(level, free), level)


def cells(group: Group, selected: int | None = None) -> list[Part]:
    """A column a GPU."""
    out: list[Part] = []
    odd = group.odd
    for n, gpu in enumerate(group.shown):
        share, bad = gpu.memory_share, bool(gpu.error) or gpu.index in odd
        char = "▁▂▃▄▅▆▇█"[min(7, round(share * 8))] if share is not None else "✗"
        out.append((str(gpu.index), SELECTED) if n == selected else (char, QUIET if not group.fresh else E if bad else P))
    return out


def hosts_strip(state: DeploymentState, width: int, moment: Moment) -> Content:
    """All hosts in one line."""
    groups = groups_of(state, moment=moment)
    parts: list[Part] = []
    for group in groups:
        parts += [*cells(group), " "]
    samples = [group.sample for group in groups if group.sample is not None]
    judged = [uniformity(sample) for sample in samples]
    count = sum(len(sample.gpus) for sample in samples)
    left = line(label("GPUs  "), *parts, (f" {count}", B), label(f" on {len(groups)} hosts  "))
    away = [group.host for group in groups if not group.connection.online]
    old = [group for group in groups if group.connection.online and group.sample is not None and group.sample.late]
    odd = [group.host for group, one in zip(groups, judged, strict=False) if one.even is False]
    if away:
        return spread(width, left, line((f"○ no link to {', '.join(away)}", BW)), line((f"○ {len(away)} away", BW)))
    if old:
        said = ", ".join(f"{group.host} {old_words(group.sample, moment)}" for group in old if group.sample is not None)
        return spread(width, left, line((f"○ {said}", BW)), line((f"○ {len(old)} old", BW)))
    if odd:
        return spread(width, left, line((f"✗ odd on {', '.join(odd)}", BE)), line(("✗ odd", BE)))
    frees = [one for sample in samples if (one := headroom(sample))]
    least = min(frees, key=lambda one: one.free_mib, default=None)
    free = line((percent(least.free_share), B), label(" headroom")) if least else Content("")
    even = line(("✓ even  ", BG)) if judged and all(one.even for one in judged) else Content("")
    return spread(width, left, line(even, free), free)


def compact(group: Group, width: int, selected: int | None = None) -> list[Content]:
    """Two lines: the head, and a column a GPU with what the fullest comes to. The selected one shows its number."""
    sample = group.sample
    worst = health(sample)[:1] if sample is not None else ()
    told = [line(("▲ ", W), one) for one in worst]
    row = line("  ", *cells(group, selected))
    return [head(group, width), spread(width, row, *told) if sample is not None and sample.gpus else Content("")]


def height_of(groups: list[Group], rows_each: int) -> int:
    return sum(1 + rows_each for _ in groups)


def across_for(groups: list[Group], width: int, height: int) -> int | None:
    """Into how many columns each host's GPUs go so that all fit; None where they don't."""
    most = max((len(group.shown) for group in groups), default=0)
    for across in range(1, max(1, width // 12) + 1):
        if height_of(groups, ceil(most / across)) <= height:
            return across
    return None
