"""Free memory: how much on the fullest GPU, whether it shrinks since the server is ready, and whether it is what was expected."""

from textual.content import Content

from tui.core.counted import counted
from tui.core.deployment import DeploymentState
from tui.core.findings import hosts_of, tightest
from tui.core.gpu import GpuSample
from tui.core.gpu_health import headroom, uniformity
from tui.widgets.figure import Moment
from tui.widgets.figures import BW, B, G, W, big, label, line, short, warning
from tui.widgets.gpu_old import greyed, old_mark
from tui.widgets.numbers import age, percent, whole

GROWTH_SAMPLES = 60
"""Half a minute at 2 Hz."""
GROWTH_MIB = 64.0
SETTLED_S = 30.0
"""So soon after it was ready nothing is said of growth."""


def serving(state: DeploymentState) -> bool:
    return state.api.ready or (state.load is not None and state.load.ready)


def unmet_of_gpus(state: DeploymentState) -> list[str]:
    """Where the GPUs are not as the configuration expects them, a line each."""
    expected = state.expected
    if state.gpus is None:
        return []
    out = []
    hosts = hosts_of(state)
    there = [gpu for one in hosts if one.sample is not None for gpu in one.sample.gpus if gpu.error is None]
    if expected.gpus is not None and len(there) != expected.gpus:
        out.append(f"{counted(len(there), 'GPU')}, {expected.gpus} expected")
    least = expected.headroom_mib
    for one in hosts if least is not None and serving(state) else ():
        room = headroom(one.sample) if one.sample is not None and not one.sample.late else None
        if room is not None and least is not None and room.free_mib < least:
            where = f" of {one.host}" if state.others else ""
            out.append(f"GPU {room.gpu}{where} has {room.free_mib:,.0f} MiB free, {least:,.0f} expected")
    return out


def headroom_block(state: DeploymentState, sample: GpuSample, width: int, moment: Moment) -> list[Content]:
    """The free memory of the fullest GPU. It is low with an engine that takes its share at the start, and says so calmly."""
    fullest = headroom(sample)
    if fullest is None:
        return []
    digits = big(f"{fullest.free_share * 100:.1f}%")
    judged = uniformity(sample)
    where = "on each" if judged.even else f"on GPU {fullest.gpu}"
    total = next((gpu.memory_total_mib for gpu in sample.gpus if gpu.index == fullest.gpu), None)
    told = (
        line((whole(fullest.free_mib), B), label(f" MiB free {where}")),
        _least(state, fullest.free_mib) or line(label(f"of {whole(total)} MiB")),
        _growth(state, sample),
    )
    if sample.late:
        digits, told = tuple(map(greyed, digits)), (greyed(told[0]), line(old_mark(sample, moment)), Content(""))
    return [
        line(label("headroom")),
        *(line(one, " " * (18 - one.cell_length), text) for one, text in zip(digits, told, strict=True)),
    ]


def over_all_hosts(state: DeploymentState, width: int) -> list[Content]:
    """Several hosts' fullest GPU, and where they are not as expected; the first line fits everywhere."""
    out = [part for one in unmet_of_gpus(state) for part in warning(one, width)]
    if (found := tightest(state)) is not None:
        host, room = found
        left = line(label("headroom  "), (percent(room.free_share), B), label("  "), (whole(room.free_mib), B), label(" MiB free"))
        where = f" on GPU {room.gpu} of {host.host}"
        out.append(line(left, label(short(where, max(0, width - left.cell_length)))))
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
    mark = state.ready_memory
    if mark is None or mark.at is None or sample.received_at is None or sample.received_at - mark.at < SETTLED_S:
        return Content("")
    then = dict(mark.used_mib)
    grown = [gpu.memory_used_mib - then[gpu.index] for gpu in sample.gpus if gpu.memory_used_mib is not None and gpu.index in then]
    if not grown:
        return Content("")
    most = max(grown)
    if most < GROWTH_MIB:
        return line(("✓ ", G), label("steady"))
    told = line((f"+{most:,.0f} MiB", B), label(f" in {age(sample.received_at - mark.at)}"))
    return line(("▲ ", W), told) if _growing(state, sample) else told


def _growing(state: DeploymentState, sample: GpuSample) -> bool:
    """Whether it still grew over the last half minute."""
    trend = state.trends.gpu_memory[-GROWTH_SAMPLES:]
    return len(trend) == GROWTH_SAMPLES and any(
        now is not None and then is not None and (now - then) * (gpu.memory_total_mib or 0.0) >= GROWTH_MIB
        for then, now, gpu in zip(trend[0], trend[-1], sample.gpus, strict=False)
    )
