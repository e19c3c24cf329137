"""ETA and verdict in virtual time."""

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tui.core.logs.forecast import make_forecast, typical_step
from tui.core.logs.load_state import Loader, LoadState, PastLoad, Phase, PhaseSpan, SignsOfLife, Verdict
from tui.core.logs.log_reader import LogReader
from tui.core.text import LineSplitter

DATA = Path(__file__).parent.parent / "data" / "logs"
LOAD = LoadState(engine="vllm", version="0.24.0", lines=100, started_at=0.0, last_line_at=100.0)
PAST = PastLoad(
    total_s=2160.0,
    phases=(
        (Phase.STARTING, 60.0),
        (Phase.LOADING, 1700.0),
        (Phase.POST_LOADING, 60.0),
        (Phase.COMPILING, 120.0),
        (Phase.PROFILING, 20.0),
        (Phase.KV_CACHE, 5.0),
        (Phase.CAPTURING, 45.0),
        (Phase.WARMING_UP, 150.0),
    ),
    step_seconds=(60.0, *([26.0] * 63)),
)


def loading(done: int, total: int = 64, step: float = 34.0, first: float = 120.0, since: float = 0.0) -> tuple[LoadState, float]:
    """Return a load in the midst of its shards, and the time `since` seconds after the last one."""
    steps = (first, *([step] * (done - 1)))
    last = 60.0 + sum(steps)
    bar = Loader("model", done, total, "shards", 60.0, steps, last)
    load = replace(
        LOAD,
        phase=Phase.LOADING,
        shards=bar,
        loaders=(bar,),
        last_line_at=last,
        engine_started_at=30.0,
        phases=(PhaseSpan(Phase.STARTING, 0.0, 60.0), PhaseSpan(Phase.LOADING, 60.0)),
    )
    return load, last + since


def test_the_first_step_does_not_count() -> None:
    assert typical_step(Loader("model", 1, 64, "shards", 0.0, (120.0,), 120.0)) is None
    assert typical_step(Loader("model", 3, 64, "shards", 0.0, (120.0, 30.0, 30.0), 180.0)) == pytest.approx(30.0)


def test_eta_follows_what_the_storage_does_now() -> None:
    bar = Loader("model", 41, 64, "shards", 0.0, (60.0, *([10.0] * 20), *([30.0] * 20)), 860.0)
    step = typical_step(bar)
    assert step is not None
    assert 24.0 < step < 30.0


def test_eta_of_the_shards_with_nothing_to_compare() -> None:
    load, now = loading(14)
    forecast = make_forecast(load, now)
    assert forecast.verdict is Verdict.PROGRESSING
    assert forecast.s_per_shard == pytest.approx(34.0)
    assert forecast.shards_eta_s == pytest.approx(50 * 34.0, rel=0.01)
    assert forecast.ready_eta_s is not None
    assert forecast.ready_eta_s > 50 * 34.0, "what comes after the shards counts"
    assert forecast.reason == "34.0 s a shard, steady"


def test_bytes_are_a_second_opinion() -> None:
    load, now = loading(14)
    load = replace(load, checkpoint_gib=547.0)
    steps = 50 * 34.0
    by_bytes = 547.0 * 50 / 64 / 0.3
    assert make_forecast(load, now, signs=SignsOfLife(read_gib_s=0.3)).shards_eta_s == pytest.approx(
        (steps + by_bytes) / 2, rel=0.01
    )
    assert make_forecast(load, now, signs=SignsOfLife(read_gib_s=3.0)).shards_eta_s == pytest.approx(steps, rel=0.01), (
        "eight ranks read it"
    )


def test_history_tells_slow_and_the_whole_start() -> None:
    load, now = loading(14)
    forecast = make_forecast(load, now, (PAST,))
    assert forecast.verdict is Verdict.SLOW
    assert forecast.reason == "34.0 s a shard, usually 26.0 s"
    assert forecast.ready_eta_s == pytest.approx(50 * 34.0 + 400.0, rel=0.01)
    assert forecast.usual_s == 2160.0
    assert forecast.behind_s is not None
    assert forecast.behind_s > 300


def test_on_time() -> None:
    load, now = loading(14, step=26.0, first=60.0)
    forecast = make_forecast(load, now, (PAST,))
    assert forecast.verdict is Verdict.ON_TIME
    assert forecast.ready_eta_s == pytest.approx(2160.0 - (now - 0.0), abs=60)
    assert make_forecast(load, now, expect_s_per_shard=26.0).verdict is Verdict.ON_TIME
    assert make_forecast(load, now, expect_s_per_shard=15.0).verdict is Verdict.SLOW


def test_history_tells_what_is_left_after_the_shards() -> None:
    load = replace(
        LOAD,
        phase=Phase.CAPTURING,
        last_line_at=2000.0,
        phases=(PhaseSpan(Phase.STARTING, 0.0, 60.0), PhaseSpan(Phase.LOADING, 60.0, 1900.0), PhaseSpan(Phase.CAPTURING, 1990.0)),
    )
    assert make_forecast(load, 2005.0, (PAST,)).ready_eta_s == pytest.approx(30.0 + 150.0)


@pytest.mark.parametrize("step", [0.5, 2.0, 34.0, 120.0])
def test_a_frozen_shard_is_a_stall_within_three_steps(step: float) -> None:
    load, now = loading(20, step=step, first=4 * step)
    assert make_forecast(load, now + 2 * step).verdict is not Verdict.STALLED
    assert make_forecast(load, now + 3 * step).verdict is Verdict.STALLED
    assert "shard 21 of 64" in make_forecast(load, now + 3 * step).reason


@pytest.mark.parametrize(
    "signs",
    [
        SignsOfLife(gpu_memory_s=1.0),
        SignsOfLife(engine_read_s=0.5),
        SignsOfLife(disk_read_s=2.0),
        SignsOfLife(network_s=2.0),
    ],
)
def test_any_sign_of_life_vetoes_a_stall(signs: SignsOfLife) -> None:
    load, now = loading(20, since=200.0)
    assert make_forecast(load, now).verdict is Verdict.STALLED
    assert make_forecast(load, now, signs=signs).verdict is not Verdict.STALLED


def test_what_stood_still_is_named() -> None:
    load, now = loading(20, since=200.0)
    still = SignsOfLife(gpu_memory_s=190.0, disk_read_s=200.0)
    assert make_forecast(load, now, signs=still).reason.endswith("GPU memory, the disk still")


def test_uneven_storage_is_given_its_slack() -> None:
    steps = (60.0, *([10.0, 10.0, 10.0, 45.0] * 5))
    bar = Loader("model", 21, 64, "shards", 0.0, steps, sum(steps))
    load = replace(LOAD, phase=Phase.LOADING, shards=bar, last_line_at=bar.last_at)
    assert bar.last_at is not None
    assert make_forecast(load, bar.last_at + 45.0).verdict is not Verdict.STALLED
    assert make_forecast(load, bar.last_at + 60.0).verdict is Verdict.STALLED


@pytest.mark.parametrize(
    ("phase", "fine", "stalled"),
    [
        (Phase.DOWNLOADING, 1500.0, 2000.0),
        (Phase.LOADING, 600.0, 1000.0),
        (Phase.POST_LOADING, 300.0, 1000.0),
        (Phase.COMPILING, 300.0, 1000.0),
        (Phase.WARMING_UP, 120.0, 1000.0),
    ],
)
def test_silence_by_phase(phase: Phase, fine: float, stalled: float) -> None:
    load = replace(LOAD, phase=phase)
    assert make_forecast(load, 100.0 + fine).verdict is Verdict.PROGRESSING
    assert make_forecast(load, 100.0 + stalled).verdict is Verdict.STALLED


def test_the_silent_warm_up_says_so() -> None:
    assert "without a line" in make_forecast(replace(LOAD, phase=Phase.WARMING_UP), 190.0).reason


def test_requests_without_tokens_are_a_hang() -> None:
    ready = replace(LOAD, phase=Phase.READY, ready=True, was_ready=True, ready_at=90.0)
    assert make_forecast(ready, 5000.0).verdict is Verdict.DONE
    assert make_forecast(ready, 5000.0, signs=SignsOfLife(requests_running=3, tokens_s=61.0)).verdict is Verdict.HUNG
    assert make_forecast(ready, 5000.0, signs=SignsOfLife(requests_running=0, tokens_s=4000.0)).verdict is Verdict.DONE
    assert make_forecast(ready, 5000.0, signs=SignsOfLife(requests_running=3, tokens_s=1.0)).verdict is Verdict.DONE


def test_a_start_whose_processes_are_gone_has_stalled() -> None:
    load, now = loading(20)
    assert make_forecast(load, now, signs=SignsOfLife(process_alive=False)).verdict is Verdict.STALLED


def test_what_will_end_the_start_is_said_ahead() -> None:
    load, now = loading(2, first=120.0)
    assert make_forecast(load, now).ends == (
        "ETA 35 min, but unless VLLM_ENGINE_READY_TIMEOUT_S was raised, its default of 600 s ends it in 7 min"
    )
    assert (
        make_forecast(load, now, ready_timeout_s=1200.0).ends
        == "ETA 35 min, but VLLM_ENGINE_READY_TIMEOUT_S=1200 ends it in 17 min"
    )
    assert make_forecast(load, now, ready_timeout_s=7200.0).ends == ""
    assert make_forecast(replace(load, version="0.11.0"), now).ends == ""
    assert "Slurm" in make_forecast(load, now, ready_timeout_s=7200.0, ends_at=now + 300, ends_by="Slurm's time limit").ends


def test_nothing_known() -> None:
    assert make_forecast(LoadState(), 0.0).verdict is Verdict.UNKNOWN


# -- captures of real loads --------------------------------------------------------------------------------------------------------


def chunks(path: Path) -> Iterator[tuple[float, bytes]]:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    for line in raw.splitlines():
        record = json.loads(line)
        at, data = (record["t"], record["b"]) if isinstance(record, dict) else record
        yield at, base64.b64decode(data)


CAPTURES = [*sorted((DATA / "h200").glob("*.ts")), *sorted((DATA / "cpu").glob("*.jsonl.gz"))]
BEGIN = 1_796_000_000.0


@pytest.mark.parametrize("path", [path for path in CAPTURES if "stall" not in path.name], ids=lambda path: path.name)
def test_a_healthy_load_never_counts_as_stalled(path: Path) -> None:
    reader, splitter = LogReader(), LineSplitter()
    now = None
    for at, data in chunks(path):
        while now is not None and now + 0.5 < BEGIN + at:
            now += 0.5
            assert make_forecast(reader.state, now).verdict is not Verdict.STALLED, f"{now - BEGIN:.1f} s"
        now = BEGIN + at
        for line in splitter.feed(data):
            reader.feed(line, now)


def test_a_rank_that_hangs_after_the_shards_is_slow_where_earlier_starts_are_known() -> None:
    """Rank 1 was stopped for 77 s while it profiled, which had taken 4 s; the starting had been faster than usual by 32 s."""
    past = PastLoad(228.0, ((Phase.STARTING, 78.0), (Phase.LOADING, 9.0), (Phase.PROFILING, 4.0), (Phase.COMPILING, 19.0)))
    reader, splitter = LogReader(), LineSplitter()
    for at, data in chunks(DATA / "h200/tp2-rank-hung.ts"):
        if reader.state.phase is Phase.PROFILING and BEGIN + at > (reader.state.last_line_at or 0.0) + 30.0:
            break
        for line in splitter.feed(data):
            reader.feed(line, BEGIN + at)
    last = reader.state.last_line_at
    assert last is not None
    assert make_forecast(reader.state, last + 30.0, (past,)).verdict is Verdict.ON_TIME
    hung = make_forecast(reader.state, last + 76.0, (past,))
    assert (hung.verdict, hung.reason) == (Verdict.SLOW, "profile has taken 76 s, usually 4 s; no line for 76 s")
    assert make_forecast(reader.state, last + 76.0).verdict is Verdict.PROGRESSING


@pytest.mark.parametrize("name", ["h200/tp2-serve.ts", "cpu/start-16-shards-slow.log.jsonl.gz", "cpu/start-paced.log.jsonl.gz"])
def test_frozen_in_the_shards_it_counts_as_stalled(name: str) -> None:
    reader, splitter = LogReader(), LineSplitter()
    now = BEGIN
    for at, data in chunks(DATA / name):
        bar = reader.state.shards
        if bar is not None and bar.done > bar.total / 2:
            break
        now = BEGIN + at
        for line in splitter.feed(data):
            reader.feed(line, now)
    step = make_forecast(reader.state, now).s_per_shard
    assert step is not None
    assert make_forecast(reader.state, now).verdict is not Verdict.STALLED
    slack = max(reader.state.shards.step_seconds[1:][-16:]) if reader.state.shards else 0.0
    assert make_forecast(reader.state, now + max(3 * step, 1.21 * slack, 1.5)).verdict is Verdict.STALLED
    assert make_forecast(reader.state, now + 3600.0, signs=SignsOfLife(engine_read_s=0.2)).verdict is not Verdict.STALLED


@pytest.mark.parametrize(
    "name", ["h200/serve.ts", "h200/tp2-serve.ts", "cpu/start-paced.log.jsonl.gz", "cpu/start-tp2.log.jsonl.gz"]
)
def test_the_estimate_is_near_the_truth(name: str) -> None:
    reader, splitter = LogReader(), LineSplitter()
    estimates: dict[int, tuple[float, float]] = {}
    end = 0.0
    for at, data in chunks(DATA / name):
        for line in splitter.feed(data):
            reader.feed(line, BEGIN + at)
            bar = reader.state.shards
            if bar is None or end:
                continue
            if bar.done >= bar.total:
                end = at
            for share in (25, 50, 75):
                if share not in estimates and bar.total > bar.done >= share / 100 * bar.total:
                    eta = make_forecast(reader.state, BEGIN + at).shards_eta_s
                    assert eta is not None
                    estimates[share] = (at, eta)
    assert set(estimates) == {25, 50, 75}
    for at, eta in estimates.values():
        assert eta == pytest.approx(end - at, rel=0.12, abs=0.3)


def earlier(starting: float, loading: float, at: float, cold: bool | None = None) -> PastLoad:
    phases = ((Phase.STARTING, starting), (Phase.LOADING, loading), (Phase.WARMING_UP, 20.0))
    return PastLoad(starting + loading + 20.0, phases, at=at, cold=cold)


BEFORE_SHARDS = replace(LOAD, last_line_at=10.0, phases=(PhaseSpan(Phase.STARTING, 0.0),))


@pytest.mark.parametrize(
    ("past", "now", "cold", "left", "error"),
    [
        # one start: a quarter of what is left may differ
        ([earlier(26, 77, 1.0)], 10.0, None, 113.0, 28.25),
        # several: half of what they differ by
        ([earlier(26, 77, 1.0), earlier(60, 170, 2.0), earlier(28, 80, 3.0)], 10.0, None, 118.0, 63.5),
        ([earlier(26, 77, 1.0), earlier(27, 77, 2.0)], 10.0, None, 113.5, 11.35),
        # those that found the page cache as this one does
        ([earlier(26, 77, 1.0, False), earlier(60, 170, 2.0, True), earlier(28, 80, 3.0, False)], 10.0, True, 240.0, 60.0),
        ([earlier(26, 77, 1.0, False), earlier(60, 170, 2.0, True), earlier(28, 80, 3.0, False)], 10.0, False, 115.5, 11.55),
        # later than usual already: so may be the rest
        ([earlier(26, 77, 1.0), earlier(26, 77, 2.0)], 58.0, None, 97.0, 9.7 + 32.0),
        # the newest count, in whatever order they come
        ([*(earlier(26, 77, 100.0 + at) for at in range(5)), *(earlier(90, 300, at) for at in range(15))], 10.0, None, 113.0, 11.3),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_the_range_before_the_shards_is_that_of_earlier_starts(
    past: list[PastLoad], now: float, cold: bool | None, left: float, error: float, turned: bool
) -> None:
    forecast = make_forecast(BEFORE_SHARDS, now, past[::-1] if turned else past, cold=cold)
    assert forecast.ready_eta_s == pytest.approx(left)
    assert forecast.ready_eta_error_s == pytest.approx(error)


def test_the_time_until_ready_falls_from_a_starts_first_line_on() -> None:
    reader, past = LogReader(), earlier(26, 77, 1.0)
    for number, second in enumerate((0, 1, 7)):
        text = "vLLM API server version 0.24.0" if not number else "Resolved architecture: LlamaForCausalLM"
        reader.feed(f"(APIServer pid=1) INFO 11-29 12:00:{second:02d} [x.py:1] {text}", BEGIN + second)
    load = reader.state
    assert [span.name for span in load.phases] == [Phase.STARTING]
    assert load.started_at is not None
    lefts = [make_forecast(load, load.started_at + seconds, (past,)).ready_eta_s for seconds in (7.0, 17.0)]
    assert lefts == pytest.approx([116.0, 106.0])
