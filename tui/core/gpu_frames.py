"""Frames of the probe's role "watch" as typed values.

A frame comes from a machine that may be out of order, so every value is looked at: what has the wrong type is unknown, text is
cleaned.
"""

import math
import re
from collections.abc import Mapping
from functools import cache
from inspect import isclass
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import replace

from tui.core.gpu import Gpu, GpuSample, Xid
from tui.core.gpu_health import meaning
from tui.core.host_machine import MachineCounters, MachineSample
from tui.core.text import clean

TEXT_LIMIT = 200

T = TypeVar("T", bound=Struct)

_RANK = re.compile(r"(?:^|[_ ])((?:DP|PP|TP|EP|DCP|PCP)\d+)(?![A-Za-z0-9])")


def number(value: Any) -> float | None:
    """Return a finite number as a float, else None (a bool is no number)."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def integer(value: Any) -> int | None:
    found = number(value)
    return int(found) if found is not None else None


def words(value: Any) -> str | None:
    """Return cleaned text of bounded length; None if there is none."""
    return clean(value)[:TEXT_LIMIT] or None if isinstance(value, str) else None


def rank_of(name: str) -> str | None:
    """Return `TP0`, `PP1_TP3` … out of a process title such as `VLLM::Worker_PP1_TP3`; None if it names none."""
    return "_".join(_RANK.findall(name.partition("::")[2])) or None


@cache
def _types(kind: type[Struct]) -> dict[str, Any]:
    """Return the type of each field that a frame can hold, without its annotations."""
    hints = get_type_hints(kind)
    return {name: hints[name] for name in kind.__struct_fields__}


def _value(wanted: Any, found: Any) -> Any:
    """Return `found` as the type that is wanted, or None if it is of another one."""
    if get_origin(wanted) is tuple:
        of = get_args(wanted)[0]
        items = found if isinstance(found, list) else []
        values = (decoded(of, item) if isclass(of) and issubclass(of, Struct) else _value(of, item) for item in items)
        return tuple(value for value in values if value is not None)
    plain = next(kind for kind in get_args(wanted) or (wanted,) if kind is not NoneType)
    if plain is bool:
        return found if isinstance(found, bool) else None
    return words(found) if plain is str else integer(found) if plain is int else number(found)


def decoded(kind: type[T], row: Any) -> T | None:
    """Return the row of a frame as a `kind`, field by field by its types; None if it is no row, or lacks what a `kind` must have.

    What has the wrong type is unknown, and gets the field's default.
    """
    if not isinstance(row, Mapping):
        return None
    found = {name: value for name, wanted in _types(kind).items() if (value := _value(wanted, row.get(name))) is not None}
    required = kind.__struct_fields__[: len(kind.__struct_fields__) - len(kind.__struct_defaults__)]
    return kind(**found) if all(name in found for name in required) else None


def _gpu(row: Any) -> Gpu | None:
    gpu = decoded(Gpu, row)
    if gpu is None:
        return None
    return replace(gpu, processes=tuple(replace(process, rank=rank_of(process.name)) for process in gpu.processes))


def _rows(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def gpus_from_frame(frame: Mapping[str, Any], received_at: float) -> GpuSample:
    """Return the sample in a frame "gpus", which came at `received_at` by the client's monotonic clock.

    A late frame repeats older values: the sample has the time at which they were new.
    """
    late = frame.get("late") is True
    age_s = number(frame.get("age_s")) if late else None
    xids = []
    for row in _rows(frame.get("xids")):
        code, at = (integer(row.get("code")), number(row.get("at"))) if isinstance(row, Mapping) else (None, None)
        if code is not None and at is not None:
            xids.append(Xid(gpu=integer(row.get("gpu")), code=code, at=at, meaning=meaning(code)))
    return GpuSample(
        gpus=tuple(sorted((gpu for row in _rows(frame.get("gpus")) if (gpu := _gpu(row))), key=lambda gpu: gpu.index)),
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
    """Return the sample in a frame "machine".

    Rates are over the host's monotonic time since `previous`; None without it, and if a counter went back (the host was rebooted, a
    process ended).
    """
    counters = decoded(MachineCounters, frame) or MachineCounters()
    before = previous.counters if previous is not None else MachineCounters()
    seconds = _gain(before.mono, counters.mono)
    ticks = _gain(before.cpu_total, counters.cpu_total)
    idle = _gain(before.cpu_idle, counters.cpu_idle)
    waited = _gain(before.cpu_iowait, counters.cpu_iowait)
    busy = _share(_gain(before.disk_busy_ms, counters.disk_busy_ms), seconds)
    used = ticks - idle - (waited or 0.0) if ticks is not None and idle is not None else None
    disk = words(frame.get("disk"))
    same_disk = previous is not None and previous.disk == disk
    return replace(
        decoded(MachineSample, frame) or MachineSample(),
        cpu_percent=_percent(_share(used, ticks)),
        iowait_percent=_percent(_share(waited, ticks)),
        disk_read_mb_s=_rate(before.disk_read_bytes, counters.disk_read_bytes, seconds) if same_disk else None,
        disk_busy_percent=min(busy / 10.0, 100.0) if busy is not None and same_disk else None,
        network_rx_mb_s=_rate(before.network_rx_bytes, counters.network_rx_bytes, seconds),
        engine_read_mb_s=_rate(before.engine_read_bytes, counters.engine_read_bytes, seconds),
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
    """Return the rate of a counter in megabytes (10**6 bytes) a second."""
    per_second = _share(_gain(before, now), seconds)
    return per_second / 1e6 if per_second is not None else None
