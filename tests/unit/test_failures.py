"""Which of several errors speaks."""

import asyncio

import pytest

from tui.cli.exit_message import ExitCode, explain
from tui.host.base import Refused, Unreachable

LOST = Unreachable("the link is dead", "try again")


@pytest.mark.parametrize(
    ("errors", "code", "words"),
    [
        ([LOST], ExitCode.UNREACHABLE, "the link is dead\n  try again"),
        ([asyncio.CancelledError(), LOST], ExitCode.UNREACHABLE, "the link is dead"),
        ([BaseExceptionGroup("", [asyncio.CancelledError()]), Refused("no such key")], ExitCode.REFUSED, "no such key"),
        ([BaseExceptionGroup("", [asyncio.CancelledError(), LOST]), Refused("later")], ExitCode.UNREACHABLE, "the link is dead"),
    ],
)
def test_the_first_cause_that_is_no_cancellation_speaks(errors: list[BaseException], code: int, words: str) -> None:
    told = explain(BaseExceptionGroup("several", errors))
    assert told[0] == code
    assert words in told[1]
