"""Whether what `readyroom bench` is to write can be written, tried without leaving anything."""

from pathlib import Path

import pytest

from tui.cli.bench_files import require_writable
from tui.cli.exits import Fail


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
