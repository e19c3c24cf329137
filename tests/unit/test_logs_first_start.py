"""The very first start: a range until ready without history, from the table of recorded starts."""

import gzip
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from tui.core.logs.forecast import make_forecast
from tui.core.logs.load_state import Loader, LoadState, PastLoad, Phase, PhaseSpan
from tui.core.logs.log_reader import LogReader
from tui.core.logs.recorded_starts import recorded_starts

DATA = Path(__file__).parent.parent / "data" / "logs"


def states(name: str) -> list[LoadState]:
    """Return what a log has told after each of its lines with a time, until the server is ready."""
    path = DATA / name
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    reader, found = LogReader(year=2026), []
    for text in raw.decode("utf-8", "replace").splitlines():
        reader.feed(text)
        if reader.state.last_line_at is not None and reader.state.recognised:
            found.append(reader.state)
        if reader.state.ready:
            return found
    raise AssertionError(f"{name} is never ready")


def bounds(load: LoadState, now: float) -> tuple[float, float, float]:
    forecast = make_forecast(load, now, recorded=OTHERS)
    low, middle, high = forecast.ready_low_s, forecast.ready_eta_s, forecast.ready_high_s
    assert low is not None
    assert middle is not None
    assert high is not None
    assert not forecast.from_history
    return low, middle, high


OTHERS = recorded_starts()


# Name of the log, the phase just entered, and the seconds between which its range has to lie, around what was left in truth.
@pytest.mark.parametrize(
    ("name", "phase", "truth"),
    [
        ("h200/serve.log.gz", Phase.LOADING, 120),
        ("h200/serve.log.gz", Phase.COMPILING, 108),
        ("h200/tp2-serve.log", Phase.LOADING, 216),
        ("h200/tp2-serve.log", Phase.PROFILING, 175),
        ("servers/21-glm46-pp2-ready.log", Phase.POST_LOADING, 74),
        ("servers/26-kimi-k25-8xh200-ep8-ready.log", Phase.COMPILING, 94),
        ("servers/32-qwen25-72b-tp4-v1-090-ready.log", Phase.POST_LOADING, 65),
        ("servers/33-qwen3-30b-tp2-shm-broadcast-hang.log", Phase.POST_LOADING, 41),
        ("servers/29-llama31-8b-v0-compose-ready.log", Phase.PROFILING, 27),
        ("cpu/start-16-shards-slow.log", Phase.POST_LOADING, 2),
        ("cpu/start-plain.log", Phase.POST_LOADING, 22),
        ("cpu/start-slow-2gb.log", Phase.POST_LOADING, 4),
    ],
)
def test_the_range_of_recorded_starts_holds_the_truth(name: str, phase: Phase, truth: float) -> None:
    seen = states(name)
    entered = next(state for state in seen if state.phase is phase)
    at, ready = entered.phases[-1].started_at, seen[-1].ready_at
    assert at is not None
    assert ready is not None
    assert ready - at == pytest.approx(truth, abs=1)
    low, middle, high = bounds(entered, at)
    assert low - 1 <= truth <= high + 1, (low, middle, high)
    assert 0 <= low <= middle <= high


@pytest.mark.parametrize(
    "name", ["h200/serve.log.gz", "h200/tp2-serve.log", "servers/26-kimi-k25-8xh200-ep8-ready.log", "cpu/start-pty.log"]
)
def test_the_range_narrows_as_phases_end(name: str) -> None:
    widths = []
    for state, following in pairwise(states(name)):
        if following.phase is not state.phase and following.phase in (Phase.LOADING, Phase.POST_LOADING, Phase.CAPTURING):
            low, _, high = bounds(following, following.last_line_at or 0.0)
            widths.append(high - low)
    assert widths == sorted(widths, reverse=True)


def test_each_shard_narrows_the_range() -> None:
    widths = []
    for done in range(1, 64):
        steps = (12.0, *([5.0] * (done - 1)))
        last = 60.0 + sum(steps)
        bar = Loader("model", done, 64, "shards", 60.0, steps, last)
        spans = (PhaseSpan(Phase.STARTING, 0.0, 60.0), PhaseSpan(Phase.LOADING, 60.0))
        load = LoadState(
            engine="vllm",
            lines=9,
            started_at=0.0,
            first_line_at=0.0,
            last_line_at=last,
            phase=Phase.LOADING,
            shards=bar,
            phases=spans,
        )
        low, _, high = bounds(load, last)
        widths.append(high - low)
    assert all(later <= earlier + 0.01 for earlier, later in pairwise(widths))


@pytest.mark.parametrize("name", ["h200/serve.log.gz", "cpu/start-paced.log", "made/sglang-ready.log"])
def test_no_silence_counts_down_past_zero(name: str) -> None:
    """Whatever phase goes on and on, the range stays at or above zero, and what is late has an end that moves away."""
    for state in [state for state, following in pairwise(states(name)) if state.phase is not following.phase]:
        for silent in (0.0, 30.0, 300.0, 3000.0):
            low, middle, high = bounds(state, (state.last_line_at or 0.0) + silent)
            assert 0 <= low <= middle <= high
        if state.phase is not Phase.LOADING:
            assert high > 300.0, "after 50 minutes of silence nobody can say that it is ready in a moment"


def test_history_leads_from_the_second_start_on() -> None:
    state = next(state for state in states("h200/serve.log.gz") if state.phase is Phase.COMPILING)
    past = PastLoad(60.0, ((Phase.STARTING, 42.0), (Phase.LOADING, 6.0), (Phase.COMPILING, 10.0), (Phase.WARMING_UP, 2.0)))
    forecast = make_forecast(state, state.last_line_at or 0.0, (past,))
    assert forecast.from_history
    assert forecast.ready_eta_s == pytest.approx(12.0, abs=1)
    assert "usually" not in make_forecast(state, state.last_line_at or 0.0).reason


def test_flags_and_sizes_count() -> None:
    """The same moment with eager execution, with compiled code from the cache, with a model of ten times the size."""
    state = next(state for state in states("h200/tp2-serve.log") if state.phase is Phase.LOADING)
    now = state.last_line_at or 0.0
    compiled = bounds(replace(state, eager=False), now)[1]
    assert bounds(replace(state, eager=True, graph_sizes=0), now)[1] < compiled
    assert bounds(replace(state, compile_cached=True), now)[1] < compiled
    large = replace(state, checkpoint_gib=500.0)
    assert bounds(large, now)[2] > bounds(state, now)[2]


def test_the_expected_sizes_come_from_a_name_before_the_checkpoint_is_known() -> None:
    load = LoadState(
        engine="vllm", lines=3, started_at=0.0, first_line_at=0.0, last_line_at=9.0, phases=(PhaseSpan(Phase.STARTING, 0.0),)
    )
    small, large = (replace(load, model=f"org/Model-{size}-Instruct") for size in ("8B", "405B"))
    assert bounds(small, 10.0)[1] < bounds(large, 10.0)[1]


def test_nothing_is_expected_of_a_log_without_a_server() -> None:
    assert make_forecast(LoadState(lines=5), 10.0).ready_eta_s is None
