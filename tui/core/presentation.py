"""How values are written for people: numbers, durations, phases, progress, verdicts, failures.

The screen, the commands, the reports and the remarks of JSON documents all write them with these. What is not known is a dash.
"""

import math
from collections.abc import Iterable
from itertools import islice
from statistics import median
from typing import Final

from tui.core.gpu import GIB_MIB
from tui.core.logs.load_state import Failure, Forecast, Loader, LoadState, Phase, Verdict

DASH: Final = "—"

# -- numbers -----------------------------------------------------------------------------------------------------------------------


def counted(number: float, one: str, many: str = "") -> str:
    """Return a number and its noun: `1 run`, `2 runs`, `1,204 runs`; `many` is the plural if it is not `one` with an s."""
    return f"{number:,.0f} {one if number == 1 else many or one + 's'}"


def some_of(names: Iterable[str], most: int = 8) -> str:
    """Return `a, b, c and 4,990 more`: what another side lists may have no end."""
    every = list(names)
    shown = ", ".join(islice(every, most))
    return f"{shown} and {len(every) - most:,} more" if len(every) > most else shown


def three(value: float | None) -> str:
    """Return a number with three significant figures: 1.13, 14.6, 187, 4,012."""
    if value is None or not math.isfinite(value):
        return DASH
    if isinstance(value, int) or abs(value) >= 99.95:
        return f"{value:,.0f}"
    if value == 0:
        return "0"
    return f"{value:.2f}" if abs(value) < 9.995 else f"{value:.1f}"


def whole(value: float | None, unit: str = "") -> str:
    """Return a whole number with thousands separated: 96,733."""
    return DASH if value is None or not math.isfinite(value) else f"{value:,.0f}{unit}"


def gib(mib: float | None) -> str:
    """Return MiB as GiB in five characters at most: two decimals, one from 100 GiB on."""
    if mib is None:
        return DASH
    size = mib / GIB_MIB
    return f"{size:.2f}" if size < 99.995 else f"{size:.1f}" if size < 999.95 else f"{size:,.0f}"


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share from 0 to 1 as a percentage: `21.9 %`."""
    return DASH if share is None else f"{share * 100:.{digits}f} %"


def change(now: float | None, before: float | None) -> str:
    """Return the change from `before` to `now` with its sign: `+33 %`, `−13 %`."""
    if now is None or not before:
        return DASH
    share = (now - before) / before
    return f"{'+' if share >= 0 else '−'}{percent(abs(share), 0)}"


# -- times, in seconds -------------------------------------------------------------------------------------------------------------


def clock(seconds: float | None, tilde: bool = False) -> str:
    """Return `m:ss`, from an hour on `h:mm:ss`, never below zero; `tilde` marks an expected duration."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    minutes, left = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return ("~" if tilde else "") + (f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}")


def duration(seconds: float | None) -> str:
    """Return a measured duration: 0.43 s, 5.3 s, 61 s, 4 min 05 s, 1 h 02 min."""
    if seconds is None:
        return DASH
    if seconds < 10:
        return pace(seconds)
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes} min {left:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def about(seconds: float | None) -> str:
    """Return a rough duration in its greatest unit, or in two: 45 s, 12 min, 1 h 05 min, 3 d 04 h."""
    if seconds is None:
        return DASH
    if seconds < 90:
        return f"{max(0.0, seconds):.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h {minutes % 60:02d} min" if hours < 24 else f"{hours // 24} d {hours % 24:02d} h"


def ready_text(forecast: Forecast) -> str:
    """Return `ready in about 3 min (2 min to 5 min)`; "" if there is no estimate."""
    if forecast.ready_eta_s is None:
        return ""
    low, high = about(forecast.ready_low_s), about(forecast.ready_high_s)
    known = forecast.ready_low_s is not None and forecast.ready_high_s is not None and low != high
    return f"ready in about {about(forecast.ready_eta_s)}" + (f" ({low} to {high})" if known else "")


def age(seconds: float | None) -> str:
    """Return how long ago something was in eight characters at most: 45 s, 12 min, 2 h 05, 3 d 04 h, 12 d."""
    if seconds is not None and seconds >= 10 * 86400:
        return f"{seconds / 86400:.0f} d"
    told = about(seconds)
    return told.removesuffix(" min") if " h " in told else told


def pace(seconds: float) -> str:
    """Return the seconds that a step takes: `34.0 s`, `0.43 s`."""
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2f} s"


def steadiness(bar: Loader, step: float) -> str:
    """Return how much the latest steps differ from the usual one, in a word or two."""
    steps = bar.step_seconds[1:][-8:]
    if len(steps) < 3:
        return "first steps"
    spread = median(abs(seconds - step) for seconds in steps)
    return "steady" if spread <= 0.25 * step else "uneven"


def against(behind: float | None) -> str:
    """Return how far behind the usual time a start is; "" if that is not known."""
    if behind is None:
        return ""
    if abs(behind) < 10:
        return "as usual"
    return f"{about(abs(behind))} {'later' if behind > 0 else 'earlier'} than usual"


# -- progress ----------------------------------------------------------------------------------------------------------------------


def one_of(bar: Loader) -> str:
    """Return what a bar counts, in the singular: `shard`, `tensor`."""
    return bar.unit.removesuffix("s")


def sizes(done: float, total: float) -> tuple[str, str]:
    """Return two sizes in bytes, in the unit of the greater: `2.8` and `8.4 GB`, `41` and `412 MB`."""
    unit, scale = ("GB", 1e9) if total >= 1e9 else ("MB", 1e6)
    digits = 1 if total < 100 * scale else 0
    return f"{done / scale:,.{digits}f}", f"{total / scale:,.{digits}f} {unit}"


def amounts(bar: Loader) -> tuple[str, str]:
    """Return done and total: `14` and `64`, `2.8` and `8.4 GB`."""
    if bar.unit == "bytes":
        return sizes(float(bar.done), float(bar.total))
    return f"{bar.done:,.0f}", f"{bar.total:,.0f}"


def how_far(bar: Loader) -> str:
    """Return `14 of 64 shards`, `2.8 of 8.4 GB`."""
    done, total = amounts(bar)
    return f"{done} of {total}" + ("" if bar.unit == "bytes" else f" {bar.unit}")


def brief(bar: Loader) -> str:
    """Return `14/64`, `2.8/8.4 GB`."""
    return "/".join(amounts(bar))


def gigabytes_s(bar: Loader) -> float | None:
    """Return GB a second since a bar of bytes began, or None if that is not known."""
    if bar.unit != "bytes" or bar.started_at is None or bar.last_at is None or bar.last_at <= bar.started_at or not bar.done:
        return None
    return bar.done / 1e9 / (bar.last_at - bar.started_at)


def progress_text(load: LoadState) -> str:
    """Return the phase, and the shards while they are being loaded: `loading 14/64 shards`."""
    bar = load.shards
    if bar is None or bar.done >= bar.total:
        return name_of(load.phase)
    return f"{name_of(load.phase)} {brief(bar)}" + ("" if bar.unit == "bytes" else f" {bar.unit}")


# -- phases and verdicts -----------------------------------------------------------------------------------------------------------

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

_DOING: Final[dict[Phase, str]] = {
    Phase.STARTING: "starting up: imports and configuration",
    Phase.DOWNLOADING: "downloading weights",
    Phase.LOADING: "loading weights",
    Phase.POST_LOADING: "processing the weights: packing quantised ones",
    Phase.COMPILING: "compiling the model",
    Phase.PROFILING: "profiling memory: how much a full batch takes",
    Phase.KV_CACHE: "allocating the KV cache",
    Phase.CAPTURING: "capturing CUDA graphs",
    Phase.WARMING_UP: "warming up kernels",
    Phase.READY: "serving",
}

NORMAL_SILENCE_S: Final[dict[Phase, float]] = {
    Phase.STARTING: 120.0,
    Phase.POST_LOADING: 300.0,
    Phase.COMPILING: 300.0,
    Phase.PROFILING: 120.0,
    Phase.KV_CACHE: 60.0,
    Phase.CAPTURING: 120.0,
    Phase.WARMING_UP: 120.0,
}
"""Seconds without a line that are normal in a phase on GPUs of the day."""


def name_of(phase: Phase | str) -> str:
    """Return a phase's name; a word that is no phase (of a record that another version wrote) stays as it is."""
    known = phase if isinstance(phase, Phase) else next((other for other in Phase if other.value == phase), None)
    return NAMES.get(known, known.value.replace("_", " ")) if known is not None else phase.replace("_", " ")


def doing(phase: Phase) -> str:
    """Return what a server does in a phase: `profiling memory: how much a full batch takes`."""
    return _DOING.get(phase, name_of(phase))


def doing_briefly(phase: Phase) -> str:
    """Return the same without the particulars: `profiling memory`."""
    return doing(phase).partition(":")[0]


def doing_now(load: LoadState) -> str:
    """Return what a starting server does, and how long it may be silent about it."""
    if load.phase is Phase.CAPTURING and load.capture is not None:
        return f"{doing(load.phase)}, {load.capture.done:.0f} of {load.capture.total:.0f}"
    if load.phase is Phase.LOADING and load.shards is None:
        return "loading begins; a download is not logged"
    silence = NORMAL_SILENCE_S.get(load.phase)
    return doing(load.phase) + (f"; {silence_text(silence)}" if silence is not None else "")


def silence_text(seconds: float) -> str:
    """Return how much silence is normal."""
    return f"up to {seconds / 60:.0f} min without a line is normal"


def verdict_text(verdict: Verdict) -> str:
    """Return a verdict in words: `on time`."""
    return verdict.value.replace("_", " ")


# -- failures ----------------------------------------------------------------------------------------------------------------------

_FAILURES: Final[dict[str, str]] = {
    "cuda_oom": "CUDA out of memory",
    "host_oom_or_killed": "Killed: the host ran out of memory, or someone ended it",
    "kv_cache_too_small": "No room for the KV cache",
    "max_model_len_too_large": "The context length does not fit",
    "gpu_memory_in_use": "GPU memory is already in use",
    "missing_file": "A file is missing",
    "corrupt_checkpoint": "The checkpoint is corrupt",
    "shape_mismatch": "The weights do not fit the model",
    "unsupported_model": "This model is not supported",
    "unsupported_quantization": "This quantization is not supported",
    "tokenizer": "The tokenizer could not be loaded",
    "hub_auth": "The model hub refused access",
    "hub_unreachable": "The model hub can't be reached",
    "disk_full": "The disk is full",
    "shm_too_small": "/dev/shm is too small",
    "port_in_use": "The port is in use",
    "bad_argument": "An argument is wrong",
    "missing_library": "A library is missing or does not match",
    "driver_mismatch": "The driver does not match",
    "no_kernel_image": "No kernel for this GPU",
    "nccl": "NCCL failed",
    "distributed_timeout": "The ranks did not find each other in time",
    "ready_timeout": "An engine was not ready in time",
    "ray_placement": "Ray could not place the workers",
    "not_enough_gpus": "Not enough GPUs",
    "gpu_lost": "A GPU was lost",
    "ended_unheard": "Ended without a word",
    "killed_by_supervisor": "Ended by its supervisor",
    "worker_died": "A worker died",
    "engine_died": "The engine died",
    "compile_error": "Compilation failed",
    "hang": "The engine hangs",
    "cuda_error": "CUDA error",
    "gpu_memory_fault": "GPU memory fault",
}


def failure_title(failure: Failure) -> str:
    """Return the kind of a failure in words."""
    return _FAILURES.get(failure.kind, "The server failed")
