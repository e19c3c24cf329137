"""Frames of the probe as typed values, also where they are out of order."""

from typing import get_type_hints

import pytest
from msgspec import to_builtins

from tui.core.gpu import Gpu, figures
from tui.core.gpu_frames import gpus_from_frame, machine_from_frame
from tui.core.smi_csv import gpus_from_smi


def test_a_full_row() -> None:
    row = {
        "index": 3,
        "name": "NVIDIA H200\x1b]0;x\x07",
        "memory_used_mib": 96733,
        "throttle": ["power cap"],
        "row_remap_pending": False,
        "retired_pages": 3,
        "page_retirement_pending": True,
        "mig": [{"name": "MIG 1g.10gb", "uuid": "MIG-1", "memory_used_mib": 12}],
        "processes": [{"pid": 7, "name": "VLLM::Worker_TP3", "memory_mib": 96000, "engine": True, "parent": 5, "user": "root"}],
    }
    frame = {
        "f": "gpus",
        "wall": 100.0,
        "source": "nvml",
        "driver": "580.1",
        "gpus": [row],
        "xids": [{"gpu": 3, "code": 79, "at": 99.0}],
    }
    sample = gpus_from_frame(frame, 9.0)
    (gpu,) = sample.gpus
    assert gpu.name == "NVIDIA H200"
    assert (gpu.memory_used_mib, gpu.temperature_c, gpu.throttle, gpu.row_remap_pending) == (96733.0, None, ("power cap",), False)
    assert (gpu.retired_pages, gpu.page_retirement_pending, gpu.remapped_rows) == (3, True, None)
    assert (gpu.mig[0].name, gpu.mig[0].memory_total_mib) == ("MIG 1g.10gb", None)
    assert (gpu.processes[0].rank, gpu.processes[0].engine, gpu.processes[0].parent) == ("TP3", True, 5)
    assert sample.xids[0].meaning == "GPU has fallen off the bus"
    assert (sample.received_at, sample.late, sample.driver) == (9.0, False, "580.1")


@pytest.mark.parametrize(
    ("fields", "received_at", "late_s"),
    [
        ({}, 100.0, None),
        ({"late": True, "late_s": 25.0, "age_s": 25.4}, 74.6, 25.0),
        ({"late_s": 25.0, "age_s": 25.4}, 100.0, None),  # not late: the values are of now
        ({"late": True, "late_s": "long", "age_s": -5}, 100.0, None),
        ({"late": True}, 100.0, None),
    ],
)
def test_values_are_as_old_as_their_sample(fields: dict[str, object], received_at: float, late_s: float | None) -> None:
    sample = gpus_from_frame({"gpus": [{"index": 0}], "wall": 50.0, **fields}, 100.0)
    assert sample.received_at == pytest.approx(received_at)
    assert (sample.wall, sample.late_s) == (50.0, late_s)


@pytest.mark.parametrize(
    "frame",
    [
        {},
        {"gpus": None, "xids": 3},
        {"gpus": ["x", {"index": "0"}, {"no": "index"}], "xids": [{}, {"code": True, "at": 1}], "source": 5},
    ],
)
def test_nonsense_is_nothing(frame: dict[str, object]) -> None:
    sample = gpus_from_frame(frame, 1.0)
    assert (sample.gpus, sample.xids, sample.source) == ((), (), "none")


def test_wrong_types_are_unknown() -> None:
    row = {
        "index": 0,
        "memory_used_mib": "much",
        "utilisation": True,
        "power_w": float("nan"),
        "throttle": "x",
        "processes": [{"pid": None}],
    }
    (gpu,) = gpus_from_frame({"gpus": [row]}, 1.0).gpus
    assert (gpu.memory_used_mib, gpu.utilisation, gpu.power_w, gpu.throttle, gpu.processes) == (None, None, None, (), ())


FIRST = {
    "mono": 10.0,
    "cpu_total": 1000,
    "cpu_idle": 800,
    "cpu_iowait": 50,
    "cores": 64,
    "ram_total_mib": 2_000_000,
    "disk": "nvme0n1",
    "disk_read_bytes": 0,
    "disk_busy_ms": 100,
    "network_rx_bytes": 1_000_000,
    "engine_read_bytes": 5_000_000,
}


def test_rates_are_over_the_hosts_time() -> None:
    first = machine_from_frame(FIRST, None, 1.0)
    assert (first.cpu_percent, first.disk_read_mb_s, first.cores) == (None, None, 64)
    second = machine_from_frame(
        FIRST
        | {
            "mono": 12.0,
            "cpu_total": 1200,
            "cpu_idle": 900,
            "cpu_iowait": 70,
            "disk_read_bytes": 4_000_000_000,
            "disk_busy_ms": 1100,
            "engine_read_bytes": 5_500_000,
        },
        first,
        99.0,
    )
    assert second.cpu_percent == pytest.approx(40.0)
    assert second.iowait_percent == pytest.approx(10.0)
    assert second.disk_read_mb_s == pytest.approx(2000.0)
    assert second.disk_busy_percent == pytest.approx(50.0)
    assert second.network_rx_mb_s == pytest.approx(0.0)
    assert second.engine_read_mb_s == pytest.approx(0.25)
    assert second.engine_read_bytes == 5_500_000


def test_counters_that_went_back_and_other_disks_give_no_rate() -> None:
    first = machine_from_frame(FIRST, None, 1.0)
    rebooted = machine_from_frame({"mono": 1.0, "cpu_total": 10, "cpu_idle": 5}, first, 2.0)
    assert (rebooted.cpu_percent, rebooted.network_rx_mb_s) == (None, None)
    moved = machine_from_frame(FIRST | {"mono": 11.0, "disk": "nfs4 a:/b", "disk_read_bytes": 10**12}, first, 2.0)
    assert moved.disk_read_mb_s is None


def test_every_field_of_a_gpu_comes_out_of_a_frame_by_its_type() -> None:
    """A figure needs a field in `Gpu` and a reader on the host, nothing in between."""
    plain = {"float": 1.5, "int": 7, "bool": True, "str": "words"}
    lists = {"mig": [{"name": "1g.12gb"}], "processes": [{"pid": 3}], "throttle": ["power cap"]}
    row = {
        name: lists.get(name) or next(value for kind, value in plain.items() if kind in str(hint))
        for name, hint in get_type_hints(Gpu).items()
    }
    (gpu,) = gpus_from_frame({"gpus": [row]}, 0.0).gpus
    assert {name for name, value in to_builtins(gpu).items() if value in (None, "", ())} == set()
    assert all(getattr(gpu, name) == value for name, value in row.items() if not isinstance(value, list))


@pytest.mark.parametrize("field", [name for name, figure in figures().items() if figure.smi])
def test_every_column_of_nvidia_smi_fills_its_field(field: str) -> None:
    hint = str(get_type_hints(Gpu)[field])
    cell = "0x0000000000000004" if field == "throttle" else "P0" if "str" in hint else "7"
    for column in figures()[field].smi:
        (gpu,) = gpus_from_smi([f"index, {column}", f"0, {cell}"], 0.0).gpus
        assert getattr(gpu, field) == {"0x0000000000000004": ("power cap",), "P0": "P0", "7": 7}[cell]
