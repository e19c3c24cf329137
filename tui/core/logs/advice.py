"""What to do about a failure, with the figures of this log in it."""

from tui.core.logs.course import Course
from tui.core.logs.failures import Verdictless


def advice(chosen: Verdictless, course: Course) -> str:
    """One or two sentences that name the flag or the command to try."""
    return ""
