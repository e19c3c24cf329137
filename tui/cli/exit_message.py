"""Exit codes, the same for every command (README "Headless" lists them)."""

import asyncio
import contextlib
import datetime
import errno
import os
import select
import sys
import traceback
from enum import IntEnum
from pathlib import Path
from typing import TextIO

import platformdirs

from tui import __version__
from tui.core.connection import GONE
from tui.core.text import clean


class ExitCode(IntEnum):
    OK = 0
    NEGATIVE = 1
    """The command worked; its answer is no: a smoke prompt failed, too many requests failed, doctor found something."""
    USAGE = 2
    LOADING = 3
    FAILED = 4
    UNREACHABLE = 5
    TIMEOUT = 6
    STOPPED = 7
    REFUSED = 8
    BUG = 70
    NOT_SAVED = 73
    """All went well but for a file, or stdout, that could not be written (sysexits' EX_CANTCREAT)."""
    INTERRUPTED = 130


class Fail(Exception):
    """Ends a command with a message on stderr and an exit code."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def explain(error: BaseException) -> tuple[int, str]:
    """Return the exit code of an error and the message for stderr."""
    from tui.host.base import HostError, Refused
    from tui.record.store import RecordError
    from tui.settings import SettingsError

    if isinstance(error, BaseExceptionGroup):
        # a task group's failure: the first cause that is not a mere cancellation speaks
        return explain(_first(error))
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED, "readyroom: interrupted"
    if isinstance(error, SettingsError):
        return ExitCode.USAGE, str(error)
    if isinstance(error, RecordError):
        return ExitCode.NEGATIVE, f"readyroom: {clean(str(error))}"
    if isinstance(error, HostError):
        code = ExitCode.REFUSED if isinstance(error, Refused) else ExitCode.UNREACHABLE
        advice = f"\n  {clean(error.advice)}" if error.advice else ""
        return code, f"readyroom: {clean(error.cause)}{advice}"
    return ExitCode.BUG, f"readyroom: a bug: {type(error).__name__}. The report is in {write_report(error)}"


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    causes = [_first(error) if isinstance(error, BaseExceptionGroup) else error for error in group.exceptions]
    return next((error for error in causes if not isinstance(error, asyncio.CancelledError)), causes[0])


def write_report(error: BaseException) -> Path:
    """Write the traceback, without local values (they may hold secrets), to the state directory and return the file."""
    directory = state_directory() / "reports"
    text = "".join(traceback.format_exception(error))
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    path = directory / f"{stamp}-{os.getpid()}.txt"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(f"readyroom {__version__}\n\n{text}")
    except OSError as problem:
        return Path(f"(it could not be written: {problem})")
    return path


def state_directory() -> Path:
    """Return the directory of runs, saved benchmarks and reports, made with mode 0700."""
    path = platformdirs.user_state_path("readyroom")
    with contextlib.suppress(OSError):  # a read-only home: whoever writes there says so
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF, errno.EIO})
"""What writing fails with if nothing more fits, the stream is not open for writing, or the disk fails."""


def open_closed_streams() -> None:
    """Open the standard streams that were closed (`>&-`), which would be None, and their numbers those of the next files opened.

    Nothing comes from stdin then, and what is written to stderr is dropped. Writing to stdout fails: the output would be lost.
    """
    for number, (name, flags, mode) in enumerate(
        (("stdin", os.O_RDONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w"))
    ):
        if getattr(sys, name) is not None:
            continue
        opened = os.open(os.devnull, flags)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        os.set_inheritable(number, True)
        setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", errors="replace", closefd=False))


def last_words(message: str) -> None:
    """Print the message on stderr, cleaned, for it may quote a server, a host or a log.

    A stream that is gone does not fail for it, neither now nor when the interpreter ends.
    """
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
    """Return whether an error tells only that stdout or stderr can't be written any more."""
    if isinstance(error, BaseExceptionGroup):
        return any(nobody_listens(cause) for cause in error.exceptions)
    return (
        isinstance(error, OSError)
        and error.errno in GONE
        and any(stream is not None and _gone(stream) for stream in (sys.stdout, sys.stderr))
    )


def no_room(error: BaseException) -> str | None:
    """Return why stdout or stderr can't be written (a full disk, say), with what was noted with the error.

    Returns None for any other error.
    """
    if isinstance(error, BaseExceptionGroup):
        return next((words for cause in error.exceptions if (words := no_room(cause)) is not None), None)
    if not isinstance(error, OSError) or error.errno not in NO_ROOM or error.filename is not None:
        return None
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        if stream is not None and not (_flushes(stream) and _takes_more(stream)):
            why = "it is not open for writing" if error.errno == errno.EBADF else error.strerror
            return "\n  ".join([f"{name} can't be written: {why}", *getattr(error, "__notes__", ())])
    return None


def _flushes(stream: TextIO) -> bool:
    """Return whether what is still buffered could be written."""
    try:
        stream.flush()
    except OSError:
        return False
    except ValueError:  # closed: nothing is
        pass
    return True


def _takes_more(stream: TextIO) -> bool:
    """Return whether one byte more can be written: a write larger than the buffer leaves nothing in it when it fails."""
    try:
        os.write(stream.fileno(), b"\n")
    except OSError:
        return False
    except ValueError:
        pass
    return True


def _gone(stream: TextIO) -> bool:
    """Return whether the other end of a stream was closed (poll(2) tells of that though it is asked for nothing)."""
    poll = select.poll()
    try:
        poll.register(stream.fileno(), 0)
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return True
