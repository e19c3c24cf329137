"""A length of time on the command line."""

import click
import pytest

from tui.cli.bench import bench
from tui.cli.context import Duration
from tui.cli.wait import wait


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("90s", 90.0),
        ("300ms", 0.3),
        ("1s500MS", 1.5),
        ("0.5", 0.5),
        (".5m", 30.0),
        ("45m", 2700.0),
        ("1h30m", 5400.0),
        ("2D", 172800.0),
        (" 5m ", 300.0),
    ],
)
def test_what_it_means(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "-5", "5x", "1h 30m", "5 30", "1h,30m", "nan", "inf", "1e3", "0", "0s", "0h0m", "9999d"]
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Duration().convert(text, None, None)


def test_none_at_all_where_that_means_something() -> None:
    assert Duration(zero=True).convert("0s", None, None) == 0.0


def test_every_command_takes_the_same() -> None:
    lengths = {
        option.name
        for command in (bench, wait)
        for option in command.params
        if isinstance(option.type, Duration) and option.type.convert("1h30m", option, None) == 5400.0
    }
    assert lengths == {"duration", "soak", "stagger", "stall", "timeout_s", "grace_s"}
