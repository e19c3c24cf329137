"""The smoke run: a line a prompt with its verdict, and the replies in full if there is room to read them."""

import time

from textual.content import Content

from tui.core.presentation import counted
from tui.core.smoke_prompts import Outcome, SmokeResult, SmokeRun
from tui.widgets.canvas import Canvas, drawn
from tui.widgets.draw import BG, BP, BW, QUIET, B, E, G, Part, W, fit, label, line, rows, short
from tui.widgets.key_bar import key_of

SIGNS = {Outcome.PASSED: ("✓", G), Outcome.FAILED: ("✗", E), Outcome.INCONCLUSIVE: ("▲", W)}
NAME = 13
TOOK = 7
ROOMY = 22
"""Rows of the screen from which every prompt has one of its own."""


def sum_line(run: SmokeRun | None, running: bool) -> Content | None:
    """Return the summary for the border: `5 of 6, 15:04`; None before the first run."""
    if run is None:
        return None
    passed = run.count(Outcome.PASSED)
    if running or not run.finished:
        return line(("◐ ", BP), label(f"{len(run.results)} of {run.planned}"))
    style = G if run.passed else E if run.count(Outcome.FAILED) else W
    when = time.strftime(", %H:%M", time.localtime(run.started_at)) if run.started_at is not None else ""
    return line((f"{passed} of {run.planned}", style), label(when))


def result_line(result: SmokeResult, width: int) -> Content:
    """`✓ arithmetic   391          0.9 s`."""
    sign, style = SIGNS[result.outcome]
    took = f"{result.seconds:.1f} s" if result.seconds is not None else "—"
    room = width - 2 - NAME - TOOK
    says = fit(result.says, max(0, room))
    tint = QUIET if result.outcome is Outcome.PASSED else style
    return line((f"{sign} ", style), fit(result.name, min(NAME, max(0, width - 2))), (says, tint), fit("", TOOK - len(took)), took)


def live_line(run: SmokeRun) -> Content:
    return line(("◐ ", BP), label(f"prompt {len(run.results) + 1} of {run.planned}"))


def smoke_lines(run: SmokeRun | None, running: bool, width: int, height: int, key: str) -> list[Content]:
    """Draw all prompts or, if they don't fit, those that did not pass and a count; `key` starts a run."""
    if run is None:
        return [line(label(f"{key} sends six prompts with known answers."))]
    live = [live_line(run)] if running and len(run.results) < run.planned else []
    if len(run.results) + len(live) <= height:
        return [*(result_line(result, width) for result in run.results), *live]
    worst = [result for result in run.results if result.outcome is not Outcome.PASSED]
    passed = run.count(Outcome.PASSED)
    rest = height - len(live) - (1 if passed else 0)
    shown = [result_line(result, width) for result in worst[: max(0, rest)]]
    return [*shown, *([line((f"✓ {passed} passed", G))] if passed else []), *live][:height]


def smoke_report(run: SmokeRun, width: int) -> Content:
    """Draw every prompt with its verdict and its reply, wrapped to the width."""
    out: list[Content | str] = []
    for result in run.results:
        out.append(result_line(result, width))
        for name, text in (
            ("asked", result.asked),
            ("reply", result.reply or ("—" if result.outcome is not Outcome.PASSED else "")),
        ):
            if text:
                told = Content(text[:1200]).wrap(max(8, width - 10))
                out += [line(label(f"  {name if i == 0 else '':<8}"), part) for i, part in enumerate(told[:8])]
                if len(told) > 8:
                    out.append(line(label(f"  {'':<8}… {counted(len(told) - 8, 'more line')}")))
        out.append("")
    return rows(*out)


class SmokePanel(Canvas):
    """`run` grows while it is `running`."""

    run: drawn[SmokeRun | None] = drawn(None)
    running: drawn[bool] = drawn(False)

    def note(self) -> Content | None:
        """Return the text of the pane's border."""
        return sum_line(self.run, self.running)

    def draw(self, width: int, height: int) -> Content:
        return rows(*smoke_lines(self.run, self.running, width, height, key_of(self, "smoke")))


class SmokeStrip(SmokePanel):
    """The run for screens that have no room for the panel; nothing before the first run.

    A row a prompt with its verdict and why; two rows where even that is too much.
    """

    DEFAULT_CSS = "SmokeStrip { height: 2; display: none; }"

    def watch_run(self) -> None:
        self.styles.height = self.run.planned + 1 if self.run is not None and self.app.size.height >= ROOMY else 2

    def draw(self, width: int, height: int) -> Content:
        run = self.run
        if run is None:
            return Content("")
        if height > run.planned:
            total = sum_line(run, self.running)
            head = line(label("smoke  "), total if total is not None else "")
            return rows(head, *smoke_lines(run, self.running, width, height - 1, key_of(self, "smoke")))
        parts: list[Part] = [label("smoke  ")]
        for result in run.results:
            sign, style = SIGNS[result.outcome]
            parts += [(f"{sign} ", style), f"{short(result.name, 12)}  "]
        if self.running:
            parts.append(("◐", BP))
        worst = next((result for result in run.results if result.outcome is Outcome.FAILED), None) or next(
            (result for result in run.results if result.outcome is Outcome.INCONCLUSIVE), None
        )
        if worst is None:
            second = line(("all passed", BG)) if run.passed else line(label("judging…" if self.running else "not all were asked"))
        else:
            style = E if worst.outcome is Outcome.FAILED else BW
            second = line(label("       "), (f"{worst.name}: ", B), (short(worst.says, max(1, width - 9 - len(worst.name))), style))
        return rows(line(*parts), second)
