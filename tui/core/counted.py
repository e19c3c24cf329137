"""A number and what it counts."""


def counted(number: float, one: str, many: str = "") -> str:
    """`1 run`, `2 runs`, `1,204 runs`, `0 runs`; `many` where it is not `one` with an s."""
    return f"{number:,.0f} {one if number == 1 else many or one + 's'}"
