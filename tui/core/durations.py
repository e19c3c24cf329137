"""Durations as a person reads them. Rounded to the nearest second, everywhere alike: one start takes one time on all screens."""


def clock(seconds: float) -> str:
    """`m:ss`, from an hour on `h:mm:ss`; nothing below zero. `seconds` is finite."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
