"""NVIDIA's driver as a test plays it: the compiled management library and nvidia-smi, and the shipped sampler beside them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shipped import ShippedProbe

from tui.core.gpu import GpuSample
from tui.core.gpu_frames import gpus_from_frame
from tui.simulator import installed
from tui.simulator.nvml import scenario_file

FULL = 96_733


def row(index: int, **values: Any) -> dict[str, Any]:
    return {
        "index": index,
        "uuid": f"GPU-{index:08x}",
        "name": "NVIDIA H100 NVL",
        "pci": f"00000000:{index + 16:02X}:00.0",
        "memory_used_mib": FULL,
        "memory_total_mib": 97_887,
        "memory_reserved_mib": 645,
        "utilisation": 99,
        "memory_utilisation": 61,
        "temperature_c": 61,
        "power_w": 650.5,
        "power_limit_w": 700,
        "sm_clock_mhz": 1785,
        "sm_clock_max_mhz": 1980,
        "throttle": ["power cap"],
        "performance_state": "P0",
        "pcie_generation": 5,
        "pcie_generation_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "nvlinks_up": 18,
        "nvlinks_total": 18,
        "nvlink_errors": 0,
        "ecc_corrected": 3,
        "ecc_uncorrected": 0,
        "remapped_rows": 0,
        "energy_j": 123_456.5,
        **values,
    }


class SimulatedDriver:
    """The library, the `nvidia-smi` and the scenario file of one test."""

    def __init__(self, folder: Path) -> None:
        self.scenario = folder / "scenario"
        self.programs = folder / "bin"
        installed.install_smi(self.programs)
        installed.install_library(folder / "lib")
        self.env = {"LD_LIBRARY_PATH": str(folder / "lib"), scenario_file.VARIABLE: str(self.scenario)}

    def play(self, *gpus: dict[str, Any], **options: Any) -> None:
        scenario_file.write(self.scenario, gpus, **options)

    def smi(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.programs / "nvidia-smi"), *words]
        return subprocess.run(command, env={**os.environ, **self.env}, capture_output=True, text=True, check=False, timeout=30)


def sample(probe: ShippedProbe, fits: Callable[[GpuSample], object] = lambda found: True, seconds: float = 15.0) -> GpuSample:
    """Return the next GPU sample that fits."""
    frame = probe.frame(lambda one: one.get("f") == "gpus" and fits(gpus_from_frame(one, 0.0)), seconds)
    return gpus_from_frame(frame, 0.0)


def watching(driver: SimulatedDriver, python: str = sys.executable, **arguments: Any) -> ShippedProbe:
    return ShippedProbe("watch", {"hz": 10, **arguments}, driver.env, python)
