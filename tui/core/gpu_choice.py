"""The GPUs that a configuration means: all of a host, or some by index or UUID."""

from collections.abc import Iterable

from msgspec.structs import replace

from tui.core.bench_soak import engine_gpus
from tui.core.gpu import GpuSample

ALL = ("", "all")


def together(wanted: Iterable[str]) -> str:
    """What several engines of one host mean together."""
    named = [one.strip() for one in wanted]
    return "all" if any(one in ALL for one in named) else ",".join(named)


def only(sample: GpuSample, wanted: str) -> GpuSample:
    """The sample without the GPUs that are not meant. Where none fits, all of it: a wrong index must not hide what is there."""
    if wanted.strip() in ALL:
        return sample
    chosen = engine_gpus(sample, wanted)
    return replace(sample, gpus=chosen, part=True) if chosen else sample
