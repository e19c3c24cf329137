"""How busy the machine was meanwhile: on a GPU host the load generator competes with the server for cores. Python 3.8."""

import os
import time
from typing import Any, Dict, List, Optional, Tuple

from tui.probe.load_net import Address

LISTENING = b"0A"


class MachineUse:
    """Between its making and `figures`. `address` is the server's; its processes are looked for when it is this machine's own."""

    def __init__(self, address: Optional[Address] = None) -> None:
        self._pids = server_pids(address[1][1]) if address is not None and _is_here(address) else []
        self._before = _stat()
        self._server = _ticks(self._pids)
        self._at = time.monotonic()

    def figures(self) -> Dict[str, Optional[float]]:
        """`host_cores`, `host_busy_cores`, `host_idle_cores` of the machine that the load came from, and `api_server_cpu_cores`,
        the cores that the processes which accept the server's connections used; None where it can't be told."""
        after = _stat()
        cores = float(os.cpu_count() or 1)
        found: Dict[str, Optional[float]] = {"host_cores": cores, "host_busy_cores": None, "host_idle_cores": None}
        found["api_server_cpu_cores"] = None
        if self._before is not None and after is not None and after[0] > self._before[0]:
            total = after[0] - self._before[0]
            idle = after[1] - self._before[1]
            found["host_busy_cores"] = cores * (total - idle) / total
            found["host_idle_cores"] = cores * idle / total
        ticks = _ticks(self._pids)
        seconds = time.monotonic() - self._at
        if self._pids and ticks is not None and self._server is not None and seconds > 0:
            found["api_server_cpu_cores"] = max(0, ticks - self._server) / os.sysconf("SC_CLK_TCK") / seconds
        return found


def _is_here(address: Address) -> bool:
    where: Any = address[1]
    return isinstance(where, tuple) and (str(where[0]).startswith("127.") or where[0] == "::1")


def server_pids(port: int) -> List[int]:
    """Processes of this machine that listen on a port, as far as this user may see them (/proc/net/tcp, then /proc/PID/fd)."""
    inodes = set()
    for name in ("tcp", "tcp6"):
        try:
            with open("/proc/net/" + name, "rb") as file:
                lines = file.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if len(words) > 9 and words[3] == LISTENING and int(words[1].rsplit(b":", 1)[1], 16) == port:
                inodes.add("socket:[%s]" % words[9].decode("ascii"))
    found = []
    for entry in os.listdir("/proc") if inodes else []:
        if not entry.isdigit():
            continue
        try:
            links = [os.readlink("/proc/%s/fd/%s" % (entry, fd)) for fd in os.listdir("/proc/%s/fd" % entry)]
        except OSError:  # another user's, or it ended just now
            continue
        if inodes.intersection(links):
            found.append(int(entry))
    return found


def _ticks(pids: List[int]) -> Optional[int]:
    """User and system time of processes, in clock ticks; None when one of them ended."""
    total = 0
    for pid in pids:
        try:
            with open("/proc/%d/stat" % pid, "rb") as file:
                words = file.read().rsplit(b")", 1)[1].split()
            total += int(words[11]) + int(words[12])
        except (OSError, ValueError, IndexError):
            return None
    return total


def _stat() -> Optional[Tuple[int, int]]:
    """All ticks and idle ticks (idle and iowait) of /proc/stat's first line; guest time is inside user time already."""
    try:
        with open("/proc/stat", "rb") as file:
            words = file.readline().split()
        ticks = [int(word) for word in words[1:9]]
    except (OSError, ValueError):
        return None
    return (sum(ticks), ticks[3] + ticks[4]) if len(ticks) >= 5 else None
