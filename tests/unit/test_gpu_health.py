"""What is concluded from GPU samples: tables of situations with the right answers."""

import pytest
from gpu_samples import plain, ranks, worker
from msgspec.structs import replace

from tui.core.gpu import Gpu, GpuProcess, GpuSample, MigInstance, Xid, mean_power_w
from tui.core.gpu_findings import BY_NUMBER, listed
from tui.core.gpu_frames import rank_of
from tui.core.gpu_groups import EngineLayout
from tui.core.gpu_health import headroom, health
from tui.core.trends import growth_mib_per_hour


def test_headroom_is_the_fullest() -> None:
    found = headroom(plain(96_733.0, None, 96_731.0))
    assert found is not None
    assert (found.gpu, found.free_mib) == (0, 1154.0)
    assert found.free_share == pytest.approx(0.01179, abs=1e-5)
    assert headroom(plain(None)) is None


def test_headroom_of_a_divided_gpu_is_its_fullest_instance() -> None:
    small, large = (
        MigInstance("MIG 1g.12gb", "a", 9_000.0, 12_000.0),
        MigInstance("NVIDIA H100 NVL MIG 3g.47gb", "b", 12.0, 47_000.0),
    )
    whole, other = plain(50_000.0, 21_000.0).gpus
    found = headroom(GpuSample((whole, replace(other, mig=(small, large)))))
    assert found is not None
    assert (found.gpu, found.mig, found.free_mib, found.free_share, found.total_mib) == (1, "1g.12gb", 3_000.0, 0.25, 12_000.0)
    assert found.where == "GPU 1, 1g.12gb"
    untold = headroom(GpuSample((replace(whole, mig=(MigInstance("MIG 1g.12gb", "a"),)),)))
    assert untold is not None
    assert (untold.mig, untold.where) == (None, "GPU 0")


def test_growth() -> None:
    assert growth_mib_per_hour([(0.0, 100.0), (300.0, 105.0)]) is None
    assert growth_mib_per_hour([(at * 60.0, 1000.0 + at) for at in range(61)]) == pytest.approx(60.0)


@pytest.mark.parametrize(
    ("gpu", "says"),
    [
        (Gpu(3, error="GPU is lost"), "GPU 3: GPU is lost"),
        (Gpu(0, ecc_uncorrected=2), "GPU 0: 2 uncorrectable ECC errors since the driver started: results may be wrong, reset it"),
        (Gpu(0, ecc_uncorrected=0, ecc_corrected=40), None),
        (Gpu(0, throttle=("power cap",)), None),
        (
            Gpu(0, throttle=("power cap", "hardware thermal slowdown"), temperature_c=92.0),
            "GPU 0: throttled: hardware thermal slowdown at 92 °C",
        ),
        (Gpu(0, pcie_width=8, pcie_width_max=16), "GPU 0: PCIe link is ×8 of ×16: loading and transfers are slower, reseat it"),
        (Gpu(0, pcie_generation=1, pcie_generation_max=5, utilisation=0.0), None),
        (Gpu(0, pcie_generation=3, pcie_generation_max=5, utilisation=90.0), "GPU 0: PCIe runs at generation 3 of 5 under load"),
        (Gpu(0, nvlinks_up=17, nvlinks_total=18), "GPU 0: 1 of 18 NVLinks are down"),
        (Gpu(0, row_remap_pending=True), "GPU 0: a memory row waits to be remapped: reset it when idle"),
        (Gpu(0, row_remap_failed=True, row_remap_pending=True), "GPU 0: a memory row could not be remapped: have it replaced"),
        (Gpu(0, page_retirement_pending=True, retired_pages=0), "GPU 0: a page waits to be retired: reset it when idle"),
        (Gpu(0, page_retirement_pending=False, retired_pages=1), "GPU 0: 1 page retired"),
        (Gpu(0, retired_pages=12), "GPU 0: 12 pages retired"),
        (
            Gpu(0, processes=(GpuProcess(9, "python3 train.py", 800.0, False),)),
            "GPU 0: 800 MiB held by python3 train.py (pid 9), not the engine's",
        ),
        (Gpu(0, processes=(GpuProcess(9, "python3 train.py", 800.0, None),)), None),
    ],
)
def test_health_of_one(gpu: Gpu, says: str | None) -> None:
    found = [finding for finding in health(GpuSample((gpu,))) if "missing" not in finding]
    assert found == ([says] if says else [])


def test_what_a_dead_engine_left_says_how_to_end_it() -> None:
    worker = GpuProcess(1327, "VLLM::Worker_TP", 139394.0, False)
    sample = GpuSample((Gpu(0, processes=(worker,)),))
    held = "GPU 0: 139,394 MiB held by VLLM::Worker_TP (pid 1327), "
    assert health(sample) == (held + "not the engine's",)
    assert health(sample, {1327}) == (held + "left over from the dead engine: end pid 1327",)


def test_a_gap_in_the_indices_is_a_missing_gpu() -> None:
    assert health(GpuSample((Gpu(0), Gpu(2)))) == ("GPU 1 is missing: the driver lists 2 of 3",)


def test_xids_once_each_and_only_recent_ones() -> None:
    xids = (Xid(1, 79, 5000.0, "GPU has fallen off the bus"),) * 2 + (Xid(0, 31, 10.0, "GPU memory page fault"),)
    assert health(GpuSample((Gpu(0), Gpu(1)), wall=5001.0, xids=xids)) == (
        "GPU 1: XID 79, GPU has fallen off the bus — power, heat, or the board: power-cycle the host",
    )


def busy(rank: int, clock: float = 1980.0, heat: float = 60.0, watts: float = 650.0, load: float = 99.0) -> Gpu:
    (gpu,) = ranks([f"TP{rank}"], first=rank)
    return replace(gpu, name="H200", utilisation=load, sm_clock_mhz=clock, temperature_c=heat, power_w=watts)


SLOW = "GPU 2: runs at 1,200 MHz while the others run at 1,980"


@pytest.mark.parametrize(
    ("gpus", "engine", "says"),
    [
        pytest.param([busy(n, clock=1200.0 if n == 2 else 1980.0) for n in range(4)], EngineLayout(), (SLOW,), id="clock"),
        pytest.param(
            [busy(n, heat=80.0 if n == 2 else 60.0) for n in range(4)],
            EngineLayout(),
            ("GPU 2: 80 °C while the others are at 60",),
            id="heat",
        ),
        pytest.param(
            [busy(n, watts=180.0 if n == 2 else 650.0) for n in range(8)],
            EngineLayout(),
            ("GPU 2: draws 180 W while the others draw 650",),
            id="power",
        ),
        pytest.param(
            [busy(n, watts=180.0 if n == 2 else 650.0) for n in range(8)], EngineLayout(loading=True), (), id="power while it loads"
        ),
        pytest.param(
            [busy(n, watts=560.0 if n == 2 else 650.0, heat=72.0 if n == 3 else 60.0) for n in range(8)],
            EngineLayout(),
            (),
            id="as parts differ",
        ),
        pytest.param(
            [busy(0), busy(1, clock=900.0)],
            EngineLayout(),
            ("GPU 1: runs at 900 MHz while the other runs at 1,980",),
            id="one of two",
        ),
        pytest.param([busy(0), busy(1, heat=78.0)], EngineLayout(), (), id="of two one is hotter"),
        pytest.param(
            [busy(n, clock=345.0, load=0.0 if n == 2 else 99.0) for n in range(4)], EngineLayout(), (), id="idle ones are slow"
        ),
        pytest.param(
            [busy(0), busy(1), replace(busy(2, clock=1200.0), name="H100"), busy(3)], EngineLayout(), (), id="another kind"
        ),
        pytest.param(
            [
                *(busy(n) for n in range(3)),
                *(replace(busy(n, 1400.0, 85.0), processes=(worker(n, f"TP{n - 3}", 200),)) for n in (3, 4)),
            ],
            EngineLayout(),
            (),
            id="another engine",
        ),
        pytest.param(
            [replace(busy(n, 1980.0 - 100 * n), processes=(worker(n, f"PP{n // 2}_TP{n % 2}"),)) for n in (0, 1)]
            + [replace(busy(n, 1200.0), processes=(worker(n, f"PP1_TP{n - 2}"),)) for n in (2, 3)],
            EngineLayout(),
            (),
            id="another stage",
        ),
        pytest.param(
            [replace(busy(n, 1200.0 + 400 * (n % 2)), processes=(worker(n, f"DP{n}"),)) for n in range(4)],
            EngineLayout(),
            (),
            id="data-parallel",
        ),
        pytest.param(
            [replace(busy(n, 1200.0 if n == 2 else 1980.0), processes=()) for n in range(4)],
            EngineLayout(),
            (),
            id="whose, nobody knows",
        ),
        pytest.param(
            [replace(busy(n, 1200.0 if n == 2 else 1980.0), processes=()) for n in range(4)],
            EngineLayout(tensor=4),
            (SLOW,),
            id="the log knows",
        ),
    ],
)
def test_a_straggler_of_an_engine_and_stage_is_named(gpus: list[Gpu], engine: EngineLayout, says: tuple[str, ...]) -> None:
    sample = GpuSample(tuple(gpus))
    assert health(sample, (), engine) == says
    # what is said beside the list is what the filter finds
    assert [gpu.index for gpu in listed(sample, BY_NUMBER, "with findings", (), engine)] == ([int(says[0][4])] if says else [])


def test_what_a_dead_engine_left_is_news() -> None:
    sample = GpuSample((Gpu(0), Gpu(1, processes=(GpuProcess(7, "VLLM::Worker_TP1", 900.0),))))
    assert listed(sample, BY_NUMBER, "with findings") == ()
    assert [gpu.index for gpu in listed(sample, BY_NUMBER, "with findings", {7})] == [1]


@pytest.mark.parametrize(
    ("title", "rank"),
    [
        ("VLLM::Worker_TP3", "TP3"),
        ("VLLM::Worker_PP1_TP3", "PP1_TP3"),
        ("VLLM::Worker_DP0_TP1_EP1", "DP0_TP1_EP1"),
        ("VLLM::EngineCore", None),
        ("VLLM::EngineCore_DP2", "DP2"),
        ("sglang::scheduler_TP0", "TP0"),
        ("python3 serve_TP3.py", None),
        ("", None),
    ],
)
def test_rank_out_of_a_title(title: str, rank: str | None) -> None:
    assert rank_of(title) == rank


def counters(*read: tuple[float | None, float | None]) -> GpuSample:
    """GPUs with their energy counters: (joules, seconds of the host's clock)."""
    return GpuSample(
        tuple(Gpu(index, uuid=f"GPU-{index}", energy_j=joules, energy_at=at) for index, (joules, at) in enumerate(read))
    )


@pytest.mark.parametrize(
    ("first", "last", "watts"),
    [
        (counters((1000.0, 10.0), (500.0, 10.1)), counters((8000.0, 20.0), (6500.0, 20.1)), 1300.0),
        (counters((1000.0, 10.0)), counters((1000.0, 10.0)), None),  # not read anew: nothing is known, not 0 W
        (counters((1000.0, 10.0)), counters((1000.0, 12.0)), 0.0),
        (counters((1000.0, 10.0)), counters((50.0, 12.0)), None),  # the driver was loaded again
        (counters((1000.0, 10.0), (None, None)), counters((8000.0, 20.0), (None, None)), None),
        (counters((1000.0, 10.0)), counters((8000.0, 20.0), (6500.0, 20.0)), None),  # a GPU that wasn't there
        (GpuSample(), GpuSample(), None),
    ],
)
def test_power_is_told_by_the_energy_counters(first: GpuSample, last: GpuSample, watts: float | None) -> None:
    assert mean_power_w(first, last) == (pytest.approx(watts) if watts is not None else None)
