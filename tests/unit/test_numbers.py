"""Figures keep their width, so nothing on the screen moves."""

import pytest

from tui.widgets.numbers import gib


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
