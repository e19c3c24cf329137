"""The screen's terminal, which may be closed, lost with its login, or stopped and continued at any moment.

Textual's own driver is made for a terminal that stays: it takes every SIGCONT for the end of a suspension, though a hang-up sends
one too (after SIGHUP), and starts an input thread that nothing ends any more; it reads a hung-up terminal as fast as it can; and
its output thread ends with the first failing write, after which the 31st one waits for ever.
"""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

from textual.drivers.linux_driver import LinuxDriver

from tui.core.connection import GONE

if TYPE_CHECKING:
    from textual.app import App

HUNG_UP = 130
"""The app's return code if its terminal went away: as after a signal."""


class Output:
    """The terminal to write to; what nobody can see any more is dropped."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with _gone_is_fine():
            self._file.write(text)

    def flush(self) -> None:
        with _gone_is_fine():
            self._file.flush()

    def fileno(self) -> int:
        return self._file.fileno()


def _terminal() -> IO[str]:
    """Return the terminal to draw on: standard error, as in Textual, or standard output if that is redirected (`2> FILE`)."""
    streams = [stream for stream in (sys.__stderr__, sys.__stdout__) if stream is not None]
    return next((stream for stream in streams if stream.isatty()), streams[0])


@contextlib.contextmanager
def _gone_is_fine() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in GONE:
            raise


class TerminalDriver(LinuxDriver):
    """Leaves the app, with HUNG_UP, once the terminal is gone; takes a SIGCONT for what it is."""

    def __init__(self, app: "App[Any]", *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        shown_on = _terminal()
        self._file = Output(shown_on)  # type: ignore[assignment]  # all that Textual's output thread asks of a file
        self._shown = False
        self._hang_up: select.epoll | None = None

    def start_application_mode(self) -> None:
        self._watch_for_hang_up()
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self._shown = True

    def stop_application_mode(self) -> None:
        self._shown = False
        super().stop_application_mode()

    def close(self) -> None:
        self._forget_hang_up()
        super().close()

    # -- gone ----------------------------------------------------------------------------------------------------------------------

    def _watch_for_hang_up(self) -> None:
        """Not by reading: that is the input thread's. Asked for no event, epoll still tells of a hang-up (epoll_ctl(2))."""
        if sys.platform != "linux" or self._hang_up is not None or not os.isatty(self.fileno):
            return
        self._hang_up = select.epoll()
        self._hang_up.register(self.fileno, 0)
        self._loop.add_reader(self._hang_up.fileno(), self._hung_up)

    def _forget_hang_up(self) -> None:
        if self._hang_up is not None:
            self._loop.remove_reader(self._hang_up.fileno())
            self._hang_up.close()
            self._hang_up = None

    def _hung_up(self) -> None:
        self._forget_hang_up()
        self._app.exit(return_code=HUNG_UP)

    # -- stopped and continued -----------------------------------------------------------------------------------------------------

    def _sigtstp_application(self, *_: object) -> None:
        if self._shown:
            super()._sigtstp_application()
        else:
            os.kill(os.getpid(), signal.SIGSTOP)

    def _sigcont_application(self, *_: object) -> None:
        """Schedule the redraw in the event loop: the main thread may hold the very queue that the screen is written to."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._continued)

    def _continued(self) -> None:
        if not self._auto_restart or self._gone():
            return
        if self._shown:  # it was stopped by SIGSTOP, or not at all: nothing was taken down, but others may have written
            self.suspend_application_mode()
            self._must_signal_resume = True
        if self._must_signal_resume:
            self.resume_application_mode()
            self._app.refresh()

    def _gone(self) -> bool:
        poll = select.poll()
        poll.register(self.fileno, 0)
        return bool(poll.poll(0))
