"""How a command's coroutine is run, if no terminal is needed (`tmux/test_signals.py` has the rest)."""

import asyncio
import gc
import os
import signal
import warnings
from typing import Any

import pytest

from tui.cli.signals import SIGNALS, play


async def main() -> int:
    raise AssertionError("it was to be interrupted before that")


class Interrupting(asyncio.DefaultEventLoopPolicy):
    """A signal comes while the event loop is being made."""

    def new_event_loop(self) -> Any:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the signal comes first")


def test_a_signal_before_the_loop_runs_ends_it_without_a_word() -> None:
    """Nothing says that a coroutine was never awaited."""
    before = {signal_number: signal.getsignal(signal_number) for signal_number in SIGNALS}
    assert before[signal.SIGINT] is signal.default_int_handler
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        asyncio.set_event_loop_policy(Interrupting())
        try:
            with pytest.raises(KeyboardInterrupt):
                play(main())
        finally:
            asyncio.set_event_loop_policy(None)
        gc.collect()
    assert [str(warning.message) for warning in said] == []
    assert {signal_number: signal.getsignal(signal_number) for signal_number in SIGNALS} == before


def test_the_exit_code_and_a_failure_come_through() -> None:
    async def code() -> int:
        return 7

    async def fails() -> int:
        raise OSError("it failed")

    async def interrupted() -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()
        return 0

    assert play(code()) == 7
    with pytest.raises(OSError, match="it failed"):
        play(fails())
    with pytest.raises(KeyboardInterrupt):
        play(interrupted())
