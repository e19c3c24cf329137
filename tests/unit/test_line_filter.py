"""The follower's searches say the same as matching every line would."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui.core.logs.log_filters import IMPORTANT, NOISE
from tui.engines.registry import START_MARKERS
from tui.probe.log_lines import LineCutter
from tui.probe.log_search import LineFilter, StartSearch, literals_of, pattern_of

WORDS = st.sampled_from(
    ["ERROR", "Model loading took", "noise", "7", "12", "version 0.10.1", 'HTTP/1.1" 200', "% Completed | 3/4", "Xid", '\tFile "a"']
)
LINES = st.lists(st.lists(WORDS, max_size=4).map(" ".join), max_size=60)


def naive(lines: list[bytes]) -> list[bytes]:
    pattern = pattern_of(IMPORTANT)
    assert pattern is not None
    noise = [text.encode() for text in NOISE]
    return [line for line in lines if pattern.search(line) and not any(text in line for text in noise)]


@settings(deadline=None)  # a busy machine is no failure
@given(LINES, st.integers(1, 8))
def test_same_as_line_by_line(lines: list[str], times: int) -> None:
    raw = [line.encode() for line in lines] * times
    assert LineFilter(IMPORTANT, NOISE).lines(b"\n".join(raw)) == naive(raw)


@pytest.mark.parametrize("patterns", [IMPORTANT, START_MARKERS])
def test_every_pattern_has_a_literal(patterns: tuple[str, ...]) -> None:
    assert literals_of(patterns)


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        (r"abc def", [b"abc def"]),
        (r"\d+", None),
        (r"a?bcd(?:efgh|ijkl)", [b"efgh", b"ijkl"]),
        (r"[Ee]rror", [b"rror"]),
        (r"x|longer", None),
        (r"(?:abcd)+", [b"abcd"]),
        (r"(", [b"("]),
    ],
)
def test_literals(pattern: str, literals: list[bytes] | None) -> None:
    found = literals_of([pattern])
    assert (sorted(found) if found is not None else None) == literals


def test_markers_that_are_not_patterns_are_taken_literally() -> None:
    pattern = pattern_of(["(", "ok"])
    assert pattern is not None
    assert pattern.search(b"a ( b")


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.lists(st.sampled_from([b"a", b"bar 1", b"\r", b"\n", b"\r\n", b"\r\r\n", b"", b"\xff", b"x" * 50]), max_size=40), st.data()
)
def test_lines_are_the_same_however_the_bytes_come(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    once = LineCutter()
    lines = once.feed(whole) + once.flush(bars_only=False)
    pieces = LineCutter()
    cut: list[str] = []
    rest = whole
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        cut += pieces.feed(rest[:size])
        rest = rest[size:]
    cut += pieces.flush(bars_only=False)
    assert cut == lines
    assert pieces.done == once.done == len(whole)
    assert [line for line in lines if line] == [part.decode("utf-8", "replace") for part in re.split(rb"\r*\n|\r+", whole) if part]


@pytest.mark.parametrize("source", [*START_MARKERS, *IMPORTANT])
def test_what_is_searched_for_is_a_pattern_for_bytes_too(source: str) -> None:
    """One that isn't would be taken literally, and never be found."""
    re.compile(source.encode())


@pytest.mark.parametrize(
    "line",
    [
        "INFO 08-01 10:00:00 [api_server.py:1351] vLLM API server version 0.13.0",
        "(APIServer pid=1) INFO 11-02 06:20:00 [api_utils.py:287]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0",
        '{"message": "vLLM server version 0.32.0, serving model /m"}',
        "[2025-10-16 09:06:09] server_args=ServerArgs(model_path='/m')",
    ],
)
def test_the_last_start_is_found_in_a_file(tmp_path: Path, line: str) -> None:
    noise = b"INFO 08-01 10:00:00 [loggers.py:257] Engine 000: nothing\n" * 100_000
    path = tmp_path / "log"
    path.write_bytes(line.encode() + b"\n" + noise + line.encode() + b" again\n" + noise)
    fd = os.open(path, os.O_RDONLY)
    try:
        search = StartSearch(fd, path.stat().st_size, START_MARKERS)
        while not search.over:
            search.step()
    finally:
        os.close(fd)
    assert search.found == len(line.encode()) + 1 + len(noise)
