"""nvidia-smi's CSV: recordings of a real H200, and what drivers print when something is wrong."""

from pathlib import Path

import pytest

from tui.core.gpu_uniformity import uniformity
from tui.core.smi_csv import SMI_FIELDS, SmiReader, gpus_from_smi, smi_stream, value_of, with_processes

DATA = Path(__file__).parents[1] / "data" / "smi"
HEADER = "index, uuid, pci.bus_id, name, driver_version, memory.used [MiB], memory.total [MiB], utilization.gpu [%], power.draw [W]"


def row(index: int, used: str = "96733 MiB", use: str = "99 %", power: str = "650.10 W") -> str:
    return f"{index}, GPU-{index:08x}, 00000000:{index:02X}:00.0, NVIDIA H100 NVL, 550.90.07, {used}, 97887 MiB, {use}, {power}"


def test_a_real_h200() -> None:
    sample = gpus_from_smi((DATA / "h200-query.csv").read_text().splitlines(), 5.0)
    (gpu,) = sample.gpus
    assert (sample.source, sample.note, sample.received_at) == ("nvidia-smi", None, 5.0)
    assert gpu.name == "NVIDIA H200"
    assert gpu.uuid == "GPU-78ce2d56-ec49-eb07-a52b-f34435b5dd1c"
    assert gpu.pci == "00000000:00:06.0"
    assert (gpu.memory_used_mib, gpu.memory_total_mib) == (0.0, 143_771.0)
    assert (gpu.temperature_c, gpu.memory_temperature_c) == (33.0, 33.0)
    assert (gpu.power_w, gpu.power_limit_w) == (79.19, 700.0)
    assert (gpu.sm_clock_mhz, gpu.memory_clock_mhz, gpu.performance_state) == (345.0, 3201.0, "P0")
    assert (gpu.pcie_generation, gpu.pcie_width, gpu.ecc_uncorrected) == (5, 16, 0)
    assert gpu.fan_percent is None
    assert gpu.error is None


def test_a_real_load_as_a_stream_without_header() -> None:
    fields = ("index", "memory.used", "memory.total", "utilization.gpu", "power.draw", "temperature.gpu")
    reader = SmiReader(fields)
    samples = []
    for number, line in enumerate((DATA / "h200-load.csv").read_text().splitlines()):
        done = reader.feed(line.partition(",")[2], float(number))
        samples += [done] if done else []
    samples.append(reader.flush(600.0))
    assert len(samples) == 600
    used = [sample.gpus[0].memory_used_mib for sample in samples]
    assert used[0] == 0.0
    assert max(mib for mib in used if mib is not None) == 138_039.0
    assert all(sample.gpus[0].memory_total_mib == 143_771.0 for sample in samples)


def test_a_stream_of_two_gpus_is_cut_into_samples() -> None:
    reader = SmiReader()
    lines = [HEADER, row(0), row(1, "1 MiB"), row(0), row(1, "2 MiB"), row(0)]
    samples = [done for number, line in enumerate(lines) if (done := reader.feed(line, float(number)))]
    assert [[gpu.memory_used_mib for gpu in sample.gpus] for sample in samples] == [[96733.0, 1.0], [96733.0, 2.0]]


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("96733 MiB", 96733.0),
        ("0 %", 0.0),
        ("79.19 W", 79.19),
        ("79,19 W", 79.19),
        ("[N/A]", None),
        ("N/A", None),
        ("[Not Supported]", None),
        ("[Unknown Error]", None),
        ("[GPU is lost]", None),
        ("[Insufficient Permissions]", None),
        ("ERR!", None),
        ("", None),
    ],
)
def test_cells(cell: str, value: float | None) -> None:
    assert value_of(cell) == value


@pytest.mark.parametrize(
    ("lines", "gpus", "note"),
    [
        pytest.param(
            [HEADER, row(0), row(1, "[Unknown Error]", "[Unknown Error]", "[Unknown Error]")],
            [(0, 96733.0, None), (1, None, "Unknown Error")],
            None,
            id="unknown error",
        ),
        pytest.param(
            [HEADER, row(0), row(1, "[GPU is lost]", "[GPU is lost]", "[GPU is lost]")],
            [(0, 96733.0, None), (1, None, "GPU is lost")],
            None,
            id="lost, with a row",
        ),
        pytest.param(
            [
                HEADER,
                row(0),
                "Unable to determine the device handle for GPU 0000:C1:00.0: GPU is lost.  Reboot the system to recover this GPU",
                row(2),
            ],
            [(0, 96733.0, None), (1, None, "GPU is lost.  Reboot the system to recover this GPU"), (2, 96733.0, None)],
            None,
            id="lost, without a row",
        ),
        pytest.param([HEADER, row(0, power="ERR!")], [(0, 96733.0, None)], None, id="power unknown"),
        pytest.param([HEADER, row(0)[:60]], [(0, None, None)], None, id="cut row"),
        pytest.param(
            ["WARNING: infoROM is corrupted at gpu 0000:3B:00.0", "", HEADER, row(0)], [(0, 96733.0, None)], None, id="noise"
        ),
        pytest.param(["No devices were found"], [], "No devices were found — the driver shows no GPU: look at lspci and dmesg"),
        pytest.param(
            ["Failed to initialize NVML: Driver/library version mismatch", "NVML library version: 580.126"],
            [],
            "Failed to initialize NVML: Driver/library version mismatch — reboot, or reload the driver's kernel modules",
        ),
        pytest.param(
            ["Failed to initialize NVML: Unknown Error"],
            [],
            "Failed to initialize NVML: Unknown Error — in a container that lost its devices: restart the container",
        ),
        pytest.param([], [], "nvidia-smi printed no GPU"),
        pytest.param(["\x1b]0;owned\x07index, x", "\x00\xff", "a, b, c"], [], "nvidia-smi printed no GPU", id="garbage"),
    ],
)
def test_bad_states(lines: list[str], gpus: list[tuple[int, float | None, str | None]], note: str | None) -> None:
    sample = gpus_from_smi(lines, 1.0)
    assert [(gpu.index, gpu.memory_used_mib, gpu.error) for gpu in sample.gpus] == gpus
    assert sample.note == note
    assert sample.source == ("nvidia-smi" if gpus else "none")


def test_columns_are_told_by_the_header() -> None:
    lines = ["name, index, memory.used [MiB], made.up, clocks_event_reasons.active", "A100, 4, 7 MiB, 3, 0x0000000000000044"]
    (gpu,) = gpus_from_smi(lines, 0.0).gpus
    assert (gpu.index, gpu.name, gpu.memory_used_mib) == (4, "A100", 7.0)
    assert gpu.throttle == ("power cap", "hardware thermal slowdown")


def test_processes_and_what_they_say_of_evenness() -> None:
    sample = gpus_from_smi([HEADER, row(0), row(1), row(2)], 0.0)
    apps = [
        "gpu_uuid, pid, used_gpu_memory [MiB], process_name",
        "GPU-00000000, 11, 96000 MiB, VLLM::Worker_TP0",
        "GPU-00000001, 12, [N/A], VLLM::Worker_TP1",
        "GPU-00000001, 13, 100 MiB, /usr/bin/python3",
        "No such line",
    ]
    found = with_processes(sample, apps)
    first, second, third = (gpu.processes for gpu in found.gpus)
    assert [(process.pid, process.rank, process.memory_mib, process.engine) for process in first] == [(11, "TP0", 96000.0, True)]
    assert [(process.name, process.memory_mib, process.engine) for process in second] == [
        ("VLLM::Worker_TP1", None, True),
        ("python3", 100.0, None),
    ]
    assert third == ()
    assert uniformity(found).says == "2 × 96,633–96,733 MiB"
    twice = with_processes(sample, [apps[1], apps[2].replace("TP1", "TP0")])
    assert uniformity(twice).even is None  # two engines, and no word of who belongs to which


def test_the_commands() -> None:
    assert smi_stream(500) == ("nvidia-smi", "--query-gpu=" + ",".join(SMI_FIELDS), "--format=csv", "-lms", "500")
