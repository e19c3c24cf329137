"""What the store makes of events: a server's end that only its processes tell is one failure, in every field that shows it."""

import pytest

from tui.core.api_status import ApiStatus, Reach
from tui.core.connection import ConnectionState, LinkState
from tui.core.deployment import (
    ApiPolled,
    DeploymentState,
    ForecastMade,
    LogRead,
    MachineSampled,
    ProcessesSeen,
)
from tui.core.deployment_status import Status, status_of
from tui.core.gpu_groups import next_steps
from tui.core.host_machine import MachineSample
from tui.core.logs.load_state import Failure, Forecast, LoadState, Phase, PhaseSpan, Verdict
from tui.services.deployment_store import DeploymentStore

READY = LoadState(
    phase=Phase.READY,
    ready=True,
    was_ready=True,
    lines=20,
    started_at=100.0,
    ready_at=165.0,
    last_line_at=170.0,
    phases=(PhaseSpan(Phase.STARTING, 100.0, 65.0), PhaseSpan(Phase.READY, 165.0)),
)
LOADING = LoadState(phase=Phase.LOADING, lines=9, phases=(PhaseSpan(Phase.LOADING),))
KILLED = LoadState(phase=Phase.FAILED, lines=9, failure=Failure("host_oom_or_killed", Phase.LOADING, "Killed", advice="dmesg"))
GIB = 1024.0


def watched(*, ram: tuple[float, float] | None) -> DeploymentStore:
    """Return the store of a server that runs, on a host with so many GiB available and in all."""
    state = DeploymentState("box", "box", ConnectionState(LinkState.ONLINE))
    store = DeploymentStore(state, lambda load: ForecastMade(Forecast(Verdict.PROGRESSING), store.signs.signs(0.0)))
    store.publish(ApiPolled(ApiStatus(Reach.CLOSED)))
    store.publish(ProcessesSeen(7))
    if ram is not None:
        store.publish(MachineSampled(MachineSample(ram_available_mib=ram[0] * GIB, ram_total_mib=ram[1] * GIB)))
    return store


def gone(store: DeploymentStore) -> None:
    store.publish(ProcessesSeen(None))
    store.publish(MachineSampled(MachineSample(ram_available_mib=23 * GIB, ram_total_mib=23 * GIB)))
    store.signs.process_alive = False
    store.make_forecast()


@pytest.mark.parametrize("load", [READY, LOADING])
@pytest.mark.parametrize(("ram", "says"), [((20, 23), "3 of 23 GiB in use when it ended"), ((1, 23), "dmesg"), (None, "dmesg")])
def test_a_process_that_is_gone_without_a_word_has_failed(load: LoadState, ram: tuple[float, float] | None, says: str) -> None:
    store = watched(ram=ram)
    store.publish(LogRead((), load))
    gone(store)
    for _ in range(2):
        state = store.state
        assert status_of(state) is Status.FAILED
        assert state.load is not None
        assert (state.load.phase, state.load.ready, state.load.was_ready) == (Phase.FAILED, False, load.ready)
        assert state.load.phases[-1].name is Phase.FAILED
        assert state.load.failure is not None
        assert "its log does not say why" in state.load.failure.cause
        assert says in next_steps(state)[0]
        assert ("dmesg" in next_steps(state)[0]) == (says == "dmesg")
        store.publish(LogRead((), load))  # what comes of the log afterwards tells no more
    store.publish(ProcessesSeen(8))
    assert store.state.load == load  # its process was only out of sight, or is another


@pytest.mark.parametrize(("ram", "says"), [((20, 23), "3 of 23 GiB"), ((1, 23), "dmesg"), (None, "dmesg")])
def test_one_whose_log_says_killed_was_short_of_memory_only_if_the_host_was(ram: tuple[float, float] | None, says: str) -> None:
    store = watched(ram=ram)
    gone(store)
    store.publish(LogRead((), KILLED))
    assert says in next_steps(store.state)[0]
