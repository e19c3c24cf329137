"""GPUs of which the last sample is all that is known: greyed, with its age."""

from collections.abc import Iterable

from textual.content import Content, Span

from tui.core.gpu import GpuSample
from tui.widgets.figure import Moment
from tui.widgets.figures import BP, BW, QUIET, TRACK, Part
from tui.widgets.gpu_cells import Row
from tui.widgets.numbers import age
from tui.widgets.paint import runs

SELECTED = "bold reverse $primary"


def old_words(sample: GpuSample, moment: Moment) -> str:
    """`25 s old`, where the driver does not answer; empty for a sample of now."""
    return f"{age(moment.since(sample.received_at))} old" if sample.late else ""


def old_mark(sample: GpuSample, moment: Moment) -> Part:
    """The same with its sign, where "even" or "odd" would stand: what is old is neither."""
    told = old_words(sample, moment)
    return (f"○ {told}", BW) if told else ""


def greyed(one: Content) -> Content:
    """The line without its colours, but for what is selected; a bar still ends where it ended."""
    kept = {TRACK, SELECTED, BP}
    spans = []
    at = 0
    for text, styles in runs(one):
        mixed = any(isinstance(style, str) and style.endswith("%") for style in styles)
        own = next((style for style in styles if style in kept), None)
        spans.append(Span(at, at + len(text), own or (TRACK if mixed else QUIET)))
        at += len(text)
    return Content(one.plain, spans, strip_control_codes=False)


def as_last_seen(some: Iterable[Row]) -> list[Row]:
    """Rows greyed; a click still finds their GPUs."""
    return [Row(greyed(row.text), row.spots) for row in some]
