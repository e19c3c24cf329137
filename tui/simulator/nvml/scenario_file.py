"""The scenario file that nvml.c and the simulated nvidia-smi play (its format stands at the top of nvml.c)."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "READYROOM_NVML_SCENARIO"
"""Names the file for both of them."""

ERRORS: Final = {
    "no permission": 4,
    "driver not loaded": 9,
    "gpu is lost": 15,
    "gpu requires reset": 16,
    "driver/library version mismatch": 18,
    "unknown error": 999,
}
"""NVML's codes by the words of nvidia-smi, in lower case."""

THROTTLE_BITS: Final = {
    "power cap": 0x4,
    "hardware slowdown": 0x8,
    "sync boost": 0x10,
    "thermal slowdown": 0x20,
    "hardware thermal slowdown": 0x40,
    "power brake": 0x80,
}

_PLAIN: Final = (
    "memory_total_mib",
    "memory_used_mib",
    "memory_reserved_mib",
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
    "row_remap_pending",
    "row_remap_failed",
    "retired_pages",
    "page_retirement_pending",
    "fan_percent",
    "energy_j",
)


def write(
    path: Path,
    gpus: Sequence[Mapping[str, Any]],
    *,
    driver: str = "580.159.04",
    cuda: str = "13.0",
    init: str | int = 0,
    hang: bool = False,
    xids: Sequence[tuple[int, int, int]] = (),
) -> None:
    """Replace the scenario in one step.

    `gpus` are rows as the probe reports them (the names of `core.gpu.Gpu`; what is absent or None isn't supported), with
    `hang: True` for a GPU whose calls never return, `broken` for values whose calls fail, and `error` (all fail) as words of
    ERRORS or a code. `init` is what starting the library gives, `xids` are (serial, GPU, code): an event is delivered when its
    serial first appears.
    """
    lines = [f"driver {driver}", f"cuda {_cuda(cuda)}", f"init {_code(init)}"]
    if hang:
        lines.append("hang 1")
    lines += [f"xid {serial} {gpu} {code}" for serial, gpu, code in xids]
    for row in gpus:
        lines += _gpu_lines(row)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    temporary.write_text("\n".join(lines) + "\n")
    temporary.replace(path)


def _cuda(version: str) -> int:
    major, _, minor = version.partition(".")
    return int(major) * 1000 + int(minor or 0) * 10


def _code(error: str | int) -> int:
    return error if isinstance(error, int) else ERRORS.get(error.lower(), 999)


def _gpu_lines(row: Mapping[str, Any]) -> list[str]:
    lines = [f"gpu {row['index']}"]
    lines += [f"{key} {row[key]}" for key in ("uuid", "name", "pci") if row.get(key)]
    if row.get("error") is not None:
        lines.append(f"error {_code(row['error'])}")
    if row.get("hang"):
        lines.append("hang 1")
    broken = row.get("broken") or ()
    lines += [f"{key} {float(row[key]):.17g}" for key in _PLAIN if row.get(key) is not None and key not in broken]
    lines += [f"{key} nan" for key in broken]
    if row.get("throttle") is not None:
        lines.append(f"throttle {sum(THROTTLE_BITS[words] for words in row['throttle'])}")
    if row.get("performance_state") is not None:
        lines.append(f"performance_state {str(row['performance_state']).lstrip('P')}")
    for way in ("rx", "tx"):
        if row.get(f"pcie_{way}_mb_s") is not None:
            lines.append(f"pcie_{way}_kb_s {row[f'pcie_{way}_mb_s'] * 1e3:.0f}")
    for process in row.get("processes") or ():
        kind = "graphics" if process.get("graphics") else "process"
        memory = process.get("memory_mib")
        lines.append(f"{kind} {process['pid']} {-1 if memory is None else memory} {process.get('name', '')}")
    for instance in row.get("mig") or ():
        lines.append(f"mig {instance['memory_used_mib']} {instance['memory_total_mib']} {instance['uuid']} {instance['name']}")
    return lines


# -- reading, for the simulated nvidia-smi -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class PlayedProcess:
    pid: int
    mib: float
    name: str
    graphics: bool


@dataclass(slots=True)
class SimulatedGpu:
    """A GPU as the file tells it: `values` by the file's own keys."""

    index: int
    words: dict[str, str] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    processes: list[PlayedProcess] = field(default_factory=list)
    instances: list[tuple[float, float, str, str]] = field(default_factory=list)
    error: int = 0
    hang: bool = False


@dataclass(slots=True)
class DriverScenario:
    driver: str = ""
    cuda: int = 0
    init: int = 0
    hang: bool = False
    gpus: list[SimulatedGpu] = field(default_factory=list)


def read(path: Path) -> DriverScenario:
    """Read the scenario in a file. Raises OSError if it can't be read."""
    scenario = DriverScenario()
    gpu: SimulatedGpu | None = None
    for line in path.read_text().splitlines():
        key, _, rest = line.partition("#")[0].strip().partition(" ")
        words = rest.split()
        if key == "gpu":
            gpu = SimulatedGpu(int(words[0]))
            scenario.gpus.append(gpu)
        elif not key or key == "xid":
            continue
        elif gpu is None:
            _host_line(scenario, key, rest)
        else:
            _gpu_line(gpu, key, rest, words)
    return scenario


def _host_line(scenario: DriverScenario, key: str, rest: str) -> None:
    match key:
        case "driver":
            scenario.driver = rest
        case "cuda":
            scenario.cuda = int(rest)
        case "init":
            scenario.init = int(rest)
        case "hang":
            scenario.hang = rest != "0"


def _gpu_line(gpu: SimulatedGpu, key: str, rest: str, words: Sequence[str]) -> None:
    match key:
        case "uuid" | "name" | "pci":
            gpu.words[key] = rest
        case "error":
            gpu.error = int(rest)
        case "hang":
            gpu.hang = rest != "0"
        case "process" | "graphics":
            gpu.processes.append(PlayedProcess(int(words[0]), float(words[1]), " ".join(words[2:]), key == "graphics"))
        case "mig":
            gpu.instances.append((float(words[0]), float(words[1]), words[2], " ".join(words[3:])))
        case _:
            gpu.values[key] = float(rest)
