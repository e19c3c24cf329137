"""Words that several screens and commands share: durations, counts, names of phases, what to do next."""

import time

import pytest
import scenes
from textual.content import Content

from tui.cli.status import status_lines
from tui.core.gpu_groups import next_steps
from tui.core.logs.load_state import Phase
from tui.core.presentation import NAMES, clock, counted, name_of
from tui.screens.load_report import report_rows
from tui.widgets.failure_view import failure_body


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0:00"), (59.4, "0:59"), (59.6, "1:00"), (2191.5, "36:32"), (3599.7, "1:00:00"), (-3, "0:00")]
)
def test_a_duration_is_rounded_alike_everywhere(seconds: float, words: str) -> None:
    assert clock(seconds) == words


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 warnings"), (1, "1 warning"), (2, "2 warnings"), (1204, "1,204 warnings"), (1.0, "1 warning")]
)
def test_one_of_a_thing_is_one(number: float, words: str) -> None:
    assert counted(number, "warning") == words


def test_a_phase_has_one_name() -> None:
    assert all(len(name) <= 9 for name in NAMES.values())
    assert name_of(Phase.POST_LOADING) == name_of("post_loading") == "post-load"
    assert name_of("of_another_version") == "of another version"


def test_report_pane_and_status_give_the_same_advice() -> None:
    state = scenes.SCENES["dead"](time.monotonic())
    steps = next_steps(state)
    assert len(steps) == 2
    told = ["".join(span.text for span in row) for row in report_rows(state)]
    pane = " ".join(" ".join(part.plain.split()) for part in failure_body(state, 200, 40, "l") if isinstance(part, Content))
    for step in steps:
        assert f"  {step}" in told
        assert step in pane
        assert any(step in line for line in status_lines(state))
