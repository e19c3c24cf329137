"""How the load generator itself fared in a point, and whether it was the limit rather than the server. Python 3.8."""

import math
import os
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from tui.probe.load_connections import most_files
from tui.probe.load_net import OWN_LIMITS, Address
from tui.probe.load_schedule import LoadOutcome
from tui.wire.request_record import RequestRecord
from tui.wire.summary import percentile

BUSY = 0.85
"""A process that uses so much of its core is the bottleneck."""

LATE_S = 0.02
"""A client that reads so late at its 99th percentile can't keep up, if that is much beside the time between two tokens."""

TOGETHER = 0.01
"""Above this part of all chunks read together with a later one of their stream, a client that reads late falsifies the figures: a
read has one stamp, that of the last chunk in it. So a first token is told too late, and the gaps between the others as 0."""

OF_A_GAP = 0.5
"""Chunks that are read together are the client's doing if its lag at the 99th percentile is more than this part of the time
between two tokens. However late it reads, the last chunk is half such a time old on average, and at the 99th percentile nearly all
of it. A server or a proxy that sends its chunks in batches is read as promptly as any other."""

OF_A_REQUEST = 0.02
"""A stream's next request starts as late as the last one's end is read: so late a part of a request is told as the server's."""

PROMPT_S = 0.001
"""No lag at the 99th percentile below this marks a point: any process waits so long for a core now and then."""


def gap_of(records: Sequence[RequestRecord]) -> Optional[float]:
    """Return the mean time between two chunks of a reply in seconds, or None if every reply came at once.

    Unlike the median, it stays the same if chunks are read together.
    """
    spans = [r for r in records if r.chunks and r.chunks[-1] > r.chunks[0]]
    gaps = sum(len(r.chunks) - 1 for r in spans)
    return math.fsum(r.chunks[-1] - r.chunks[0] for r in spans) / gaps if gaps else None


def falsified(late: float, together: int, records: Sequence[RequestRecord], e2el: Optional[float]) -> bool:
    """Return whether a client that reads `late` has made figures untrue.

    `late` is the 99th percentile of its lag beyond what it rests by design; `together` chunks have the stamp of a later one;
    `e2el` is the median of a request's whole time. All times in seconds.
    """
    if late <= PROMPT_S:
        return False
    if e2el is not None and late > OF_A_REQUEST * e2el:
        return True
    gap = gap_of(records)
    return gap is not None and late > OF_A_GAP * gap and together > TOGETHER * sum(len(r.chunks) for r in records)


def client_figures(outcome: LoadOutcome, busy: List[float], figures: Dict[str, Any]) -> Dict[str, Any]:
    """Return the `client_…` figures of a point; `busy` is how much of its core each process used."""
    health = outcome.health
    lags = sorted(health.lags)
    late = percentile(lags, 99.0) if lags else None
    e2el = figures["median_e2el_ms"]
    # every process is compared with its own core; the lag tells a client that had no core to itself
    limited = (
        any(figures["errors_by_kind"].get(kind) for kind in OWN_LIMITS)
        or max(busy) > BUSY
        or (late is not None and late > LATE_S and late * 1000.0 > 0.5 * (figures["median_itl_ms"] or 0.0))
        or (
            late is not None
            and falsified(late - health.rest_s, health.together, outcome.records, None if e2el is None else e2el / 1000.0)
        )
    )
    stamped = health.kernel_stamps and health.unstamped < health.events
    return {
        "client_limited": limited,
        "client_workers": len(busy),
        "client_open_files": most_files(),
        "client_cpu": max(busy),
        "client_cpu_s": health.cpu_s,
        "client_us_per_event": health.cpu_s / health.events * 1e6 if health.events else None,
        "client_events": health.events,
        "client_lag_p50_ms": percentile(lags, 50.0) * 1000.0 if lags else None,
        "client_lag_p99_ms": late * 1000.0 if late is not None else None,
        "client_lag_max_ms": lags[-1] * 1000.0 if lags else None,
        "client_stamps": "kernel" if stamped else "process",
        "client_unstamped": health.unstamped,
        "client_chunks_read_together": health.together,
        "clock_step_ms": health.clock_step_s * 1000.0,
    }


LISTENING = b"0A"


class MachineUse:
    """Measure the processor time of this machine, and of the server if it runs here, from its making until `figures`."""

    def __init__(self, address: Optional[Address] = None) -> None:
        self._pids = server_pids(address[1][1]) if address is not None and _is_here(address) else []
        self._before = _stat()
        self._server = _ticks(self._pids)
        self._at = time.monotonic()

    def figures(self) -> Dict[str, Optional[float]]:
        """Return `host_cores`, `host_busy_cores` and `host_idle_cores` of this machine, and `api_server_cpu_cores`.

        The last is what the processes that accept the server's connections used. A figure that can't be told is None.
        """
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
    """Find the processes of this machine that listen on a port, as far as this user may see them (/proc/net/tcp, /proc/PID/fd)."""
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
    """Read the user and system time of processes in clock ticks; None if one of them has ended."""
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
    """Read all ticks and the idle ones (idle and iowait) from /proc/stat's first line; guest time is inside user time already."""
    try:
        with open("/proc/stat", "rb") as file:
            words = file.readline().split()
        ticks = [int(word) for word in words[1:9]]
    except (OSError, ValueError):
        return None
    return (sum(ticks), ticks[3] + ticks[4]) if len(ticks) >= 5 else None
