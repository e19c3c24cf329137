"""The files that `readyroom bench --save` and `--csv` write: their places are tried before the first request, since what can't be
written at the end was measured for nothing."""

import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from tui.cli.exits import Exit, Fail
from tui.core.benchmark import Result
from tui.core.benchmark_json import json_pieces
from tui.core.benchmark_report import csv_of, saved_document, saved_name


class Saved(Struct, frozen=True):
    """The paths that were written, and a `path: reason` for each that could not be."""

    paths: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def require_writable(directory: str | None, csv_file: str | None) -> None:
    """Makes the folder of `--save`. Raises Fail (usage) with the path and the reason where nothing can be written."""
    for option, path, attempt in (("--save", directory, _try_folder), ("--csv", csv_file, _try_file)):
        if path is None:
            continue
        try:
            attempt(Path(path))
        except OSError as error:
            raise Fail(Exit.USAGE, f"{option} {_problem(error, Path(path))}: nothing was measured") from None


def _try_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def _try_file(path: Path) -> None:
    """What a file holds is left as it is; a pipe or a device is not opened, since whoever reads it would see its end."""
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
    elif not os.access(path, os.W_OK):
        raise PermissionError(13, os.strerror(13), str(path))


def save(result: Result, directory: str | None, csv_file: str | None) -> Saved:
    """Writes what was asked for, as far as that can be done."""
    paths: list[str] = []
    problems: list[str] = []

    def write(path: Path, text: Iterable[str]) -> None:
        try:
            with path.open("w", encoding="utf-8") as file:
                file.writelines(text)
        except OSError as error:
            problems.append(_problem(error, path))
        else:
            paths.append(str(path))

    if directory is not None:
        for point in result.points:
            text = json_pieces(saved_document(point))
            write(_free(Path(directory) / saved_name(point)), text)
    if csv_file is not None:
        write(Path(csv_file), [csv_of(result)])
    return Saved(tuple(paths), tuple(problems))


def _problem(error: OSError, path: Path) -> str:
    return f"{path} can't be written: {error.strerror or error}"


def _free(path: Path) -> Path:
    """The path, numbered where a file of that name is there (two points within one second)."""
    number = 2
    free = path
    while os.path.lexists(free):
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
        number += 1
    return free
