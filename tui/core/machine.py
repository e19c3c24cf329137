"""The GPU host apart from its GPUs: processor, memory, disk, network, as sampled in /proc."""

from msgspec import Struct


class MachineCounters(Struct, frozen=True):
    """Cumulative counters that the rates are made of, at `mono` seconds of the host's clock."""

    mono: float | None = None
    cpu_total: float | None = None
    """Ticks of all cores; idle and iowait are parts of it."""
    cpu_idle: float | None = None
    cpu_iowait: float | None = None
    disk_read_bytes: float | None = None
    disk_busy_ms: float | None = None
    network_rx_bytes: float | None = None
    engine_read_bytes: float | None = None


class MachineSample(Struct, frozen=True):
    """Rates are per second over the time since the sample before; None on the first one or where the host doesn't tell."""

    cpu_percent: float | None = None
    """Of all cores together, 0 to 100."""
    cores: int | None = None
    iowait_percent: float | None = None
    load_1m: float | None = None
    ram_total_mib: float | None = None
    ram_available_mib: float | None = None
    page_cache_mib: float | None = None
    swap_used_mib: float | None = None
    shm_total_mib: float | None = None
    shm_free_mib: float | None = None
    disk_read_mb_s: float | None = None
    """All block devices, or NFS where the model lies on it; 10**6 bytes."""
    disk_busy_percent: float | None = None
    disk: str | None = None
    """What the two are of: `nvme0n1`, `nfs4 server:/models`; None for all disks together."""
    network_rx_mb_s: float | None = None
    engine_read_mb_s: float | None = None
    """Bytes that the engine's processes read (/proc/PID/io), where permitted."""
    engine_read_bytes: int | None = None
    storage_bound: bool | None = None
    """Whether reads of the storage have set the pace of late (`core.storage`); None where that can't be told."""
    wall: float | None = None
    received_at: float | None = None
    counters: MachineCounters = MachineCounters()
