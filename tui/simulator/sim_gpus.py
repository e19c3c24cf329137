"""The simulated GPUs: memory by process, and a temperature, power and load that follow the work."""

import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tui.simulator.scenarios import Machine

_IDLE_W, _IDLE_C = 31.0, 31.0


@dataclass(slots=True)
class Load:
    """What the engine does to its GPUs. `workers` are the processes by rank; memory goes when its process does."""

    memory_mib: float = 0.0
    weights_share: float = 0.0
    busy: float = 0.0
    running: int = 0
    workers: tuple[int, ...] = ()


@dataclass(slots=True)
class Gpus:
    """All GPUs of the host; `rows` gives them as they are now."""

    machine: Machine
    foreign_pid: int = 0
    lost: set[int] = field(default_factory=set)
    overrides: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What a test sets by hand, by GPU: any field of a row."""
    _dice: random.Random = field(default_factory=lambda: random.Random(8))
    _heat: list[float] = field(default_factory=list)
    _energy: list[float] = field(default_factory=list)
    _then: float = field(default_factory=time.monotonic)

    def change(self, index: int, fields: Mapping[str, Any]) -> None:
        """Sets fields of a GPU's row by hand; "gone" takes it off the bus."""
        self.overrides.setdefault(index, {}).update(fields)

    def rows(self, load: Load) -> list[dict[str, Any]]:
        now = time.monotonic()
        elapsed, self._then = now - self._then, now
        if not self._heat:
            self._heat = [_IDLE_C + index % 3 for index in range(self.machine.gpus)]
            self._energy = [1e6 + 7919.0 * index for index in range(self.machine.gpus)]
        rows = [self._row(index, load, elapsed) for index in range(self.machine.gpus)]
        return [row for row in rows if not row.get("gone")]

    def _row(self, index: int, load: Load, elapsed: float) -> dict[str, Any]:
        machine = self.machine
        name = f"GPU-{0x5EED0000 + index:08x}-7be1-4c5f-9d3a-{index:012x}"
        row: dict[str, Any] = {
            "index": index,
            "uuid": name,
            "name": machine.name,
            "pci": f"00000000:{0x21 + 0x20 * index:02X}:00.0",
        }
        if index in self.lost:
            return {**row, "error": "GPU is lost"}
        working = load.workers[index % len(load.workers)] if load.workers else None
        processes: list[dict[str, Any]] = []
        held = 0.0
        if working is not None and load.memory_mib > 0:
            held = load.memory_mib + machine.odd.get(index, 0) * load.weights_share
            title = f"VLLM::Worker_TP{index}" if machine.gpus > 1 else "VLLM::EngineCore"
            processes.append({"pid": working, "name": title, "memory_mib": held - 6})
        if index in machine.foreign:
            processes.append({"pid": self.foreign_pid, "name": "python3", "memory_mib": machine.foreign[index]})
            held += machine.foreign[index]
        held = min(held, machine.total_mib - 14)
        busy = self._busy(load) if working is not None else 0.0
        if busy:
            busy = min(1.0, max(0.01, busy + self._dice.uniform(-0.02, 0.02)))
        power = (
            _IDLE_W
            + (34 if working is not None else 0)
            + (machine.power_limit_w - _IDLE_W - 60) * busy**0.8
            + self._dice.uniform(-2, 2)
        )
        target = _IDLE_C + (power - _IDLE_W) / machine.power_limit_w * 48 + index % 3
        self._heat[index] += (target - self._heat[index]) * (1 - math.exp(-elapsed / 8))
        self._energy[index] += power * elapsed
        row |= {
            "memory_used_mib": round(held),
            "memory_total_mib": machine.total_mib,
            "utilisation": round(busy * 100),
            "memory_utilisation": round(busy * 62),
            "temperature_c": round(self._heat[index]),
            "power_w": round(power, 2),
            "power_limit_w": machine.power_limit_w,
            "sm_clock_mhz": 2430 if busy > 0.02 else 180,
            "sm_clock_max_mhz": 2430,
            "memory_clock_mhz": 12481 if working is not None else 405,
            "memory_clock_max_mhz": 12481,
            "throttle": [],
            "performance_state": "P1" if working is not None else "P8",
            "pcie_generation": 5,
            "pcie_generation_max": 5,
            "pcie_width": 16,
            "pcie_width_max": 16,
            "pcie_rx_mb_s": round(268.0 / machine.gpus + 1900 * busy) if load.busy and not load.running else round(1400 * busy),
            "pcie_tx_mb_s": round(1350 * busy),
            "ecc_corrected": 0,
            "ecc_uncorrected": 0,
            "fan_percent": None,
            "energy_j": round(self._energy[index]),
            "processes": processes,
        }
        told = {key: value for key, value in row.items() if key not in machine.untold}
        return {**told, "broken": machine.broken.get(index, ()), **self.overrides.get(index, {})}

    def _busy(self, load: Load) -> float:
        """From the batch while serving: 62 % for one stream, nearly all from 64 on."""
        if load.running > 0:
            return min(0.99, 0.62 + 0.37 * math.log2(load.running + 1) / 6.5 - 0.057)
        return load.busy
