"""How busy the machine was meanwhile: on a GPU host the load generator competes with the server for cores. Python 3.8."""

import os
import time
from typing import Dict, Optional, Tuple


class MachineUse:
    """Between its making and `figures`."""

    def __init__(self) -> None:
        self._before = _stat()
        self._at = time.monotonic()

    def figures(self) -> Dict[str, Optional[float]]:
        """`host_cores`, `host_busy_cores`, `host_idle_cores` of the machine that the load came from; None where it doesn't say."""
        after = _stat()
        if self._before is None or after is None or after[0] <= self._before[0]:
            return {"host_cores": float(os.cpu_count() or 0) or None, "host_busy_cores": None, "host_idle_cores": None}
        total = after[0] - self._before[0]
        idle = after[1] - self._before[1]
        cores = float(os.cpu_count() or 1)
        return {"host_cores": cores, "host_busy_cores": cores * (total - idle) / total, "host_idle_cores": cores * idle / total}


def _stat() -> Optional[Tuple[int, int]]:
    """All ticks and idle ticks (idle and iowait) of /proc/stat's first line; guest time is inside user time already."""
    try:
        with open("/proc/stat", "rb") as file:
            words = file.readline().split()
        ticks = [int(word) for word in words[1:9]]
    except (OSError, ValueError):
        return None
    return (sum(ticks), ticks[3] + ticks[4]) if len(ticks) >= 5 else None
