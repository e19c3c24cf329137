"""GPUs that a driver lists no more: told by their UUIDs, since it numbers the rest anew."""

import pytest
from gpu_samples import ranks, tensor
from msgspec.structs import replace

from tui.core.deployment import DeploymentState, GpusSampled, HostSeen, fold
from tui.core.gpu import Gpu, GpuSample
from tui.core.gpu_groups import EngineLayout
from tui.core.gpu_health import findings, health
from tui.core.gpu_uniformity import uniformity

EIGHT = "abcdefgh"


def sample(uuids: str, part: bool = False, slots: str = "") -> GpuSample:
    """Return a sample with one GPU a letter: `-` is one that tells nothing but its number."""
    gpus = ranks(tensor(*range(len(uuids))))
    named = (
        Gpu(gpu.index, error="Unknown Error") if uuid == "-" else replace(gpu, uuid=f"GPU-{uuid}", pci=slot)
        for gpu, uuid, slot in zip(gpus, uuids, slots or uuids, strict=True)
    )
    return GpuSample(tuple(named), source="nvml", part=part)


def seen(*samples: GpuSample) -> DeploymentState:
    state = DeploymentState("kimi", "gpu-a")
    for sample in samples:
        state = fold(state, GpusSampled(sample))
    return state


@pytest.mark.parametrize(
    ("samples", "gone"),
    [
        pytest.param((sample(EIGHT),), "", id="the first sample"),
        pytest.param((sample(EIGHT), sample("abcefgh")), "d", id="one is gone, without a gap"),
        pytest.param(
            (sample(EIGHT), GpuSample(note="driver/library version mismatch"), sample("abcefgh")), "d", id="after a reload"
        ),
        pytest.param((sample(EIGHT), sample("abcefgh"), sample("abcefgh")), "d", id="it stays so"),
        pytest.param((sample(EIGHT), sample("abcefgh"), sample("abcefg")), "dh", id="and another"),
        pytest.param((sample(EIGHT), sample("abcefgh"), sample(EIGHT)), "", id="it is back"),
        pytest.param((sample(EIGHT), sample("abcxefgh")), "", id="replaced"),
        pytest.param((sample(EIGHT), sample("abcxefg", slots="abcdefg")), "h", id="one replaced in its slot, one gone"),
        pytest.param((sample(EIGHT), sample("abc-efgh")), "", id="it can't be asked"),
        pytest.param((GpuSample(), sample("abc")), "", id="none before"),
        pytest.param((sample("ab", part=True), sample("a", part=True)), "b", id="of some of the host"),
    ],
)
def test_gone(samples: tuple[GpuSample, ...], gone: str) -> None:
    found = seen(*samples).gpus
    assert found is not None
    assert [gpu.uuid for gpu in found.gone] == [f"GPU-{number}" for number in gone]


def test_it_is_said_by_name_and_even_is_not_claimed() -> None:
    now = seen(sample(EIGHT), sample("abcefgh")).gpus
    assert now is not None
    assert health(now) == ("GPU 3 (GPU-d) is missing, it was here before: the driver lists 7 of 8, numbered anew",)
    assert [index for index, _ in findings(now)] == [None]  # the one that has its number now is well
    assert uniformity(now, EngineLayout(tensor=7)).even is None
    without = seen(sample(EIGHT), GpuSample(note="no driver")).gpus
    assert without is not None
    assert health(without) == ()  # the note says it


def test_a_gap_is_said_once() -> None:
    eight = sample(EIGHT)
    now = seen(eight, replace(eight, gpus=tuple(gpu for gpu in eight.gpus if gpu.index != 3))).gpus
    assert now is not None
    assert health(now) == ("GPU 3 is missing: the driver lists 7 of 8",)


def test_further_hosts_are_remembered_too() -> None:
    state = DeploymentState("kimi", "gpu-a")
    for gpus in (sample(EIGHT), None, sample("abcefgh")):
        state = fold(state, HostSeen("gpu-b", gpus=gpus))
    (other,) = state.others
    assert other.gpus is not None
    assert [gpu.uuid for gpu in other.gpus.gone] == ["GPU-d"]
