"""Whether what `readyroom bench` is to write can be written, tried without leaving anything."""

import multiprocessing
import os
import resource
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tui.cli.bench_files import Saving, require_writable
from tui.cli.exit_message import Fail
from tui.core.bench_documents import csv_of
from tui.core.bench_result import Plan, Point, Result, Vantage

RESULT = Result("/v1/chat/completions", "m", Vantage.DIRECT, Plan(), (Point(1, {"output_throughput": 10.5}),))


def test_a_link_that_leads_to_no_file_yet_can_be_written_through(tmp_path: Path) -> None:
    link, there = tmp_path / "points.csv", tmp_path / "there.csv"
    link.symlink_to(there.name)
    require_writable(None, str(link))
    assert link.is_symlink()
    assert not there.exists()  # nothing of the attempt is left
    link.write_text("as at the end")
    assert there.read_text() == "as at the end"


def test_a_link_that_leads_nowhere_is_refused_with_the_reason(tmp_path: Path) -> None:
    link = tmp_path / "points.csv"
    link.symlink_to("no-such-folder/points.csv")
    with pytest.raises(Fail, match=r"points\.csv can't be written: No such file or directory"):
        require_writable(None, str(link))
    loop = tmp_path / "loop.csv"
    loop.symlink_to("loop.csv")
    with pytest.raises(Fail, match="Too many levels of symbolic links"):
        require_writable(None, str(loop))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, csv_of(RESULT)),
        ("", csv_of(RESULT)),  # as mktemp makes it
        (csv_of(RESULT), csv_of(RESULT) + csv_of(RESULT, heads=False)),
        (csv_of(RESULT, heads=True).rstrip("\n"), csv_of(RESULT) + csv_of(RESULT, heads=False)),
    ],
)
def test_rows_are_added_to_those_that_are_there(tmp_path: Path, before: str | None, after: str) -> None:
    path = tmp_path / "points.csv"
    if before is not None:
        path.write_text(before)
    require_writable(None, str(path))
    assert (path.read_text() if path.exists() else None) == before
    assert Saving(RESULT, None, str(path)).run().paths == (str(path),)
    assert path.read_text() == after


@pytest.mark.parametrize("held", ["dear diary\n", "date,endpoint_type\n", csv_of(RESULT).replace("rtfx", "other")])
def test_a_file_of_something_else_is_not_overwritten(tmp_path: Path, held: str) -> None:
    path = tmp_path / "points.csv"
    path.write_text(held)
    with pytest.raises(Fail, match="does not hold rows"):
        require_writable(None, str(path))
    (problem,) = Saving(RESULT, None, str(path)).run().problems  # it came meanwhile
    assert "does not hold rows" in problem
    assert path.read_text() == held


async def test_a_pipe_that_nobody_reads_holds_nothing_up(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    require_writable(None, str(pipe))
    saved = await Saving(RESULT, None, str(pipe)).patiently(0.3)
    assert saved.problems == (f"{pipe} can't be written: nothing was taken for 0.3 s",)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert (await Saving(RESULT, None, str(pipe)).patiently()).problems == ()
        assert os.read(reader, 1 << 20).decode().startswith(csv_of(RESULT))
    finally:
        os.close(reader)


def test_rows_of_several_processes_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    many = replace(RESULT, points=RESULT.points * 2000)
    writers = [multiprocessing.get_context("fork").Process(target=Saving(many, None, str(path)).run) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    lines = path.read_text().splitlines(keepends=True)
    head, row = csv_of(RESULT).splitlines(keepends=True)
    assert (lines[0], set(lines[1:]), len(lines)) == (head, {row}, 8001)


def test_rows_for_which_there_is_no_room_leave_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text(csv_of(RESULT))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(csv_of(RESULT)) + 10, before[1]))
    try:
        saved = Saving(RESULT, None, str(path)).run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert saved.problems == (f"{path} can't be written: File too large",)
    assert path.read_text() == csv_of(RESULT)


def test_a_device_gets_the_columns_each_time() -> None:
    require_writable(None, "/dev/null")
    assert Saving(RESULT, None, "/dev/null").run().problems == ()
