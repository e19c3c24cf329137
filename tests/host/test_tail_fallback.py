"""A log followed where no Python is: rotation, truncation, a late file, a lost link, floods, on a real shell."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sshd import eventually

from tui.host.base import NotPermitted
from tui.host.local import LocalHost
from tui.services.posix_tail import HEAD, LATEST, WHOLE, Marks, tail_frames


class Following:
    """Reads the frames in the background."""

    def __init__(self, host: LocalHost, path: Path, place: dict[str, Any] | None = None) -> None:
        self.frames: list[dict[str, Any]] = []
        self._work = asyncio.create_task(self._follow(host, path, place))

    async def _follow(self, host: LocalHost, path: Path, place: dict[str, Any] | None) -> None:
        async for frame in tail_frames(host, str(path), place, seconds=600):
            if frame["f"] != "idle":
                self.frames.append(frame)

    @property
    def lines(self) -> list[str]:
        return [line for frame in self.frames for line in frame.get("lines", ())]

    @property
    def place(self) -> dict[str, Any]:
        found: dict[str, Any] = [frame["resume"] for frame in self.frames if "resume" in frame][-1]
        return found

    def names(self) -> list[str]:
        return [frame["f"] for frame in self.frames]

    async def until(self, count: int) -> None:
        await eventually(lambda: len(self.lines) >= count or self._work.done(), seconds=25, what=f"{count} lines: {self.frames}")

    async def end(self) -> None:
        self._work.cancel()
        await asyncio.wait([self._work])


@pytest.fixture
async def host() -> AsyncIterator[LocalHost]:
    async with LocalHost() as host:
        await host.connect()
        yield host


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


async def test_a_log_that_comes_late_grows_is_rotated_and_truncated(tmp_path: Path, host: LocalHost) -> None:
    log = tmp_path / "a *$(x) 'log"
    following = Following(host, log)
    await eventually(lambda: following.frames, seconds=20, what="the reason")
    assert "no such file" in following.frames[0]["why"]
    log.write_text("one\ntw")
    await following.until(1)
    append(log, "o\nthree\n")
    await following.until(3)
    # What is written just before and after the rename must not be lost.
    with log.open("a") as held:
        log.rename(tmp_path / "old")
        held.write("four\n")
    log.write_text("five\n")
    await following.until(5)
    log.write_text("6\n")
    await following.until(6)
    await following.end()
    assert following.lines == ["one", "two", "three", "four", "five", "6"]
    assert [name for name in following.names() if name in ("rotated", "truncated")] == ["rotated", "truncated"]
    assert following.names().count("caught_up") == 1
    assert following.place == {"inode": log.stat().st_ino, "offset": 2, "number": 2}


async def test_a_log_emptied_under_a_writer_that_does_not_append(tmp_path: Path, host: LocalHost) -> None:
    log = tmp_path / "log"
    start = "(APIServer pid=1) INFO vLLM API server version 0.11.0\n"
    with log.open("wb", buffering=0) as writer:
        writer.seek(hole := (1 << 36) + 77)
        writer.write((start + "one\n").encode())
        following = Following(host, log)
        await following.until(2)
        os.truncate(log, 0)
        await eventually(lambda: "truncated" in following.names(), seconds=20, what="the truncation")
        writer.write(b"two\n")
        await following.until(3)
        os.truncate(log, 0)
        writer.write(b"three\n")
        await following.until(4)
        await following.end()
        writer.seek(hole)
        os.truncate(log, 0)
        writer.write((start + "line\n" * 1_000_000 + "last\n").encode())
        fresh = Following(host, log)
        await eventually(lambda: "last" in fresh.lines, seconds=30, what="the end of the log")
        await fresh.end()
    assert following.lines == [start.strip(), "one", "two", "three"]
    assert fresh.lines[0] == start.strip()
    assert "\0" not in "".join(fresh.lines)


async def test_goes_on_where_the_lost_link_left_it(tmp_path: Path, host: LocalHost) -> None:
    log = tmp_path / "log"
    log.write_text("one\ntwo\nthr")
    following = Following(host, log)
    await following.until(2)
    await following.end()
    append(log, "ee\nfour\n")
    again = Following(host, log, following.place)
    await again.until(2)
    await again.end()
    assert (again.lines, "start" in again.names()) == (["three", "four"], False)
    assert next(frame["first"] for frame in again.frames if "first" in frame) == 3
    log.rename(tmp_path / "old")
    log.write_text("new\n")
    third = Following(host, log, again.place)
    await third.until(1)
    await third.end()
    assert (third.lines, "rotated" in third.names(), "start" in third.names()) == (["new"], True, False)


async def test_a_progress_bar_is_read_where_it_stands(tmp_path: Path, host: LocalHost) -> None:
    log = tmp_path / "log"
    log.write_text("\rLoading safetensors checkpoint shards:  10% Completed | 1/10 [00:01<00:09,  1.00s/it]")
    following = Following(host, log)
    await following.until(2)
    await following.end()
    assert "1/10" in "".join(following.lines)


async def test_of_a_long_log_the_last_start_and_the_end(tmp_path: Path, host: LocalHost) -> None:
    log = tmp_path / "log"
    line = "INFO x" * 10 + "\n"
    start = "(APIServer pid=1) INFO vLLM API server version 0.11.0\n"
    log.write_text(line * 20_000 + start + line * 200_000 + "last\n")
    following = Following(host, log)
    await eventually(lambda: "caught_up" in following.names(), seconds=30, what="the end of the log")
    append(log, line * 200_000 + "newer\n")
    await eventually(lambda: following.lines[-1] == "newer", seconds=30, what="the end of the flood")
    await following.end()
    assert following.lines[0] == start.strip()
    assert following.frames[0] == {"f": "start", "offset": len(line) * 20_000}
    assert "last" in following.lines
    skipped = [frame["count"] for frame in following.frames if frame["f"] == "skipped"]
    assert len(skipped) == 2
    assert len(line) * len(following.lines) < HEAD + 2 * WHOLE + 2 * LATEST
    # Of the lines that a gap cuts only the beginning or nothing is seen.
    assert sum(skipped) + len(following.lines) == pytest.approx(1 + 200_000 + 1 + 200_000 + 1, abs=4)
    assert following.place["offset"] == log.stat().st_size


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_a_forbidden_log_says_so(tmp_path: Path, host: LocalHost) -> None:
    log = tmp_path / "log"
    log.write_text("x\n")
    log.chmod(0)
    following = Following(host, log)
    await eventually(lambda: following.frames, seconds=20, what="the reason")
    await following.end()
    assert following.frames[0]["why"] == "Permission denied"


async def test_a_newline_in_the_path_is_refused(host: LocalHost) -> None:
    with pytest.raises(NotPermitted, match="newline"):
        async for _ in tail_frames(host, "/tmp/a\nb", None, seconds=1):
            pass


@given(st.lists(st.binary(max_size=20) | st.sampled_from([b"\n", b"\nM", b"\nM:", b"\nM: x"])), st.data())
def test_marks_are_told_however_they_are_cut(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(part + b"\nM:1 say %d\n" % number for number, part in enumerate(parts))
    expected = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    marks = Marks("M:1")
    got: list[bytes | list[str]] = []
    for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        got += marks.feed(whole[begin:end])
    assert b"".join(part for part in got if isinstance(part, bytes)) == expected
    assert [part for part in got if isinstance(part, list)] == [["say", str(number)] for number in range(len(parts))]
    assert marks.between
