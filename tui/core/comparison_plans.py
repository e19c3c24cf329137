"""What makes two benchmarks hard to compare: what was asked for differently, the model, the vantage."""

import json
from dataclasses import fields
from typing import Any

from tui.core.benchmark import Plan, Result
from tui.core.text import clean

UNTOLD = frozenset(
    {
        "concurrency",  # the points are told apart by it
        "model",  # the served one is compared
        "vantage",  # the one that it came to is compared
        "request_rate",  # said below, and the points are told apart by it
        "headers",
        "max_failures",
        "stop_at_knee",
        "repeat_first",
        "save",
        "save_detailed",
        "verify_tls",
        "stall_s",
    }
)
"""Fields of a plan that do not change what a point measures, or are compared otherwise."""
VALUE_LENGTH = 60


def differences(before: Result, after: Result) -> tuple[str, ...]:
    """What makes two runs hard to compare, one line each: everything that was asked for differently, the model, the vantage."""
    found = []
    one, two = before.plan, after.plan
    pairs: list[tuple[str, Any, Any]] = [
        ("request rate", one.request_rate, two.request_rate),
        *(
            (_words(field.name), getattr(one, field.name), getattr(two, field.name))
            for field in fields(Plan)
            if field.name not in UNTOLD
        ),
        ("headers", sorted(one.headers), sorted(two.headers)),
        ("vantage", before.vantage.value, after.vantage.value),
        ("model", before.model, after.model),
    ]
    for what, ours, theirs in pairs:
        if ours != theirs:
            verb = "differ" if what.endswith(("tokens", "ids", "requests", "workers", "headers", "seconds")) else "differs"
            found.append(f"{what} {verb}: {_shown(ours)} and {_shown(theirs)}")
    return tuple(found)


def _words(name: str) -> str:
    """`duration in s`, `input tokens`: a field of a plan."""
    base, _, unit = name.rpartition("_")
    return f"{base} in s".replace("_", " ") if unit == "s" else name.replace("_", " ")


def _shown(value: Any) -> str:
    if value is None or value in ({}, []):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str))
    return text if len(text) <= VALUE_LENGTH else text[: VALUE_LENGTH - 1] + "…"
