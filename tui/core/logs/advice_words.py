"""What the writers of advice share."""

import re
from collections.abc import Callable

from tui.core.logs.course import Course
from tui.core.logs.failures import Finding

Writer = Callable[[str, Course, Finding], str]
"""Text of the failure, the course of the start, the chosen cause -> advice."""

GIB = r"([\d.]+) ?Gi?B"


def find(pattern: str, text: str) -> re.Match[str] | None:
    """The first match, over line ends too."""
    return re.search(pattern, text, re.DOTALL)


def number(text: str | int) -> str:
    """43936 as 43,936."""
    return f"{int(text):,}"


def model_of(course: Course) -> str:
    """The model's name as the log has it."""
    return course.model or "the model"
