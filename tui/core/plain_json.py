"""JSON that is sent on: what Python reads beyond the standard, or could not write again, is refused where it enters."""

import json
import math
from typing import Any

DEEPEST = 64
"""Levels of a value that is sent on: whoever reads it recurses through them, here, on the host and in the server."""


def read(text: str) -> Any:
    """The value of a JSON text. Raises ValueError for what is none, for NaN and infinity, and for what is nested too deeply."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    if (wrong := unfit(value)) is not None:
        raise ValueError(wrong)
    return value


TOO_DEEP = f"it is nested more than {DEEPEST} levels deep"


def unfit(value: Any) -> str | None:
    """Why a value that was read can't be sent as JSON; None where it can."""
    level = [value]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner.extend(one.values())
            elif isinstance(one, list):
                inner.extend(one)
            elif isinstance(one, float) and not math.isfinite(one):
                return "NaN and infinity are no JSON"
        if not inner:
            return None
        level = inner
    return TOO_DEEP
