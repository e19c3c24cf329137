"""The clocks of a log: its own without year and zone, the wrapper's, and that of arrival."""

from datetime import UTC, datetime

import pytest
from writing import bar

from tui.core.logs.load_state import Phase
from tui.core.logs.log_reader import LogReader
from tui.simulator.server_log import TqdmBar

NOON = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC).timestamp()
WORKER = "(Worker_TP0 pid=20)"


def record(clock: str, message: str) -> str:
    return f"{WORKER} INFO {clock} [x.py:1] {message}"


def feed_live(reader: LogReader, zone_hours: int, begin: float = NOON) -> None:
    """Feed a start watched from its first line: the server's clock reads `zone_hours` ahead of UTC."""

    def at(seconds: float) -> str:
        return datetime.fromtimestamp(begin + seconds + zone_hours * 3600, UTC).strftime("%m-%d %H:%M:%S")

    reader.feed(record(at(0), "vLLM API server version 0.24.0"), begin + 0.4)
    reader.feed(record(at(20), "Starting to load model org/m..."), begin + 20.4)
    for shard in range(11):
        reader.feed(bar(shard, 64, f"{shard * 30 // 60:02d}:{shard * 30 % 60:02d}"), begin + 21.7 + shard * 30.0)


@pytest.mark.parametrize("zone", [0, 2, -8, 5])
def test_live_times_are_the_host_s(zone: int) -> None:
    reader = LogReader()
    feed_live(reader, zone)
    load = reader.state
    assert reader.live
    assert load.started_at == pytest.approx(NOON, abs=1.0)
    assert load.last_line_at == pytest.approx(NOON + 321.7, abs=1.0)
    assert load.shards is not None
    assert load.shards.started_at == pytest.approx(NOON + 21.7, abs=1.5)
    assert load.shards.step_seconds == pytest.approx([30.0] * 10, abs=0.01)


def test_an_arbitrary_difference_of_clocks() -> None:
    """A host whose clock is off by 7 minutes and some: no zone, but constant, so it is known after two lines."""
    reader = LogReader()
    for seconds in (0, 10, 20, 30):
        reader.feed(record(f"11-29 12:00:{seconds:02d}", "Using max model len 4096"), NOON + 443.5 + seconds)
    load = reader.state
    assert load.started_at == pytest.approx(NOON + 443.5, abs=0.1)
    assert load.last_line_at == pytest.approx(NOON + 473.5, abs=0.1)


def test_what_was_written_long_ago_arrives_at_once() -> None:
    """At attach: durations are the log's, and silence counts from the reading until lines come live."""
    reader = LogReader()
    now = NOON + 1230.0
    reader.feed(record("11-29 12:00:00", "vLLM API server version 0.24.0"), now)
    reader.feed(record("11-29 12:00:20", "Starting to load model org/m..."), now)
    for shard in range(21):
        seconds = shard * 60
        reader.feed(bar(shard, 64, f"{seconds // 60:02d}:{seconds % 60:02d}"), now)
    load = reader.state
    assert [reader.live] == [False]
    assert load.last_line_at == now
    assert load.shards is not None
    assert load.shards.step_seconds == pytest.approx([60.0] * 20)
    assert load.phases[0].seconds == 20.0
    for shard in (21, 22, 23):
        seconds = shard * 60
        reader.feed(bar(shard, 64, f"{seconds // 60:02d}:{seconds % 60:02d}"), NOON + 21.0 + seconds)
    load = reader.state
    assert reader.live
    assert load.last_line_at == pytest.approx(NOON + 21.0 + 23 * 60, abs=1.5)
    assert load.shards is not None
    assert load.shards.step_seconds == pytest.approx([60.0] * 23, abs=1.6)
    assert load.started_at == pytest.approx(NOON, abs=1.5)


@pytest.mark.parametrize(("host_zone", "written_in"), [(0, 0), (-5, -5), (-5, 0), (2, 2), (2, 0)])
def test_a_server_that_has_been_idle_for_hours(host_zone: int, written_in: int) -> None:
    """Nothing is live; the host's zone, which a container need not share, tells when it was."""
    reader = LogReader(zone_s=host_zone * 3600.0)
    clock = datetime.fromtimestamp(NOON + written_in * 3600, UTC).strftime("%m-%d %H:%M:%S")
    reader.feed(record(clock, "vLLM API server version 0.24.0"), NOON + 1.5 * 3600)
    assert reader.state.started_at == pytest.approx(NOON, abs=1.0)


def test_bars_before_any_record() -> None:
    """Standard error alone: only arrivals tell the time, until a record comes."""
    reader = LogReader()
    for shard in range(5):
        reader.feed(bar(shard, 64, f"00:{shard * 10:02d}"), NOON + shard * 10.0)
    reader.feed(record("11-29 14:00:45", "Loading weights took 45.0 seconds"), NOON + 45.3)
    load = reader.state
    assert load.started_at is None, "the log does not hold the start itself"
    assert load.phases[0].started_at == pytest.approx(NOON, abs=1.0)
    assert [span.name for span in load.phases] == [Phase.STARTING, Phase.LOADING]
    assert load.shards is not None
    assert load.shards.started_at == pytest.approx(NOON, abs=1.0)


def test_the_year_comes_from_the_arrival() -> None:
    new_year = datetime(2027, 1, 1, 0, 30, 0, tzinfo=UTC).timestamp()
    reader = LogReader()
    reader.feed(record("12-31 23:50:00", "vLLM API server version 0.24.0"), new_year)
    reader.feed(record("01-01 00:29:59", "Starting to load model org/m..."), new_year)
    spans = reader.state.phases
    assert spans[0].seconds == 2399.0
    started = reader.state.started_at
    assert started is not None
    assert datetime.fromtimestamp(started, UTC).year in (2026, 2027)
    assert abs(new_year - started) < 3600


def test_offline_the_wrapper_dates_what_has_no_time() -> None:
    """`docker logs -t`: UTC stamps outside, local time inside."""
    reader = LogReader(2026)
    reader.feed("2026-11-29T10:00:00.500000000Z " + record("11-29 12:00:00", "Starting to load model org/m..."))
    for shard in range(4):
        reader.feed(f"2026-11-29T10:00:{10 * shard + 1:02d}.250000000Z " + bar(shard, 64, f"00:{10 * shard:02d}"))
    load = reader.state
    assert load.shards is not None
    assert load.shards.step_seconds == pytest.approx([10.0] * 3)
    assert load.last_line_at == pytest.approx(NOON + 31.25)


def of_rank(rank: int, clock: str, message: str) -> str:
    return f"(Worker_TP{rank} pid=2{rank}) INFO {clock} [x.py:1] {message}"


OLD, NEW = "Dec 31 23:59:5{}.5 gpu7 vllm[2210]: ", "Jan  1 00:00:0{}.5 gpu7 vllm[2210]: "
BEGIN, END = (
    of_rank(0, "12-31 23:59:58", "Starting to load model m..."),
    of_rank(0, "01-01 00:00:03", "Loading weights took 3.0 seconds"),
)
LATE = of_rank(1, "12-31 23:59:59", "late")


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        ([BEGIN, of_rank(0, "01-01 00:00:01", "x"), LATE, END], 5.0),
        ([BEGIN, of_rank(0, "01-01 00:00:01", "x"), LATE, of_rank(0, "01-01 00:00:02", "x"), LATE, END], 5.0),
        ([BEGIN.replace("12-31 23:59:58", "01-01 00:00:01"), LATE, END], 2.0),
        (
            [
                "[2025-12-31 23:59:58] server_args=ServerArgs(model_path='m')",
                "[2025-12-31 23:59:58] Load weight begin. avail mem=1 GB",
                "[2026-01-01 00:00:01 TP0] x",
                "[2025-12-31 23:59:59 TP1] late",
                "[2026-01-01 00:00:03] Load weight end. mem usage=1 GB",
            ],
            5.0,
        ),
        (
            [OLD.format(8) + BEGIN, NEW.format(1) + "bare", NEW.format(2) + of_rank(0, "01-01 00:00:02", "x"), NEW.format(3) + END],
            5.0,
        ),
        (
            [OLD.format(8) + BEGIN, NEW.format(2) + of_rank(0, "01-01 00:00:02", "x"), OLD.format(9) + "late", NEW.format(3) + END],
            5.0,
        ),
    ],
)
def test_new_year_s_eve_with_processes_that_write_side_by_side(lines: list[str], seconds: float) -> None:
    reader = LogReader(2026)
    for line in lines:
        reader.feed(line)
    load = reader.state
    assert {span.name: span.seconds for span in load.phases}[Phase.LOADING] == seconds
    assert load.silences == ()


def test_a_written_year_is_believed() -> None:
    """SGLang writes it: a server that was idle all year has not gone back."""
    reader = LogReader(2026)
    reader.feed("[2026-01-01 12:00:00] server_args=ServerArgs(model_path='m')")
    reader.feed("[2026-12-31 12:00:00] Load weight begin. avail mem=1 GB")
    assert reader.state.last_line_at == datetime(2026, 12, 31, 12, 0, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("seen_from", [0, 5, 30])
@pytest.mark.parametrize("usual", [0.4, 1.2, 34.0])
def test_steps_of_a_saved_log_are_finer_than_the_bars_whole_seconds(usual: float, seen_from: int) -> None:
    """tqdm's moving average tells each step to hundredths of a second, also if reading begins in its midst."""
    steps = [usual * factor for factor in (2.0, 1.0, 1.1, 0.8, 1.0, 1.4, 1.0, 1.02) * 5]
    drawn, now, lines = TqdmBar("Loading safetensors checkpoint shards", len(steps), 0.3, shards=True), 0.3, []
    lines.append(drawn.text(0, now))
    for number, step in enumerate(steps, 1):
        now += step
        lines.append(drawn.text(number, now))
    lines.append(drawn.text(len(steps), now, closing=True))  # the last one comes twice, the second with the whole's mean
    reader = LogReader(2026)
    reader.feed(record("11-29 12:00:00", "Starting to load model org/m..."))
    for line in lines[seen_from:]:
        reader.feed(f"{WORKER} {line}")
    bar = reader.state.shards
    assert bar is not None
    assert bar.step_seconds[seen_from:] == pytest.approx(steps[seen_from:], abs=0.05)
    assert not bar.whole_seconds


def test_steps_that_only_whole_seconds_tell_say_so() -> None:
    reader = LogReader(2026)
    for shard in range(5):
        reader.feed(bar(shard, 64, f"00:{shard * 12 // 10:02d}", "?it/s"))
    load = reader.state
    assert load.shards is not None
    assert load.shards.whole_seconds
