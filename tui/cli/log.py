"""`readyroom log`: reads a saved log and says where the start got to, how long each phase took, and why it failed."""

import os
import re
import sys
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click
from msgspec.structs import replace

if TYPE_CHECKING:
    from tui.core.logs.log_reader import LogReader
    from tui.core.logs.log_report import Row

LONGEST = 1 << 20
"""Bytes of one line that are read at once: a file without line ends must not fill the memory."""
KEPT = 100_000
"""Lines of standard input that are kept to show what stands around the cause; a file is read again."""
AROUND = (3, 4)
ROLES = {"title": "bold", "good": "green", "warn": "yellow", "bad": "bold red", "label": "cyan", "value": "", "dim": "dim"}


class _LogFile(click.Path):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value):
            raise click.UsageError("the name of a file is missing: it is empty. Name a saved log, or - for standard input.", ctx)
        return super().convert(value, param, ctx)


@click.command("log")
@click.argument("file", metavar="FILE|-", type=_LogFile(allow_dash=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
@click.option("--service", metavar="NAME", help="The service to read, if a docker compose log holds several servers.")
def log(file: Path, as_json: bool, service: str | None) -> None:
    """Read a saved log of an inference server: phases with their durations, facts, and the root cause of a failure with advice.

    Exit code 0 when it is ready at the end, 3 on the way or no server log, 4 failed, 7 stopped cleanly.
    """
    from tui.core.logs import log_report
    from tui.core.logs.forecast import make_forecast
    from tui.core.logs.load_state import Verdict
    from tui.core.logs.log_report import lines
    from tui.core.text import clean
    from tui.engines.registry import titles

    context: list[tuple[int, str]] = []
    if str(file) == "-":
        kept: deque[tuple[int, str]] = deque(maxlen=KEPT)
        reader = _read(_lines(sys.stdin.buffer, kept), datetime.now(UTC).year, service)
        line = reader.state.failure.line if reader.state.failure else None
        context = _around(kept, line)
    else:
        try:
            reader = _read_file(file, service)
            line = reader.state.failure.line if reader.state.failure else None
            if line is not None and not as_json:
                with _opened(file) as stream:
                    context = _around(_numbered(stream), line)
        except OSError as error:
            raise click.UsageError(
                f"cannot read {file}: {error.strerror or error}. Name a saved log, or - for standard input."
            ) from None
    if service is not None and service not in reader.services:
        there = ", ".join(map(clean, reader.services)) or "none: it is not a docker compose log"
        raise click.UsageError(f"that log has no service {service}; it has: {there}")
    load = reader.state
    forecast = make_forecast(load, load.last_line_at if load.last_line_at is not None else 0.0)
    if load.foreign:
        reason = f"no line of it looks like a {titles()} server's log" if load.lines else "it is empty"
        forecast = replace(forecast, verdict=Verdict.UNKNOWN, reason=f"no server log: {reason}")
        click.echo(f"readyroom: {forecast.reason}", err=True)
    if as_json:
        import json

        click.echo(json.dumps(log_report.document(load, forecast), ensure_ascii=False))
    else:
        encoding = (sys.stdout.encoding or "").lower()
        source = "" if str(file) == "-" else clean(str(file))
        _print(lines(load, forecast, context=context, source=source, ascii_bars="utf" not in encoding))
    sys.exit(log_report.exit_code(load))


def _opened(file: Path) -> BinaryIO:
    """Return the bytes of a log, unpacked if it is gzip (logrotate's), from behind a hole that it begins with."""
    stream = file.open("rb")
    if stream.peek(1)[:1] == b"\0" and stream.seekable():
        from tui.probe.log_lines import after_hole

        stream.seek(after_hole(stream.fileno(), 0, os.fstat(stream.fileno()).st_size))
    packed = stream.peek(2)[:2] == b"\x1f\x8b"
    if not packed:
        return stream
    import gzip

    return cast(BinaryIO, gzip.GzipFile(fileobj=stream))


def _read_file(file: Path, service: str | None) -> "LogReader":
    with _opened(file) as stream:
        year = datetime.fromtimestamp(file.stat().st_mtime, UTC).year
        reader = _read(_lines(stream), year, service)
    if reader.rollovers:
        # A file's date is that of its end, and the log prints no year.
        with _opened(file) as stream:
            reader = _read(_lines(stream), year - reader.rollovers, service)
    return reader


def _read(numbered: Iterable[tuple[int, str]], year: int, service: str | None) -> "LogReader":
    from tui.core.logs.log_reader import LogReader

    reader = LogReader(year, service=service)
    for number, text in numbered:
        reader.feed(text, None, number)
    reader.finish()
    return reader


def _line_of(stream: BinaryIO) -> bytes:
    """Return the next line or what there is of it, and b"" at the end, also of a packed file that was cut."""
    try:
        return stream.readline(LONGEST)
    except (EOFError, zlib.error):
        click.echo("readyroom: the compressed file is cut short or damaged: what could be decompressed was read", err=True)
        return b""


def _lines(stream: BinaryIO, kept: "deque[tuple[int, str]] | None" = None) -> Iterator[tuple[int, str]]:
    """Yield lines, and the pieces of lines that carriage returns part, with the number that an editor shows."""
    number, whole = 0, True
    while raw := _line_of(stream):
        number += whole
        whole = raw.endswith(b"\n")
        if raw.startswith(b"\0") and not (raw := raw.lstrip(b"\0")):
            continue
        text = raw.decode("utf-8", "replace").rstrip("\r\n")
        parts = re.split(r"\r+", text) if "\r" in text else (text,)
        for part in parts:
            if kept is not None:
                kept.append((number, part))
            yield number, part


def _numbered(stream: BinaryIO) -> Iterator[tuple[int, str]]:
    return _lines(stream)


def _around(numbered: Iterable[tuple[int, str]], line: int | None) -> list[tuple[int, str]]:
    """Return the lines around one, cleaned; of a line with carriage returns, its last piece."""
    from tui.core.text import clean

    if line is None:
        return []
    found: dict[int, str] = {}
    for number, text in numbered:
        if number > line + AROUND[1]:
            break
        if number >= line - AROUND[0] and (text or number not in found):
            found[number] = clean(text)
    return sorted(found.items())


def _print(rows: "Iterable[Row]") -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    piped = not console.is_terminal
    for row in rows:
        text = Text(no_wrap=piped)
        for span in row:
            text.append(span.text, ROLES[span.role])
        # A report in a pipe is for grep and files: no line is broken or cut there.
        console.print(text, soft_wrap=piped)


if __name__ == "__main__":
    log()
