"""What is kept of values over time: one value a sample, for drawing."""

from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tui.core.api_status import ApiStatus
from tui.core.gpu import GpuSample

T = TypeVar("T")

TREND = 240


class Trends(Struct, frozen=True):
    """One value a sample, the last TREND of them; None where nothing was known."""

    gpu_memory: tuple[tuple[float | None, ...], ...] = ()
    """One tuple a sample, a share (0 to 1) a GPU."""
    gpu_utilisation: tuple[tuple[float | None, ...], ...] = ()
    """Percent."""
    disk_read_mb_s: tuple[float | None, ...] = ()
    generation_tokens_s: tuple[float | None, ...] = ()
    kv_cache_share: tuple[float | None, ...] = ()


def appended(values: tuple[T, ...], value: T) -> tuple[T, ...]:
    return (*values, value)[-TREND:]


def with_gpus(trends: Trends, sample: GpuSample) -> Trends:
    """Add a sample. One of a driver that does not answer repeats the one before it and adds nothing."""
    if sample.late:
        return trends
    return replace(
        trends,
        gpu_memory=appended(trends.gpu_memory, tuple(gpu.memory_share for gpu in sample.gpus)),
        gpu_utilisation=appended(trends.gpu_utilisation, tuple(gpu.utilisation for gpu in sample.gpus)),
    )


def with_api(trends: Trends, status: ApiStatus) -> Trends:
    metrics = status.metrics
    return replace(
        trends,
        generation_tokens_s=appended(trends.generation_tokens_s, metrics.generation_tokens_s if metrics else None),
        kv_cache_share=appended(trends.kv_cache_share, metrics.kv_cache_share if metrics else None),
    )
