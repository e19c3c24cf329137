"""Figures keep their width, so nothing on the screen moves."""

import pytest

from tui.core.deployment import DeploymentState
from tui.core.logs.load_state import LoadState, Phase, PhaseSpan
from tui.core.presentation import gib
from tui.widgets.phase_view import total_words


@pytest.mark.parametrize(
    ("mib", "text"),
    [
        (None, "—"),
        (0.0, "0.00"),
        (96_733.0, "94.47"),
        (102_394.0, "99.99"),
        (138_397.0, "135.2"),
        (1_023_900.0, "999.9"),
        (2_097_152.0, "2,048"),
    ],
)
def test_gib_is_five_wide_at_most(mib: float | None, text: str) -> None:
    assert gib(mib) == text
    assert len(text) <= 5


def test_the_clock_stops_with_a_start_that_failed() -> None:
    load = LoadState(
        phase=Phase.FAILED,
        started_at=100.0,
        phases=(PhaseSpan(Phase.LOADING, 100.0, 63.0), PhaseSpan(Phase.FAILED, 163.0, None)),
    )
    state = DeploymentState(name="kimi", target="gpu-box", load=load)
    assert total_words(state).plain == "1:03"
