"""What must be known beside the figures of a point: a word or two for its row, what failed in it, what to mind."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tui.core.bench_result import Point, Result
from tui.core.presentation import counted
from tui.wire.summary import P99_SAMPLES

LIMITED = "the client itself was the bottleneck: the server may do more, and latencies are partly the client's own"


SHORT_S = 1.0
"""The kernel counts busy time in hundredths of a second: a shorter point tells nothing of it."""

STARVED_SHARE, STARVED_CORES = 0.1, 0.5
"""A machine of which less is idle has no core left for whoever is due to run: of all its cores, but no more than that."""


def client_words(figures: Mapping[str, Any]) -> list[str]:
    """Return the warnings of a point that its client or its machine limited: what ran out, and what to do about it.

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
        words.append(f"no idle core on the load generator's machine ({of}): everything there waited, perhaps the server too")
    return words


LATE_MEDIAN_MS = 10.0
LATE_P99_MS = 100.0
"""Requests that are sent later than that no longer come as asked; the timers of a busy machine stay below."""
LAST_S = 0.05
"""What was due so shortly before the end may be unsent in a load that kept its schedule."""


def load_name(point: Point) -> str:
    """Return `8`, `1 (again)`; of an open loop `8 req/s, Poisson`, `0.5 req/s, burstiness 0.2, at most 16 at once`."""
    rate = point.asked_rate
    if rate is None:
        name = str(point.concurrency)
    else:
        burstiness = point.get("burstiness")
        name = f"{rate:g} req/s"
        if burstiness is not None:
            name += ", Poisson" if burstiness == 1.0 else f", burstiness {burstiness:g}"
        if point.concurrency:
            name += f", at most {point.concurrency:,} at once"
    return f"{name} ({point.figures['repeat']})" if point.figures.get("repeat") else name


def never_sent(schedule: Sequence[float], figures: Mapping[str, Any]) -> int:
    """Return how many requests were due before the end and were not sent. `schedule` is in seconds after the beginning."""
    end = float(figures["duration"]) - LAST_S
    return max(0, sum(due <= end for due in schedule) - int(figures["num_prompts"]))


def is_late(figures: Mapping[str, Any]) -> bool:
    """Return whether an open loop fell behind its schedule."""
    median, p99 = figures.get("median_schedule_slip_ms"), figures.get("p99_schedule_slip_ms")
    late = (median is not None and median > LATE_MEDIAN_MS) or (p99 is not None and p99 > LATE_P99_MS)
    return late or bool(figures.get("unsent_requests"))


def late_words(figures: Mapping[str, Any], gate: int | None) -> str | None:
    """Return the warning of a load that fell behind its schedule: by how much, and what held it back; None if it did not.

    `gate` is the most requests that may be in flight; None is no limit.
    """
    if not is_late(figures):
        return None
    words = []
    if (median := figures.get("median_schedule_slip_ms")) is not None:
        p99 = figures.get("p99_schedule_slip_ms")
        words.append(f"sent late by {seconds(median)} in the median" + (f", {seconds(p99)} at p99" if p99 is not None else ""))
    if unsent := figures.get("unsent_requests"):
        words.append(f"{counted(unsent, 'request was', 'requests were')} due and never sent")
    return "the schedule was not kept: " + ", ".join(words) + f" ({_cause(figures, gate)})"


def _cause(figures: Mapping[str, Any], gate: int | None) -> str:
    peak = figures.get("peak_concurrency") or 0
    most = figures.get("client_most_streams")
    if most is not None and peak >= most and (gate is None or gate > most):
        return f"the client has at most {counted(most, 'stream')}"
    if gate is not None and peak >= gate:
        return f"at most {counted(gate, 'stream')} were allowed" if gate != 1 else "only 1 stream was allowed"
    return "the client was the limit: it, or its connections, could not keep up"


def seconds(milliseconds: float) -> str:
    """Return `840 ms`, `4.71 s`."""
    return f"{milliseconds:.0f} ms" if milliseconds < 999.5 else f"{milliseconds / 1000:.2f} s"


TOO_FEW = ("too few requests for a p99", "too short for its p99")
"""How the warning of a point with too few requests for its p99 begins; the second is that of runs recorded earlier."""


def streams(count: int) -> str:
    return counted(count, "stream")


def who(point: Point) -> str:
    """Return the name of a point in a sentence: `8 streams`, `1 stream (again)`, `4 requests/s`."""
    asked = point.asked_rate
    name = streams(point.concurrency) if asked is None else f"{asked:g} requests/s"
    return f"{name} ({point.figures['repeat']})" if point.figures.get("repeat") else name


def remark(point: Point) -> str:
    """Return the few words beside the row of a point; empty if there is nothing to say."""
    figures = point.figures
    words = []
    if figures.get("repeat"):
        words.append(str(figures["repeat"]))
    if figures.get("cut"):
        words.append("cut before its end")
    if is_late(figures):
        words.append("sent late")
    if figures.get("unsent_requests"):
        words.append(f"{figures['unsent_requests']:,} never sent")
    if figures.get("client_limited"):
        words.append("client was the limit")
    if foreign := figures.get("foreign_requests") or figures.get("foreign_running"):
        words.append(counted(foreign, "other request"))
    if figures.get("incomplete"):
        words.append(f"{figures['incomplete']} incomplete")
    if figures.get("stopped_early"):
        words.append(f"{figures['stopped_early']} ended early")
    return ", ".join(words)


def failures(result: Result) -> Iterator[str]:
    """Yield `8 streams: 3 × http_500: EngineCore died` for each kind of failure of each point, with the server's first words."""
    for point in result.points:
        for kind, count in (point.figures.get("errors_by_kind") or {}).items():
            examples = point.figures.get("error_examples") or ()
            of_kind = (example for example in examples if isinstance(example, dict) and example.get("kind") == kind)
            example = next((str(example.get("message")) for example in of_kind), "")
            yield f"{who(point)}: {count} × {kind}: {example}"


def warnings(result: Result) -> Iterator[str]:
    """Yield the warnings of all points; those of too few requests for a p99 share one at the end."""
    for point in result.points:
        for warning in point.figures.get("warnings") or ():
            if not str(warning).startswith(TOO_FEW):
                yield f"{who(point)}: {warning}"
    short = [
        f"{who(point)} had {point.figures['completed']:,}"
        for point in result.points
        if point.figures.get("completed") and not point.figures.get("p99_supported", True)
    ]
    if short:
        yield f"{TOO_FEW[0]}, which needs {P99_SAMPLES}: " + ", ".join(short)
