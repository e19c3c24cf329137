"""The machine itself, from /proc and /sys: processor, memory, the disk that holds the given paths, network. Counters are
cumulative; whoever reads the frames makes rates of them."""

import contextlib
import os
import threading
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from tui.probe.process_table import read

SECTOR = 512  # of /proc/diskstats, whatever the device's own (Documentation/admin-guide/iostats.rst)
SLOW_S = 5.0
RESOLVE_S = 60.0

# Filesystems whose bytes are on no block device of this host, and whose traffic /proc doesn't count
_REMOTE = ("lustre", "ceph", "gpfs", "wekafs", "beegfs", "cifs", "smb3", "9p", "virtiofs", "glusterfs", "pvfs2", "orangefs")


def _octal(word: str) -> str:
    """/proc writes spaces and their like in mount points as \\040."""
    out = word
    for code, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        out = out.replace(code, plain)
    return out


def mount_of(path: str, mountinfo: str) -> Optional[Tuple[str, str, str, str]]:
    """Device number (`259:2`), mount point, type and source of the mount that a path lies on, by /proc/self/mountinfo's text."""
    best: Optional[Tuple[str, str, str, str]] = None
    for line in mountinfo.split("\n"):
        left, found, right = line.partition(" - ")
        words, kinds = left.split(" "), right.split(" ")
        if not found or len(words) < 5 or len(kinds) < 2:
            continue
        point = _octal(words[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # of two mounts on one point the later one is on top
        if inside and (best is None or len(point) >= len(best[1])):
            best = (words[2], point, kinds[0], _octal(kinds[1]))
    return best


def nfs_bytes_read(mountstats: str, points: Sequence[str]) -> Optional[int]:
    """Return the bytes that the NFS servers of these mount points sent for reads.

    That is the fifth number of "bytes:" in mountstats, nfs_iostat's serverReadBytes.
    """
    total: Optional[int] = None
    wanted = False
    for line in mountstats.split("\n"):
        if line.startswith("device "):
            words = line.split(" ")
            wanted = len(words) > 4 and _octal(words[4]) in points
        elif wanted:
            words = line.split()
            if words[:1] == ["bytes:"] and len(words) > 5:
                total = (total or 0) + int(words[5])
    return total


class Disks:
    """Which devices count: those of the given paths, or all disks. Following a path may hang on a dead server: a thread does it."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = [path for path in paths if path.startswith("/")]
        self.name: Optional[str] = None
        self.numbers: Tuple[str, ...] = ()
        self.nfs: Tuple[str, ...] = ()
        self.remote = False
        self._busy_ms: Dict[str, int] = {}
        self._busiest_ms = 0
        self._whole: Dict[str, bool] = {}
        if self._paths:
            threading.Thread(target=self._follow, name="disks", daemon=True).start()

    def _follow(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                self._resolve()
            time.sleep(RESOLVE_S)

    def _resolve(self) -> None:
        mountinfo = (read("/proc/self/mountinfo", 1 << 20) or b"").decode("utf-8", "replace")
        numbers, points, names, remote = [], [], [], False
        for path in self._paths:
            mount = mount_of(os.path.realpath(path), mountinfo)
            if mount is None:
                continue
            number, point, kind, source = mount
            if kind in ("nfs", "nfs4"):
                points.append(point)
                names.append("%s %s" % (kind, source))
            elif kind in _REMOTE or kind.startswith("fuse."):
                remote = True
                names.append("%s %s" % (kind, source))
            else:
                if number.startswith("0:"):  # btrfs and its like have numbers of their own; the source may be a device
                    try:
                        device = os.stat(source).st_rdev if source.startswith("/dev/") else 0
                    except OSError:
                        device = 0
                    number = "%d:%d" % (os.major(device), os.minor(device)) if device else ""
                if number:
                    numbers.append(number)
                    names.append(os.path.basename(os.path.realpath("/sys/dev/block/" + number)))
        self.numbers, self.nfs, self.remote = tuple(numbers), tuple(points), remote
        self.name = ", ".join(sorted(set(names))) or None

    def counters(self) -> Dict[str, Any]:
        """`disk_read_bytes`, `disk_busy_ms` (of the busiest device), `disk` (what they are of)."""
        out: Dict[str, Any] = {}
        if self.name is not None:
            out["disk"] = self.name
        if self.nfs:
            total = nfs_bytes_read((read("/proc/self/mountstats", 4 << 20) or b"").decode("utf-8", "replace"), self.nfs)
            if total is not None:
                out["disk_read_bytes"] = total
            if not self.numbers:
                return out
        elif self.remote and not self.numbers:
            return out
        stats = (read("/proc/diskstats", 1 << 20) or b"").decode("ascii", "replace")
        sectors = busiest = seen = 0
        for line in stats.splitlines():
            words = line.split()
            if len(words) < 13 or not self._counts("%s:%s" % (words[0], words[1]), words[2]):
                continue
            seen += 1
            sectors += int(words[5])
            busy = int(words[12])
            busiest = max(busiest, busy - self._busy_ms.get(words[2], busy))
            self._busy_ms[words[2]] = busy
        if seen:
            self._busiest_ms += busiest
            out["disk_read_bytes"] = out.get("disk_read_bytes", 0) + sectors * SECTOR
            out["disk_busy_ms"] = self._busiest_ms
        return out

    def _counts(self, number: str, name: str) -> bool:
        if self.numbers:
            return number in self.numbers
        whole = self._whole.get(name)
        if whole is None:
            # whole disks only, and no layers above them, else bytes would count twice
            whole = self._whole[name] = os.path.exists("/sys/block/%s/device" % name.replace("/", "!"))
        return whole


class Machine:
    """Everything of a "machine" frame that isn't about the engine's processes."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.disks = Disks(paths)
        self._slow_due = 0.0
        self._slow: Dict[str, Any] = {}
        self._network: List[str] = []

    def sample(self, now: float) -> Dict[str, Any]:
        out = dict(_processor())
        out.update(_memory())
        if now >= self._slow_due:
            self._slow_due = now + SLOW_S
            self._slow = _shared_memory()
            self._network = _interfaces()
        out.update(self._slow)
        out.update(self.disks.counters())
        received = self._received()
        if received is not None:
            out["network_rx_bytes"] = received
        return out

    def _received(self) -> Optional[int]:
        total: Optional[int] = None
        for path in self._network:
            words = (read(path, 64) or b"").strip()
            if words.isdigit():
                # InfiniBand ports count words of four bytes
                total = (total or 0) + int(words) * (4 if path.endswith("port_rcv_data") else 1)
        return total


def _processor() -> Dict[str, Any]:
    out: Dict[str, Any] = {}
    stat = read("/proc/stat", 4096)
    if stat and stat.startswith(b"cpu "):
        # user nice system idle iowait irq softirq steal (guest times are in user and nice already); in ticks
        ticks = [int(word) for word in stat[4 : stat.index(b"\n")].split()[:8]]
        if len(ticks) >= 5:
            out["cpu_total"] = sum(ticks)
            out["cpu_idle"] = ticks[3]
            out["cpu_iowait"] = ticks[4]
    load = (read("/proc/loadavg", 64) or b"").split()
    if load:
        out["load_1m"] = float(load[0])
    cores = os.cpu_count()
    if cores:
        out["cores"] = cores
    return out


def _memory() -> Dict[str, Any]:
    kib = {}
    for line in (read("/proc/meminfo", 8192) or b"").splitlines():
        key, _, rest = line.partition(b":")
        words = rest.split()
        if words and words[0].isdigit():
            kib[key] = int(words[0])
    out: Dict[str, Any] = {}
    for name, key in (("ram_total_mib", b"MemTotal"), ("ram_available_mib", b"MemAvailable")):
        if key in kib:
            out[name] = kib[key] // 1024
    if b"Cached" in kib:
        # tmpfs and shared memory count as cached, but hold no file's pages
        out["page_cache_mib"] = max(kib[b"Cached"] - kib.get(b"Shmem", 0), 0) // 1024
    if b"SwapTotal" in kib and b"SwapFree" in kib:
        out["swap_used_mib"] = (kib[b"SwapTotal"] - kib[b"SwapFree"]) // 1024
    return out


def _shared_memory() -> Dict[str, Any]:
    try:
        size = os.statvfs("/dev/shm")
    except OSError:
        return {}
    return {"shm_total_mib": size.f_blocks * size.f_frsize >> 20, "shm_free_mib": size.f_bavail * size.f_frsize >> 20}


def _interfaces() -> List[str]:
    """Return the received bytes of all network cards; in a container, which has none, of all interfaces but loopback."""
    found, cards = [], []
    try:
        names = sorted(os.listdir("/sys/class/net"))
    except OSError:
        names = []
    for name in names:
        if name != "lo":
            path = "/sys/class/net/%s/statistics/rx_bytes" % name
            found.append(path)
            if os.path.exists("/sys/class/net/%s/device" % name):
                cards.append(path)
    paths = cards or found
    try:
        for device in sorted(os.listdir("/sys/class/infiniband")):
            ports = "/sys/class/infiniband/%s/ports" % device
            for port in sorted(os.listdir(ports)):
                if (read("%s/%s/link_layer" % (ports, port), 64) or b"").strip() == b"InfiniBand":
                    paths.append("%s/%s/counters/port_rcv_data" % (ports, port))
    except OSError:
        pass
    return paths
