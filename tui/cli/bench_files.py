"""The files that `readyroom bench --save` and `--csv` write: their places are tried before the first request, since what can't be
written at the end was measured for nothing."""

import os
import stat
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from msgspec import Struct

from tui.cli.exit_message import ExitCode, Fail
from tui.core.bench_documents import csv_of, json_pieces, saved_document, saved_name
from tui.core.bench_result import Plan, Result, Vantage

STDOUT = "-"
"""The FILE of `--csv` that means standard output."""
HEADS = csv_of(Result("", "", Vantage.DIRECT, Plan())).encode()


class Saved(Struct, frozen=True):
    """The paths that were written, and a `path: reason` for each that could not be."""

    paths: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def require_writable(directory: str | None, csv_file: str | None) -> None:
    """Make the folder of `--save`, and raise Fail (usage) with the path and the reason if something cannot be written."""
    for option, path, attempt in (("--save", directory, _try_folder), ("--csv", csv_file, _try_file)):
        if path is None or (option, path) == ("--csv", STDOUT):
            continue
        try:
            attempt(Path(path))
        except OSError as error:
            raise Fail(ExitCode.USAGE, f"{option} {_problem(error, Path(path))}: nothing was measured") from None


def _try_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def _try_file(path: Path) -> None:
    """Try to write to a file. What it holds stays; a pipe or a device is not opened, since whoever reads it would see its end.

    Raises FileExistsError for a file of something else than these rows.
    """
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        made = path.resolve()  # a link may lead to where nothing is yet
        with made.open("xb"):
            pass
        made.unlink()
        return
    if stat.S_ISREG(kind):
        with path.open("ab"):
            pass
        _holds_rows(path)
    elif not os.access(path, os.W_OK):
        raise PermissionError(13, os.strerror(13), str(path))


def _holds_rows(path: Path) -> bool:
    """Return whether a regular file has these columns already, so that rows are added to it; an empty file has not.

    Raises FileExistsError if it holds something else: that is not overwritten.
    """
    with path.open("rb") as file:
        begin = file.read(len(HEADS))
    if begin and begin != HEADS:
        raise FileExistsError(17, "it does not hold rows of these columns, and was left unchanged", str(path))
    return bool(begin)


def _write_rows(path: Path, result: Result) -> None:
    """Append rows to those that are there; a new file, a pipe or a device gets the names of the columns first."""
    try:
        regular = stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        regular = False
    if not (regular and _holds_rows(path)):
        with path.open("w", encoding="utf-8") as file:
            file.write(csv_of(result))
        return
    with path.open("rb+") as behind:
        behind.seek(-1, os.SEEK_END)
        whole = behind.read(1) == b"\n"  # a row that was cut stays one of its own
        behind.write((b"" if whole else b"\n") + csv_of(result, heads=False).encode())


def save(result: Result, directory: str | None, csv_file: str | None) -> Saved:
    """Write what was asked for, as far as that can be done."""
    paths: list[str] = []
    problems: list[str] = []

    def write(path: Path, attempt: Callable[[Path], None]) -> None:
        try:
            attempt(path)
        except OSError as error:
            problems.append(_problem(error, path))
        else:
            paths.append(str(path))

    if directory is not None:
        for point in result.points:
            text = json_pieces(saved_document(point))
            write(_free(Path(directory) / saved_name(point)), partial(_write_text, text))
    if csv_file is not None and csv_file != STDOUT:
        write(Path(csv_file), lambda path: _write_rows(path, result))
    return Saved(tuple(paths), tuple(problems))


def _write_text(text: Iterable[str], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(text)


def _problem(error: OSError, path: Path) -> str:
    return f"{path} can't be written: {error.strerror or error}"


def _free(path: Path) -> Path:
    """Return the path, numbered if a file of that name exists (two points within one second)."""
    number = 2
    free = path
    while os.path.lexists(free):
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
        number += 1
    return free
