"""What a command says at its end, where somebody still hears it: a terminal may have been closed, a pipe's reader left, a disk be
full."""

import contextlib
import errno
import os
import select
import sys
from typing import TextIO

from tui.core.gone import GONE

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What writing fails with where nothing more fits."""


def last_words(message: str) -> None:
    """Says the message on stderr, cleaned: it may quote a server, a host or a log. Neither now nor when the interpreter ends does a
    stream that is gone fail for it."""
    with contextlib.suppress(OSError, ValueError):
        if message and sys.stderr is not None:
            from tui.core.text import clean

            print(clean(message, keep_newlines=True), file=sys.stderr, flush=True)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and (_gone(stream) or not _flushes(stream)):
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


def no_room(error: BaseException) -> str | None:
    """What can't be written and why, where the error tells of stdout or stderr on a disk that is full, and what was noted with it;
    None where it tells of something else."""
    if isinstance(error, BaseExceptionGroup):
        return next((words for one in error.exceptions if (words := no_room(one)) is not None), None)
    if not isinstance(error, OSError) or error.errno not in NO_ROOM or error.filename is not None:
        return None
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        if stream is not None and not (_flushes(stream) and _takes_more(stream)):
            return "\n  ".join([f"{name} can't be written: {error.strerror}", *getattr(error, "__notes__", ())])
    return None


def _flushes(stream: TextIO) -> bool:
    """Whether what is still buffered could be written."""
    try:
        stream.flush()
    except OSError:
        return False
    except ValueError:  # closed: nothing is
        pass
    return True


def _takes_more(stream: TextIO) -> bool:
    """Whether one byte more can be written: what is larger than the buffer is not in it any more once it failed."""
    try:
        os.write(stream.fileno(), b"\n")
    except OSError:
        return False
    except ValueError:
        pass
    return True


def _gone(stream: TextIO) -> bool:
    """Whether whoever had the other end of it has left (poll(2) tells of that though it is asked for nothing)."""
    poll = select.poll()
    try:
        poll.register(stream.fileno(), 0)
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return True
