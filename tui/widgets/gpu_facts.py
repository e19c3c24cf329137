"""Everything known of one GPU."""

from textual.content import Content

from tui.core.counted import counted
from tui.core.deployment import DeploymentState
from tui.core.gpu import Gpu, MigInstance
from tui.widgets.figures import B, E, P, Part, W, facts, label, line, sparks
from tui.widgets.numbers import DASH, age, gib, percent, three, whole


def gpu_facts(gpu: Gpu, width: int, instances: bool = True, old: str = "") -> list[Content]:
    """Everything known of a GPU, a line each; what the driver does not tell is a dash.

    `instances`: also those of MIG. `old` says how old it is, where it is.
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
        *(("MIG", _instance(one)) for one in (gpu.mig if instances else ())),
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
        ("name", gpu.name or DASH),
        ("UUID", gpu.uuid or DASH),
        ("PCI", gpu.pci or DASH),
    ]
    out = [line(("✗ ", E), one) for one in ([gpu.error] if gpu.error else [])]
    if old:
        out.append(line(("○ ", W), f"the driver does not answer: as it was, {old}"))
    out += facts(width, *told, column=10)
    for i, one in enumerate(gpu.processes):
        mark = ("▒ ", W) if one.engine is False else label("  ")
        words = "  ".join(part for part in (one.name, one.rank or "", one.user or "", one.container or "") if part)
        out.append(
            line(label(f"{'processes' if i == 0 else '':<10}"), mark, (f"{one.pid}", B), f"  {gib(one.memory_mib)} GiB  ", words)
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
        values = [one[place] if place < len(one) else None for one in samples][-max(1, width - 10) :]
        if any(value is not None for value in values):
            out.append(line(label(f"{name:<10}"), sparks(values, min(len(values), width - 10), top, f"{P} 70%")))
    return out
