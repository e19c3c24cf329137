"""Growth of memory since the server is ready: by the clock, not by the sample; an alarm only if it is one."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tui.cli.status import status_lines
from tui.core.api_status import ApiStatus, Reach, ServedModel
from tui.core.connection import ConnectionState, LinkState
from tui.core.deployment import ApiPolled, DeploymentState, GpusSampled, HostSeen, ProcessesSeen, fold
from tui.core.gpu import Gpu, GpuSample
from tui.core.gpu_findings import hosts_of
from tui.core.snapshot import snapshot
from tui.core.trends import POINTS, MemoryCourse, followed, outgrowth, peak_mib

TOTAL = 97_887.0
HOUR = 3600.0
UP = ApiStatus(Reach.UP, 200, (ServedModel("kimi"),))


def sample(at: float, *used: float) -> GpuSample:
    gpus = tuple(Gpu(index, memory_used_mib=mib, memory_total_mib=TOTAL) for index, mib in enumerate(used))
    return GpuSample(gpus, source="nvml", received_at=at)


def course(used_at: Callable[[float], float], seconds: float, hz: float = 0.5) -> tuple[MemoryCourse, GpuSample]:
    """GPU 1 as it goes, GPU 0 still."""
    found = None
    last = sample(0.0)
    for n in range(int(seconds * hz) + 1):
        last = sample(1000.0 + n / hz, 90_000.0, used_at(n / hz))
        found = followed(found, last)
    assert found is not None
    return found, last


@pytest.mark.parametrize(
    ("used_at", "seconds", "per_hour", "full_s"),
    [
        (lambda at: 95_833.0 + 900.0 * at / HOUR, HOUR, 900.0, 4616.0),
        (lambda at: 90_000.0 + 5000.0 * at / HOUR, 700.0, 5000.0, 4979.0),
        (lambda at: 90_000.0 + 5000.0 * at / HOUR, 500.0, None, None),  # too short to tell
        (lambda at: 96_733.0, 2 * HOUR, 0.0, None),  # full and still: as it should be
        (lambda at: 40_000.0 + 900.0 * at / HOUR, HOUR, 900.0, None),  # full in 64 h
        (lambda at: 96_000.0 + 30.0 * at / HOUR, HOUR, 30.0, None),  # within the noise
        (lambda at: 96_000.0 + (600.0 if at > 300.0 else 0.0), 700.0, None, None),  # a step
        (lambda at: 96_000.0 + min(600.0, at), 1500.0, None, None),  # comes to rest: what the first requests take
        (lambda at: 96_000.0 + 200.0 * (at // 60 % 2), HOUR, None, None),  # up and down
        (lambda at: 90_000.0 + max(0.0, at - 4 * HOUR) * 2000.0 / HOUR, 5 * HOUR, 2000.0, 10_598.0),  # begins late
        (lambda at: 94_000.0 + 256.0 * (at // 900), 3 * HOUR, None, 2865.0),  # in pieces
    ],
)
def test_growth(used_at: Callable[[float], float], seconds: float, per_hour: float | None, full_s: float | None) -> None:
    found = outgrowth(*course(used_at, seconds))
    if per_hour is not None:
        assert found is not None
        assert found.growth.mib_per_hour == pytest.approx(per_hour, rel=0.05, abs=1.0)
    assert (found.full_s if found else None) == (pytest.approx(full_s, rel=0.1) if full_s is not None else None)


@pytest.mark.parametrize("hz", [0.5, 2.0, 10.0])
def test_the_clock_counts_and_not_the_samples(hz: float) -> None:
    found = outgrowth(*course(lambda at: 90_000.0 + 5000.0 * at / HOUR, 1200.0, hz))
    assert found is not None
    assert found.growth.mib_per_hour == pytest.approx(5000.0, rel=0.01)
    assert found.full_s is not None


def test_what_is_kept_is_bounded_over_days() -> None:
    kept, last = course(lambda at: 96_000.0, 48 * HOUR, 0.2)
    assert len(kept.points) <= POINTS
    assert kept.points[-1][0] - kept.points[0][0] > 3 * HOUR
    assert last.received_at is not None
    assert last.received_at - kept.points[-1][0] <= 120.0


def test_the_peak_is_of_the_gpu_that_came_nearest_to_full() -> None:
    kept, last = course(lambda at: 97_000.0 if at == 100.0 else 95_000.0, 700.0)
    assert peak_mib(kept, last) == 97_000.0
    assert peak_mib(None, last) is None


def test_a_driver_that_does_not_answer_tells_nothing_of_growth() -> None:
    kept, last = course(lambda at: 90_000.0 + 5000.0 * at / HOUR, 1200.0)
    late = replace(last, late=True, received_at=9e9)
    assert followed(kept, late) == kept
    assert outgrowth(kept, late) is None


def grown() -> DeploymentState:
    """Two hosts over an hour, the further one with a leak."""
    state = DeploymentState("kimi", "gpu-a", ConnectionState(LinkState.ONLINE, "gpu-a"))
    state = fold(state, GpusSampled(sample(990.0, 20_000.0)))  # still loading: it does not count
    state = fold(state, ApiPolled(UP))
    for n in range(361):
        at = 1000.0 + 10.0 * n
        state = fold(state, GpusSampled(sample(at, 96_733.0)))
        link = ConnectionState(LinkState.ONLINE, "gpu-b")
        state = fold(state, HostSeen("gpu-b", link, sample(at, 95_833.0 + 900.0 * 10.0 * n / HOUR)))
    return state


def test_growth_is_said_of_every_host() -> None:
    state = grown()
    says = "GPU 0: grows by 900 MiB an hour, at this pace full in 77 min"
    assert [host.wrong for host in hosts_of(state)] == [(), (says,)]
    told = "\n".join(status_lines(state, 4600.0))
    assert "since ready: peak 96,733 MiB, growth +0 MiB an hour" in told
    assert "since ready: peak 96,733 MiB, growth +900 MiB an hour" in told
    assert says in told
    document = snapshot(state, 4600.0)
    assert (document["peak_mib"], document["growth_mib_per_hour"]) == (96_733.0, 0.0)
    (other,) = document["others"]
    assert (other["peak_mib"], other["growth_mib_per_hour"]) == (96_733.0, 900.0)
    assert (other["headroom"]["gpu"], other["headroom"]["free_mib"]) == (0, 1154.0)
    assert other["headroom"]["free_share"] == pytest.approx(0.0118, abs=1e-4)
    assert other["gpu_health"] == [says]


def test_another_server_begins_anew() -> None:
    state = fold(grown(), ProcessesSeen(7))
    assert state.ready_memory is not None
    again = fold(state, ProcessesSeen(8))
    assert (again.ready_memory, again.others[0].ready_memory) == (None, None)
    closed = fold(fold(grown(), ApiPolled(ApiStatus(Reach.CLOSED))), GpusSampled(sample(9000.0, 100.0)))
    assert closed.ready_memory is None
