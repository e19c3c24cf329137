"""The files that `readyroom bench --save` and `--csv` write: their places are tried before the first request, since what can't be
written at the end was measured for nothing."""

import asyncio
import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from io import RawIOBase
from itertools import count
from pathlib import Path

from msgspec import Struct

from tui.aio import ended, in_thread
from tui.cli.exit_message import ExitCode, Fail
from tui.core.bench_documents import csv_of, json_pieces, saved_document, saved_name
from tui.core.bench_result import Plan, Result, Vantage

STDOUT = "-"
"""The FILE of `--csv` that means standard output."""
PATIENCE_S = 10.0
"""For a file that takes nothing more: a pipe that nobody reads, a mount that hangs."""
HEADS = csv_of(Result("", "", Vantage.DIRECT, Plan())).encode()


class Saved(Struct, frozen=True):
    """The paths that were written, and a `path: reason` for each that could not be."""

    paths: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


async def require_writable_soon(directory: str | None, csv_file: str | None, patience_s: float = PATIENCE_S) -> None:
    """Do as `require_writable`, and raise Fail (usage) if that can't be told within the time, as of a mount that hangs."""
    try:
        async with asyncio.timeout(patience_s):
            await in_thread(require_writable, directory, csv_file)
    except TimeoutError:
        named = " or ".join(name for name in (directory, csv_file) if name)
        raise Fail(ExitCode.USAGE, f"{named} does not answer within {patience_s:g} s: nothing was measured") from None


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


def _write_rows(path: Path, result: Result, wrote: Callable[[], object]) -> None:
    """Append rows to those that are there; a new file, a pipe or a device gets the names of the columns first.

    Under a lock, since two commands may write to one file. Of rows that do not fit on the disk nothing stays.
    """
    if path.exists() and not path.is_file():
        with path.open("wb", buffering=0) as pipe:  # waits for whoever reads it
            _write_all(pipe, csv_of(result).encode(), wrote)
        return
    with path.open("ab", buffering=0) as file:
        with contextlib.suppress(OSError):  # some network file systems have no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        size = path.stat().st_size
        heads = not _holds_rows(path)
        with path.open("rb") as held:
            held.seek(max(0, size - 1))
            whole = held.read(1) in (b"", b"\n")  # a row that was cut stays one of its own
        try:
            _write_all(file, (b"" if whole else b"\n") + csv_of(result, heads=heads).encode(), wrote)
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(size)
            raise


def _write_all(file: RawIOBase, data: bytes, wrote: Callable[[], object]) -> None:
    while data:
        data = data[file.write(data) or 0 :]
        wrote()


class Saving:
    """Write what was asked for, as far as that can be done."""

    def __init__(self, result: Result, directory: str | None, csv_file: str | None) -> None:
        self._result = result
        self._directory = directory
        self._csv_file = None if csv_file == STDOUT else csv_file
        self._paths: list[str] = []
        self._problems: list[str] = []
        self._now = ""
        self._steps = 0

    async def patiently(self, patience_s: float = PATIENCE_S) -> Saved:
        """Return what was written when all is, or if nothing more could be written for so long."""
        writing = asyncio.ensure_future(in_thread(self.run))
        try:
            while True:
                before = self._steps
                if (await asyncio.wait([writing], timeout=patience_s))[0]:
                    return writing.result()
                if self._steps == before:
                    stuck = f"{self._now} can't be written: nothing was taken for {patience_s:g} s"
                    return Saved(tuple(self._paths), (*self._problems, stuck))
        finally:
            await ended(writing)

    def run(self) -> Saved:
        """Return what was written; a pipe that nobody reads, or a mount that hangs, holds it for ever."""
        if self._directory is not None:
            for point in self._result.points:
                text = json_pieces(saved_document(point))
                self._attempt(Path(self._directory) / saved_name(point), partial(_write_text, text))
        if self._csv_file is not None:
            self._attempt(Path(self._csv_file), self._rows)
        return Saved(tuple(self._paths), tuple(self._problems))

    def _rows(self, path: Path, wrote: Callable[[], object]) -> Path:
        _write_rows(path, self._result, wrote)
        return path

    def _attempt(self, path: Path, write: Callable[[Path, Callable[[], object]], Path]) -> None:
        self._now = str(path)
        try:
            self._paths.append(str(write(path, self._step)))
        except OSError as error:
            self._problems.append(_problem(error, path))
        self._step()

    def _step(self) -> None:
        self._steps += 1


def _write_text(text: Iterable[str], path: Path, wrote: Callable[[], object]) -> Path:
    """Write a file and return its path, which is numbered if one of that name exists (two points within one second)."""
    for number in count(1):
        free = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        try:
            file = free.open("x", encoding="utf-8")
        except FileExistsError:
            continue
        with file:
            for piece in text:
                file.write(piece)
                wrote()
        return free
    raise AssertionError("numbers do not end")


def _problem(error: OSError, path: Path) -> str:
    return f"{path} can't be written: {error.strerror or error}"
