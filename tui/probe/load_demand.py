"""How many processes a load needs, from what its warm-up showed and from what tokens and requests cost. Python 3.8."""

from typing import Any, Dict, List, Sequence

from tui.wire.metrics import percentile
from tui.wire.record import Record

EVENT_S = 15e-6
"""CPU seconds of a token event, the kernel's share included: 8 to 12 microseconds on an idle server, 20 on a slow one."""

REQUEST_S = 200e-6
"""CPU seconds of a request beyond its tokens: its body, its sending, its record. 150 to 250 microseconds."""

ONE_CARRIES = 0.6
"""A process that needs less of its core carries a load alone."""

HALF = 0.5
"""How busy each of several processes should be at most."""

QUICK = 10.0
"""Of the warm-up's replies those at this percentile count: all of its prompts come at once, and slow most replies down."""


def lasts_of(replies: Sequence[Record], chunks: float) -> float:
    """Seconds that a reply of so many chunks takes, by the quick ones of these.

    Mean gaps of a reply each: where chunks are read together, by a client that was late or since the server sends them in batches,
    most single gaps are 0.
    """
    first = percentile(sorted(r.chunks[0] - r.start for r in replies), QUICK)
    gaps: List[float] = sorted((r.chunks[-1] - r.chunks[0]) / (len(r.chunks) - 1) for r in replies if len(r.chunks) > 1)
    gap = percentile(gaps, QUICK) if gaps else 0.0
    return first + gap * max(0.0, chunks - 1.0)


def demand_of(order: Dict[str, Any], records: Sequence[Record], output: int) -> float:
    """Cores that an order of replies of `output` tokens needs, from the records of its warm-up: as many requests a second as its
    streams can make, or as its schedule wants where that is less. 0 where nothing tells."""
    replies = [r for r in records if r.chunks]
    tokens = sum(r.n_out or len(r.chunks) for r in replies)
    chunks = output * (sum(len(r.chunks) for r in replies) / tokens if tokens else 1.0)
    schedule = order.get("schedule") or ()
    rates = [len(schedule) / schedule[-1]] if schedule and schedule[-1] > 0.0 else []
    if replies:
        streams = order.get("concurrency") or order.get("gate") or len(schedule)
        rates.append(streams / max(lasts_of(replies, chunks), 1e-4))
    return min(rates) * (chunks * EVENT_S + REQUEST_S) if rates else 0.0


def processes_of(demand: float, most: int) -> int:
    """How many processes carry a load that needs so many cores."""
    return 1 if demand < ONE_CARRIES else min(most, 1 + int(demand / HALF))
