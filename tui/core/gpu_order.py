"""In which order the GPUs are listed, and which of them."""

from collections.abc import Callable, Collection

from tui.core.gpu import IN_USE_SHARE, Gpu, GpuSample
from tui.core.gpu_engine import UNKNOWN, Engine
from tui.core.gpu_even import uniformity
from tui.core.gpu_health import findings

BY_NUMBER, ALL = "by number", "all"

ORDERS: dict[str, Callable[[Gpu], float | None] | None] = {
    BY_NUMBER: None,
    "by memory": lambda gpu: gpu.memory_used_mib,
    "by utilisation": lambda gpu: gpu.utilisation,
    "by temperature": lambda gpu: gpu.temperature_c,
    "by power": lambda gpu: gpu.power_w,
}
"""All but the first put the highest on top; what is not known goes last."""
KINDS = (ALL, "in use", "with news")


def wrong(sample: GpuSample, leftovers: Collection[int] = (), engine: Engine = UNKNOWN) -> frozenset[int | None]:
    """The numbers of those of which something is to be said: an error, a fault, behind the others, memory out of line or not the
    engine's. What is said beside the list and what is in it are the same."""
    return frozenset(uniformity(sample, engine).odd) | {index for index, _ in findings(sample, leftovers, engine)}


def listed(
    sample: GpuSample,
    order: str,
    kind: str,
    leftovers: Collection[int] = (),
    engine: Engine = UNKNOWN,
    alarming: Collection[int] = (),
) -> tuple[Gpu, ...]:
    """The GPUs of that kind in that order.

    `leftovers` are the pids of processes whose engine is gone, `alarming` the numbers of GPUs whose free memory is worth a word.
    """
    gpus = list(sample.gpus)
    if kind == "in use":
        gpus = [gpu for gpu in gpus if (gpu.memory_share or 0.0) >= IN_USE_SHARE or gpu.utilisation]
    elif kind == "with news":
        said = wrong(sample, leftovers, engine).union(alarming)
        gpus = [gpu for gpu in gpus if gpu.index in said]
    value = ORDERS.get(order)
    if value is not None:
        gpus.sort(key=lambda gpu: -known if (known := value(gpu)) is not None else 1.0)
    return tuple(gpus)
