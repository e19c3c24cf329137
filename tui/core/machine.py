"""The GPU host apart from its GPUs: processor, memory, disk, network, as sampled in /proc."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MachineSample:
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
    network_rx_mb_s: float | None = None
    engine_read_mb_s: float | None = None
    """Bytes that the engine's processes read (/proc/PID/io), where permitted."""
    engine_read_bytes: int | None = None
    wall: float | None = None
    received_at: float | None = None
