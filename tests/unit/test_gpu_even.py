"""Whether the GPUs of an engine and stage are even: tables of situations with the right answers."""

import pytest
from gpu_samples import FULL, TOTAL, plain, ranked, ranks, tensor, unused, worker
from msgspec.structs import replace

from tui.core.api_status import ApiStatus, Reach, ServedModel
from tui.core.deployment import DeploymentState, HostSeen
from tui.core.gpu import Gpu, GpuProcess, GpuSample, Uniformity
from tui.core.gpu_groups import EngineLayout, engine_of
from tui.core.gpu_uniformity import uniformity
from tui.core.logs.load_state import LoadState, Phase

BROKEN = "7 hold 96,733: nothing is loaded there, the tensor-parallel load is broken"
UNABLE = "GPU is lost; the engine can't go on without it"
EIGHT, TWO = EngineLayout(tensor=8), EngineLayout(tensor=2)


@pytest.mark.parametrize(
    ("sample", "even", "odd", "says"),
    [
        pytest.param(plain(), None, (), "", id="no GPU"),
        pytest.param(plain(FULL), None, (), "", id="one GPU"),
        pytest.param(plain(None, None), None, (), "", id="no values"),
        pytest.param(plain(*[0.0] * 8), None, (), "", id="eight empty"),
        pytest.param(plain(FULL, 0.0), None, (), "", id="two, one empty: perhaps a server of one GPU"),
        pytest.param(plain(*[FULL] * 4, *[0.0] * 4), None, (), "", id="half of them: perhaps a server of four"),
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
            GpuSample((*ranked(*[FULL] * 4), *(unused(index) for index in range(4, 8)))),
            True,
            (),
            "4 × 96,733 MiB",
            id="GPUs that aren't the engine's",
        ),
        pytest.param(
            GpuSample((*ranked(*[FULL] * 7), unused(7))),
            None,
            (),
            "7 × 96,733 MiB",
            id="no engine has seven ranks: the eighth may be missing",
        ),
        pytest.param(
            GpuSample((*ranked(*[FULL] * 8)[:5], unused(5), *ranked(*[FULL] * 8)[6:])),
            False,
            (5,),
            "GPU 5 (TP5) holds 2 MiB, 7 hold 96,733: nothing is loaded there, the tensor-parallel load is broken",
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


@pytest.mark.parametrize(
    ("sample", "even", "odd", "says"),
    [
        pytest.param(plain(*[FULL] * 8), True, (), "8 × 96,733 MiB", id="eight alike"),
        pytest.param(plain(FULL, FULL), True, (), "2 × 96,733 MiB", id="two alike"),
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
    ],
)
def test_uniformity_where_the_log_tells_that_all_are_one_engines(
    sample: GpuSample, even: bool, odd: tuple[int, ...], says: str | None
) -> None:
    assert uniformity(sample).even is None
    judged = uniformity(sample, EngineLayout(tensor=len(sample.gpus)))
    assert (judged.even, judged.odd) == (even, odd)
    if says is not None:
        assert judged.says == says


@pytest.mark.parametrize(
    ("gpus", "engine", "even", "odd", "says"),
    [
        pytest.param(
            ranks(tensor(0, 1, 2, 3, 4, 5, 6, "-")), EIGHT, False, (7,), f"GPU 7 (TP7) holds 2 MiB, {BROKEN}", id="last empty"
        ),
        pytest.param(
            ranks(tensor("-", 1, 2, 3, 4, 5, 6, 7)), EIGHT, False, (0,), f"GPU 0 (TP0) holds 2 MiB, {BROKEN}", id="first empty"
        ),
        pytest.param(ranks(tensor(0, 1, 2, 3, 4, 5, 6, "x")), EIGHT, False, (7,), f"GPU 7 (TP7): {UNABLE}", id="last lost"),
        pytest.param(ranks(tensor(0, 1, 2, 3, 4, 5, 6, "x")), EngineLayout(), None, (), "7 × 96,733 MiB", id="last lost, no log"),
        pytest.param(
            ranks(tensor(0, 1, 2, 3, "x", "-", "-", "-")), EngineLayout(tensor=4), True, (), "4 × 96,733 MiB", id="lost, not its"
        ),
        pytest.param(ranks(tensor(0, 1, 2, 3, 4, 5, "-", "-")), EIGHT, False, (6, 7), None, id="last two empty"),
        pytest.param(ranks(tensor(0, 1, 2, "-", 4, 5, 6, "-")), EIGHT, False, (3, 7), None, id="one in between, and the last"),
        pytest.param(ranks(tensor(0, "-")), TWO, False, (1,), None, id="one of two"),
        pytest.param(
            ranks(tensor(0, 1, 2, "-", "-", "-", "-", "-")), EngineLayout(tensor=4), False, (3,), None, id="last of four, on eight"
        ),
        pytest.param(ranks(tensor(7, 6, 5, 4, 3, 2, 1, "-")), EIGHT, False, (7,), "GPU 7 (TP0) holds", id="numbered the other way"),
        pytest.param(ranks(tensor(0, 1, 2, 3, 4, 5, 6)), EIGHT, None, (), "7 × 96,733 MiB", id="the last is not even listed"),
        pytest.param(
            ranks(tensor(8, 9, 10, "-", 12, 13, 14, 15)),
            EngineLayout(tensor=16, hosts=2),
            False,
            (3,),
            "GPU 3 (TP11) holds",
            id="second host",
        ),
        pytest.param(
            ranks(tensor(8, 9, 10, 11, 12, 13, 14, "x")),
            EngineLayout(tensor=16, hosts=2),
            False,
            (7,),
            f"GPU 7 (TP15): {UNABLE}",
            id="its last",
        ),
        pytest.param(
            ranks(tensor("x", 9, 10, 11, 12, 13, 14, 15)),
            EngineLayout(tensor=16, hosts=2),
            False,
            (0,),
            f"GPU 0 (TP8): {UNABLE}",
            id="its first",
        ),
        pytest.param(
            ranks(tensor(*range(8, 16))), EngineLayout(tensor=16, hosts=2), True, (), "8 × 96,733 MiB", id="all of the second host"
        ),
        pytest.param(
            ranks(tensor(*range(8))), EngineLayout(tensor=16), True, (), "8 × 96,733 MiB", id="the other host is not watched"
        ),
        pytest.param(
            ranks(tensor(0, 1, 2, 3, *"----")), EngineLayout(tensor=8, hosts=2), True, (), "4 × 96,733 MiB", id="half of each host"
        ),
        pytest.param(ranks(tensor(0, 1, 2, 3, *"----")), EIGHT, None, (), "4 × 96,733 MiB", id="half: on another host, or broken"),
        pytest.param(
            ranks(tensor(*range(8))),
            EngineLayout(tensor=8, hosts=4),
            True,
            (),
            "8 × 96,733 MiB",
            id="copies that the log does not tell",
        ),
        pytest.param(
            (*ranks(tensor(0, 1, 2, 3), parent=1), *ranks(tensor(0, "-", 2, 3), parent=2, first=4)),
            EngineLayout(),
            False,
            (5,),
            "GPU 5 (TP1) holds",
            id="two engines, one rank of the second missing",
        ),
        pytest.param(
            (*ranks(tensor(0, 1, 2, "x"), parent=1), *ranks(tensor(0, 1, 2, 3), parent=2, first=4)),
            EngineLayout(tensor=4),
            False,
            (3,),
            f"GPU 3 (TP3): {UNABLE}",
            id="two engines, one of the lost",
        ),
        pytest.param(
            ranks([f"PP{n}" for n in range(4)], FULL)[:3] + ranks(["PP3"], 80_000.0, first=3),
            EngineLayout(tensor=1, stages=4),
            None,
            (),
            "",
            id="PP4",
        ),
        pytest.param(
            ranks([f"PP{n}" for n in range(8)], FULL)[:7] + ranks(["PP7"], 80_000.0, first=7),
            EngineLayout(),
            None,
            (),
            "",
            id="PP8, no log",
        ),
        pytest.param(
            ranks([f"DP{n}" for n in range(8)], FULL)[:7] + ranks(["DP7"], 80_000.0, first=7),
            EngineLayout(),
            None,
            (),
            "",
            id="DP8",
        ),
        pytest.param(
            ranks([f"DP0_TP{n}_EP{n}" for n in range(4)]),
            EngineLayout(tensor=4, stages=2),
            True,
            (),
            "DP0 4 × 96,733 MiB",
            id="experts",
        ),
        pytest.param(
            ranks(["PP0_TP0", "PP0_TP1", "PP1_TP0", "-"]),
            EngineLayout(tensor=2, stages=2),
            False,
            (3,),
            "GPU 3 (TP1) holds",
            id="the last of a stage",
        ),
        pytest.param(plain(*[FULL] * 7, 40_000.0).gpus, EngineLayout(), None, (), "", id="nothing tells who belongs together"),
        pytest.param(plain(FULL, FULL).gpus, EngineLayout(), None, (), "", id="two alike, perhaps of two engines"),
        pytest.param(plain(*[FULL] * 7, 40_000.0).gpus, EIGHT, False, (7,), None, id="no processes, but the log says eight"),
        pytest.param(
            plain(*[FULL] * 4, *[0.0] * 4).gpus,
            EngineLayout(tensor=4),
            True,
            (),
            "4 × 96,733 MiB",
            id="four of eight in use, four in the log",
        ),
        pytest.param(plain(FULL, 0.0).gpus, TWO, False, (1,), None, id="one of two in use, two in the log"),
        pytest.param(plain(*[FULL] * 8).gpus, EngineLayout(tensor=4, stages=2), None, (), "", id="two stages, which are which?"),
        pytest.param(plain(*[FULL] * 7).gpus, EIGHT, None, (), "", id="seven, eight in the log"),
        pytest.param(
            plain(*[FULL] * 8).gpus, EngineLayout(tensor=16, hosts=2), True, (), "8 × 96,733 MiB", id="half of sixteen on each host"
        ),
    ],
)
def test_uniformity_with_what_the_log_tells(
    gpus: tuple[Gpu, ...], engine: EngineLayout, even: bool | None, odd: tuple[int, ...], says: str | None
) -> None:
    judged = uniformity(GpuSample(gpus), engine)
    assert (judged.even, judged.odd) == (even, odd)
    if says is not None:
        assert judged.says.startswith(says)
        assert bool(judged.says) == bool(says)


def test_children_of_one_parent_that_name_no_rank_are_one_engines() -> None:
    def child(index: int, used: float, engine: bool = True) -> Gpu:
        process = GpuProcess(50 + index, "python3", used, engine, parent=9)
        return Gpu(index, memory_used_mib=used, memory_total_mib=TOTAL, processes=(process,))

    seven = tuple(child(index, FULL) for index in range(7))
    assert uniformity(GpuSample((*seven, child(7, FULL)))).even is True
    assert uniformity(GpuSample((*seven, child(7, 50_000.0)))).odd == (7,)
    assert uniformity(GpuSample((*seven, child(7, 50_000.0, engine=False)))) == Uniformity(None, (), "7 × 96,733 MiB")
    assert uniformity(GpuSample((*seven, unused(7))), EIGHT).odd == (7,)


def test_a_rank_that_is_not_there_yet_is_no_fault() -> None:
    """The workers' processes do not come up at the same moment."""
    assert uniformity(GpuSample(ranks(tensor(0, 1, 2, 3, 4, 5, 6, "-"), 600.0)), EIGHT) == Uniformity(None, (), "7 × 600 MiB")


def test_a_ready_server_is_compared_strictly_from_the_first_sample() -> None:
    """How long memory has been still is counted from the probe's start: `status` sees a second or two of it."""
    fresh = tuple(replace(gpu, memory_still_s=1.0) for gpu in ranked(*[FULL] * 5, 91_000.0, FULL, FULL))
    assert uniformity(GpuSample(fresh), EngineLayout(tensor=8, ready=True)).odd == (5,)
    assert uniformity(GpuSample(fresh), EngineLayout(tensor=8, loading=True)).even is None


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


def test_of_two_the_empty_one_is_odd_whichever_it_is() -> None:
    for empty in (0, 1):
        gpus = list(ranked(FULL, FULL))
        gpus[empty] = replace(gpus[empty], memory_used_mib=500.0)
        judged = uniformity(GpuSample(tuple(gpus)))
        assert judged.odd == (empty,)
        assert judged.says.startswith(f"GPU {empty} (TP{empty}) holds 500 MiB, 1 holds 96,733: nothing is loaded there")


READY = ApiStatus(reach=Reach.UP, health=200, models=(ServedModel("kimi"),))
LOADING = LoadState(phase=Phase.LOADING, lines=9, tensor_parallel=8, pipeline_parallel=2, data_parallel=1)


@pytest.mark.parametrize(
    ("state", "engine"),
    [
        pytest.param(DeploymentState("k", "a"), EngineLayout(), id="nothing known"),
        pytest.param(DeploymentState("k", "a", load=LOADING), EngineLayout(tensor=8, stages=2, loading=True), id="loading"),
        pytest.param(DeploymentState("k", "a", load=LOADING, api=READY), EngineLayout(tensor=8, stages=2, ready=True), id="ready"),
        pytest.param(DeploymentState("k", "a", api=READY), EngineLayout(ready=True), id="ready, no log"),
        pytest.param(
            DeploymentState("k", "a", load=replace(LOADING, phase=Phase.FAILED)),
            EngineLayout(),
            id="gone: what is there is not its",
        ),
        pytest.param(
            DeploymentState("k", "a", load=LOADING, others=(HostSeen("b"),)),
            EngineLayout(tensor=8, stages=2, hosts=2, loading=True),
            id="two hosts",
        ),
    ],
)
def test_what_is_known_of_the_engine(state: DeploymentState, engine: EngineLayout) -> None:
    assert engine_of(state) == engine


@pytest.mark.parametrize(
    ("engine", "local"),
    [
        (EngineLayout(), None),
        (EngineLayout(tensor=8), 8),
        (EngineLayout(tensor=16, hosts=2), 8),  # one stage over two hosts
        (EngineLayout(tensor=8, stages=2, hosts=2), 8),  # a stage a host
        (EngineLayout(tensor=4, stages=4, hosts=2), 4),
        (EngineLayout(tensor=8, hosts=3), 8),  # not spread evenly: nothing is known
    ],
)
def test_ranks_of_a_stage_on_one_host(engine: EngineLayout, local: int | None) -> None:
    assert engine.local == local
