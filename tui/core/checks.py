"""What `doctor` finds: one check a line, each with the command or the flag that mends it."""

from dataclasses import dataclass
from enum import StrEnum

from tui.core.presentation import counted


class Grade(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIPPED = "skipped"
    """Not examined, since something that it needs failed."""


@dataclass(frozen=True, slots=True)
class Check:
    """`says` is what was found, `fix` what to do about it (empty when all is well)."""

    name: str
    grade: Grade
    says: str
    fix: str = ""


def shm_check(total_mib: float | None, gpus: int) -> Check:
    """NCCL needs shared memory when several GPUs work together; 64 MiB, docker's default, is too little."""
    if total_mib is None:
        return Check("/dev/shm", Grade.WARN, "its size can't be told")
    size = f"{total_mib / 1024:.1f} GiB" if total_mib >= 1024 else f"{total_mib:.0f} MiB"
    if total_mib < 1024 and gpus > 1:
        return Check(
            "/dev/shm",
            Grade.FAIL,
            f"{size} for {counted(gpus, 'GPU')}: too little for NCCL",
            "docker run --ipc=host or --shm-size=16g",
        )
    if total_mib < 1024:
        return Check("/dev/shm", Grade.WARN, f"{size}: enough for one GPU only", "docker run --ipc=host or --shm-size=16g")
    return Check("/dev/shm", Grade.OK, size)


def open_files_check(limit: str) -> Check:
    """Judge the output of `ulimit -n`: every stream of a benchmark and every client holds a descriptor of the server."""
    if limit == "unlimited" or (limit.isdigit() and int(limit) >= 4096):
        return Check("ulimit -n", Grade.OK, f"{limit} open files")
    if not limit.isdigit():
        return Check("ulimit -n", Grade.WARN, "it can't be told")
    return Check(
        "ulimit -n", Grade.WARN, f"{limit} open files: fewer than many clients need", "ulimit -n 65536 before starting the server"
    )


def python_check(version: str) -> Check:
    """Judge the host's Python: the probe needs 3.8."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers >= (3, 8):
        return Check("python3", Grade.OK, version)
    return Check(
        "python3",
        Grade.WARN,
        f"{version} is older than 3.8: nvidia-smi and tail are used instead of the probe",
        "install python3 >= 3.8",
    )


def space_check(name: str, output: str) -> Check:
    """Judge the output of `df -Pk PATH`: the space left, and how full its file system is."""
    fields = output.strip().splitlines()[-1].split() if output.strip() else []
    if len(fields) < 6 or not fields[3].isdigit():
        return Check(name, Grade.WARN, "its space can't be told")
    free_gib, full, mount = int(fields[3]) / 1024**2, fields[4], fields[5]
    says = f"{free_gib:,.1f} GiB free on {mount} ({full} used)"
    if free_gib < 5:
        return Check(name, Grade.WARN, f"{says}: compile caches and downloads need more", f"free space on {mount}")
    return Check(name, Grade.OK, says)
