"""Exit codes, the same for every command (README "Headless" lists them)."""

from enum import IntEnum


class Exit(IntEnum):
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
    """All went well but for a file, or stdout, that could not be written in the end (sysexits' EX_CANTCREAT)."""
    INTERRUPTED = 130


class Fail(Exception):
    """Ends a command with a message on stderr and an exit code."""

    def __init__(self, code: Exit, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
