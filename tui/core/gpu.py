"""GPUs as sampled on a host: raw values, and what follows from them.

A value that the driver does not tell is None and drawn as a dash, never 0. Memory is in MiB (2**20 bytes) as nvidia-smi prints it
(NVML's nvmlMemory_v2: the driver's reserve is not counted as used).
"""

from functools import cache
from typing import Annotated, Final, get_type_hints

from msgspec import Struct
from msgspec.structs import replace

GIB_MIB: Final = 1024.0
IN_USE_SHARE: Final = 0.02
"""A GPU with less of its memory in use than this holds no model."""


class Figure(Struct, frozen=True):
    """Tell, beside the type of a field of `Gpu`, how nvidia-smi prints it and how the list of all facts shows it.

    A field needs nothing more to come out of a frame or of nvidia-smi's CSV, into the JSON document and into that list.
    """

    smi: tuple[str, ...] = ()
    """nvidia-smi's names of the column (`nvidia-smi --help-query-gpu`); the first is the one that is asked for."""
    title: str = ""
    """The title of its own line among the facts; empty if another line tells it."""
    unit: str = ""


def _smi(*names: str) -> Figure:
    return Figure(smi=names)


class GpuProcess(Struct, frozen=True):
    """Describe a process that holds memory on a GPU."""

    pid: int
    name: str = ""
    memory_mib: float | None = None
    engine: bool | None = None
    """Whether it belongs to the watched engine; None if that can't be told."""
    rank: str | None = None
    """`TP0`, `PP1_TP3` … from vLLM's process title."""
    container: str | None = None
    user: str | None = None
    parent: int | None = None
    """The parent's pid: workers of one engine share it."""


def _free(used: float | None, total: float | None) -> float | None:
    return None if used is None or total is None else total - used


def _share(used: float | None, total: float | None) -> float | None:
    return None if used is None or not total else used / total


class MigInstance(Struct, frozen=True):
    """Describe a part of a GPU that works as one of its own (NVIDIA's Multi-Instance GPU)."""

    name: str = ""
    uuid: str = ""
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None

    @property
    def profile(self) -> str:
        """`1g.12gb`, the end of the driver's `NVIDIA H100 NVL MIG 1g.12gb`."""
        return self.name.rpartition("MIG ")[2] or "MIG"

    @property
    def free_mib(self) -> float | None:
        return _free(self.memory_used_mib, self.memory_total_mib)

    @property
    def memory_share(self) -> float | None:
        """Used memory as a share of its own total, 0 to 1."""
        return _share(self.memory_used_mib, self.memory_total_mib)


class Gpu(Struct, frozen=True):
    """One GPU at one moment. `error` says why values are missing (`GPU is lost`, …); None when all is well."""

    index: int
    uuid: Annotated[str, _smi("uuid", "gpu_uuid")] = ""
    name: Annotated[str, _smi("name", "gpu_name")] = ""
    pci: Annotated[str, _smi("pci.bus_id", "gpu_bus_id")] = ""
    memory_used_mib: Annotated[float | None, _smi("memory.used")] = None
    memory_total_mib: Annotated[float | None, _smi("memory.total")] = None
    memory_still_s: float | None = None
    """How long memory has hardly changed (64 MiB), by the host's clock."""
    utilisation: Annotated[float | None, _smi("utilization.gpu")] = None
    memory_utilisation: Annotated[float | None, _smi("utilization.memory")] = None
    temperature_c: Annotated[float | None, _smi("temperature.gpu")] = None
    memory_temperature_c: Annotated[float | None, _smi("temperature.memory")] = None
    power_w: Annotated[float | None, _smi("power.draw", "power.draw.instant")] = None
    power_limit_w: Annotated[float | None, _smi("power.limit", "enforced.power.limit")] = None
    sm_clock_mhz: Annotated[float | None, _smi("clocks.current.sm", "clocks.sm")] = None
    sm_clock_max_mhz: Annotated[float | None, _smi("clocks.max.sm")] = None
    memory_clock_mhz: Annotated[float | None, _smi("clocks.current.memory", "clocks.mem")] = None
    memory_clock_max_mhz: Annotated[float | None, _smi("clocks.max.memory", "clocks.max.mem")] = None
    throttle: Annotated[tuple[str, ...], _smi("clocks_throttle_reasons.active", "clocks_event_reasons.active")] = ()
    performance_state: Annotated[str | None, _smi("pstate")] = None
    pcie_generation: Annotated[int | None, _smi("pcie.link.gen.current", "pcie.link.gen.gpucurrent")] = None
    pcie_generation_max: Annotated[int | None, _smi("pcie.link.gen.max")] = None
    pcie_width: Annotated[int | None, _smi("pcie.link.width.current")] = None
    pcie_width_max: Annotated[int | None, _smi("pcie.link.width.max")] = None
    pcie_rx_mb_s: float | None = None
    pcie_tx_mb_s: float | None = None
    nvlinks_up: int | None = None
    nvlinks_total: int | None = None
    nvlink_errors: int | None = None
    ecc_corrected: Annotated[int | None, _smi("ecc.errors.corrected.volatile.total")] = None
    ecc_uncorrected: Annotated[int | None, _smi("ecc.errors.uncorrected.volatile.total")] = None
    remapped_rows: int | None = None
    row_remap_pending: bool | None = None
    row_remap_failed: bool | None = None
    retired_pages: int | None = None
    """What GPUs before Ampere have instead of remapped rows."""
    page_retirement_pending: bool | None = None
    fan_percent: Annotated[float | None, _smi("fan.speed")] = None
    energy_j: float | None = None
    """Since the driver was loaded; read less often than the rest."""
    energy_at: float | None = None
    """When `energy_j` was read, by the host's monotonic clock."""
    mig: tuple[MigInstance, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    error: str | None = None
    unread: str | None = None
    """Values that the driver fails to read while it tells the rest, and its words: `power, fan: Unknown Error`."""

    @property
    def free_mib(self) -> float | None:
        return _free(self.memory_used_mib, self.memory_total_mib)

    @property
    def memory_share(self) -> float | None:
        """Used memory as a share of the total, 0 to 1."""
        return _share(self.memory_used_mib, self.memory_total_mib)


@cache
def figures() -> dict[str, Figure]:
    """Return the figures of `Gpu` by the names of their fields, in the fields' order."""
    found = {}
    for name, hint in get_type_hints(Gpu, include_extras=True).items():
        for note in getattr(hint, "__metadata__", ()):
            if isinstance(note, Figure):
                found[name] = note
    return found


class Xid(Struct, frozen=True):
    """One XID event: `gpu` is its index, `at` the host's wall clock."""

    gpu: int | None
    code: int
    at: float
    meaning: str


class GpuSample(Struct, frozen=True):
    """All GPUs of a host at one moment.

    `source` is "nvml", "nvidia-smi" or "none"; `note` says why it isn't NVML, or why there are no GPUs. `received_at` is when the
    values came, by the client's monotonic clock: ages are counted from it, never from `wall`, which is the host's.
    """

    gpus: tuple[Gpu, ...] = ()
    source: str = "none"
    note: str | None = None
    driver: str | None = None
    cuda: str | None = None
    wall: float | None = None
    received_at: float | None = None
    xids: tuple[Xid, ...] = ()
    part: bool = False
    """Whether only some of the host's GPUs are in it, as the configuration means."""
    gone: tuple[Gpu, ...] = ()
    """GPUs that were listed earlier and are no more, as last seen (see `gpu_seen`)."""
    late: bool = False
    """The driver did not answer in time; these are its last known values."""
    late_s: float | None = None
    """For how long it has not answered, if it is late and that is known."""
    unheard: bool = False
    """Nothing came from the host's sampler; whether the driver answers is not known."""

    @property
    def silence(self) -> str:
        """Return in words why a late sample is late."""
        return "no newer values come" if self.unheard else "the driver does not answer"


class Uniformity(Struct, frozen=True):
    """Whether the GPUs of one engine hold the same memory; `even` is None when that can't be told (one GPU, no values)."""

    even: bool | None = None
    odd: tuple[int, ...] = ()
    says: str = ""
    """One line for the panel: `8 × 96,733 MiB`, or what is odd and what it means."""


class Headroom(Struct, frozen=True):
    """The fullest GPU, or the fullest MIG instance: its index, free MiB and free share (0 to 1)."""

    gpu: int
    free_mib: float
    free_share: float
    total_mib: float
    mig: str | None = None
    """The profile of the instance, `1g.12gb`, if the GPU is divided into some."""

    @property
    def where(self) -> str:
        return f"GPU {self.gpu}" + (f", {self.mig}" if self.mig is not None else "")


def mean_power_w(first: GpuSample, last: GpuSample) -> float | None:
    """Return what the GPUs of `last` drew together between the two readings of their energy counters, in watts.

    None if a counter is missing, was not read anew since `first`, or started again.
    """
    before = {gpu.uuid or gpu.index: gpu for gpu in first.gpus}
    total = 0.0
    for gpu in last.gpus:
        old = before.get(gpu.uuid or gpu.index)
        if old is None or old.energy_j is None or old.energy_at is None or gpu.energy_j is None or gpu.energy_at is None:
            return None
        seconds, joules = gpu.energy_at - old.energy_at, gpu.energy_j - old.energy_j
        if seconds <= 0.0 or joules < 0.0:
            return None
        total += joules / seconds
    return total if last.gpus else None


def with_gone(before: GpuSample | None, sample: GpuSample) -> GpuSample:
    """Return the sample with the GPUs that earlier samples of the same host had and that are gone.

    A GPU is gone when neither its UUID is listed nor another one in its place: in its slot, or in the list if that is as long as
    it was. A sample without any GPU says nothing of single ones.
    """
    if before is None:
        return sample
    known = {gpu.uuid: gpu for gpu in (*before.gpus, *before.gone) if gpu.uuid}
    if not sample.gpus:
        return replace(sample, gone=tuple(sorted(known.values(), key=lambda gpu: gpu.index)))
    uuids = {gpu.uuid for gpu in sample.gpus}
    slots = {gpu.pci for gpu in sample.gpus if gpu.pci}
    # a row without identity is a GPU that can't be asked, at its old number
    unnamed = {gpu.index for gpu in sample.gpus if not gpu.uuid}
    gone = [gpu for uuid, gpu in known.items() if uuid not in uuids and gpu.pci not in slots and gpu.index not in unnamed]
    if len(sample.gpus) >= len(known):
        gone = []
    return replace(sample, gone=tuple(sorted(gone, key=lambda gpu: gpu.index)))
