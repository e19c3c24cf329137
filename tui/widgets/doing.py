"""What a start does now, where no bar tells it: in words, how long the log has been silent, and whether that is normal."""

from textual.content import Content

from tui.core.deployment import DeploymentState
from tui.core.logs.state import LoadState, Phase
from tui.widgets.figures import BW, B, W, label, line
from tui.widgets.host_clock import host_now
from tui.widgets.numbers import clock

QUIET_S = 8.0
"""Shorter silences are not worth a word."""
STEPS: dict[Phase, tuple[str, float]] = {
    Phase.STARTING: ("importing and reading the configuration", 120.0),
    Phase.POST_LOADING: ("processing the weights, packing quantised ones", 300.0),
    Phase.COMPILING: ("compiling the model", 300.0),
    Phase.PROFILING: ("measuring how much memory a full batch takes", 120.0),
    Phase.KV_CACHE: ("allocating the KV cache", 60.0),
    Phase.CAPTURING: ("capturing CUDA graphs", 120.0),
    Phase.WARMING_UP: ("warming up kernels", 120.0),
}
"""Words, and the seconds of silence that are normal in it on GPUs of the day."""


def past_loading(load: LoadState) -> bool:
    """Whether the weights are loaded and it still has to come up: a bar at its end says nothing any more."""
    return load.phase in STEPS and load.phase is not Phase.STARTING


def phase_seconds(state: DeploymentState) -> float | None:
    """How long the phase of now has lasted."""
    load, now = state.load, host_now(state)
    if load is None or now is None or not load.phases:
        return None
    span = load.phases[-1]
    return max(0.0, now - span.started_at) if span.name is load.phase and span.started_at is not None else None


def _busy(state: DeploymentState) -> str:
    known = [gpu.utilisation for gpu in state.gpus.gpus if gpu.utilisation is not None] if state.gpus else []
    if not known:
        return ""
    mean = sum(known) / len(known)
    return f"the GPUs are {mean:.0f} % busy" if mean >= 1 else "the GPUs are idle"


def doing(state: DeploymentState, width: int) -> Content | None:
    """One line; None in phases that a bar tells of. What the GPUs do goes first where it does not fit."""
    load, silent = state.load, state.outlook.silent_s
    if load is None or load.phase not in STEPS or load.failure is not None or not state.connection.online:
        return None
    words, normal = STEPS[load.phase]
    if load.phase is Phase.CAPTURING and load.capture is not None and load.capture.done < load.capture.total:
        return None
    limit = f"{normal / 60:.0f} min"
    head = line(label("now  "), (words, B), label("; "))
    if silent is None or silent < QUIET_S:
        return line(head, label(f"up to {limit} without a line are normal"))
    told = [line(label("silent for "), (clock(silent), B if silent <= normal else BW))]
    told.append(line(label(f"normal up to {limit}")) if silent <= normal else line((f"longer than the usual {limit}", W)))
    whole = line(head, Content(", ").join([*told, line(label(_busy(state)))]))
    return whole if _busy(state) and whole.cell_length <= width else line(head, Content(", ").join(told))
