"""SGLang's table, behind the same interface as vLLM's."""

from tui.core.logs.course import Course
from tui.core.logs.records import Line


def read(course: Course, line: Line) -> bool:
    """Reads a line of SGLang's; True where the table knows it."""
    return False
