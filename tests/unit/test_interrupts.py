"""How a command's coroutine is run, if no terminal is needed (`tmux/test_signals.py` has the rest)."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
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


@pytest.mark.parametrize("module", ["tui.cli.main", "click", "tui.cli.runs"])
def test_a_signal_while_the_modules_are_imported(module: str, tmp_path: Path) -> None:
    """A slow import of that module is ended without a traceback, whichever it is."""
    slow = (
        "import runpy, signal, sys\n"
        "class Slow:\n"
        "    def find_spec(self, name, *more):\n"
        f"        if name == {module!r}:\n"
        "            print('importing', flush=True)\n"
        "            while True: signal.pause()\n"
        "sys.meta_path.insert(0, Slow())\n"
        "sys.argv = ['readyroom', 'runs']\n"
        "runpy.run_module('tui', run_name='__main__')\n"
    )
    environment = {**os.environ, "HOME": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", slow], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said.lstrip("\n")) == (130, "readyroom: interrupted\n")


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
