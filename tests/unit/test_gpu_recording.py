"""Two real H200s while 96 GiB are put on each in 64 steps: the probe's frames beside nvidia-smi's readings of the same minute."""

import json
from bisect import bisect_right
from functools import cache
from pathlib import Path
from typing import Any

from tui.core.gpu import GpuSample
from tui.core.gpu_frames import gpus_from_frame, machine_from_frame
from tui.core.gpu_health import headroom, health
from tui.core.gpu_uniformity import uniformity
from tui.core.host_machine import MachineSample

DATA = Path(__file__).parents[1] / "data" / "gpu"


@cache
def frames(name: str) -> tuple[dict[str, Any], ...]:
    lines = (DATA / "h200x2-load.jsonl").read_text().splitlines()
    return tuple(frame for line in lines if (frame := json.loads(line))["f"] == name)


@cache
def samples() -> tuple[GpuSample, ...]:
    return tuple(gpus_from_frame(frame, float(number)) for number, frame in enumerate(frames("gpus")))


def test_memory_agrees_with_nvidia_smi_within_one_sample() -> None:
    walls = [sample.wall or 0.0 for sample in samples()]
    readings = [line.split(", ") for line in (DATA / "h200x2-load.smi.csv").read_text().splitlines()[1:]]
    compared = 0
    for at, index, used in ((float(at), int(index), float(used)) for at, index, used in readings):
        place = bisect_right(walls, at)
        # the reading was taken some 30 ms after its stamp
        after = bisect_right(walls, at + 0.05)
        if not 0 < place <= after < len(walls):
            continue
        around = [samples()[number].gpus[index].memory_used_mib or 0.0 for number in (place - 1, after)]
        assert min(around) <= used <= max(around)
        compared += 1
    assert compared > 100


def test_the_load_as_seen() -> None:
    first, last = samples()[0], samples()[-1]
    assert (first.source, first.driver, first.cuda) == ("nvml", "580.159.04", "13.0")
    assert [gpu.memory_used_mib for gpu in first.gpus] == [0.0, 0.0]
    assert uniformity(first).even is None
    full = next(sample for sample in reversed(samples()) if sample.gpus[0].processes)
    assert [gpu.memory_used_mib for gpu in full.gpus] == [99_277.0, 99_277.0]
    assert [[process.name for process in gpu.processes] for gpu in full.gpus] == [["VLLM::Worker_TP0"], ["VLLM::Worker_TP1"]]
    assert [gpu.processes[0].memory_mib for gpu in full.gpus] == [99_268.0, 99_268.0]
    judged = uniformity(full)
    assert (judged.even, judged.says) == (True, "2 × 99,277 MiB")
    free = headroom(full)
    assert free is not None
    assert free.free_mib == 44_494.0
    assert (full.gpus[0].nvlinks_up, full.gpus[0].nvlinks_total) == (18, 18)
    assert health(full) == ()
    assert last.xids == ()


def test_nothing_false_is_said_on_the_way() -> None:
    """While it loads, the two are uneven at times by a step of 1.5 GiB; nothing else is amiss at any time."""
    assert all(health(sample) == () for sample in samples())


def test_the_machine_meanwhile() -> None:
    before: MachineSample | None = None
    rates = []
    for number, frame in enumerate(frames("machine")):
        before = machine_from_frame(frame, before, float(number))
        rates.append(before.cpu_percent)
    assert before is not None
    assert (before.cores, before.ram_total_mib, before.disk) == (32, 257_811.0, "vda")
    assert rates[0] is None
    assert all(rate is not None and 0 <= rate <= 100 for rate in rates[1:])
