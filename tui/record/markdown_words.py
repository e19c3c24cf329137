"""Words and numbers in Markdown."""

from typing import Any


def escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    for sign in "\\`*_[]<>|":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", " ")


def number(value: Any, form: str) -> str:
    """A figure; a dash where it is not known."""
    return form.format(value) if isinstance(value, int | float) else "—"
