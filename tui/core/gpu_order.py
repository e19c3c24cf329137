"""In which order the GPUs are listed, and which of them."""

from collections.abc import Callable

from msgspec.structs import replace

from tui.core.gpu import Gpu, GpuSample
from tui.core.gpu_health import IN_USE_SHARE, health, uniformity

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


def wrong(sample: GpuSample, gpu: Gpu) -> bool:
    """Whether something is to be said of it: an error, a fault, memory out of line or not the engine's."""
    alone = replace(sample, gpus=(gpu,), part=True, xids=tuple(one for one in sample.xids if one.gpu == gpu.index))
    return gpu.index in uniformity(sample).odd or bool(health(alone))


def listed(sample: GpuSample, order: str, kind: str) -> tuple[Gpu, ...]:
    """The GPUs of that kind in that order."""
    gpus = list(sample.gpus)
    if kind == "in use":
        gpus = [gpu for gpu in gpus if (gpu.memory_share or 0.0) >= IN_USE_SHARE or gpu.utilisation]
    elif kind == "with news":
        gpus = [gpu for gpu in gpus if wrong(sample, gpu)]
    value = ORDERS.get(order)
    if value is not None:
        gpus.sort(key=lambda gpu: -known if (known := value(gpu)) is not None else 1.0)
    return tuple(gpus)
