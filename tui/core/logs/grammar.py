"""The registry of an engine's messages: first word of a message -> patterns and what to do.

Messages are found by their first word and then by a pattern, so that a serving log costs one look-up a line. File names and line
numbers move between releases and are not looked at.
"""

import re
from collections.abc import Callable

from tui.core.logs.log_records import Line
from tui.core.logs.start_parser import StartParser

Handler = Callable[[StartParser, "re.Match[str]", Line], None]
Rule = tuple[re.Pattern[str], Handler]

MESSAGES: dict[str, list[Rule]] = {}
"""First word of a message -> rules in order."""


def says(pattern: str, *words: str) -> Callable[[Handler], Handler]:
    """Registers a handler for messages that match the pattern from their start and begin with one of the words (by default the
    pattern's own first word)."""

    def register(handler: Handler) -> Handler:
        compiled = re.compile(pattern)
        for word in words or (pattern.split(" ", 1)[0].replace("\\", ""),):
            MESSAGES.setdefault(word, []).append((compiled, handler))
        return handler

    return register


def number(text: str) -> int:
    """1,234,567 as an integer."""
    return int(text.replace(",", ""))
