"""The kernel's counters on the simulated host: disk, memory, processor, and what the engine's processes have read.

Its own files are laid over those of /proc in a mount namespace of the host's process, which every command there inherits. That
needs the right to mount; without it the counters are this machine's own, and nothing else changes.
"""

import contextlib
import ctypes
import os
import time
from collections.abc import Sequence
from pathlib import Path

from tui.simulator.scenarios import Card, Machine

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
        """Covers the machine's own files, in a mount namespace that this process has from then on; False where it may not."""
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
        """Covers what these processes have read, from now on."""
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
        """In place, and in one write: what is laid over /proc is this very file."""
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
    """The device that holds the path, and the whole disk that it is a part of; else the first disk there is."""
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


def lay(folder: Path, machine: Machine) -> None:
    """Covers the machine's own; what can't be covered stays this machine's."""
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
