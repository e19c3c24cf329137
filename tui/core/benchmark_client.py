"""A load against the client that makes it: in what words it is told that the client, and not the server, was the limit."""

from collections.abc import Mapping
from typing import Any

from tui.core.counted import counted

LIMITED = "the client itself was the bottleneck: the server may do more, and latencies are partly the client's own"


SHORT_S = 1.0
"""The kernel counts busy time in hundredths of a second: a shorter point tells nothing of it."""

STARVED_SHARE, STARVED_CORES = 0.1, 0.5
"""A machine of which less is idle has no core left for whoever is due to run: of all its cores, but no more than that."""


def client_words(figures: Mapping[str, Any]) -> list[str]:
    """The warnings of a point that its client or its machine limited: what ran out, and what to do; nothing where it was no limit.

    A request that this machine could not send (`OWN_LIMITS` of `tui.probe.load_net`) has failed, and says nothing of the server.
    """
    kinds = figures.get("errors_by_kind") or {}
    words = []
    if count := kinds.get("open_files"):
        most = figures.get("client_open_files")
        each = f" (a process may have {most:,})" if most is not None else ""
        words.append(
            f"the load generator ran out of open files{each}: {counted(count, 'request')} could not be sent, whatever the server"
            " does: raise the hard limit (ulimit -Hn), share the load among processes with --workers,"
            " or bound the requests in flight with --concurrency"
        )
    if count := kinds.get("no_ports"):
        words.append(
            f"the load generator ran out of local ports: {counted(count, 'request')} could not be sent, whatever the server does:"
            " widen net.ipv4.ip_local_port_range, or bound the requests in flight with --concurrency"
        )
    if not words and figures.get("client_limited"):
        words.append(LIMITED)
    idle, cores = figures.get("host_idle_cores"), figures.get("host_cores")
    long_enough = (figures.get("duration") or 0.0) >= SHORT_S
    if long_enough and idle is not None and cores and idle < min(STARVED_CORES, STARVED_SHARE * cores):
        of = f"{idle:.1f} of {counted(round(cores), 'core')} idle"
        words.append(f"no core was idle on the load's machine ({of}): whatever ran there waited, the server too if it did")
    return words
