"""Numbers as the screen writes them: fixed fields, three figures, a dash for what is not known."""

import math

from tui.core import durations

DASH = "—"
GIB = 1024.0
"""MiB in a GiB."""


def clock(seconds: float | None, tilde: bool = False) -> str:
    """A duration: `m:ss`, from an hour on `h:mm:ss`; `tilde` marks an expected one."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    return f"~{durations.clock(seconds)}" if tilde else durations.clock(seconds)


def three(value: float | None) -> str:
    """Three figures: 1.13, 14.6, 187, 4,012."""
    if value is None or not math.isfinite(value):
        return DASH
    if isinstance(value, int) or abs(value) >= 99.95:
        return f"{value:,.0f}"
    if value == 0:
        return "0"
    return f"{value:.2f}" if abs(value) < 9.995 else f"{value:.1f}"


def whole(value: float | None, unit: str = "") -> str:
    """A whole number with thousands: 96,733."""
    return DASH if value is None or not math.isfinite(value) else f"{value:,.0f}{unit}"


def gib(mib: float | None) -> str:
    """MiB as GiB at the width of 5: two decimals, one from 100 GiB on."""
    if mib is None:
        return DASH
    return f"{mib / GIB:.2f}" if mib < 99.995 * GIB else f"{mib / GIB:.1f}" if mib < 999.95 * GIB else f"{mib / GIB:,.0f}"


def percent(share: float | None) -> str:
    """A share (0 to 1) as a percentage with one decimal: `21.9 %`."""
    return DASH if share is None else f"{share * 100:.1f} %"


def age(seconds: float | None) -> str:
    """How long ago, in one unit or two: `12 s`, `3 min`, `2 h 05`, `3 d 04 h`."""
    if seconds is None:
        return DASH
    if seconds < 60:
        return f"{max(0, round(seconds))} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min"
    if seconds < 86400:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02}"
    return f"{int(seconds // 86400)} d {int(seconds % 86400 // 3600):02} h"


def change(now: float | None, before: float | None) -> str:
    """The change from `before` to `now` with its sign: `+33 %`, `−13 %`."""
    if now is None or not before:
        return DASH
    part = (now - before) / before * 100
    return f"{'+' if part >= 0 else '−'}{abs(part):.0f} %"
