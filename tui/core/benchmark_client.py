"""A load against the client that makes it: in what words it is told that the client, and not the server, was the limit."""

from collections.abc import Mapping
from typing import Any

from tui.core.counted import counted

LIMITED = "the client itself was the bottleneck: the server may do more, and latencies are partly the client's own"


def client_words(figures: Mapping[str, Any]) -> list[str]:
    """The warnings of a point that its client limited: what it ran out of, and what to do; nothing where it was no limit.

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
    return words or ([LIMITED] if figures.get("client_limited") else [])
