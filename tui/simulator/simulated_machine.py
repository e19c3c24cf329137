"""The hardware of the simulated host: its GPUs, and the counters of its kernel."""

import contextlib
import ctypes
import math
import os
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tui.simulator.scenarios import Card, SimulatedMachine

_IDLE_W, _IDLE_C = 31.0, 31.0


@dataclass(slots=True)
class EngineLoad:
    """What the engine does to its GPUs. `workers` are the processes by rank; memory goes when its process does."""

    memory_mib: float = 0.0
    weights_share: float = 0.0
    busy: float = 0.0
    running: int = 0
    workers: tuple[int, ...] = ()


@dataclass(slots=True)
class Gpus:
    """All GPUs of the host; `rows` gives them as they are now."""

    machine: SimulatedMachine
    foreign_pid: int = 0
    lost: set[int] = field(default_factory=set)
    overrides: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What a test sets by hand, by GPU: any field of a row."""
    _dice: random.Random = field(default_factory=lambda: random.Random(8))
    _heat: list[float] = field(default_factory=list)
    _energy: list[float] = field(default_factory=list)
    _then: float = field(default_factory=time.monotonic)

    def change(self, index: int, fields: Mapping[str, Any]) -> None:
        """Set fields of a GPU's row by hand; "gone" takes it off the bus."""
        self.overrides.setdefault(index, {}).update(fields)

    def rows(self, load: EngineLoad) -> list[dict[str, Any]]:
        now = time.monotonic()
        elapsed, self._then = now - self._then, now
        if not self._heat:
            self._heat = [_IDLE_C + index % 3 for index in range(self.machine.gpus)]
            self._energy = [1e6 + 7919.0 * index for index in range(self.machine.gpus)]
        rows = [self._row(index, load, elapsed) for index in range(self.machine.gpus)]
        return [row for row in rows if not row.get("gone")]

    def _row(self, index: int, load: EngineLoad, elapsed: float) -> dict[str, Any]:
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

    def _busy(self, load: EngineLoad) -> float:
        """Return how busy a GPU is, from the batch while serving: 62 % for one stream, nearly all from 64 on."""
        if load.running > 0:
            return min(0.99, 0.62 + 0.37 * math.log2(load.running + 1) / 6.5 - 0.057)
        return load.busy


_CLONE_NEWNS = 0x20000
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_TICKS = os.sysconf("SC_CLK_TCK")
_SECTOR = 512
_MEMORY_KIB = 1_584_000_000
_BASE_USED_KIB = 41_000_000
_STEP_S = 2.0
"""The engine tells of its progress more often than this while it loads."""


class Counters:
    """`update` is told how much of the checkpoint was read, `engine` which processes read it. A checkpoint of 0 bytes is one that
    comes from the page cache."""

    def __init__(self, folder: Path, checkpoint_bytes: int) -> None:
        self._folder = folder
        self._checkpoint = checkpoint_bytes
        self._laid = False
        self._workers: tuple[int, ...] = ()
        self._then = time.monotonic()
        self._busy_ms = 0.0
        self._ticks = [0.0] * 8
        self._share = 0.0
        self._grew_at = -_STEP_S
        self._real_disks: list[list[str]] = []
        self._counted: set[str] = set()

    def lay(self) -> bool:
        """Cover the machine's own files, in a mount namespace that this process has from then on; False if it may not."""
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWNS) != 0 or libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) != 0:
            return False
        self._folder.mkdir(parents=True, exist_ok=True)
        self._real_disks = [line.split() for line in _lines("/proc/diskstats")]
        self._counted = _disks_of("/", self._real_disks)
        self._ticks = [float(word) for word in _lines("/proc/stat")[0].split()[1:9]]
        self._rest_of_stat = _lines("/proc/stat")[1:]
        self._rest_of_memory = [
            line for line in _lines("/proc/meminfo") if line.split(":")[0] not in ("MemTotal", "MemFree", "MemAvailable", "Cached")
        ]
        self._write(0.0)
        for name in ("diskstats", "meminfo", "stat"):
            if libc.mount(str(self._folder / name).encode(), f"/proc/{name}".encode(), None, _MS_BIND, None) != 0:
                return False
        self._laid = True
        return True

    def engine(self, workers: Sequence[int]) -> None:
        """Cover what these processes have read, from now on."""
        if not self._laid or tuple(workers) == self._workers:
            return
        self._workers = tuple(workers)
        libc = ctypes.CDLL(None, use_errno=True)
        for pid in self._workers:
            (self._folder / f"io-{pid}").write_text(_io(0))
            libc.mount(str(self._folder / f"io-{pid}").encode(), f"/proc/{pid}/io".encode(), None, _MS_BIND, None)

    def update(self, share: float, *, working: bool) -> None:
        """`share` of the checkpoint has been read; `working` whether the processors are busy with it."""
        if not self._laid:
            return
        now = time.monotonic()
        elapsed, self._then = now - self._then, now
        if share > self._share:
            self._grew_at = now
        loading = now - self._grew_at < _STEP_S
        reading = loading and self._checkpoint > 0
        working = working or loading
        self._share = share
        self._busy_ms += 930 * elapsed if reading else 0.0
        # user, nice, system, idle, iowait, of 128 processors
        parts = (0.09, 0, 0.05, 0.75, 0.11) if reading else (0.06, 0, 0.02, 0.92, 0) if working else (0.01, 0, 0.004, 0.986, 0)
        for index, part in enumerate(parts):
            self._ticks[index] += part * elapsed * _TICKS * 128
        self._write(share)
        for pid in self._workers:
            self._put(f"io-{pid}", _io(round(share * self._checkpoint / max(1, len(self._workers)))))

    def _write(self, share: float) -> None:
        read = round(share * self._checkpoint)
        lines = []
        for words in self._real_disks:
            if words[2] in self._counted:
                busy = int(words[12]) + round(self._busy_ms)
                words = [
                    *words[:3],
                    str(int(words[3]) + read // 131_072),
                    words[4],
                    str(int(words[5]) + read // _SECTOR),
                    *words[6:12],
                    str(busy),
                    *words[13:],
                ]
            lines.append(" ".join(words))
        self._put("diskstats", "\n".join(lines) + "\n")
        cached = round(read / 1024)
        used = _BASE_USED_KIB + cached // 12
        known = {
            "MemTotal": _MEMORY_KIB,
            "MemFree": _MEMORY_KIB - used - cached,
            "MemAvailable": _MEMORY_KIB - used,
            "Cached": cached + 3_000_000,
        }
        self._put(
            "meminfo",
            "".join(f"{key + ':':<16}{value} kB\n" for key, value in known.items()) + "\n".join(self._rest_of_memory) + "\n",
        )
        ticks = " ".join(str(round(value)) for value in self._ticks)
        self._put("stat", "\n".join([f"cpu  {ticks} 0 0", *self._rest_of_stat]) + "\n")

    def _put(self, name: str, text: str) -> None:
        """Write a file in place, and in one write: what is laid over /proc is this very file."""
        data = text.encode()
        with contextlib.suppress(OSError):
            descriptor = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT, 0o644)
            try:
                os.pwrite(descriptor, data, 0)
                os.ftruncate(descriptor, len(data))
            finally:
                os.close(descriptor)


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _io(read: int) -> str:
    """/proc/PID/io (proc(5))."""
    names = ("rchar", "wchar", "syscr", "syscw", "read_bytes", "write_bytes", "cancelled_write_bytes")
    values = (read, 0, read // 131_072, 0, read, 0, 0)
    return "".join(f"{name}: {value}\n" for name, value in zip(names, values, strict=True))


def _disks_of(path: str, disks: Sequence[Sequence[str]]) -> set[str]:
    """Return the device that holds the path, and the whole disk that it is a part of; else the first disk there is."""
    number = os.stat(path).st_dev
    names = {words[2] for words in disks if (int(words[0]), int(words[1])) == (os.major(number), os.minor(number))}
    whole = {words[2] for words in disks if Path("/sys/block", words[2], "device").exists()}
    parents = {disk for disk in whole for name in names if name.startswith(disk)}
    return names | parents or set(sorted(whole)[:1])


_BUS = "/sys/bus/pci/devices"
_RELEASE = "/proc/sys/kernel/osrelease"
_NVIDIA = Card("0x10de", "0x2bb5")
_SERVERS_OWN = (Card("0x1a03", "0x2000", "0x030000"), Card("0x15b3", "0x1021", "0x020700"))
"""What every server has: its management controller's display, and a network card."""


def lay(folder: Path, machine: SimulatedMachine) -> None:
    """Cover the machine's own; what can't be covered stays this machine's."""
    cards = (_NVIDIA,) * machine.gpus if machine.cards is None else machine.cards
    bus = folder / "pci"
    for number, card in enumerate((*_SERVERS_OWN, *cards)):
        device = bus / f"0000:{0x10 + number:02x}:00.0"
        device.mkdir(parents=True)
        for name, text in (("vendor", card.vendor), ("device", card.device), ("class", card.kind), ("product_name", card.name)):
            if text:
                (device / name).write_text(text + "\n")
    _bind(bus, _BUS)
    if machine.kernel is not None:
        release = folder / "osrelease"
        release.write_text(machine.kernel + "\n")
        _bind(release, _RELEASE)


def _bind(source: Path, target: str) -> None:
    ctypes.CDLL(None, use_errno=True).mount(str(source).encode(), target.encode(), None, _MS_BIND, None)
