"""What must be known beside the figures of a point: a word or two for its row, what failed in it, what to mind."""

from collections.abc import Iterator

from tui.core.benchmark import Point, Result
from tui.core.benchmark_open import asked_rate, is_late
from tui.core.counted import counted
from tui.wire.metrics import P99_SAMPLES

TOO_SHORT = "too short"
"""How the warning of a point with too few requests for its p99 begins."""


def streams(count: int) -> str:
    return counted(count, "stream")


def who(point: Point) -> str:
    """How a point is called."""
    asked = asked_rate(point)
    name = streams(point.concurrency) if asked is None else f"{asked:g} requests/s"
    return f"{name} ({point.figures['repeat']})" if point.figures.get("repeat") else name


def remark(point: Point) -> str:
    """Beside its row; empty where there is nothing to mind."""
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
        words.append(f"{foreign} foreign")
    if figures.get("incomplete"):
        words.append(f"{figures['incomplete']} incomplete")
    if figures.get("stopped_early"):
        words.append(f"{figures['stopped_early']} ended early")
    return ", ".join(words)


def failures(result: Result) -> Iterator[str]:
    """`8 streams: 3 × http_500: EngineCore died`, for each kind of failure of each point, with the server's first words."""
    for point in result.points:
        for kind, count in (point.figures.get("errors_by_kind") or {}).items():
            examples = point.figures.get("error_examples") or ()
            example = next((str(one.get("message")) for one in examples if isinstance(one, dict) and one.get("kind") == kind), "")
            yield f"{who(point)}: {count} × {kind}: {example}"


def warnings(result: Result) -> Iterator[str]:
    """The warnings of all points, those of too few requests for a p99 in one at the end."""
    for point in result.points:
        for warning in point.figures.get("warnings") or ():
            if not str(warning).startswith(TOO_SHORT):
                yield f"{who(point)}: {warning}"
    short = [
        f"{who(point)} had {point.figures['completed']:,}"
        for point in result.points
        if point.figures.get("completed") and not point.figures.get("p99_supported", True)
    ]
    if short:
        yield f"too short for a p99, which needs {P99_SAMPLES} requests: " + ", ".join(short)
