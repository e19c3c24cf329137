"""Whatever a log holds, reading it never raises, takes no time to speak of, and keeps its memory bounded."""

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tui.core.logs.forecast import make_forecast
from tui.core.logs.log_reader import LogReader
from tui.core.logs.log_report import document, lines, plain

DATA = Path(__file__).parent.parent / "data" / "logs"
PIECES = [
    piece
    for name in (
        "servers/26-kimi-k25-8xh200-ep8-ready.log",
        "servers/14-cpu-032-shard-corrupt.log",
        "servers/08-cpu-032-json-log-ready.log",
    )
    for piece in (DATA / name).read_text(encoding="utf-8").splitlines()
]
FRAGMENTS = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "(x pid=1",
    "pid=1) ",
    "INFO ",
    "INFO:     ",
    "INFO 11-29",
    "ERROR 99-99 99:99:99 [x.py:1] ",
    "INFO 02-30 25:61:61 x.py:1] ",
    "Traceback (most recent call last):",
    "  File ",
    "KeyError",
    "ValueError: ",
    "% Completed | ",
    "100%|",
    "1/0 [00:00<?",
    "Loading safetensors checkpoint shards: ",
    "9" * 400,
    "2026-13-45T99:99:99Z ",
    "2026-11-29T10:00:00Z stdout F ",
    '{"log": ',
    '{"message": 1}',
    '{"MESSAGE": [300, "x", null]}',
    '{"MESSAGE": null}',
    "vllm-1  | ",
    "Nov 31 10:00:00 h v[1]: ",
    "[2025-99-16 09:06:09 TP7] ",
    "server_args=",
    "# GPU blocks: ",
    "\x1b[",
    "\x9b",
    "\u202e",
    "\x00",
    "[1;36m",
    "rank 99999999999 in world size",
    "Engine 000: Avg prompt throughput: ",
    "version 1",
    "   model  ",
    " [repeated ",
    "The above exception was the direct cause",
]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.one_of(
            st.sampled_from(PIECES),
            st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=20)), max_size=6).map("".join),
        ),
        max_size=40,
    ),
    st.one_of(st.none(), st.floats(min_value=0, max_value=4e9)),
)
def test_it_never_raises(texts: list[str], start: float | None) -> None:
    reader = LogReader(2026 if start is None else None)
    for at, text in enumerate(texts):
        line = reader.feed(text, None if start is None else start + at * 0.7)
        assert "\x1b" not in line.text
        assert "\n" not in line.text
    load = reader.state
    for now in (load.last_line_at or 0.0, 0.0, 5e9):
        document(load, make_forecast(load, now))
        plain(lines(load, make_forecast(load, now)))


@pytest.mark.parametrize(
    "line",
    [
        "(" * 60_000,
        "(" + "a" * 60_000,
        "(a pid=1" * 8_000,
        "[" * 60_000,
        "INFO " * 12_000,
        "Loading safetensors checkpoint shards:" + " " * 60_000,
        ":" * 60_000 + "% Completed | 1/2 [",
        "a: " * 20_000 + "% Completed |",
        "| " * 30_000,
        "9" * 60_000,
        "{" * 60_000,
        '{"message": "' + "x" * 60_000 + '"}',
        "non-default args: {" + "'a': {" * 9_000,
        "ValueError: " + "error: " * 9_000,
        "NCCL WARN " * 6_000,
        "GPU 1 " * 10_000 + "is free",
        "\x1b]" * 30_000,
        "1.1.1.1 " * 8_000,
    ],
    ids=lambda line: line[:16],
)
def test_a_long_line_is_no_trap(line: str) -> None:
    reader = LogReader(2026)
    began = time.process_time()
    for text in (line, f"ERROR 11-29 10:00:00 [x.py:1] {line}", "Traceback (most recent call last):", f"RuntimeError: {line}"):
        reader.feed(text)
    reader.finish()
    document(reader.state, make_forecast(reader.state, 0.0))
    assert time.process_time() - began < 2.0, "a pattern goes wild"


def test_memory_is_bounded_while_errors_pour_in() -> None:
    reader = LogReader(2026)
    reader.feed("INFO:     Application startup complete.")
    for at in range(3000):
        reader.feed(f"ERROR 11-29 10:{at // 60 % 60:02d}:{at % 60:02d} [serving.py:1] Traceback (most recent call last):")
        reader.feed(f"ERROR 11-29 10:{at // 60 % 60:02d}:{at % 60:02d} [serving.py:1] ValueError: {at}")
    assert reader.state.ready
    assert len(reader._detector._evidence.troubles) <= 400


@pytest.mark.parametrize(
    "line",
    [
        "Loading safetensors checkpoint shards: 999% Completed | 99999999999999999999/3 [xx:yy<??, nan",
        "Loading safetensors checkpoint shards: 100% Completed | 5/3 [00:01<00:00, 1.00it/s]",
        "Loading safetensors checkpoint shards: 0% Completed | 0/" + "9" * 400 + " [00:01<00:00, 1.00it/s]",
    ],
)
def test_a_bar_that_makes_no_sense_is_none(line: str) -> None:
    reader = LogReader(2026)
    for number in range(6):
        reader.feed(
            f"Loading safetensors checkpoint shards: {number * 10}% Completed | {number}/10 [0{number}:00<10:00, 60s/it]",
            60.0 * number,
        )
        reader.feed(line, 60.0 * number + 1)
    load = reader.state
    assert load.shards is not None
    assert (load.shards.done, load.shards.total, len(load.loaders)) == (5, 10, 1)
    assert make_forecast(load, 305.0).s_per_shard == pytest.approx(60.0)
