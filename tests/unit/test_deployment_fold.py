"""The state of a deployment: its one word, its conflicts, what events keep; and when a wait is over."""

import pytest
from msgspec.structs import replace

from tui.core.api_status import ApiStatus, Reach, ServedModel, ServerMetrics
from tui.core.connection import ConnectionState, LinkState
from tui.core.deployment import (
    ApiPolled,
    ConnectionChanged,
    DeploymentState,
    Event,
    GpusSampled,
    LogLine,
    LogRead,
    LogRestarted,
    LogTail,
    ProcessesSeen,
    fold,
)
from tui.core.deployment_status import Status, conflict_of, detail_of, exit_code_of, log_problem, status_of, unheard_text
from tui.core.gpu import Gpu, GpuSample
from tui.core.host_machine import MachineSample
from tui.core.liveness import SignTracker
from tui.core.logs.forecast import make_forecast
from tui.core.logs.load_state import Failure, LoadState, Phase, PhaseSpan, SignsOfLife
from tui.core.server_end import Supervisor
from tui.core.trends import TREND
from tui.core.wait_rules import Waiting, WaitOutcome, WaitRules
from tui.wire.log_prefixes import NO_LOG

ONLINE = DeploymentState("kimi", "gpu-box", connection=ConnectionState(LinkState.ONLINE))
UP = ApiStatus(Reach.UP, 200, (ServedModel("kimi"),))
CLOSED = ApiStatus(Reach.CLOSED)
SICK = ApiStatus(Reach.SICK, 503, (ServedModel("kimi"),))
FOREIGN = LoadState(lines=30)
LOADING = LoadState(phase=Phase.LOADING, lines=10)
READY = LoadState(phase=Phase.READY, ready=True, was_ready=True, lines=20)
FAILED = LoadState(phase=Phase.FAILED, lines=20, failure=Failure("cuda_oom", Phase.LOADING, "CUDA out of memory"))
STOPPED = LoadState(phase=Phase.STOPPED, lines=20)
ALIVE = SignsOfLife(process_alive=True)
GONE = SignsOfLife(process_alive=False)


@pytest.mark.parametrize(
    ("load", "api", "signs", "word", "code", "conflict"),
    [
        (None, ApiStatus(), SignsOfLife(), Status.WAITING, 3, None),
        (None, CLOSED, SignsOfLife(), Status.WAITING, 3, None),
        (LoadState(), CLOSED, SignsOfLife(), Status.WAITING, 3, None),
        (None, UP, SignsOfLife(), Status.READY, 0, None),
        (FOREIGN, CLOSED, SignsOfLife(), Status.WAITING, 3, None),
        (FOREIGN, UP, ALIVE, Status.READY, 0, None),
        (LOADING, CLOSED, ALIVE, Status.LOADING, 3, None),
        (READY, UP, ALIVE, Status.READY, 0, None),
        (READY, CLOSED, SignsOfLife(), Status.STOPPED, 7, "nothing listens"),
        (READY, CLOSED, ALIVE, Status.LOADING, 3, "nothing listens"),
        (READY, SICK, ALIVE, Status.FAILED, 4, "/health answers 503"),
        (READY, CLOSED, GONE, Status.FAILED, 4, "process is gone"),
        (LOADING, CLOSED, GONE, Status.FAILED, 4, "process is gone"),
        (FAILED, CLOSED, SignsOfLife(), Status.FAILED, 4, None),
        (FAILED, UP, ALIVE, Status.READY, 0, "the log says failed, but the API answers"),
        (STOPPED, CLOSED, SignsOfLife(), Status.STOPPED, 7, None),
        (LOADING, UP, ALIVE, Status.READY, 0, "still at loading"),
        (READY, ApiStatus(Reach.UP, 200, error="401 Unauthorized", key_refused=True), ALIVE, Status.READY, 0, "401 Unauthorized"),
        (READY, ApiStatus(Reach.UP, 200), ALIVE, Status.LOADING, 3, "an empty list"),
    ],
)
def test_status(load: LoadState | None, api: ApiStatus, signs: SignsOfLife, word: str, code: int, conflict: str | None) -> None:
    state = replace(ONLINE, signs=signs)
    if load is not None:
        state = fold(state, LogRead((), load))
    state = fold(fold(state, ApiPolled(api)), ApiPolled(api))
    assert (status_of(state), exit_code_of(state)) == (word, code)
    assert (conflict_of(state) is None) == (conflict is None)
    if conflict is not None:
        assert conflict in (conflict_of(state) or "")


def test_a_log_that_is_no_servers_log() -> None:
    state = fold(ONLINE, LogRead((), FOREIGN))
    assert detail_of(state) == log_problem(state) == "no line of it is of a vLLM, SGLang or llama.cpp server yet"
    assert log_problem(fold(ONLINE, LogRead((), LOADING))) is None
    assert log_problem(ONLINE) is None


@pytest.mark.parametrize(
    ("link", "word", "code"),
    [
        (LinkState.IDLE, Status.CONNECTING, 3),
        (LinkState.ASKING, Status.CONNECTING, 3),
        (LinkState.UNREACHABLE, Status.UNREACHABLE, 5),
        (LinkState.LOST, Status.LOST, 5),
        (LinkState.REFUSED, Status.REFUSED, 8),
    ],
)
def test_status_without_a_connection(link: LinkState, word: str, code: int) -> None:
    state = replace(ONLINE, connection=ConnectionState(link), load=READY, api=UP)
    assert (status_of(state), exit_code_of(state)) == (word, code)


@pytest.mark.parametrize(
    ("api", "log", "load", "word", "says"),
    [
        (ApiStatus(), LogTail(), None, Status.WAITING, None),
        (CLOSED, LogTail(source="/srv/vllm.log"), None, Status.LOADING, "the server's process 936 is running, nothing logged yet"),
        (CLOSED, LogTail(), LoadState(), Status.LOADING, "the server's process 936 is running, nothing logged yet"),
        (CLOSED, LogTail(source=NO_LOG), None, Status.LOADING, "the server's process 936 is running, its log can't be read"),
        (CLOSED, LogTail(problem="a terminal"), None, Status.LOADING, "the server's process 936 is running, its log can't be read"),
        (UP, LogTail(), None, Status.READY, None),
        (CLOSED, LogTail(), FAILED, Status.FAILED, None),
        (CLOSED, LogTail(), LOADING, Status.LOADING, None),
    ],
)
def test_a_process_before_its_first_line(api: ApiStatus, log: LogTail, load: LoadState | None, word: str, says: str | None) -> None:
    """Seen on a host with cold caches: 24 s from `vllm serve` to its first line."""
    state = replace(ONLINE, api=api, log=log, load=load, server_pid=936)
    assert (status_of(state), unheard_text(state)) == (word, says)
    lost = replace(state, connection=ConnectionState(LinkState.LOST))
    assert (status_of(lost), unheard_text(lost)) == (Status.LOST, None)


@pytest.mark.parametrize(
    ("signs", "api", "word", "conflict"),
    [
        (
            GONE,
            CLOSED,
            Status.FAILED,
            "the server's process is gone and left no readable log: check what started it, and dmesg",
        ),
        (SignsOfLife(), CLOSED, Status.WAITING, None),  # none was ever seen
        (GONE, ApiStatus(), Status.WAITING, None),  # not asked yet
        (GONE, UP, Status.READY, None),
    ],
)
def test_a_process_that_went_before_its_first_line(signs: SignsOfLife, api: ApiStatus, word: str, conflict: str | None) -> None:
    for load in (None, LoadState()):
        state = replace(fold(replace(ONLINE, signs=signs, load=load), ApiPolled(api)), log=LogTail(source="/srv/vllm.log"))
        assert (status_of(state), conflict_of(state)) == (word, conflict)


def test_a_poll_that_crossed_with_the_ready_line_is_no_conflict() -> None:
    state = fold(fold(ONLINE, ApiPolled(CLOSED)), LogRead((), READY))
    assert (status_of(state), conflict_of(state)) == (Status.LOADING, None)
    state = fold(state, ApiPolled(CLOSED))
    assert (status_of(state), conflict_of(state)) == (Status.LOADING, None)
    assert status_of(fold(state, ApiPolled(CLOSED))) == Status.STOPPED
    assert status_of(fold(state, ApiPolled(UP))) == Status.READY


def test_what_is_known_stays_while_the_link_is_lost() -> None:
    state = fold(ONLINE, GpusSampled(GpuSample((Gpu(0, memory_used_mib=5.0, memory_total_mib=10.0),))))
    state = fold(state, LogRead((LogLine("a"),), LOADING))
    lost = fold(state, ConnectionChanged(ConnectionState(LinkState.LOST)))
    assert lost.gpus == state.gpus
    assert lost.load == LOADING
    assert lost.log.lines == (LogLine("a"),)


def test_trends_are_bounded_and_know_nothing_as_none() -> None:
    state = ONLINE
    for number in range(TREND + 10):
        state = fold(state, GpusSampled(GpuSample((Gpu(0, memory_used_mib=float(number), memory_total_mib=1000.0), Gpu(1)))))
    assert len(state.trends.gpu_memory) == TREND
    assert state.trends.gpu_memory[-1] == (0.249, None)
    state = fold(state, ApiPolled(CLOSED))
    assert state.trends.generation_tokens_s == (None,)


def test_a_reading_from_the_start_again_keeps_the_pane_if_asked() -> None:
    state = fold(ONLINE, LogRead((LogLine("a"), LogLine("b")), LOADING, skipped=7))
    assert fold(state, LogRestarted(LoadState(), keep_lines=True)).log == state.log
    assert fold(state, LogRestarted(LoadState())).log.lines == ()
    assert state.log.skipped == 7


def test_signs_of_life() -> None:
    signs = SignTracker()
    signs.see_gpus(GpuSample((Gpu(0, memory_used_mib=100.0),)), 10.0)
    signs.see_gpus(GpuSample((Gpu(0, memory_used_mib=100.2),)), 20.0)
    assert signs.signs(20.0).gpu_memory_s == 10.0
    signs.see_gpus(GpuSample((Gpu(0, memory_used_mib=150.0),)), 25.0)
    assert signs.signs(30.0).gpu_memory_s == 5.0
    signs.see_gpus(GpuSample((Gpu(0, memory_used_mib=10.0),)), 40.0)
    assert signs.signs(40.0).gpu_memory_s == 15.0
    signs.see_machine(MachineSample(engine_read_bytes=1000, disk_read_mb_s=0.1), 40.0)
    signs.see_machine(MachineSample(engine_read_bytes=1000, disk_read_mb_s=50.0), 50.0)
    assert (signs.signs(50.0).engine_read_s, signs.signs(50.0).disk_read_s) == (10.0, 0.0)
    assert signs.signs(50.0).network_s is None

    def busy(tokens: float, running: float) -> ApiStatus:
        return ApiStatus(Reach.UP, 200, metrics=ServerMetrics(running=running, generation_tokens=tokens))

    signs.see_api(busy(100, 1), 50.0)
    signs.see_api(busy(100, 1), 120.0)
    assert signs.signs(120.0).tokens_s == 70.0
    assert signs.signs(120.0).requests_running == 1
    signs.see_api(busy(100, 0), 130.0)
    assert signs.signs(130.0).tokens_s == 0.0


# -- waiting -----------------------------------------------------------------------------------------------------------------------


def waiting(**rules: object) -> Waiting:
    return Waiting(WaitRules(**rules), 0.0)  # type: ignore[arg-type]


def test_wait_until_the_api_answers() -> None:
    wait = waiting()
    assert wait.look(replace(ONLINE, connection=ConnectionState()), 0, False) is WaitOutcome.GOES_ON
    assert wait.look(replace(ONLINE, load=LOADING, api=CLOSED), 1, True) is WaitOutcome.GOES_ON
    assert wait.look(replace(ONLINE, load=READY, api=CLOSED, signs=ALIVE), 2, True) is WaitOutcome.GOES_ON
    assert wait.look(replace(ONLINE, load=READY, api=UP), 3, True) is WaitOutcome.ANSWERS


def test_a_failure_that_comes_while_waiting_counts_at_once() -> None:
    wait = waiting()
    assert wait.look(replace(ONLINE, load=LOADING), 0, True) is WaitOutcome.GOES_ON
    assert wait.look(replace(ONLINE, load=FAILED), 1, True) is WaitOutcome.FAILED
    assert wait.why == "CUDA out of memory"


def test_an_old_failure_counts_only_after_the_grace_time() -> None:
    wait = waiting(grace_s=60)
    for now in (0, 30, 59):
        assert wait.look(replace(ONLINE, load=FAILED), now, True) is WaitOutcome.GOES_ON
    assert wait.look(replace(ONLINE, load=FAILED), 61, True) is WaitOutcome.FAILED


def test_an_old_failure_whose_server_lives_or_starts_again() -> None:
    wait = waiting(grace_s=60)
    assert wait.look(replace(ONLINE, load=FAILED, server_pid=7), 0, True) is WaitOutcome.GOES_ON
    assert wait.look(replace(ONLINE, load=FAILED, server_pid=7), 500, True) is WaitOutcome.GOES_ON
    assert wait.look(replace(ONLINE, load=replace(LOADING, restarts=1)), 501, True) is WaitOutcome.GOES_ON
    assert wait.look(replace(ONLINE, load=replace(FAILED, restarts=1)), 502, True) is WaitOutcome.FAILED


def test_restarts_that_a_supervisor_makes_good() -> None:
    wait = waiting(restarts=1, grace_s=60)
    assert wait.look(replace(ONLINE, load=LOADING), 0, True) is WaitOutcome.GOES_ON
    assert wait.look(replace(ONLINE, load=FAILED), 1, True) is WaitOutcome.GOES_ON
    assert wait.look(replace(ONLINE, load=replace(LOADING, restarts=1)), 10, True) is WaitOutcome.GOES_ON
    assert wait.look(replace(ONLINE, load=replace(FAILED, restarts=1)), 20, True) is WaitOutcome.FAILED


def test_a_process_that_vanishes_without_a_word() -> None:
    wait = waiting(grace_s=60)
    assert wait.look(replace(ONLINE, load=LOADING, signs=ALIVE, server_pid=7), 0, True) is WaitOutcome.GOES_ON
    gone = replace(ONLINE, load=LOADING, signs=GONE)
    assert wait.look(gone, 10, True) is WaitOutcome.GOES_ON
    assert wait.look(gone, 69, True) is WaitOutcome.GOES_ON
    assert wait.look(gone, 71, True) is WaitOutcome.FAILED
    assert "process is gone" in wait.why


def test_a_crash_loop_too_fast_to_be_seen_failing() -> None:
    def unit(restarts: int) -> DeploymentState:
        return replace(ONLINE, load=LOADING, supervisor=Supervisor("systemd", "vllm.service", running=True, restarts=restarts))

    wait = waiting(restarts=2)
    assert [wait.look(unit(count), count, True) for count in range(7, 10)] == [WaitOutcome.GOES_ON] * 3
    assert wait.look(unit(10), 10, True) is WaitOutcome.FAILED
    assert "3 starts have failed" in wait.why
    logs = waiting()
    assert logs.look(replace(ONLINE, load=LOADING), 0, True) is WaitOutcome.GOES_ON
    # Broken off by hand and started anew is no failure; again and again is.
    assert logs.look(replace(ONLINE, load=replace(LOADING, restarts=1)), 1, True) is WaitOutcome.GOES_ON
    assert logs.look(replace(ONLINE, load=replace(LOADING, restarts=2)), 2, True) is WaitOutcome.FAILED


def test_what_docker_says_of_a_container_that_was_killed() -> None:
    killed = Supervisor("docker", "vllm", running=False, restarts=0, exit_code=137, oom_killed=True)
    state = replace(ONLINE, load=LOADING, api=CLOSED, supervisor=killed)
    assert status_of(state) == Status.FAILED
    wait = waiting()
    assert wait.look(replace(ONLINE, load=LOADING), 0, True) is WaitOutcome.GOES_ON
    assert wait.look(state, 1, True) is WaitOutcome.FAILED
    assert "docker: killed by the kernel: out of memory (OOMKilled)" in wait.why


@pytest.mark.parametrize(
    ("supervisor", "says"),
    [
        (
            Supervisor("systemd", "v.service", restarts=3, signal=9, reason="signal"),
            "restarted 3 times, last end: killed by SIGKILL",
        ),
        (Supervisor("docker", "v", running=False, exit_code=1), "docker v, last end: ended with status 1"),
        (
            Supervisor("kubernetes", "n/p", restarts=1, exit_code=137, reason="Error"),
            "restarted 1 time, last end: killed by SIGKILL",
        ),
        (Supervisor("systemd", "v.service", restarts=0, exit_code=0, reason="success"), "systemd v.service"),
        (Supervisor("systemd", "v.service", reason="start-limit-hit"), "last end: start-limit-hit"),
    ],
)
def test_what_a_supervisor_says(supervisor: Supervisor, says: str) -> None:
    assert supervisor.says.endswith(says)


def test_new_does_not_take_the_old_server_for_the_new_one() -> None:
    wait = waiting(new=True)
    assert wait.look(replace(ONLINE, load=READY, api=UP), 0, True) is WaitOutcome.GOES_ON
    assert wait.look(replace(ONLINE, load=STOPPED, api=UP), 10, True) is WaitOutcome.GOES_ON
    begun = replace(LOADING, restarts=1)
    assert wait.look(replace(ONLINE, load=begun, api=CLOSED), 20, True) is WaitOutcome.GOES_ON
    assert wait.look(replace(ONLINE, load=replace(READY, restarts=1), api=UP), 30, True) is WaitOutcome.ANSWERS


def test_the_ends_of_a_wait() -> None:
    assert waiting(timeout_s=5).look(ONLINE, 5, True) is WaitOutcome.TIMED_OUT
    unreachable = replace(ONLINE, connection=ConnectionState(LinkState.UNREACHABLE))
    assert waiting().look(unreachable, 0, False) is WaitOutcome.UNREACHABLE
    assert waiting().look(replace(ONLINE, connection=ConnectionState(LinkState.REFUSED)), 0, False) is WaitOutcome.REFUSED
    seen = waiting()
    seen.look(ONLINE, 0, True)
    assert seen.look(unreachable, 1, True) is WaitOutcome.GOES_ON


def begun(first_line_at: float, *, ready_at: float | None = None) -> LoadState:
    """Return a start as its log tells it."""
    phases = (PhaseSpan(Phase.STARTING, first_line_at, 5.0), PhaseSpan(Phase.LOADING, first_line_at + 5, None))
    return LoadState(lines=9, started_at=first_line_at, first_line_at=first_line_at, ready_at=ready_at, phases=phases)


@pytest.mark.parametrize(
    ("starts", "first_line_at", "expected"),
    [
        ((1000.0,), 1016.0, 1000.0),  # the imports come before the first line
        ((1016.4,), 1016.0, 1016.0),  # whole seconds
        ((1100.0,), 1016.0, 1016.0),  # the log is still that of the start before
        ((1000.0, 1100.0), 1016.0, 1000.0),  # as read before it was started anew
        ((1000.0, 1100.0), 1120.0, 1100.0),
        ((1000.0,), 4616.0, 4616.0),  # a log in another zone's time
        ((), 1016.0, 1016.0),
    ],
)
@pytest.mark.parametrize("log_first", [True, False])
def test_a_start_begins_with_its_process(starts: tuple[float, ...], first_line_at: float, expected: float, log_first: bool) -> None:
    load = begun(first_line_at, ready_at=first_line_at + 140)
    read: list[Event] = [LogRead((), load)]
    seen: list[Event] = [ProcessesSeen(7, started_at=at) for at in starts]
    state = DeploymentState("kimi", "gpu")
    for event in (*read, *seen) if log_first else (*seen, *read):
        state = fold(state, event)
    assert state.load is not None
    assert state.load.started_at == expected
    assert state.load.phases[0] == PhaseSpan(Phase.STARTING, expected, first_line_at + 5 - expected)
    ready = replace(state.load, phase=Phase.READY, ready=True)
    assert make_forecast(ready, first_line_at + 200).ready_s == first_line_at + 140 - expected
