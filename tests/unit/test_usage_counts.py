"""Counts of tokens that a server tells: those that can be are taken, the others leave what is known."""

from typing import Any

import pytest

from tui.probe.load_stream import _count


@pytest.mark.parametrize(
    ("told", "known", "count"),
    [
        (17, None, 17),
        (0, 5, 0),
        (None, 5, 5),
        (-10, 5, 5),
        (True, 5, 5),
        ("17", 5, 5),
        (10**400, None, None),
        (2**31, 5, 5),
    ],
)
def test_a_count_of_tokens(told: Any, known: int | None, count: int | None) -> None:
    assert _count(told, known) == count
