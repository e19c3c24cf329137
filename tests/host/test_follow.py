"""The role "follow" as it runs on a host: the shipped probe as a real process against real files."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tui.core.logs.log_filters import IMPORTANT, NOISE
from tui.probe.boot import BOOT, opening

MARKERS = [r"vLLM API server version", r"server_args="]
DEADLINE_S = 20.0


class Follower:
    """A running role and what it has said."""

    def __init__(self, **arguments: Any) -> None:
        self.frames: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", BOOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self._process.stdin is not None
        plan = {
            "role": "follow",
            "start_markers": MARKERS,
            "important": list(IMPORTANT),
            "noise": list(NOISE),
            "tail": 50,
            **arguments,
        }
        self._process.stdin.write(opening(plan))
        self._process.stdin.flush()
        self.began = time.monotonic()
        self._beating = True
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._read, self._beat)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.frames.append(json.loads(line))

    def _beat(self) -> None:
        assert self._process.stdin is not None
        while self._beating:
            try:
                self._process.stdin.write(b'{"do":"beat"}\n')
                self._process.stdin.flush()
            except (OSError, ValueError):
                return
            time.sleep(0.5)

    def until(self, predicate: Callable[["Follower"], bool], what: str = "") -> None:
        ends = time.monotonic() + DEADLINE_S
        while not predicate(self):
            assert time.monotonic() < ends, f"{what or 'never happened'}; frames: {[frame['f'] for frame in self.frames][-20:]}"
            time.sleep(0.01)

    def said(self, name: str) -> list[dict[str, Any]]:
        return [frame for frame in list(self.frames) if frame["f"] == name]

    @property
    def lines(self) -> list[str]:
        return [line for frame in self.said("lines") if not frame.get("quiet") for line in frame["lines"]]

    @property
    def reader_lines(self) -> list[str]:
        """Return what a reader has after the last start, quiet or not."""
        lines: list[str] = []
        for frame in list(self.frames):
            if frame["f"] == "start":
                lines = []
            elif frame["f"] == "lines":
                lines += frame["lines"]
        return lines

    @property
    def place(self) -> dict[str, Any]:
        places = [frame["resume"] for frame in self.said("lines") if "resume" in frame]
        assert places
        return dict(places[-1])

    def caught_up(self) -> None:
        self.until(lambda self: bool(self.said("caught_up")), "never caught up")

    def close(self) -> None:
        self._beating = False
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # the end of its stdin ends a role and all that it started
        self._process.wait(10.0)
        for thread in self._threads:
            thread.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()


@pytest.fixture
def follow() -> Iterator[Callable[..., Follower]]:
    started: list[Follower] = []

    def start(path: Path | None = None, **arguments: Any) -> Follower:
        if path is not None:
            arguments = {"source": "file", "path": str(path), **arguments}
        started.append(Follower(**arguments))
        return started[-1]

    yield start
    for follower in started:
        follower.close()


def append(path: Path, text: str | bytes) -> None:
    with path.open("ab") as file:
        file.write(text.encode() if isinstance(text, str) else text)


def test_whole_small_log_then_live_lines(tmp_path: Path, follow: Callable[..., Follower]) -> None:
    log = tmp_path / "vllm.log"
    append(log, "one\ntwo\r\nthree\r\n\nfive\n")
    follower = follow(log)
    follower.caught_up()
    assert follower.lines == ["one", "two", "three", "", "five"]
    first = follower.said("lines")[0]
    assert first["first"] == 1
    assert "wall" not in first
    append(log, "six\nsev")
    follower.until(lambda f: f.lines[-1] == "six")
    append(log, "en\n")
    follower.until(lambda f: f.lines[-1] == "seven")
    live = follower.said("lines")[-1]
    assert live["first"] == 7
    assert abs(live["wall"] - time.time()) < 30


def test_a_bar_is_shown_while_it_stands_and_a_last_word_without_line_end(tmp_path: Path, follow: Callable[..., Follower]) -> None:
    log = tmp_path / "vllm.log"
    append(log, "start\n")
    follower = follow(log)
    follower.caught_up()
    append(log, "\rCapturing CUDA graphs:  10%|# | 1/10 [00:01<00:09,  1.0it/s]")
    follower.until(lambda f: "1/10" in f.lines[-1])
    append(log, "\rCapturing CUDA graphs:  20%|# | 2/10 [00:01<00:09,  1.0it/s]")
    follower.until(lambda f: "2/10" in f.lines[-1])
    append(log, "\nKilled")
    follower.until(lambda f: f.lines[-1] == "Killed")
    assert ["1/10" in line or "2/10" in line for line in follower.lines if "Capturing" in line] == [True, True]


def test_resumes_without_losing_or_repeating_a_line(tmp_path: Path, follow: Callable[..., Follower]) -> None:
    log = tmp_path / "vllm.log"
    log.touch()
    written = 0
    seen: list[str] = []
    place = None
    for _ in range(4):
        follower = follow(log, **{"from": place})
        for _ in range(3):
            append(log, "".join(f"line {number}\n" for number in range(written, written + 100)))
            written += 100
        append(log, f"line {written}")  # unfinished when the link is lost
        wanted = written - len(seen)
        follower.until(lambda f, wanted=wanted: len(f.lines) >= wanted)  # type: ignore[misc]
        follower.close()
        seen += follower.lines[:wanted]
        place = follower.place
        append(log, "\n")
        written += 1
    assert seen == [f"line {number}" for number in range(written - 1)][: len(seen)]
    assert len(seen) >= written - 4


def test_rotation_by_rename_and_create(tmp_path: Path, follow: Callable[..., Follower]) -> None:
    log = tmp_path / "vllm.log"
    append(log, "a\n")
    follower = follow(log)
    follower.caught_up()
    log.rename(tmp_path / "vllm.log.1")
    append(tmp_path / "vllm.log.1", "b\n")
    follower.until(lambda f: f.lines == ["a", "b"])
    append(log, "c\n")
    follower.until(lambda f: f.lines == ["a", "b", "c"])
    assert follower.said("rotated")
    append(log, "d\n")
    follower.until(lambda f: f.lines == ["a", "b", "c", "d"])


def test_rotated_while_the_link_was_lost(tmp_path: Path, follow: Callable[..., Follower]) -> None:
    log = tmp_path / "vllm.log"
    append(log, "a\nb\n")
    follower = follow(log)
    follower.caught_up()
    place = follower.place
    follower.close()
    append(log, "c\n")
    log.rename(tmp_path / "vllm.log-20261129")
    append(log, "d\n")
    again = follow(log, **{"from": place})
    again.caught_up()
    assert again.lines == ["c", "d"]


def test_truncation_and_copytruncate(tmp_path: Path, follow: Callable[..., Follower]) -> None:
    log = tmp_path / "vllm.log"
    append(log, "old line that is rather long\n" * 20)
    follower = follow(log)
    follower.caught_up()
    os.truncate(log, 0)
    append(log, "new\n")
    follower.until(lambda f: f.lines[-1] == "new")
    assert len(follower.said("truncated")) == 1
    # emptied and grown beyond the old place before anybody looked
    with log.open("r+b") as file:
        file.truncate()
        file.write(b"newer 0\n" + b"".join(b"newer %d\n" % number for number in range(1, 100)))
    follower.until(lambda f: f.lines[-1] == "newer 99")
    assert len(follower.said("truncated")) == 2
    assert follower.lines[-100:] == [f"newer {number}" for number in range(100)]


HOLE = 1 << 36
"""Bytes of a hole that nobody could read in the time of a test."""


def test_a_log_emptied_under_a_writer_that_does_not_append(tmp_path: Path, follow: Callable[..., Follower]) -> None:
    """The writer goes on at its old offset: before the new lines lies a hole as large as the log was."""
    log = tmp_path / "vllm.log"
    with log.open("wb", buffering=0) as writer:
        writer.write(b"old\n")
        follower = follow(log)
        follower.caught_up()
        for hole, text in ((1000, b"small\n"), (HOLE, b"large\n"), (HOLE + 77, b"unfinished, then ")):
            writer.seek(hole)
            os.truncate(log, 0)
            writer.write(text + b"more\n")
            seen = (text + b"more\n").decode().splitlines()
            follower.until(lambda f, seen=seen: f.lines[-len(seen) :] == seen)  # type: ignore[misc]
        writer.write(b"half a line")
        follower.until(lambda f: f.lines[-1] == "half a line")
        os.truncate(log, 0)
        writer.write(b"whole\n")
        follower.until(lambda f: f.lines[-1] == "whole")
        place = follower.place
        follower.close()
        writer.write(b"meanwhile\n")
        again = follow(log, **{"from": place})
        again.caught_up()
        assert again.lines == ["meanwhile"]
        assert not again.said("truncated")
        os.truncate(log, 0)
        writer.write(b"emptied meanwhile\n")
        elsewhere = follow(log, **{"from": again.place})
        elsewhere.caught_up()
        assert elsewhere.said("truncated")
        assert elsewhere.lines == ["emptied meanwhile"]


@pytest.mark.parametrize("megabytes", [0, 2])
def test_attach_to_a_log_that_begins_with_a_hole(tmp_path: Path, follow: Callable[..., Follower], megabytes: int) -> None:
    log = tmp_path / "vllm.log"
    start = "INFO 11-29 10:00:00 [api_server.py:1] vLLM API server version 0.10.1"
    noise = b"noise of some length, a whole line of it\n" * 25600
    for lines, started in ((start.encode() + b"\n" + noise * megabytes, True), (noise * megabytes, False)):
        with log.open("wb") as writer:
            writer.seek(HOLE)
            writer.write(lines + b"the end\n")
        follower = follow(log)
        follower.caught_up()
        assert "\0" not in "".join(follower.lines)
        assert (follower.lines[0] == start) == started
        assert follower.lines[-1] == "the end"


def test_missing_then_there_and_unreadable(tmp_path: Path, follow: Callable[..., Follower]) -> None:
    log = tmp_path / "later.log"
    follower = follow(log)
    follower.until(lambda f: any("no such file" in (frame["why"] or "") for frame in f.said("source")))
    append(log, "here\n")
    follower.until(lambda f: f.lines == ["here"])
    assert follower.said("source")[-1]["why"] is None
    folder = follow(tmp_path)
    folder.until(lambda f: any("not a regular file" in (frame["why"] or "") for frame in f.said("source")))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path, follow: Callable[..., Follower]) -> None:
    log = tmp_path / "secret.log"
    append(log, "x\n")
    log.chmod(0)
    follower = follow(log)
    follower.until(lambda f: any("no permission" in (frame["why"] or "") for frame in f.said("source")))
    log.chmod(0o600)
    follower.until(lambda f: f.lines == ["x"])


def test_garbage_and_an_endless_line(tmp_path: Path, follow: Callable[..., Follower]) -> None:
    log = tmp_path / "vllm.log"
    append(log, b"ok\n" + bytes(range(256)) * 20 + b"\n\xff\xfe\n")
    follower = follow(log)
    follower.caught_up()
    assert follower.lines[0] == "ok"
    assert follower.lines[-1] == "��"
    append(log, b"x" * 10_000_000)
    append(log, b"\nafter\n")
    follower.until(lambda f: f.lines[-1] == "after")
    assert all(len(line) <= 16_500 for line in follower.lines)


def test_flood_is_thinned_and_the_important_lines_come(tmp_path: Path, follow: Callable[..., Follower]) -> None:
    log = tmp_path / "vllm.log"
    append(log, "start\n")
    follower = follow(log)
    follower.caught_up()
    noise = 'INFO:     10.0.0.7:40122 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    append(log, noise * 100_000 + "INFO 11-29 10:00:00 [gpu_model_runner.py:1] Model loading took 73.1 GiB and 12.0 seconds\n")
    append(log, noise * 100_000 + "the end\n")
    follower.until(lambda f: f.lines[-1] == "the end")
    assert sum("Model loading took" in line for line in follower.lines) == 1
    skipped = sum(frame["count"] for frame in follower.said("skipped"))
    assert skipped + len(follower.lines) == 200_003
    assert len(follower.lines) < 10_000


def big_log(path: Path, size: int, *, start_at: float) -> None:
    """Write a serving log of about `size` bytes whose last start lies at the share `start_at` of it."""
    noise = ('INFO:     10.0.0.7:40122 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n' * 15000).encode()
    start = (
        b"INFO 11-29 10:00:00 [api_server.py:1] vLLM API server version 0.10.1\n"
        b"INFO 11-29 10:00:09 [gpu_model_runner.py:1] Model loading took 73.1 GiB and 12.0 seconds\n"
        b"INFO:     Application startup complete.\n"
    )
    with path.open("wb") as file:
        file.write(start.replace(b"0.10.1", b"0.9.0"))
        while file.tell() < size * start_at:
            file.write(noise)
        if start_at:
            file.write(start)
        while file.tell() < size:
            file.write(noise)
        file.write(b"INFO 11-29 23:00:00 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s, the last\n")


@pytest.mark.parametrize("start_at", [0.0, 0.5, 0.999])
def test_attach_to_a_long_log_sends_little_and_finds_the_last_start(
    tmp_path: Path, follow: Callable[..., Follower], start_at: float
) -> None:
    log = tmp_path / "vllm.log"
    big_log(log, 60_000_000, start_at=start_at)
    follower = follow(log)
    follower.caught_up()
    wanted = "0.10.1" if start_at else "0.9.0"
    follower.until(lambda f: any(wanted in line for line in f.reader_lines[:5]), "the last start was not found")
    assert any("Model loading took" in line for line in follower.reader_lines[:5])
    assert "the last" in follower.lines[-1]
    sent = sum(len(json.dumps(frame)) for frame in follower.frames)
    assert sent < 1_500_000
    append(log, "live\n")
    follower.until(lambda f: f.lines[-1] == "live")


def test_what_stands_in_the_middle_of_a_long_log_reaches_the_reader(tmp_path: Path, follow: Callable[..., Follower]) -> None:
    log = tmp_path / "vllm.log"
    big_log(log, 40_000_000, start_at=0.0)
    with log.open("r+b") as file:
        file.seek(20_000_000)
        line = file.readline()
        position = 20_000_000 + len(line)
        file.seek(position)
        file.write(b"ERROR 11-29 12:00:00 [core.py:1] EngineCore encountered a fatal error.")
    follower = follow(log)
    follower.until(lambda f: any("fatal error" in line for line in f.reader_lines))
    append(log, "live\n")
    follower.until(lambda f: f.reader_lines[-1] == "live")
    assert "vLLM API server version" in follower.reader_lines[0]
    assert not any("fatal error" in line for line in follower.lines)
