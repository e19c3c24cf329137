"""XIDs out of the shipped sampler: each is told with the GPU that it is about, whatever happens to that GPU."""

from pathlib import Path
from typing import Any

import pytest
from needs import need
from shipped import ShippedProbe
from simulated_driver import SimulatedDriver, row, sample, watching

from tui.core.gpu import GpuSample, Xid
from tui.core.gpu_health import health
from tui.probe.nvml_library import numbered
from tui.probe.nvml_sampler import Device
from tui.simulator import installed

LOST = "GPU is lost"


@pytest.fixture
def driver(tmp_path: Path) -> SimulatedDriver:
    need(installed.compiler(), "there is no C compiler")
    return SimulatedDriver(tmp_path)


def raised(driver: SimulatedDriver, probe: ShippedProbe, gpu: int, code: int, *rows: dict[str, Any]) -> tuple[Xid, GpuSample]:
    """Raise XIDs on a GPU, one after the other, until one is reported: earlier ones go unheard."""
    serial = 1

    def seen(found: GpuSample) -> bool:
        nonlocal serial
        serial += 1
        driver.play(*rows, xids=[(serial, gpu, code)])
        return any(xid.code == code for xid in found.xids)

    found = sample(probe, seen)
    return next(xid for xid in found.xids if xid.code == code), found


def test_an_xid_is_reported_once_with_its_meaning(driver: SimulatedDriver) -> None:
    driver.play(row(0), row(1), xids=[(1, 0, 31)])
    with watching(driver) as probe:
        assert sample(probe).xids == ()  # it was there before
        xid, found = raised(driver, probe, 1, 79, row(0), row(1))
        assert (xid.gpu, xid.meaning) == (1, "GPU has fallen off the bus")
        assert all(xid.code == 79 for xid in found.xids)


def test_an_xid_that_comes_after_its_gpu_was_lost_keeps_it(driver: SimulatedDriver) -> None:
    gone = row(3, error=LOST)
    driver.play(*map(row, range(4)))
    with watching(driver) as probe:
        raised(driver, probe, 3, 31, *map(row, range(4)))  # it is listened to
        driver.play(*map(row, range(3)), gone)
        sample(probe, lambda found: found.gpus[3].error)
        xid, found = raised(driver, probe, 3, 79, *map(row, range(3)), gone)
        assert (xid.gpu, found.gpus[3].error) == (3, LOST)
        assert any(finding.startswith("GPU 3: XID 79") for finding in health(found))


def test_an_xid_of_another_gpu_while_one_hangs_is_told(driver: SimulatedDriver) -> None:
    driver.play(row(0), row(1))
    with watching(driver) as probe:
        raised(driver, probe, 1, 31, row(0), row(1))
        hanging = (row(0), row(1, hang=True))
        driver.play(*hanging)
        sample(probe, lambda found: found.late)
        xid, found = raised(driver, probe, 1, 119, *hanging)
        assert (xid.gpu, found.late) == (1, True)


@pytest.mark.parametrize("lost", [(1,), (0, 1)], ids=["one was lost", "all were lost"])
def test_a_gpu_that_recovers_is_listened_to(driver: SimulatedDriver, lost: tuple[int, ...]) -> None:
    driver.play(*(row(index, error=LOST) if index in lost else row(index) for index in range(2)))
    with watching(driver) as probe:
        sample(probe, lambda found: found.gpus[1].error)
        driver.play(row(0), row(1))
        sample(probe, lambda found: found.gpus[1].error is None)
        xid, _ = raised(driver, probe, 1, 94, row(0), row(1))
        assert xid.gpu == 1


def test_after_a_reload_of_the_driver_xids_are_heard_again_and_the_old_ones_keep_their_gpu(driver: SimulatedDriver) -> None:
    driver.play(*map(row, range(3)))
    with watching(driver) as probe:
        raised(driver, probe, 2, 31, *map(row, range(3)))
        driver.play(row(0), row(2), init="driver/library version mismatch")
        sample(probe, lambda found: found.source == "none")
        left = (row(0), row(2))  # counted anew: what was GPU 2 is 1 now
        driver.play(*left)
        back = sample(probe, lambda found: found.gpus)
        assert [(gpu.index, gpu.uuid) for gpu in back.gpus] == [(0, "GPU-00000000"), (1, "GPU-00000002")]
        assert {xid.gpu for xid in back.xids} == {1}
        xid, _ = raised(driver, probe, 2, 94, *left)
        assert xid.gpu == 1


EVENT = {"gpu": 1, "uuid": "B", "code": 79, "at": 5.0}


@pytest.mark.parametrize(
    ("uuids", "gpu"),
    [
        ((), 1),  # the driver is away: as it was
        (("A", "B"), 1),
        (("B",), 0),  # A is gone
        (("A", "C"), None),  # another one has its place
        (("A",), None),
        (("A", None), 1),  # not asked yet who it is
    ],
)
def test_events_have_the_indices_of_now(uuids: tuple[str | None, ...], gpu: int | None) -> None:
    devices = [Device(index) for index in range(len(uuids))]
    for device, uuid in zip(devices, uuids, strict=True):
        if uuid is not None:
            device.row["uuid"] = uuid
    assert numbered([EVENT], devices) == [{**EVENT, "gpu": gpu}]
