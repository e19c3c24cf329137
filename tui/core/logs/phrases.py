"""How the outlook says things: durations, paces, phases."""

from statistics import median

from tui.core.logs.state import Loader, LoadState, Phase

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
