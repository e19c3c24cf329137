"""The GPUs that a configuration means: all of a host, or some by index or UUID."""

from collections.abc import Iterable

from msgspec.structs import replace

from tui.core.gpu import Gpu, GpuSample

ALL = ("", "all")
IN_USE_MIB = 1024.0
"""A GPU that holds less is idle: its driver and what shows the desktop take some."""


def together(wanted: Iterable[str]) -> str:
    """Return the GPUs that several engines of one host mean together, as a configuration writes it."""
    named = [name.strip() for name in wanted]
    return "all" if any(name in ALL for name in named) else ",".join(named)


def only(sample: GpuSample, wanted: str) -> GpuSample:
    """Return the sample without the GPUs that are not meant.

    If none fits, return all of it: a wrong index must not hide what is there.
    """
    if wanted.strip() in ALL:
        return sample
    chosen = engine_gpus(sample, wanted)
    return replace(sample, gpus=chosen, part=True) if chosen else sample


def engine_gpus(sample: GpuSample, wanted: str = "all") -> tuple[Gpu, ...]:
    """Return the GPUs that the engine uses: those that the configuration names ("0-3", "0,2", UUIDs), or all in use."""
    if wanted.strip() not in ALL:
        names = _names(wanted)
        return tuple(gpu for gpu in sample.gpus if str(gpu.index) in names or gpu.uuid in names)
    used = tuple(gpu for gpu in sample.gpus if (gpu.memory_used_mib or 0.0) >= IN_USE_MIB)
    return used or sample.gpus


def _names(wanted: str) -> set[str]:
    names: set[str] = set()
    for word in wanted.replace(" ", "").split(","):
        first, dash, last = word.partition("-")
        if dash and first.isdigit() and last.isdigit():
            names.update(str(i) for i in range(int(first), int(last) + 1))
        else:
            names.add(word)
    return names
