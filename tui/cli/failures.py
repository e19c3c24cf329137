"""What an error means to the user: an exit code and a message; a report file for what can only be a bug."""

import asyncio
import contextlib
import datetime
import os
import traceback
from pathlib import Path

import platformdirs

from tui import __version__
from tui.cli.exits import Exit
from tui.core.text import clean


def explain(error: BaseException) -> tuple[int, str]:
    """The exit code and the message for stderr."""
    from tui.host.base import HostError, Refused
    from tui.record.store import RecordError
    from tui.settings import SettingsError

    if isinstance(error, BaseExceptionGroup):
        # a task group's failure: the first cause that is not a mere cancellation speaks
        return explain(_first(error))
    if isinstance(error, KeyboardInterrupt):
        return Exit.INTERRUPTED, "readyroom: interrupted"
    if isinstance(error, SettingsError):
        return Exit.USAGE, str(error)
    if isinstance(error, RecordError):
        return Exit.NEGATIVE, f"readyroom: {clean(str(error))}"
    if isinstance(error, HostError):
        code = Exit.REFUSED if isinstance(error, Refused) else Exit.UNREACHABLE
        advice = f"\n  {clean(error.advice)}" if error.advice else ""
        return code, f"readyroom: {clean(error.cause)}{advice}"
    return Exit.BUG, f"readyroom: a bug: {type(error).__name__}. The report lies in {write_report(error)}"


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    causes = [_first(error) if isinstance(error, BaseExceptionGroup) else error for error in group.exceptions]
    return next((error for error in causes if not isinstance(error, asyncio.CancelledError)), causes[0])


def write_report(error: BaseException) -> Path:
    """Writes the traceback, without local values (they may hold secrets), to the state directory; returns the file."""
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
    """Where runs, saved benchmarks and reports belong; 0700."""
    path = platformdirs.user_state_path("readyroom")
    with contextlib.suppress(OSError):  # a read-only home: whoever writes there says so
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path
