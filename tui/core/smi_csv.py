"""GPUs from nvidia-smi's CSV, for hosts where NVML can't be asked directly.

nvidia-smi prints `[N/A]`, `[Not Supported]`, `[Unknown Error]` or `[GPU is lost]` where a value should be, `ERR!` in older drivers;
complaints as plain lines between the rows, or instead of them. Columns are told by the header, since drivers differ in what they
know; without a header they are the ones that were asked for.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, get_args, get_origin, get_type_hints

from msgspec.structs import replace

from tui.core.gpu import Gpu, GpuProcess, GpuSample, figures
from tui.core.gpu_frames import TEXT_LIMIT, rank_of
from tui.core.gpu_health import THROTTLE_WORDS
from tui.core.text import clean
from tui.engines.registry import TITLES

_TYPES: Final = get_type_hints(Gpu)
_COLUMNS: Final = {column: name for name, figure in figures().items() for column in figure.smi}
"""nvidia-smi's names of columns (newer drivers print some under other names), and the fields of `Gpu` that they fill."""
SMI_FIELDS: Final = ("index", "driver_version", *(figure.smi[0] for figure in figures().values() if figure.smi))
SMI_QUERY: Final = ("nvidia-smi", "--query-gpu=" + ",".join(SMI_FIELDS), "--format=csv")
"""One sample; every driver since 450 knows these columns (newer ones print some under other names)."""


SMI_APPS: Final = ("nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory,process_name", "--format=csv")
"""Who computes on which GPU: its lines go to `with_processes`."""


def smi_stream(milliseconds: int) -> tuple[str, ...]:
    """Return the command that prints a sample every so often until it is stopped. Feed its lines to `SmiReader`."""
    return (*SMI_QUERY, "-lms", str(milliseconds))


APPS_END: Final = "-- all told --"


def apps_stream(seconds: int) -> tuple[str, ...]:
    """Return the command that prints SMI_APPS' lines and then APPS_END every so often.

    nvidia-smi's own loop prints nothing while nobody computes, so that the end of the last process could not be told.
    """
    loop = f'while :; do "$@"; echo "{APPS_END}"; sleep {seconds}; done'
    return ("sh", "-c", loop, "sh", *SMI_APPS)


_NAMES: Final = _COLUMNS.keys() | {"index", "timestamp", "driver_version", "count", "mig.mode.current"}
_UNIT: Final = re.compile(r"\s*\[[^\]]*\]$")
_NUMBER: Final = re.compile(r"[-+]?\d+(?:[.,]\d+)?")
_LOST_PCI: Final = re.compile(r"GPU\s?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])")
_NO_DRIVER: Final = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver"

# What nvidia-smi says instead of rows: what it begins with, and what to do about it
_COMPLAINTS: Final = (
    (_NO_DRIVER, "load the driver (modprobe nvidia), or install it"),
    ("Failed to initialize NVML: Driver/library version mismatch", "reboot, or reload the driver's kernel modules"),
    ("Failed to initialize NVML: Insufficient Permissions", "the user needs access to /dev/nvidia*"),
    ("Failed to initialize NVML: Unknown Error", "in a container that lost its devices: restart the container"),
    ("Failed to initialize NVML", "look at dmesg for lines with NVRM"),
    ("No devices were found", "the driver shows no GPU: look at lspci and dmesg"),
    ("nvidia-smi: command not found", "no NVIDIA driver on this host"),
)


def value_of(cell: str) -> float | None:
    """Return the number in a cell, without its unit, a decimal comma taken for a point; None for `[N/A]`, `ERR!` and their like."""
    match = _NUMBER.match(cell.strip())
    return float(match.group(0).replace(",", ".")) if match else None


def complaint_of(cell: str) -> str | None:
    """Return the GPU's error that stands in place of a value: `Unknown Error`, `GPU is lost`; None if there is none."""
    inner = cell.strip().strip("[]")
    if inner.startswith(("Unknown Error", "GPU is lost", "GPU requires reset")):
        return inner
    return "ERR!" if inner == "ERR!" else None


def _words_of(cell: str) -> str | None:
    text = clean(cell.strip())
    return None if not text or text.startswith("[") or text in ("N/A", "ERR!") else text


def _header(line: str) -> tuple[str, ...] | None:
    """Return the columns if the line is a header, else None."""
    names = tuple(_UNIT.sub("", cell.strip()) for cell in line.split(", "))
    known = sum(name in _NAMES for name in names)
    return names if known and known * 2 >= len(names) else None


def _row(line: str, fields: Sequence[str]) -> tuple[Gpu, str | None] | None:
    """Return a GPU and the driver's version if the line is a row, else None."""
    cells = line.split(", ")
    columns = dict(zip(fields, cells, strict=False))
    index = value_of(columns.get("index", "")) if columns.get("index", "").strip().isdigit() else None
    if index is None or len(cells) < 2:
        return None
    values: dict[str, Any] = {}
    complaints = []
    for name, cell in columns.items():
        if (complaint := complaint_of(cell)) is not None:
            complaints.append(complaint)
        elif (field := _COLUMNS.get(name)) is not None and (value := _cell(field, cell)) is not None:
            values[field] = value
    if complaints and values.get("memory_used_mib") is None:
        values["error"] = complaints[0]
    elif complaints:
        unread = [name.partition(".")[0] for name, cell in columns.items() if complaint_of(cell) is not None]
        values["unread"] = f"{', '.join(dict.fromkeys(unread))}: {complaints[0]}"
    return Gpu(index=int(index), **values), _words_of(columns.get("driver_version", ""))


def _cell(field: str, cell: str) -> Any:
    """Return what a cell says of that field of `Gpu`, by the field's type; None if it says nothing."""
    wanted = _TYPES[field]
    if get_origin(wanted) is tuple:
        return _throttle(cell)
    if str in (wanted, *get_args(wanted)):
        return _words_of(cell)
    found = value_of(cell)
    return int(found) if found is not None and int in get_args(wanted) else found


def _throttle(cell: str) -> tuple[str, ...]:
    """Return the reasons why the clocks are low, in words, of a mask such as `0x0000000000000004`."""
    try:
        mask = int(cell.strip(), 16)
    except ValueError:
        return ()
    return tuple(words for bit, words in THROTTLE_WORDS if mask & bit)


def _note(line: str) -> str | None:
    """Return what nvidia-smi says instead of rows, with what to do; None for a line that says nothing."""
    for start, advice in _COMPLAINTS:
        if start in line:
            return f"{line.rstrip('.')} — {advice}"
    return None


class SmiReader:
    """Makes samples of the stream's lines: a sample is complete when the next one begins, or with `flush`."""

    def __init__(self, fields: Sequence[str] = SMI_FIELDS) -> None:
        self._fields = tuple(fields)
        self._gpus: list[Gpu] = []
        self._lost: list[str] = []
        self._note: str | None = None
        self._driver: str | None = None
        self._before = 0

    @property
    def begun(self) -> bool:
        """Tell whether something of a sample has come: rows, or a complaint."""
        return bool(self._gpus or self._lost or self._note)

    @property
    def whole(self) -> bool:
        """Tell whether as many GPUs have come as the sample before had: nobody needs to wait for the next one to begin."""
        return 0 < self._before <= len(self._gpus) + len(self._lost)

    def feed(self, line: str, received_at: float) -> GpuSample | None:
        """Take a line; return a complete sample, stamped with the time of the line after it, or None."""
        line = clean(line).strip()
        if not line:
            return None
        names = _header(line)
        if names is not None:
            done = self._taken(received_at) if self._gpus else None
            self._fields = names
            return done
        found = _row(line, self._fields)
        if found is None:
            self._hear(line)
            return None
        gpu, driver = found
        done = self._taken(received_at) if self._gpus and gpu.index <= self._gpus[-1].index else None
        self._gpus.append(gpu)
        self._driver = driver or self._driver
        return done

    def flush(self, received_at: float) -> GpuSample:
        """Return what has come since the last complete sample; without GPUs the note says why."""
        return self._taken(received_at)

    def _hear(self, line: str) -> None:
        lost = _LOST_PCI.search(line)
        if lost and "Unable to determine the device handle" in line:
            reason = line.rpartition(": ")[2]
            self._lost.append(f"{lost.group(1)} {reason}")
        else:
            self._note = _note(line) or self._note

    def _taken(self, received_at: float) -> GpuSample:
        gpus = list(self._gpus)
        for lost in self._lost:
            # such a GPU has no row, and so no index: the gap that it left, else the next one
            pci, _, reason = lost.partition(" ")
            used = {gpu.index for gpu in gpus}
            index = next(number for number in range(len(used) + 1) if number not in used)
            gpus.append(Gpu(index=index, pci=pci, error=reason))
        note = self._note
        if not gpus and note is None:
            note = "nvidia-smi printed no GPU"
        sample = GpuSample(
            gpus=tuple(sorted(gpus, key=lambda gpu: gpu.index)),
            source="nvidia-smi" if gpus else "none",
            note=note,
            driver=self._driver,
            received_at=received_at,
        )
        self._gpus, self._lost, self._note = [], [], None
        self._before = len(sample.gpus)
        return sample


def gpus_from_smi(lines: Iterable[str], received_at: float, fields: Sequence[str] = SMI_FIELDS) -> GpuSample:
    """Return the last sample in nvidia-smi's output.

    Never raises: what isn't understood is unknown, and complaints become the note.
    """
    reader = SmiReader(fields)
    last: GpuSample | None = None
    for line in lines:
        last = reader.feed(line, received_at) or last
    rest = reader.flush(received_at)
    return rest if rest.gpus or last is None else last


def with_processes(sample: GpuSample, lines: Iterable[str]) -> GpuSample:
    """Return the sample with the processes that SMI_APPS printed; lines that are no rows are skipped.

    nvidia-smi tells no parents and no owners, and often no memory.
    """
    found: dict[str, list[GpuProcess]] = {}
    for line in lines:
        cells = clean(line).split(", ", 3)
        if len(cells) != 4 or not cells[1].strip().isdigit():
            continue
        uuid, pid, memory, name = (cell.strip() for cell in cells)
        name = (name.rpartition("/")[2] if name.startswith("/") else name)[:TEXT_LIMIT]
        engine = True if name.startswith(TITLES) else None
        found.setdefault(uuid, []).append(GpuProcess(int(pid), name, value_of(memory), engine, rank_of(name)))
    return replace(sample, gpus=tuple(replace(gpu, processes=tuple(found.get(gpu.uuid, ()))) for gpu in sample.gpus))
