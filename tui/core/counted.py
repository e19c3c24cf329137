"""Numbers and what they count, lists and where they are cut."""

from collections.abc import Iterable
from itertools import islice


def some_of(names: Iterable[str], most: int = 8) -> str:
    """`a, b, c and 4,990 more`: what another side lists may have no end."""
    every = list(names)
    shown = ", ".join(islice(every, most))
    return f"{shown} and {len(every) - most:,} more" if len(every) > most else shown


def counted(number: float, one: str, many: str = "") -> str:
    """`1 run`, `2 runs`, `1,204 runs`, `0 runs`; `many` where it is not `one` with an s."""
    return f"{number:,.0f} {one if number == 1 else many or one + 's'}"
