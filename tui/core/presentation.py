"""Numbers and what they count, lists and where they are cut."""

from collections.abc import Iterable
from itertools import islice
from statistics import median
from typing import Final

from tui.core.logs.load_state import Loader, LoadState, Phase


def some_of(names: Iterable[str], most: int = 8) -> str:
    """`a, b, c and 4,990 more`: what another side lists may have no end."""
    every = list(names)
    shown = ", ".join(islice(every, most))
    return f"{shown} and {len(every) - most:,} more" if len(every) > most else shown


def counted(number: float, one: str, many: str = "") -> str:
    """`1 run`, `2 runs`, `1,204 runs`, `0 runs`; `many` where it is not `one` with an s."""
    return f"{number:,.0f} {one if number == 1 else many or one + 's'}"


def clock(seconds: float) -> str:
    """`m:ss`, from an hour on `h:mm:ss`; nothing below zero. `seconds` is finite."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def one_of(bar: Loader) -> str:
    """`shard`, `tensor`."""
    return bar.unit.removesuffix("s")


def amounts(bar: Loader) -> tuple[str, str]:
    """Done and total: `14` and `64`, `2.8` and `8.4 GB`."""
    if bar.unit == "bytes":
        return f"{bar.done / 1e9:.1f}", f"{bar.total / 1e9:.1f} GB"
    return f"{bar.done:,.0f}", f"{bar.total:,.0f}"


def how_far(bar: Loader) -> str:
    """`14 of 64 shards`, `2.8 of 8.4 GB`."""
    done, total = amounts(bar)
    return f"{done} of {total}" + ("" if bar.unit == "bytes" else f" {bar.unit}")


def brief(bar: Loader) -> str:
    """`14/64`, `2.8/8.4 GB`."""
    return "/".join(amounts(bar))


def gigabytes_s(bar: Loader) -> float | None:
    """GB a second since a bar of bytes began; None where that is not known."""
    if bar.unit != "bytes" or bar.started_at is None or bar.last_at is None or bar.last_at <= bar.started_at or not bar.done:
        return None
    return bar.done / 1e9 / (bar.last_at - bar.started_at)


NAMES: Final[dict[Phase, str]] = {
    Phase.STARTING: "starting",
    Phase.DOWNLOADING: "download",
    Phase.LOADING: "loading",
    Phase.POST_LOADING: "post-load",
    Phase.COMPILING: "compile",
    Phase.PROFILING: "profile",
    Phase.KV_CACHE: "KV cache",
    Phase.CAPTURING: "capture",
    Phase.WARMING_UP: "warm-up",
}
"""The phases of a start, in the order that most versions have; at most nine characters each."""


def name_of(phase: Phase | str) -> str:
    """The name; a word that is no phase (of a record that another version wrote) stays as it is."""
    known = phase if isinstance(phase, Phase) else next((one for one in Phase if one.value == phase), None)
    return NAMES.get(known, known.value.replace("_", " ")) if known is not None else phase.replace("_", " ")


_WORDS: dict[Phase, str] = {
    Phase.STARTING: "starting: imports and configuration",
    Phase.DOWNLOADING: "downloading weights",
    Phase.LOADING: "loading weights",
    Phase.POST_LOADING: "processing weights after the load; silent for minutes on large quantised models",
    Phase.COMPILING: "compiling; silent for up to 5 minutes",
    Phase.PROFILING: "profiling memory",
    Phase.KV_CACHE: "allocating the KV cache",
    Phase.CAPTURING: "capturing CUDA graphs",
    Phase.WARMING_UP: "warming up kernels; often 1 to 2 minutes without a line",
}


def words_of(load: LoadState) -> str:
    if load.phase is Phase.CAPTURING and load.capture is not None:
        return f"capturing CUDA graphs, {load.capture.done:.0f} of {load.capture.total:.0f}"
    if load.phase is Phase.LOADING and load.shards is None:
        return "loading begins; a download shows nothing here"
    return _WORDS.get(load.phase, load.phase.value)


def steadiness(bar: Loader, step: float) -> str:
    steps = bar.step_seconds[1:][-8:]
    if len(steps) < 3:
        return "first steps"
    spread = median(abs(one - step) for one in steps)
    return "steady" if spread <= 0.25 * step else "uneven"


def unit(bar: Loader | None) -> str:
    return {"tensors": "tensor", "bytes": "byte"}.get(bar.unit, "shard") if bar else "shard"


def pace(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2f} s"


def words(seconds: float | None) -> str:
    """Seconds as a person says them: 45 s, 12 min, 1 h 05 min."""
    if seconds is None:
        return "—"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def against(behind: float | None) -> str:
    if behind is None:
        return ""
    if abs(behind) < 10:
        return "as usual"
    return f"{words(abs(behind))} {'behind' if behind > 0 else 'ahead of'} the usual"
