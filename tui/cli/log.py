"""`readyroom log`: reads a saved log and says where the start got to, how long each phase took, and why it failed."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import click

CHUNK = 1 << 20


@click.command("log")
@click.argument("file", metavar="FILE|-", type=click.Path(allow_dash=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def log(file: Path, as_json: bool) -> None:
    """Read a saved server log: phases, facts, root cause.

    Exit status: 0 ready, 3 on the way, 4 failed, 7 stopped.
    """
    from tui.core.logs import report
    from tui.core.logs.outlook import judge
    from tui.core.logs.reader import LogReader
    from tui.core.text import LineSplitter

    def read(chunks: Iterator[bytes], year: int) -> LogReader:
        reader = LogReader(year)
        splitter = LineSplitter()
        for chunk in chunks:
            for line in splitter.feed(chunk):
                reader.feed(line)
        for line in splitter.flush():
            reader.feed(line)
        return reader

    if str(file) == "-":
        year = datetime.now(UTC).year
        reader = read(_chunks(sys.stdin.buffer), year)
    else:
        try:
            year = datetime.fromtimestamp(file.stat().st_mtime, UTC).year
            with file.open("rb") as stream:
                reader = read(_chunks(stream), year)
            if reader.rollovers:
                # The file's date is that of its end.
                with file.open("rb") as stream:
                    reader = read(_chunks(stream), year - reader.rollovers)
        except OSError as error:
            raise click.UsageError(f"cannot read {file}: {error.strerror or error}") from None
    load = reader.state
    outlook = judge(load, load.last_line_at if load.last_line_at is not None else 0.0)
    if as_json:
        import json

        click.echo(json.dumps(report.document(load, outlook), ensure_ascii=False))
    else:
        import json

        click.echo(json.dumps(report.document(load, outlook), ensure_ascii=False, indent=1))
    sys.exit(report.exit_code(load))


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK):
        yield chunk


if __name__ == "__main__":
    log()
