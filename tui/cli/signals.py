"""SIGINT, SIGTERM and SIGHUP end a command in order: what runs is cancelled in the event loop, and closes what it opened."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import Any


class Interrupted(Exception):
    """What runs has been ended by a signal, in its own way."""


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_softer: list[Callable[[], object]] = []


def play(main: Coroutine[Any, Any, int]) -> int:
    """Run a command's coroutine and return its exit code. Raises KeyboardInterrupt after the end if a signal ended it.

    Not by raising from a signal handler: that would surface in whichever task runs at the moment, or within the loop itself.
    A SIGHUP that is ignored stays so: that is what `nohup` asks for. A terminal that is closed sends more than one: these are no
    second wish, which would cut short what is being closed.
    """
    interrupted = hung_up = False

    async def ended_by_signals() -> int:
        nonlocal interrupted
        task = asyncio.current_task()
        assert task is not None

        def end(number: signal.Signals) -> None:
            nonlocal interrupted, hung_up
            if number == signal.SIGHUP:
                if hung_up:
                    return
                hung_up = True
            if _softer:
                _softer.pop()()
            else:
                interrupted = True
                task.cancel()

        for number in before:
            asyncio.get_running_loop().add_signal_handler(number, end, number)
        return await main

    watched = ended_by_signals()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    if before[signal.SIGHUP] is signal.SIG_IGN:
        del before[signal.SIGHUP]
    try:
        return asyncio.run(watched)
    except BaseException as error:
        if interrupted or isinstance(error, Interrupted):
            raise KeyboardInterrupt from None  # whatever failed on the way out: the user wanted it to end
        raise
    finally:
        for begun in (watched, main):
            begun.close()  # or not begun: a signal came before the loop ran
        for number, handler in before.items():  # the loop has put the default ones in their place
            signal.signal(number, handler)


@contextlib.contextmanager
def first_signal(does: Callable[[], object]) -> Iterator[None]:
    """Make the first of these signals call `does` in the event loop instead of ending the command; the second one ends it."""
    _softer.append(does)
    try:
        yield
    finally:
        if does in _softer:
            _softer.remove(does)
