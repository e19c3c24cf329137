"""A length of time as an option takes it, the same for every command."""

import re
from typing import Any

import click

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
LONGEST_S = 1e7


class Duration(click.ParamType[float]):
    """Seconds, or `300ms`, `90s`, `45m`, `1h30m`, `2d`; above 0 unless `zero` is allowed, 1e7 s at most."""

    name = "time"

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip().lower()
        parts = re.findall(r"(\d+(?:\.\d*)?|\.\d+)(ms|[smhd]?)", text, re.ASCII)
        if not parts or "".join(number + unit for number, unit in parts) != text or any(not unit for _, unit in parts[:-1]):
            self.fail(f"{value!r} is no length of time: write 90, 90s, 45m or 1h30m", param, ctx)
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
        if seconds > LONGEST_S or not (seconds or self._zero):
            self.fail(
                f"{value!r} must be {'' if self._zero else 'above 0 and '}no longer than {LONGEST_S / 86400:.0f} days", param, ctx
            )
        return seconds
