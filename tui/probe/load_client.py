"""How the load generator itself fared in a point, and whether it was the limit rather than the server. Python 3.8."""

import math
from typing import Any, Dict, List, Optional, Sequence

from tui.probe.load_files import most_files
from tui.probe.load_net import OWN_LIMITS
from tui.probe.load_order import Outcome
from tui.wire.metrics import percentile
from tui.wire.record import Record

BUSY = 0.85
"""A process that uses so much of its core is the bottleneck."""

LATE_S = 0.02
"""A client that reads so late at its 99th percentile can't keep up, if that is much beside the time between two tokens."""

TOGETHER = 0.01
"""Above this part of all chunks read together with a later one of their stream, a client that reads late falsifies the figures: a
read has one stamp, that of the last chunk in it. So a first token is told too late, and the gaps between the others as 0."""

OF_A_GAP = 0.5
"""Chunks that are read together are the client's doing where its lag at the 99th percentile is more than this part of the time
between two tokens. However late it reads, the last chunk is half such a time old on average, and at the 99th percentile nearly all
of it. A server or a proxy that sends its chunks in batches is read as promptly as any other."""

OF_A_REQUEST = 0.02
"""A stream's next request starts as late as the last one's end is read: so late a part of a request is told as the server's."""

PROMPT_S = 0.001
"""No lag at the 99th percentile below this marks a point: any process waits so long for a core now and then."""


def gap_of(records: Sequence[Record]) -> Optional[float]:
    """The mean time between two chunks of a reply, in seconds: what is read together doesn't change it as it does the median.

    Replies that came all at once tell none; None where there are no others.
    """
    spans = [r for r in records if r.chunks and r.chunks[-1] > r.chunks[0]]
    gaps = sum(len(r.chunks) - 1 for r in spans)
    return math.fsum(r.chunks[-1] - r.chunks[0] for r in spans) / gaps if gaps else None


def falsified(late: float, together: int, records: Sequence[Record], e2el: Optional[float]) -> bool:
    """Whether a client that reads `late` (the 99th percentile, beyond what it rests by design) has made figures untrue.

    `together` chunks have the stamp of a later one; `e2el` is the median of a request's whole time. All times in seconds.
    """
    if late <= PROMPT_S:
        return False
    if e2el is not None and late > OF_A_REQUEST * e2el:
        return True
    gap = gap_of(records)
    return gap is not None and late > OF_A_GAP * gap and together > TOGETHER * sum(len(r.chunks) for r in records)


def client_figures(outcome: Outcome, busy: List[float], figures: Dict[str, Any]) -> Dict[str, Any]:
    """The `client_…` figures of a point; `busy` is how much of its core each process used."""
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
