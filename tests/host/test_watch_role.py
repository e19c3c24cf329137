"""The shipped sampler against a compiled management library that plays every state a GPU can be in."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import need
from shipped import ShippedProbe
from simulated_driver import FULL, SimulatedDriver, row, sample, watching

from tui.core.gpu import mean_power_w
from tui.core.gpu_frames import gpus_from_frame, machine_from_frame
from tui.core.gpu_health import health
from tui.core.gpu_uniformity import uniformity
from tui.core.smi_csv import SMI_QUERY, gpus_from_smi
from tui.simulator import installed

DATA = Path(__file__).parents[1] / "data" / "smi"


def pythons() -> list[str]:
    """Return each Python from 3.8 on that this machine has, one of each minor version, including the tests' own."""
    found = {f"{sys.version_info.major}.{sys.version_info.minor}": sys.executable}
    for minor in range(8, 15):
        name = f"3.{minor}"
        beside = sorted(Path.home().glob(f".pyenv/versions/{name}.*/bin/python3"))
        path = shutil.which(f"python{name}", path="/usr/bin:/usr/local/bin") or (str(beside[-1]) if beside else None)
        if path:
            found.setdefault(name, path)
    return list(found.values())


@pytest.fixture
def driver(tmp_path: Path) -> SimulatedDriver:
    need(installed.compiler(), "there is no C compiler")
    return SimulatedDriver(tmp_path)


@pytest.fixture
def workers() -> Iterator[list[int]]:
    """Eight real processes under vLLM's titles."""
    sleep = shutil.which("sleep")
    assert sleep is not None
    running = [subprocess.Popen([f"VLLM::Worker_TP{rank}", "600"], executable=sleep) for rank in range(8)]
    yield [process.pid for process in running]
    for process in running:
        process.kill()
        process.wait()


@pytest.mark.parametrize("python", pythons(), ids=lambda path: Path(path).parents[1].name if "pyenv" in path else Path(path).name)
def test_eight_gpus_of_one_engine(driver: SimulatedDriver, workers: list[int], python: str) -> None:
    driver.play(*(row(rank, processes=[{"pid": pid, "memory_mib": FULL - 6}]) for rank, pid in enumerate(workers)))
    with watching(driver, python, pids=[os.getpid()]) as probe:
        found = sample(probe)
        assert (found.source, found.driver, found.cuda, found.note, found.late) == ("nvml", "580.159.04", "13.0", None, False)
        gpu = found.gpus[3]
        assert (gpu.index, gpu.uuid, gpu.pci) == (3, "GPU-00000003", "00000000:13:00.0")
        assert (gpu.memory_used_mib, gpu.memory_total_mib, gpu.free_mib) == (96_733, 97_887, 1_154)
        assert gpu.memory_still_s is not None
        assert (gpu.utilisation, gpu.temperature_c, gpu.power_w, gpu.power_limit_w) == (99, 61, 650.5, 700)
        assert (gpu.sm_clock_mhz, gpu.sm_clock_max_mhz, gpu.memory_clock_mhz) == (1785, 1980, None)
        assert (gpu.throttle, gpu.performance_state) == (("power cap",), "P0")
        assert (gpu.nvlinks_up, gpu.nvlinks_total, gpu.nvlink_errors) == (18, 18, 0)
        assert (gpu.ecc_corrected, gpu.ecc_uncorrected, gpu.remapped_rows, gpu.row_remap_pending) == (3, 0, 0, False)
        assert (gpu.energy_j, gpu.fan_percent, gpu.error) == (123_456.5, None, None)
        (process,) = gpu.processes
        assert (process.pid, process.name, process.rank) == (workers[3], "VLLM::Worker_TP3", "TP3")
        assert (process.memory_mib, process.engine, process.parent) == (FULL - 6, True, os.getpid())
        assert uniformity(found).says == "8 × 96,733 MiB"
        assert health(found) == ()


def test_another_process_is_not_the_engines(driver: SimulatedDriver, workers: list[int]) -> None:
    mine, other = workers[0], workers[1]
    driver.play(row(0, processes=[{"pid": mine, "memory_mib": 90_000}, {"pid": other, "memory_mib": 800, "graphics": True}]))
    with watching(driver, pids=[mine]) as probe:
        assert {process.pid: process.engine for process in sample(probe).gpus[0].processes} == {mine: True, other: False}


def test_a_process_that_proc_does_not_know_is_named_by_the_driver(driver: SimulatedDriver) -> None:
    driver.play(row(0, processes=[{"pid": 999_999_999, "memory_mib": None, "name": "/usr/bin/Xorg"}]))
    with watching(driver) as probe:
        (process,) = sample(probe).gpus[0].processes
        assert (process.name, process.memory_mib, process.engine, process.parent) == ("Xorg", None, None, None)


def test_mig_instances_stand_under_their_gpu(driver: SimulatedDriver) -> None:
    instance = {"name": "NVIDIA H100 NVL MIG 1g.12gb", "uuid": "MIG-1", "memory_used_mib": 10_000, "memory_total_mib": 11_264}
    driver.play(row(0, mig=[instance, {**instance, "uuid": "MIG-2", "memory_used_mib": 12}]), row(1))
    with watching(driver) as probe:
        first, second = sample(probe).gpus
        assert [(instance.uuid, instance.memory_used_mib, instance.memory_total_mib) for instance in first.mig] == [
            ("MIG-1", 10_000, 11_264),
            ("MIG-2", 12, 11_264),
        ]
        assert first.mig[0].name == "NVIDIA H100 NVL MIG 1g.12gb"
        assert second.mig == ()
        driver.play(row(0), row(1, mig=[instance]))
        later = sample(probe, lambda found: found.gpus[1].mig).gpus  # in seconds, not only when the limits are read again
        assert ([instance.uuid for instance in later[1].mig], later[0].mig) == (["MIG-1"], ())


def test_an_older_gpu_tells_its_retired_pages(driver: SimulatedDriver) -> None:
    older = {"name": "Tesla V100", "remapped_rows": None, "retired_pages": 7, "page_retirement_pending": 1}
    driver.play(row(0, **older), row(1, **older, broken=("page_retirement_pending",)), row(2))
    with watching(driver) as probe:
        found = sample(probe)
        told = [(gpu.remapped_rows, gpu.retired_pages, gpu.page_retirement_pending) for gpu in found.gpus]
        assert told == [(None, 7, True), (None, 7, None), (0, None, None)]
        assert health(found)[-3:] == (
            "GPU 0: a page waits to be retired: reset it when idle",
            "GPU 0: 7 pages retired",
            "GPU 1: 7 pages retired",
        )


def test_pcie_traffic_comes_from_counters_that_wrap(driver: SimulatedDriver) -> None:
    driver.play(row(0, pcie_rx_mb_s=58_000, pcie_tx_mb_s=100))
    with watching(driver) as probe:
        gpu = sample(probe, lambda found: found.gpus[0].pcie_rx_mb_s is not None).gpus[0]
        assert gpu.pcie_rx_mb_s == pytest.approx(58_000, rel=0.1)
        assert gpu.pcie_tx_mb_s == pytest.approx(100, rel=0.1)


def test_what_the_driver_does_not_tell_is_unknown(driver: SimulatedDriver) -> None:
    driver.play({"index": 0, "uuid": "GPU-1", "name": "GeForce", "memory_used_mib": 1, "memory_total_mib": 2})
    with watching(driver) as probe:
        (gpu,) = sample(probe).gpus
        assert (gpu.memory_used_mib, gpu.utilisation, gpu.power_w, gpu.nvlinks_total, gpu.ecc_uncorrected) == (
            1,
            None,
            None,
            None,
            None,
        )
        assert gpu.error is None


def test_a_gpu_is_lost_and_comes_back(driver: SimulatedDriver) -> None:
    driver.play(row(0), row(1))
    with watching(driver) as probe:
        assert all(gpu.error is None for gpu in sample(probe).gpus)
        driver.play(row(0), row(1, error="GPU is lost"))
        gpu = sample(probe, lambda found: found.gpus[1].error).gpus[1]
        assert (gpu.index, gpu.uuid, gpu.name) == (1, "GPU-00000001", "NVIDIA H100 NVL")
        assert (gpu.error, gpu.memory_used_mib, gpu.utilisation) == ("GPU is lost", None, None)
        driver.play(row(0))  # now it isn't even listed
        assert sample(probe).gpus[1].error == "GPU is lost"
        driver.play(row(0), row(1, memory_used_mib=5))
        assert sample(probe, lambda found: found.gpus[1].error is None).gpus[1].memory_used_mib == 5


@pytest.mark.parametrize(
    ("error", "words"), [("Unknown Error", "Unknown Error"), ("no permission", None), (16, "GPU requires restart")]
)
def test_a_gpu_that_answers_with_errors(driver: SimulatedDriver, error: str | int, words: str | None) -> None:
    driver.play(row(0), row(1, error=error))
    with watching(driver) as probe:
        good, bad = sample(probe).gpus
        assert (good.error, good.memory_used_mib) == (None, FULL)
        assert bad.memory_used_mib is None
        assert bad.error == (words or "Insufficient Permissions")


@pytest.mark.parametrize("what", ["one GPU", "the driver"])
def test_a_call_that_hangs_is_told_and_the_last_values_stay(driver: SimulatedDriver, what: str) -> None:
    driver.play(row(0), row(1, memory_used_mib=77))
    with watching(driver) as probe:
        sample(probe)
        if what == "one GPU":
            driver.play(row(0), row(1, hang=True))
        else:
            driver.play(row(0), row(1), hang=True)
        frame = probe.frame(lambda one: one.get("late"))
        last = next(frame for frame in reversed(probe.seen) if frame["f"] == "gpus" and not frame.get("late"))
        assert (frame["wall"], frame["mono"], frame["gpus"]) == (last["wall"], last["mono"], last["gpus"])
        assert 2.0 <= frame["late_s"] <= frame["age_s"] <= frame["late_s"] + 1.0
        late = gpus_from_frame(frame, 100.0)
        assert late.late
        assert late.received_at == pytest.approx(100.0 - frame["age_s"])
        assert late.gpus[1].memory_used_mib == 77
        assert late.note is not None
        assert re.match(r"the NVIDIA driver has not answered for \d+ s \(GPU . was asked\); these are its last values", late.note)
        if what == "one GPU":
            assert "(GPU 1 was asked)" in late.note
        probe.named("machine")  # the rest goes on
        driver.play(row(0), row(1, memory_used_mib=78))
        fresh = sample(probe, lambda found: not found.late)
        assert fresh.gpus[1].memory_used_mib == 78


def test_a_hanging_driver_does_not_hold_the_probe(driver: SimulatedDriver) -> None:
    driver.play(row(0), hang=True)
    with watching(driver) as probe:
        late = sample(probe)
        assert (late.late, late.gpus) == (True, ())
    # closing asserts that it ended in time
    assert probe.process.returncode == 0


@pytest.mark.parametrize(
    ("init", "words"),
    [
        ("driver/library version mismatch", "driver/library version mismatch: the NVIDIA driver was updated"),
        ("driver not loaded", "the NVIDIA driver is not loaded: run `modprobe nvidia`"),
        ("no permission", "no permission to ask the NVIDIA driver"),
        ("unknown error", "NVML could not start: Unknown Error"),
    ],
)
def test_a_driver_that_cannot_be_asked(driver: SimulatedDriver, init: str, words: str) -> None:
    driver.play(row(0), init=init)
    with watching(driver) as probe:
        found = sample(probe)
        assert (found.source, found.gpus) == ("none", ())
        assert (found.note or "").startswith(words)


def test_a_driver_without_gpus(driver: SimulatedDriver) -> None:
    driver.play()
    with watching(driver) as probe:
        found = sample(probe)
        assert found.gpus == ()
        assert "shows no GPU" in (found.note or "")


def test_a_reloaded_driver_is_found_again(driver: SimulatedDriver) -> None:
    driver.play(row(0))
    with watching(driver) as probe:
        sample(probe)
        driver.play(row(0), init="driver/library version mismatch")
        gone = sample(probe, lambda found: found.source == "none")
        assert "went away (RM has detected an NVML/RM version mismatch.)" in (gone.note or "")
        driver.play(row(0, memory_used_mib=3), driver="590.1")
        back = sample(probe, lambda found: found.gpus)
        assert (back.driver, back.gpus[0].memory_used_mib, back.note) == ("590.1", 3, None)


def test_a_gpu_that_goes_away_is_lost_and_not_counted_by_who_starts_anew(driver: SimulatedDriver) -> None:
    driver.play(*map(row, range(4)))
    with watching(driver) as probe:
        sample(probe)
        driver.play(row(0), row(1), row(3))
        assert [gpu.error for gpu in sample(probe, lambda found: found.gpus[2].error).gpus] == [None, None, "GPU is lost", None]
        asked = driver.smi("--query-gpu=index,uuid", "--format=csv,noheader").stdout
        assert asked.splitlines() == ["0, GPU-00000000", "1, GPU-00000001", "2, GPU-00000003"]
    with watching(driver) as probe:
        assert [(gpu.index, gpu.uuid) for gpu in sample(probe).gpus] == [
            (0, "GPU-00000000"),
            (1, "GPU-00000001"),
            (2, "GPU-00000003"),
        ]


def test_gpus_that_come_to_a_driver_without_any_are_found(driver: SimulatedDriver) -> None:
    driver.play()
    with watching(driver) as probe:
        sample(probe)
        driver.play(row(0))
        assert sample(probe, lambda found: found.gpus).gpus[0].memory_used_mib == FULL


def test_no_library() -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a driver")
    with ShippedProbe("watch", {"hz": 10}) as probe:
        found = sample(probe)
        assert found.source == "none"
        assert (found.note or "").startswith("no NVIDIA driver on this host (libnvidia-ml.so.1 not found)")


def test_the_machine(tmp_path: Path) -> None:
    with ShippedProbe("watch", {"pids": [os.getpid()], "paths": [str(tmp_path)]}) as probe:
        first = machine_from_frame(probe.named("machine"), None, 0.0)
        total = int(re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text()).group(1))  # type: ignore[union-attr]
        assert first.ram_total_mib == total // 1024
        assert first.cores == os.cpu_count()
        assert first.cpu_percent is None
        probe.send({"do": "set", "pids": [os.getpid()]})
        second = machine_from_frame(probe.frame(lambda one: one.get("f") == "machine" and "engine_read_bytes" in one), first, 1.0)
        assert second.cpu_percent is not None
        assert 0 <= second.cpu_percent <= 100
        assert (second.engine_read_bytes or 0) > 0


# -- the simulated nvidia-smi ------------------------------------------------------------------------------------------------------


H200 = {
    "index": 0,
    "uuid": "GPU-78ce2d56-ec49-eb07-a52b-f34435b5dd1c",
    "pci": "00000000:00:06.0",
    "name": "NVIDIA H200",
    "memory_used_mib": 0,
    "memory_total_mib": 143_771,
    "utilisation": 0,
    "memory_utilisation": 0,
    "temperature_c": 33,
    "memory_temperature_c": 33,
    "power_w": 79.19,
    "power_limit_w": 700,
    "sm_clock_mhz": 345,
    "memory_clock_mhz": 3201,
    "performance_state": "P0",
    "ecc_uncorrected": 0,
    "pcie_generation": 5,
    "pcie_width": 16,
}


def test_it_prints_what_the_real_one_printed(driver: SimulatedDriver) -> None:
    driver.play(H200)
    real = (DATA / "h200-query.csv").read_text()
    fields = ",".join(re.sub(r" \[.*?\]", "", name) for name in real.splitlines()[0].split(", "))
    assert driver.smi(f"--query-gpu={fields}", "--format=csv").stdout == real
    bare = driver.smi("--query-gpu=index,memory.used", "--format=csv,noheader,nounits")
    assert (bare.stdout, bare.returncode) == ("0, 0\n", 0)
    table = (DATA / "h200-table.txt").read_text().splitlines()
    assert driver.smi().stdout.splitlines()[1:] == table[1:]
    assert driver.smi("-L").stdout == "GPU 0: NVIDIA H200 (UUID: GPU-78ce2d56-ec49-eb07-a52b-f34435b5dd1c)\n"


def test_both_ways_of_asking_agree(driver: SimulatedDriver) -> None:
    driver.play(row(0), row(1, error="GPU is lost"), row(2, fan_percent=30))
    asked = gpus_from_smi(driver.smi(*SMI_QUERY[1:]).stdout.splitlines(), 0.0)
    with watching(driver) as probe:
        probed = sample(probe)
    same = (
        "index",
        "uuid",
        "name",
        "pci",
        "error",
        "memory_used_mib",
        "memory_total_mib",
        "power_w",
        "throttle",
        "pcie_width",
        "fan_percent",
    )
    for gpu, other in zip(asked.gpus, probed.gpus, strict=True):
        if gpu.error is None:
            assert [getattr(gpu, name) for name in same] == [getattr(other, name) for name in same]
        else:
            assert (gpu.index, gpu.error) == (other.index, other.error)


@pytest.mark.parametrize(
    ("init", "status", "note"),
    [("driver not loaded", 9, "NVIDIA-SMI has failed"), ("driver/library version mismatch", 18, "Failed to initialize NVML")],
)
def test_it_fails_as_the_real_one_does(driver: SimulatedDriver, init: str, status: int, note: str) -> None:
    driver.play(row(0), init=init)
    done = driver.smi(*SMI_QUERY[1:])
    assert done.returncode == status
    assert (gpus_from_smi(done.stdout.splitlines(), 0.0).note or "").startswith(note)
    unknown = driver.smi("--query-gpu=made.up", "--format=csv")
    assert (unknown.returncode, unknown.stdout) == (2, 'Field "made.up" is not a valid field to query.\n\n')


def test_energy_is_read_as_often_as_asked(driver: SimulatedDriver) -> None:
    driver.play(row(0), row(1))
    with watching(driver, energy_s=1) as probe:
        first = sample(probe)
        read_at = first.gpus[0].energy_at
        assert read_at is not None
        driver.play(row(0, energy_j=123_957.5), row(1, energy_j=123_757.5))
        last = sample(probe, lambda found: all((gpu.energy_j or 0.0) > 123_700.0 for gpu in found.gpus))
        later = last.gpus[0].energy_at
        assert later is not None
        seconds = later - read_at
        assert mean_power_w(first, last) == pytest.approx(801.0 / seconds, rel=0.05)
