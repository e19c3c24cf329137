"""What is concluded from GPU samples: tables of situations with the right answers."""

import pytest
from msgspec.structs import replace

from tui.core.gpu import Gpu, GpuProcess, GpuSample, MigInstance, Xid, mean_power_w
from tui.core.gpu_frames import rank_of
from tui.core.gpu_health import growth_mib_per_hour, headroom, health, uniformity

TOTAL = 97_887.0


def worker(pid: int, rank: str, parent: int = 100, memory: float | None = None, engine: bool | None = True) -> GpuProcess:
    return GpuProcess(pid, f"VLLM::Worker_{rank}", memory, engine, rank, parent=parent)


def plain(*used: float | None) -> GpuSample:
    """GPUs without any word of processes."""
    return GpuSample(
        tuple(Gpu(index, memory_used_mib=one, memory_total_mib=TOTAL) for index, one in enumerate(used)), source="nvml"
    )


def ranked(*used: float, parent: int = 100, first: int = 0) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(
            first + rank,
            memory_used_mib=one,
            memory_total_mib=TOTAL,
            processes=(worker(1000 + first + rank, f"TP{rank}", parent, one),),
        )
        for rank, one in enumerate(used)
    )


FULL = 96_733.0


@pytest.mark.parametrize(
    ("sample", "even", "odd", "says"),
    [
        pytest.param(plain(), None, (), "", id="no GPU"),
        pytest.param(plain(FULL), None, (), "", id="one GPU"),
        pytest.param(plain(None, None), None, (), "", id="no values"),
        pytest.param(plain(*[FULL] * 8), True, (), "8 × 96,733 MiB", id="eight alike"),
        pytest.param(plain(*[0.0] * 8), None, (), "", id="eight empty"),
        pytest.param(plain(FULL, FULL), True, (), "2 × 96,733 MiB", id="two alike"),
        pytest.param(plain(FULL, 0.0), None, (), "", id="two, one empty: perhaps a server of one GPU"),
        pytest.param(plain(*[FULL] * 4, *[0.0] * 4), None, (), "", id="half of them: perhaps a server of four"),
        pytest.param(
            plain(*[FULL] * 5, 0.0, FULL, FULL),
            False,
            (5,),
            "GPU 5 holds 0 MiB, 7 hold 96,733: nothing is loaded there, the tensor-parallel load is broken",
            id="one of eight empty",
        ),
        pytest.param(plain(FULL + 3000, *[FULL] * 7), True, (), "8 × 96,733–99,733 MiB", id="rank 0's extra"),
        pytest.param(plain(*[FULL] * 7, FULL + 1024), True, (), "8 × 96,733–97,757 MiB", id="a GiB more is within tolerance"),
        pytest.param(plain(*[40_000.0] * 7, 38_900.0), False, (7,), None, id="1,100 MiB less is not"),
        pytest.param(plain(*[90_000.0] * 7, 88_300.0), True, (), None, id="2 % are"),
        pytest.param(GpuSample(ranked(*[FULL] * 8)), True, (), "8 × 96,733 MiB", id="ranks known, alike"),
        pytest.param(GpuSample(ranked(FULL, 50_000.0)), False, (0,), None, id="two ranks that differ"),
        pytest.param(
            GpuSample(ranked(FULL, FULL, parent=1) + ranked(40_000.0, 40_000.0, parent=2, first=2)),
            True,
            (),
            "2 × 96,733 MiB · 2 × 40,000 MiB",
            id="two engines: never compared with each other",
        ),
        pytest.param(
            GpuSample(
                tuple(
                    Gpu(
                        index,
                        memory_used_mib=80_000.0 if index < 2 else 70_000.0,
                        memory_total_mib=TOTAL,
                        processes=(worker(10 + index, f"PP{index // 2}_TP{index % 2}"),),
                    )
                    for index in range(4)
                )
            ),
            True,
            (),
            "PP0 2 × 80,000 MiB · PP1 2 × 70,000 MiB",
            id="pipeline stages differ by nature",
        ),
        pytest.param(
            GpuSample(
                tuple(
                    Gpu(
                        index,
                        memory_used_mib=60_000.0 + 9_000 * index,
                        memory_total_mib=TOTAL,
                        processes=(GpuProcess(20 + index, f"VLLM::EngineCore_DP{index}", None, True, f"DP{index}", parent=9),),
                    )
                    for index in range(3)
                )
            ),
            None,
            (),
            "",
            id="data-parallel engines are engines of their own",
        ),
        pytest.param(
            GpuSample((*ranked(*[FULL] * 7), Gpu(7, memory_used_mib=0.0, memory_total_mib=TOTAL))),
            True,
            (),
            "7 × 96,733 MiB",
            id="a GPU that isn't the engine's",
        ),
        pytest.param(
            GpuSample((*ranked(*[FULL] * 8)[:5], Gpu(5, memory_used_mib=0.0, memory_total_mib=TOTAL), *ranked(*[FULL] * 8)[6:])),
            False,
            (5,),
            "GPU 5 (TP5) holds 0 MiB, 7 hold 96,733: nothing is loaded there, the tensor-parallel load is broken",
            id="a rank without process, and the GPU that waits for it",
        ),
        pytest.param(
            GpuSample((*ranked(*[FULL] * 8)[:5], Gpu(5, error="GPU is lost"), *ranked(*[FULL] * 8)[6:])),
            False,
            (5,),
            "GPU 5 (TP5): GPU is lost; the engine can't go on without it",
            id="a lost GPU of the engine",
        ),
        pytest.param(
            GpuSample(
                (
                    *ranked(*[80_000.0] * 3),
                    Gpu(
                        3,
                        memory_used_mib=90_000.0,
                        memory_total_mib=TOTAL,
                        processes=(worker(5, "TP3", memory=80_000.0), GpuProcess(6, "python3 train.py", 10_000.0, False)),
                    ),
                )
            ),
            True,
            (),
            "4 × 80,000 MiB",
            id="another's memory isn't the engine's",
        ),
    ],
)  # fmt: skip
def test_uniformity(sample: GpuSample, even: bool | None, odd: tuple[int, ...], says: str | None) -> None:
    judged = uniformity(sample)
    assert (judged.even, judged.odd) == (even, odd)
    if says is not None:
        assert judged.says == says


def test_while_it_loads_ranks_may_be_shards_apart() -> None:
    loading = tuple(replace(gpu, memory_still_s=2.0) for gpu in ranked(40_000.0, 40_000.0, 38_500.0, 40_000.0))
    judged = uniformity(GpuSample(loading))
    assert (judged.even, judged.odd, judged.says) == (None, (), "4 × 38,500–40,000 MiB")
    still = tuple(replace(gpu, memory_still_s=20.0) for gpu in loading)
    assert uniformity(GpuSample(still)).odd == (2,)
    broken = (*loading[:3], replace(loading[3], memory_used_mib=0.0))
    assert uniformity(GpuSample(broken)).odd == (3,)


def test_more_than_the_rest_names_the_process_that_holds_it() -> None:
    gpus = list(ranked(*[60_000.0] * 4))
    gpus[2] = replace(
        gpus[2], memory_used_mib=70_000.0, processes=(*gpus[2].processes, GpuProcess(77, "python3 jupyter", None, None))
    )
    judged = uniformity(GpuSample(tuple(gpus)))
    assert judged.odd == (2,)
    assert judged.says.endswith("another process is there (python3 jupyter, pid 77)")


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
        (
            Gpu(0, processes=(GpuProcess(9, "python3 train.py", 800.0, False),)),
            "GPU 0: 800 MiB held by python3 train.py (pid 9), not the engine's",
        ),
        (Gpu(0, processes=(GpuProcess(9, "python3 train.py", 800.0, None),)), None),
    ],
)
def test_health_of_one(gpu: Gpu, says: str | None) -> None:
    found = [one for one in health(GpuSample((gpu,))) if "missing" not in one]
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


def test_a_straggler_under_equal_load_is_named() -> None:
    gpus = tuple(Gpu(index, name="H200", utilisation=99.0, sm_clock_mhz=1200.0 if index == 2 else 1980.0) for index in range(4))
    assert health(GpuSample(gpus)) == ("GPU 2: runs at 1,200 MHz where the others run at 1,980",)


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
