"""A deployment has one status: the screen, the texts, the JSON documents and the exit codes say the same in every combination."""

from collections.abc import Iterator
from itertools import product

import pytest
from msgspec.structs import replace

from tui.cli.status import status_lines, table
from tui.cli.wait import where
from tui.core.api_status import ApiStatus, Reach, ServedModel
from tui.core.connection import ConnectionState, LinkState
from tui.core.deployment import DeploymentState, HaltedProcess, ServerSeen
from tui.core.deployment_status import EXIT_CODES, Status, arranged, exit_code_of, gravity, has_settled, status_of
from tui.core.logs.load_state import Failure, Forecast, LoadState, Phase, SignsOfLife, Verdict
from tui.core.snapshot import snapshot
from tui.widgets.fleet_view import counts
from tui.widgets.status_line import LOOKS, chip

MODELS = (ServedModel("kimi"),)
APIS = {
    "not asked": ApiStatus(),
    "closed": ApiStatus(Reach.CLOSED, received_at=1.0),
    "engine dead": ApiStatus(Reach.SICK, 503, MODELS, received_at=1.0),
    "health refused": ApiStatus(Reach.SICK, 401, received_at=1.0),
    "no model": ApiStatus(Reach.UP, 200, received_at=1.0),
    "key refused": ApiStatus(Reach.UP, 200, error="401 Unauthorized", key_refused=True, received_at=1.0),
    "ready": ApiStatus(Reach.UP, 200, MODELS, received_at=1.0),
    "odd": ApiStatus(Reach.ERROR, error="no HTTP", received_at=1.0),
}
LOGS: dict[str, LoadState | None] = {"none": None, "empty": LoadState()} | {
    phase.value: LoadState(
        phase=phase,
        lines=9,
        ready=phase is Phase.READY,
        was_ready=phase is Phase.READY,
        failure=Failure("cuda_oom", Phase.LOADING, "CUDA out of memory") if phase is Phase.FAILED else None,
    )
    for phase in Phase
}


def combinations() -> Iterator[DeploymentState]:
    """Yield every combination of log, API, connection and process."""
    for log, api, link, alive, pid, polls in product(LOGS, APIS, LinkState, (None, True, False), (None, 7), (0, 3)):
        yield DeploymentState(
            "d",
            "gpu-box",
            ConnectionState(link),
            load=LOGS[log],
            api=APIS[api],
            signs=SignsOfLife(process_alive=alive),
            server_pid=pid,
            down_polls=polls,
        )
    stopped = ServerSeen(7, "vllm", halted=(HaltedProcess(8, "VLLM::EngineCore"),))
    for said in APIS.values():
        state = DeploymentState("d", "gpu-box", ConnectionState(LinkState.ONLINE), load=LOGS["ready"], api=said)
        yield replace(state, forecast=Forecast(Verdict.HUNG, "no token has come for 2 min"))
        yield replace(state, server_pid=7, servers=(stopped,))


def test_all_say_the_same() -> None:
    seen = set()
    for state in combinations():
        status = status_of(state)
        seen.add(status)
        assert chip(state).plain.split(maxsplit=1)[1].strip() == status.label
        assert next(status_lines(state)).removeprefix("d: ").startswith(status.label)
        assert list(table([state]))[1].split(maxsplit=1)[1].startswith(status.label)
        assert counts((state,)).plain == f"{LOOKS[status][0]} 1 {status.label.lower()}"
        assert snapshot(state, 2.0)["status"] == status.value
        assert exit_code_of(state) == EXIT_CODES[status]
        assert arranged([state], "by name", status.label) == [state]
    assert seen == set(Status) - {Status.MISCONFIGURED}
    assert all(len(status.label) <= 11 for status in Status)


def online(log: str, api: str, polls: int = 3, alive: bool | None = None, pid: int | None = None) -> DeploymentState:
    return DeploymentState(
        "d",
        "gpu-box",
        ConnectionState(LinkState.ONLINE),
        load=LOGS[log],
        api=APIS[api],
        signs=SignsOfLife(process_alive=alive),
        server_pid=pid,
        down_polls=polls,
    )


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (online("ready", "engine dead"), Status.FAILED),
        (online("ready", "engine dead", polls=1), Status.LOADING),  # the poll may have crossed with the ready line
        (online("ready", "closed"), Status.STOPPED),
        (online("ready", "closed", polls=1), Status.LOADING),
        (online("ready", "closed", alive=True), Status.LOADING),  # it may listen on another port
        (online("ready", "closed", alive=False), Status.FAILED),
        (online("ready", "closed", alive=False, pid=7), Status.STOPPED),  # another process serves it now, or will
        (online("failed", "closed"), Status.FAILED),
        (online("stopped", "closed"), Status.STOPPED),
        (online("ready", "no model"), Status.LOADING),
        (online("ready", "key refused"), Status.READY),  # it serves those who have its key
        (online("ready", "health refused"), Status.LOADING),
        (online("ready", "odd"), Status.LOADING),
        (online("ready", "not asked", polls=0), Status.READY),
        (online("none", "no model"), Status.LOADING),
        (online("none", "engine dead"), Status.LOADING),
        (online("none", "key refused"), Status.READY),
        (online("none", "closed"), Status.WAITING),
        (online("none", "closed", pid=7), Status.LOADING),
        (online("empty", "closed", alive=False), Status.FAILED),
        (online("loading", "key refused"), Status.LOADING),
        (online("loading", "ready"), Status.READY),
        (online("failed", "ready"), Status.READY),
        (online("loading", "engine dead"), Status.LOADING),
        (replace(online("ready", "ready"), misconfigured="no key"), Status.MISCONFIGURED),
    ],
)
def test_the_status_is_true(state: DeploymentState, status: Status) -> None:
    assert status_of(state) is status


def test_a_poll_that_may_have_crossed_with_the_ready_line_settles_nothing() -> None:
    from tui.core.gpu import GpuSample
    from tui.core.logs.load_state import Forecast

    judged = {"gpus": GpuSample(()), "forecast": Forecast(ready_s=5.0)}
    for api in ("closed", "engine dead"):
        assert not has_settled(replace(online("ready", api, polls=1), **judged))
        assert has_settled(replace(online("ready", api, polls=2), **judged))


@pytest.mark.parametrize(
    ("state", "first", "waiting"),
    [
        (online("loading", "closed"), "d: LOADING: loading", "loading"),
        (
            online("ready", "closed", polls=1),
            "d: LOADING: the log says ready, the API not yet",
            "the log says ready, the API not yet",
        ),
        (online("ready", "no model"), "d: LOADING: the server is up, but lists no model", "the server is up, but lists no model"),
        (
            online("ready", "engine dead"),
            "d: FAILED: the log says ready, but /health answers 503",
            "the log says ready, but /health answers 503",
        ),
        (online("none", "closed"), "d: WAITING", "waiting for a server to start"),
    ],
)
def test_status_and_wait_give_the_reason(state: DeploymentState, first: str, waiting: str) -> None:
    assert next(status_lines(state)) == first
    assert where(state) == waiting


def test_the_worst_come_first() -> None:
    states = [online("ready", "ready"), online("none", "closed"), online("loading", "closed"), online("failed", "closed")]
    assert arranged(states, "worst first") == states[::-1]
    assert gravity(states[-1]) == 0
