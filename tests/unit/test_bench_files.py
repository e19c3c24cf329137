"""Whether what `readyroom bench` is to write can be written, tried without leaving anything."""

from pathlib import Path

import pytest

from tui.cli.bench_files import require_writable, save
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
    assert save(RESULT, None, str(path)).paths == (str(path),)
    assert path.read_text() == after


@pytest.mark.parametrize("held", ["dear diary\n", "date,endpoint_type\n", csv_of(RESULT).replace("rtfx", "other")])
def test_a_file_of_something_else_is_not_overwritten(tmp_path: Path, held: str) -> None:
    path = tmp_path / "points.csv"
    path.write_text(held)
    with pytest.raises(Fail, match="does not hold rows"):
        require_writable(None, str(path))
    (problem,) = save(RESULT, None, str(path)).problems  # it came meanwhile
    assert "does not hold rows" in problem
    assert path.read_text() == held


def test_a_device_gets_the_columns_each_time() -> None:
    require_writable(None, "/dev/null")
    assert save(RESULT, None, "/dev/null").problems == ()
