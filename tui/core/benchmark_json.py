"""A large document as JSON, piece by piece: what writes one lets others run in between, and never holds the whole text."""

import json
from collections.abc import Iterator
from typing import Any

from tui.core.benchmark import Result

SLICE = 64
"""Entries of an array in one piece: those of as many requests, some tens of milliseconds of work."""
MUCH = 300_000
"""So many gaps between tokens take about a second to write."""


def json_pieces(value: Any) -> Iterator[str]:
    """The pieces of what `json.dumps` would give; the keys of objects must be strings."""
    if isinstance(value, dict):
        yield "{"
        for number, (key, one) in enumerate(value.items()):
            yield f"{', ' if number else ''}{json.dumps(key)}: "
            yield from json_pieces(one)
        yield "}"
    elif isinstance(value, list | tuple) and any(isinstance(one, dict) for one in value):
        yield "["
        for number, one in enumerate(value):
            if number:
                yield ", "
            yield from json_pieces(one)
        yield "]"
    elif isinstance(value, list | tuple) and len(value) > SLICE:
        yield "["
        for at in range(0, len(value), SLICE):
            yield (", " if at else "") + json.dumps(value[at : at + SLICE])[1:-1]
        yield "]"
    else:
        yield json.dumps(value)


def recorded(result: Result) -> int:
    """How many requests have their arrays in a result."""
    return sum(len(point.detail["latencies"]) for point in result.points if point.detail)


def is_much(result: Result) -> bool:
    """Whether writing those arrays takes longer than anybody waits without a word."""
    return sum(len(gaps) for point in result.points if point.detail for gaps in point.detail.get("itls", ())) > MUCH
