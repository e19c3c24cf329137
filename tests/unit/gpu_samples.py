"""Samples of GPUs for the tests of what is concluded from them."""

from collections.abc import Sequence

from tui.core.gpu import Gpu, GpuProcess, GpuSample

TOTAL = 97_887.0


def worker(pid: int, rank: str, parent: int = 100, memory: float | None = None, engine: bool | None = True) -> GpuProcess:
    return GpuProcess(pid, f"VLLM::Worker_{rank}", memory, engine, rank, parent=parent)


def plain(*used: float | None) -> GpuSample:
    """GPUs without any word of processes."""
    return GpuSample(
        tuple(Gpu(index, memory_used_mib=mib, memory_total_mib=TOTAL) for index, mib in enumerate(used)), source="nvml"
    )


def ranked(*used: float, parent: int = 100, first: int = 0) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(
            first + rank,
            memory_used_mib=mib,
            memory_total_mib=TOTAL,
            processes=(worker(1000 + first + rank, f"TP{rank}", parent, mib),),
        )
        for rank, mib in enumerate(used)
    )


FULL = 96_733.0


def unused(index: int) -> Gpu:
    return Gpu(index, memory_used_mib=2.0, memory_total_mib=TOTAL)


def lost(index: int) -> Gpu:
    return Gpu(index, error="GPU is lost")


def ranks(titles: Sequence[str], used: float = FULL, parent: int = 100, first: int = 0) -> tuple[Gpu, ...]:
    """GPUs whose processes have these titles; `-` is a GPU that holds nothing, `x` one that is lost."""
    return tuple(
        unused(index)
        if title == "-"
        else lost(index)
        if title == "x"
        else Gpu(index, memory_used_mib=used, memory_total_mib=TOTAL, processes=(worker(900 + index, title, parent, used),))
        for index, title in enumerate(titles, first)
    )


def tensor(*numbers: int | str) -> list[str]:
    return [number if isinstance(number, str) else f"TP{number}" for number in numbers]
