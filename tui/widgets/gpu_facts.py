"""Everything known of one GPU."""

from textual.content import Content

from tui.core.deployment import DeploymentState
from tui.core.gpu import Gpu, GpuSample, Headroom, MigInstance, figures
from tui.core.gpu_findings import hosts_of, roughly, short_of, tightest
from tui.core.gpu_groups import engine_of
from tui.core.gpu_health import headroom
from tui.core.gpu_uniformity import uniformity
from tui.core.presentation import DASH, age, counted, gib, percent, three, whole
from tui.core.trends import Outgrowth, outgrowth, peak_mib
from tui.widgets.canvas import Moment
from tui.widgets.draw import BW, B, E, G, P, Part, W, big, facts, label, line, sparks, spread, warning
from tui.widgets.gpu_rows import greyed, old_mark


def gpu_facts(gpu: Gpu, width: int, instances: bool = True, old: str = "") -> list[Content]:
    """Return everything known of a GPU, a line each; what the driver does not tell is a dash.

    `instances`: also those of MIG. `old` says how old it is, if it is.
    """

    def pair(now: float | None, most: float | None, unit: str) -> str:
        return f"{whole(now)} of {whole(most)} {unit}".rstrip()

    errors = "1 error" if gpu.nvlink_errors == 1 else f"{whole(gpu.nvlink_errors)} errors"
    told: list[tuple[str, Part]] = [
        ("memory", f"{pair(gpu.memory_used_mib, gpu.memory_total_mib, 'MiB')}, {percent(gpu.memory_share)}"),
        (
            "free",
            f"{whole(gpu.free_mib)} MiB"
            + (f", unchanged for {age(gpu.memory_still_s)}" if gpu.memory_still_s is not None and not old else ""),
        ),
        *(("MIG", _instance(mig)) for mig in (gpu.mig if instances else ())),
        ("busy", f"{whole(gpu.utilisation)} %, memory controller {whole(gpu.memory_utilisation)} %"),
        ("heat", f"{whole(gpu.temperature_c)} °C, memory {whole(gpu.memory_temperature_c)} °C, fan {whole(gpu.fan_percent)} %"),
        (
            "power",
            pair(gpu.power_w, gpu.power_limit_w, "W")
            + (f", {gpu.energy_j / 3.6e6:,.2f} kWh so far" if gpu.energy_j is not None else ""),
        ),
        (
            "clocks",
            f"{pair(gpu.sm_clock_mhz, gpu.sm_clock_max_mhz, 'MHz')}, "
            f"memory {pair(gpu.memory_clock_mhz, gpu.memory_clock_max_mhz, 'MHz')}",
        ),
        ("state", f"{gpu.performance_state or DASH}" + (", throttled: " + ", ".join(gpu.throttle) if gpu.throttle else "")),
        (
            "PCIe",
            f"gen {pair(gpu.pcie_generation, gpu.pcie_generation_max, '')}, {pair(gpu.pcie_width, gpu.pcie_width_max, 'lanes')}",
        ),
        ("traffic", f"in {three(gpu.pcie_rx_mb_s)}, out {three(gpu.pcie_tx_mb_s)} MB/s over PCIe"),
        ("NVLink", f"{whole(gpu.nvlinks_up)} of {whole(gpu.nvlinks_total)} up, {errors}"),
        (
            "ECC",
            f"{whole(gpu.ecc_uncorrected)} uncorrected, {whole(gpu.ecc_corrected)} corrected, {_out_of_use(gpu)}",
        ),
        *(
            (figure.title, f"{three(getattr(gpu, field))} {figure.unit}".rstrip())
            for field, figure in figures().items()
            if figure.title
        ),
        ("name", gpu.name or DASH),
        ("UUID", gpu.uuid or DASH),
        ("PCI", gpu.pci or DASH),
    ]
    out = [line(("✗ ", E), error) for error in ([gpu.error] if gpu.error else [])]
    if old:
        out.append(line(("○ ", W), f"the driver does not answer: last known values, {old}"))
    out += facts(width, *told, column=10)
    for i, process in enumerate(gpu.processes):
        mark = ("▒ ", W) if process.engine is False else label("  ")
        words = "  ".join(part for part in (process.name, process.rank or "", process.user or "", process.container or "") if part)
        out.append(
            line(
                label(f"{'processes' if i == 0 else '':<10}"),
                mark,
                (f"{process.pid}", B),
                f"  {gib(process.memory_mib)} GiB  ",
                words,
            )
        )
    return out


def _out_of_use(gpu: Gpu) -> str:
    """Memory that the driver keeps clear of: rows, or on GPUs before Ampere pages."""
    if gpu.remapped_rows is None and gpu.retired_pages is not None:
        return f"{counted(gpu.retired_pages, 'page')} retired" + (", one waits for a reset" if gpu.page_retirement_pending else "")
    waits = ", a remap failed" if gpu.row_remap_failed else ", a remap waits for a reset" if gpu.row_remap_pending else ""
    return f"{whole(gpu.remapped_rows)} remapped{waits}"


def _instance(mig: MigInstance) -> str:
    return f"{mig.profile}  {gib(mig.memory_used_mib)} of {gib(mig.memory_total_mib)} GiB, {whole(mig.free_mib)} MiB free"


def gpu_trends(state: DeploymentState, place: int, width: int) -> list[Content]:
    """Memory and utilisation over the last samples, of the GPU at that place in the sample."""
    out = []
    for name, samples, top in (("memory", state.trends.gpu_memory, 1.0), ("busy", state.trends.gpu_utilisation, 100.0)):
        values = [sample[place] if place < len(sample) else None for sample in samples][-max(1, width - 10) :]
        if any(value is not None for value in values):
            out.append(line(label(f"{name:<10}"), sparks(values, min(len(values), width - 10), top, f"{P} 70%")))
    return out


def unmet_of_gpus(state: DeploymentState) -> list[str]:
    """Return a line for each host that has fewer GPUs than the configuration expects."""
    expected = state.expected
    if state.gpus is None:
        return []
    there = [gpu for seen in hosts_of(state) if seen.sample is not None for gpu in seen.sample.gpus if gpu.error is None]
    if expected.gpus is not None and len(there) != expected.gpus:
        return [f"{counted(len(there), 'GPU')}, {expected.gpus} expected"]
    return []


def headroom_block(state: DeploymentState, sample: GpuSample, width: int, moment: Moment) -> list[Content]:
    """Return the free memory of the fullest GPU in large figures.

    It is low with an engine that takes its share at the start: no alarm.
    """
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
        *(line(digit, " " * (18 - digit.cell_length), text) for digit, text in zip(digits, told, strict=True)),
    ]


def headroom_words(state: DeploymentState, sample: GpuSample) -> list[Content]:
    """Return the headroom in a few words, the longest form first; of an old sample only that it was so."""
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
    """Return the fullest GPU of several hosts and unmet expectations; the first line fits everywhere."""
    out = [part for unmet in unmet_of_gpus(state) for part in warning(unmet, width)]
    if (found := tightest(state)) is not None:
        host, room = found
        left = line(label("headroom  "), (percent(room.free_share), B), label("  "), (whole(room.free_mib), B), label(" MiB free"))
        left_over = max(0, width - left.cell_length)
        where = next((text for text in (f" on {room.where} of {host.host}", f" on {host.host}") if len(text) <= left_over), "")
        out.append(line(left, label(where)))
    return out


def _least(state: DeploymentState, free_mib: float) -> Content:
    """Return what free memory the configuration expects at least, if it does."""
    least = state.expected.headroom_mib
    if least is None:
        return Content("")
    told = f"{least:,.0f} expected"
    return line((f"▲ {told}", BW)) if free_mib < least else line(("✓ ", G), label(told))


def _growth(state: DeploymentState, sample: GpuSample) -> Content:
    """Return whether memory has grown since the server became ready: that, not the level, is what to worry about."""
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
    """Return the alarm of one host in a few words; empty if there is none."""
    grown = outgrowth(state.ready_memory, sample)
    if grown is not None and grown.full_s is not None:
        return f"▲ full in {roughly(grown.full_s)}", BW
    return (f"▲ {state.expected.headroom_mib:,.0f} MiB expected", BW) if short_of(state, sample) else ""
