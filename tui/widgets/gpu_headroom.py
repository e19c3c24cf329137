"""Free memory: how much on the fullest GPU, whether it shrinks since the server is ready, and whether it is what was expected."""

from textual.content import Content

from tui.core.counted import counted
from tui.core.deployment import DeploymentState
from tui.core.findings import hosts_of, roughly, short_of, tightest
from tui.core.gpu import GpuSample, Headroom
from tui.core.gpu_engine import engine_of
from tui.core.gpu_even import uniformity
from tui.core.gpu_health import headroom
from tui.core.memory_course import Outgrowth, outgrowth, peak_mib
from tui.widgets.figure import Moment
from tui.widgets.figures import BW, B, G, Part, big, label, line, spread, warning
from tui.widgets.gpu_old import greyed, old_mark
from tui.widgets.numbers import percent, whole


def unmet_of_gpus(state: DeploymentState) -> list[str]:
    """Where there are not as many GPUs as the configuration expects, a line each."""
    expected = state.expected
    if state.gpus is None:
        return []
    there = [gpu for one in hosts_of(state) if one.sample is not None for gpu in one.sample.gpus if gpu.error is None]
    if expected.gpus is not None and len(there) != expected.gpus:
        return [f"{counted(len(there), 'GPU')}, {expected.gpus} expected"]
    return []


def headroom_block(state: DeploymentState, sample: GpuSample, width: int, moment: Moment) -> list[Content]:
    """The free memory of the fullest GPU. It is low with an engine that takes its share at the start, and says so calmly."""
    fullest = headroom(sample)
    if fullest is None:
        return []
    digits = big(f"{fullest.free_share * 100:.1f}%")
    where = _where(state, sample, fullest)
    grown = outgrowth(state.ready_memory, sample)
    rate: list[Part] = ["  ", pace(grown), label("/h")] if grown is not None and grown.full_s is not None else []
    told = (
        line((whole(fullest.free_mib), B), label(f" MiB free {where}")),
        _least(state, fullest.free_mib) or line(label(f"of {whole(fullest.total_mib)} MiB"), *rate),
        _growth(state, sample),
    )
    if sample.late:
        digits, told = tuple(map(greyed, digits)), (greyed(told[0]), line(old_mark(sample, moment)), Content(""))
    peak = peak_mib(state.ready_memory, sample)
    most = line(label("peak "), whole(peak), label(" MiB")) if peak is not None else Content("")
    return [
        spread(width, line(label("headroom")), most),
        *(line(one, " " * (18 - one.cell_length), text) for one, text in zip(digits, told, strict=True)),
    ]


def headroom_words(state: DeploymentState, sample: GpuSample) -> list[Content]:
    """The same in a few words, the longest first; of an old sample only that it was so."""
    fullest = headroom(sample)
    if fullest is None:
        return []
    if sample.late:
        was = f"{percent(fullest.free_share)} was free"
        return [line(label(f"{was} {_where(state, sample, fullest)}")), line(label(was))]
    share = line((percent(fullest.free_share), B), label(" headroom"))
    free = line(share, "   ", (whole(fullest.free_mib), B), label(" MiB free"))
    return [line(free, label(f" {_where(state, sample, fullest)}")), free, share]


def _where(state: DeploymentState, sample: GpuSample, fullest: Headroom) -> str:
    return "on each" if fullest.mig is None and uniformity(sample, engine_of(state)).even else f"on {fullest.where}"


def over_all_hosts(state: DeploymentState, width: int) -> list[Content]:
    """Several hosts' fullest GPU, and where they are not as expected; the first line fits everywhere."""
    out = [part for one in unmet_of_gpus(state) for part in warning(one, width)]
    if (found := tightest(state)) is not None:
        host, room = found
        left = line(label("headroom  "), (percent(room.free_share), B), label("  "), (whole(room.free_mib), B), label(" MiB free"))
        left_over = max(0, width - left.cell_length)
        where = next((one for one in (f" on {room.where} of {host.host}", f" on {host.host}") if len(one) <= left_over), "")
        out.append(line(left, label(where)))
    return out


def _least(state: DeploymentState, free_mib: float) -> Content:
    """What is expected at least, where something is."""
    least = state.expected.headroom_mib
    if least is None:
        return Content("")
    told = f"{least:,.0f} expected"
    return line((f"▲ {told}", BW)) if free_mib < least else line(("✓ ", G), label(told))


def _growth(state: DeploymentState, sample: GpuSample) -> Content:
    """Whether memory grows since the server is ready: that, not the level, is what to worry about."""
    grown = outgrowth(state.ready_memory, sample)
    if grown is None:
        return Content("")
    if grown.full_s is not None:
        return line((f"▲ full in {roughly(grown.full_s)}", BW))
    if grown.growth.steady:
        return line(("✓ ", G), label("steady"))
    return line(pace(grown), label(" MiB/h"))


def pace(grown: Outgrowth) -> Part:
    return f"{grown.growth.mib_per_hour:+,.0f}".replace("-", "−"), B


def alarm_words(state: DeploymentState, sample: GpuSample) -> Part:
    """The alarm of one host in a few words, for a line; empty where there is none."""
    grown = outgrowth(state.ready_memory, sample)
    if grown is not None and grown.full_s is not None:
        return f"▲ full in {roughly(grown.full_s)}", BW
    return (f"▲ {state.expected.headroom_mib:,.0f} MiB expected", BW) if short_of(state, sample) else ""
