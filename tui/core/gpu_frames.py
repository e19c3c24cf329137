"""Frames of the probe's role "watch" as typed values.

A frame comes from a machine that may be out of order, so every value is looked at: what has the wrong type is unknown, text is
cleaned.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tui.core.gpu import Gpu, GpuProcess, GpuSample, MigInstance, Xid
from tui.core.gpu_health import meaning
from tui.core.host_machine import MachineCounters, MachineSample
from tui.core.text import clean

TEXT_LIMIT = 200

_FLOATS = (
    "memory_used_mib",
    "memory_total_mib",
    "memory_still_s",
    "utilisation",
    "memory_utilisation",
    "temperature_c",
    "memory_temperature_c",
    "power_w",
    "power_limit_w",
    "sm_clock_mhz",
    "sm_clock_max_mhz",
    "memory_clock_mhz",
    "memory_clock_max_mhz",
    "pcie_rx_mb_s",
    "pcie_tx_mb_s",
    "fan_percent",
    "energy_j",
    "energy_at",
)
_INTEGERS = (
    "pcie_generation",
    "pcie_generation_max",
    "pcie_width",
    "pcie_width_max",
    "nvlinks_up",
    "nvlinks_total",
    "nvlink_errors",
    "ecc_corrected",
    "ecc_uncorrected",
    "remapped_rows",
    "retired_pages",
)
_RANK = re.compile(r"(?:^|[_ ])((?:DP|PP|TP|EP|DCP|PCP)\d+)(?![A-Za-z0-9])")


def number(value: Any) -> float | None:
    """A finite number, else None (a bool is none)."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def integer(value: Any) -> int | None:
    found = number(value)
    return int(found) if found is not None else None


def words(value: Any) -> str | None:
    """Cleaned text of bounded length; None when there is none."""
    return clean(value)[:TEXT_LIMIT] or None if isinstance(value, str) else None


def _mappings(value: Any) -> Iterable[Mapping[str, Any]]:
    return (one for one in value if isinstance(one, Mapping)) if isinstance(value, list) else ()


def rank_of(name: str) -> str | None:
    """`TP0`, `PP1_TP3` … out of a process title such as `VLLM::Worker_PP1_TP3`; None where it names none."""
    return "_".join(_RANK.findall(name.partition("::")[2])) or None


def _process(row: Mapping[str, Any]) -> GpuProcess | None:
    pid = integer(row.get("pid"))
    if pid is None:
        return None
    name = words(row.get("name")) or ""
    engine = row.get("engine")
    return GpuProcess(
        pid=pid,
        name=name,
        memory_mib=number(row.get("memory_mib")),
        engine=engine if isinstance(engine, bool) else None,
        rank=rank_of(name),
        container=words(row.get("container")),
        user=words(row.get("user")),
        parent=integer(row.get("parent")),
    )


def _gpu(row: Mapping[str, Any], index: int) -> Gpu:
    values: dict[str, Any] = {name: number(row.get(name)) for name in _FLOATS}
    values.update({name: integer(row.get(name)) for name in _INTEGERS})
    for name in ("row_remap_pending", "row_remap_failed", "page_retirement_pending"):
        values[name] = row[name] if isinstance(row.get(name), bool) else None
    throttle = row.get("throttle")
    return Gpu(
        index=index,
        uuid=words(row.get("uuid")) or "",
        name=words(row.get("name")) or "",
        pci=words(row.get("pci")) or "",
        throttle=tuple(one for one in map(words, throttle) if one) if isinstance(throttle, list) else (),
        performance_state=words(row.get("performance_state")),
        mig=tuple(
            MigInstance(
                name=words(one.get("name")) or "",
                uuid=words(one.get("uuid")) or "",
                memory_used_mib=number(one.get("memory_used_mib")),
                memory_total_mib=number(one.get("memory_total_mib")),
            )
            for one in _mappings(row.get("mig"))
        ),
        processes=tuple(found for one in _mappings(row.get("processes")) if (found := _process(one))),
        error=words(row.get("error")),
        unread=words(row.get("unread")),
        **values,
    )


def gpus_from_frame(frame: Mapping[str, Any], received_at: float) -> GpuSample:
    """The sample in a frame "gpus", which came at `received_at` by the client's monotonic clock. A late frame repeats older values:
    the sample has the time at which they were new."""
    late = frame.get("late") is True
    age_s = number(frame.get("age_s")) if late else None
    gpus = []
    for row in _mappings(frame.get("gpus")):
        index = integer(row.get("index"))
        if index is not None:
            gpus.append(_gpu(row, index))
    xids = []
    for one in _mappings(frame.get("xids")):
        code, at = integer(one.get("code")), number(one.get("at"))
        if code is not None and at is not None:
            xids.append(Xid(gpu=integer(one.get("gpu")), code=code, at=at, meaning=meaning(code)))
    return GpuSample(
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.index)),
        source=words(frame.get("source")) or "none",
        note=words(frame.get("note")),
        driver=words(frame.get("driver")),
        cuda=words(frame.get("cuda")),
        wall=number(frame.get("wall")),
        received_at=received_at - max(age_s or 0.0, 0.0),
        xids=tuple(xids),
        late=late,
        late_s=number(frame.get("late_s")) if late else None,
    )


def machine_from_frame(frame: Mapping[str, Any], previous: MachineSample | None, received_at: float) -> MachineSample:
    """The sample in a frame "machine". Rates are over the host's monotonic time since `previous`; None without it, and where a
    counter went back (the host was rebooted, a process ended)."""
    counters = MachineCounters(
        mono=number(frame.get("mono")),
        cpu_total=number(frame.get("cpu_total")),
        cpu_idle=number(frame.get("cpu_idle")),
        cpu_iowait=number(frame.get("cpu_iowait")),
        disk_read_bytes=number(frame.get("disk_read_bytes")),
        disk_busy_ms=number(frame.get("disk_busy_ms")),
        network_rx_bytes=number(frame.get("network_rx_bytes")),
        engine_read_bytes=number(frame.get("engine_read_bytes")),
    )
    before = previous.counters if previous is not None else MachineCounters()
    seconds = _gain(before.mono, counters.mono)
    ticks = _gain(before.cpu_total, counters.cpu_total)
    idle = _gain(before.cpu_idle, counters.cpu_idle)
    waited = _gain(before.cpu_iowait, counters.cpu_iowait)
    busy = _share(_gain(before.disk_busy_ms, counters.disk_busy_ms), seconds)
    used = ticks - idle - (waited or 0.0) if ticks is not None and idle is not None else None
    disk = words(frame.get("disk"))
    same_disk = previous is not None and previous.disk == disk
    return MachineSample(
        cpu_percent=_percent(_share(used, ticks)),
        cores=integer(frame.get("cores")),
        iowait_percent=_percent(_share(waited, ticks)),
        load_1m=number(frame.get("load_1m")),
        ram_total_mib=number(frame.get("ram_total_mib")),
        ram_available_mib=number(frame.get("ram_available_mib")),
        page_cache_mib=number(frame.get("page_cache_mib")),
        swap_used_mib=number(frame.get("swap_used_mib")),
        shm_total_mib=number(frame.get("shm_total_mib")),
        shm_free_mib=number(frame.get("shm_free_mib")),
        disk_read_mb_s=_rate(before.disk_read_bytes, counters.disk_read_bytes, seconds) if same_disk else None,
        disk_busy_percent=min(busy / 10.0, 100.0) if busy is not None and same_disk else None,
        disk=disk,
        network_rx_mb_s=_rate(before.network_rx_bytes, counters.network_rx_bytes, seconds),
        engine_read_mb_s=_rate(before.engine_read_bytes, counters.engine_read_bytes, seconds),
        engine_read_bytes=integer(frame.get("engine_read_bytes")),
        wall=number(frame.get("wall")),
        received_at=received_at,
        counters=counters,
    )


def _gain(before: float | None, now: float | None) -> float | None:
    return now - before if before is not None and now is not None and now >= before else None


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _percent(share: float | None) -> float | None:
    return min(max(share * 100.0, 0.0), 100.0) if share is not None else None


def _rate(before: float | None, now: float | None, seconds: float | None) -> float | None:
    """Megabytes (10**6) a second."""
    per_second = _share(_gain(before, now), seconds)
    return per_second / 1e6 if per_second is not None else None
