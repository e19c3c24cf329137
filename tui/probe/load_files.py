"""Open files: each connection is one, and a process may have so many. Python 3.8."""

import contextlib
import os
import resource
from typing import Optional

from tui.probe.load_order import Order

RESERVE = 16
"""Open files beyond the connections and what is open already: a connection of the metrics, a pipe, a name to resolve."""


def most_files() -> Optional[int]:
    """How many files each process of the load generator may have open, once it has raised its limit; None is no limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def short_of(order: Order, spare: int) -> str:
    """Raises this process's limit of open files as far as an order needs it; why that isn't enough, in words, or nothing.

    The soft limit is often 1,024, for the sake of programs that use `select`, and each process may raise it up to the hard one. How
    many connections an open loop without a gate will need isn't known: it may have a connection for each request, and is never
    refused. What it can't send then is a failure of this machine's own (`OWN_LIMITS`), and told as such. `spare`: connections that
    it keeps ready.
    """
    streams = order.concurrency or order.gate or 0
    most = streams or len(order.schedule or ())
    reserve = _open_now() + spare + RESERVE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    infinite = resource.RLIM_INFINITY
    if soft != infinite and soft < most + reserve:
        soft = most + reserve if hard == infinite else min(hard, most + reserve)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == infinite or streams + reserve <= soft:
        return ""
    return (
        "%d streams need %d open files, and a process of the load generator may have %d: raise the hard limit (ulimit -Hn),"
        " or share the load among processes with --workers" % (streams, streams + reserve, soft)
    )


def _open_now() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return RESERVE
