"""What a command says at its end, where somebody still hears it: a terminal may have been closed, a pipe's reader left."""

import contextlib
import os
import select
import sys
from typing import TextIO

from tui.core.gone import GONE


def last_words(message: str) -> None:
    """Says the message on stderr, cleaned: it may quote a server, a host or a log. Neither now nor when the interpreter ends does a
    stream that is gone fail for it."""
    with contextlib.suppress(OSError, ValueError):
        if message and sys.stderr is not None:
            from tui.core.text import clean

            print(clean(message, keep_newlines=True), file=sys.stderr, flush=True)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and _gone(stream):
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())  # what is still buffered goes there
                os.close(nowhere)


def nobody_listens(error: BaseException) -> bool:
    """Whether it tells only that stdout or stderr can't be written any more."""
    if isinstance(error, BaseExceptionGroup):
        return any(nobody_listens(one) for one in error.exceptions)
    return (
        isinstance(error, OSError)
        and error.errno in GONE
        and any(stream is not None and _gone(stream) for stream in (sys.stdout, sys.stderr))
    )


def _gone(stream: TextIO) -> bool:
    """Whether whoever had the other end of it has left (poll(2) tells of that though it is asked for nothing)."""
    poll = select.poll()
    try:
        poll.register(stream.fileno(), 0)
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return True
