"""The load as a report: the verdict first, the cause with advice and the lines around it, the time line, the facts."""

import time
from datetime import timedelta, timezone
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.events import Resize
from textual.reactive import var
from textual.widgets import Static

from tui.actions import BY_ID, binding
from tui.core.deployment import DeploymentState
from tui.core.gpu_groups import next_steps
from tui.core.logs.log_report import Row, lines
from tui.core.logs.log_report import plain as as_text
from tui.messages import ReportRequested, TextCopied
from tui.screens.dialogs import Modal
from tui.widgets.canvas import NOTHING, in_16_colours, in_ascii
from tui.widgets.draw import BE, BG, BP, BW, QUIET, label, line, rows
from tui.widgets.key_bar import key_of

AROUND = (3, 4)
INKS = {"title": BP, "good": BG, "warn": BW, "bad": BE, "label": QUIET, "value": "", "dim": QUIET}


def _zone(at: float) -> timezone:
    """Return this machine's time zone at that moment: other times of day on the screen use it too."""
    return timezone(timedelta(seconds=time.localtime(at).tm_gmtoff))


def report_rows(state: DeploymentState) -> tuple[Row, ...]:
    """Return the rows of the report for a live state; the lines around the cause are those that the pane still holds."""
    load = state.load
    if load is None:
        return ()
    at = load.failure.line if load.failure else None
    context: dict[int, str] = {}
    if at is not None:
        context = {
            held.number: held.text
            for held in state.log.lines
            if held.number is not None and at - AROUND[0] <= held.number <= at + AROUND[1]
        }
    zone = _zone(load.started_at if load.started_at is not None else time.time())
    return lines(
        load, state.forecast, context=sorted(context.items()), source=state.log.source, zone=zone, advice=next_steps(state)
    )


def drawn(report: tuple[Row, ...], width: int) -> Content:
    """Draw the rows in the screen's colours; a long line goes on below its own column."""
    out: list[Content] = []
    for row in report:
        # some terminals draw ▶ two cells wide
        text = line(*((span.text.replace("▶", "▸"), INKS[span.role]) for span in row))
        if text.cell_length <= width:
            out.append(text)
            continue
        indent = len(row[0].text) if len(row) > 1 and row[0].text.startswith("  ") else 4
        indent = min(indent, max(0, width // 3))
        first, *rest = text.wrap(width)
        out.append(first)
        if rest:
            out += [line(" " * indent, wrapped) for wrapped in Content(" ").join(rest).wrap(max(8, width - indent))]
    return rows(*out)


class LoadReport(Modal[None]):
    """Over the whole screen; it goes on with the load while it is open."""

    DEFAULT_CSS = """
    LoadReport { background: $background; }
    LoadReport > Vertical {
        border: round $primary; border-title-color: $foreground; border-subtitle-color: $foreground; padding: 0 1;
    }
    LoadReport VerticalScroll { scrollbar-size: 1 1; }
    LoadReport Static { width: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "close", "close"),
        binding(BY_ID["load_report"], "close"),
        binding(BY_ID["copy_cause"], "copy"),
        binding(BY_ID["export"], "export"),
        Binding("j", "move(1)", "down", show=False),
        Binding("k", "move(-1)", "up", show=False),
    ]

    state: var[DeploymentState] = var(NOTHING, init=False)

    def __init__(self, state: DeploymentState) -> None:
        super().__init__()
        self.set_reactive(LoadReport.state, state)
        self._shown: tuple[tuple[Row, ...], int] | None = None

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = line(f"Report on {self.state.name or self.state.target}")
            box.border_subtitle = line(label(" · ".join(self._keys())))
            with VerticalScroll():
                yield Static()

    def _keys(self) -> tuple[str, ...]:
        return f"{key_of(self, 'copy_cause')} copy", f"{key_of(self, 'export')} export", "esc close"

    def on_mount(self) -> None:
        for box in self.query(Vertical) if self.app.has_class("-ascii") else ():
            box.styles.border = ("ascii", "gray")
            box.border_subtitle = line(", ".join(self._keys()))
        self.call_after_refresh(self._draw)

    def on_resize(self, event: Resize) -> None:
        self.call_after_refresh(self._draw)

    def watch_state(self) -> None:
        self._draw()

    def _draw(self) -> None:
        parts = self.query("VerticalScroll > Static").results(Static)
        text = next(parts, None)
        if text is None or not isinstance(text.parent, VerticalScroll) or self.size.width < 8:
            return  # it has no parts yet, or they are gone already: states come all the time
        width = max(8, text.parent.size.width - 1)
        report = report_rows(self.state)
        if (report, width) == self._shown:
            return
        self._shown = (report, width)
        content = drawn(report, width)
        if self.app.current_theme.ansi:
            content = in_16_colours(content)
        if self.app.has_class("-ascii"):
            content = in_ascii(content)
        text.update(content)

    def action_move(self, by: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)

    def action_copy(self) -> None:
        self.post_message(TextCopied(as_text(report_rows(self.state)), "the report"))

    def action_export(self) -> None:
        self.post_message(ReportRequested())

    def action_close(self) -> None:
        self.dismiss()
