"""A log file followed with nothing but a POSIX shell, `ls` and `dd`: for hosts where the probe can't run (no python3).

One shell goes on and on there, on the leash. It holds the file open, so that nothing written before a rotation is missed, and looks
every second or two at what the path names by now. `tail -F` would do the same, but does not tell where one file ends and the next
begins, and so no place to resume at. Between the log's bytes the shell puts lines of its own behind a mark that no log can hold.
"""

import secrets
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from tui.aio import patiently
from tui.core.text import clean
from tui.engines.registry import START_TEXTS
from tui.host.base import Host, HostError
from tui.probe.log_lines import LineCutter

WHOLE = 4_000_000
"""A log up to this many bytes is read whole; of a longer one the last start's head and the end."""
HEAD = 512 << 10
LATEST = 512 << 10
"""Of more than WHOLE in one round, the end only."""
QUIET_S = 1.5
"""A progress bar that has stood so long without a line end is read as it is."""


_SCRIPT = " ".join(
    line.strip()
    for line in """
    path=$1; mark=$2; place=$3; pos=$4; opened=; said=; caught=; idle=0; set -f;
    tell() { printf '\\n%s %s\\n' "$mark" "$*"; };
    facts() { ls -Lind /proc/self/fd/4 4<&4 2>/dev/null || ls -Lind -- "$path"; };
    seek() { dd bs=1 skip=$1 count=0 <&4 >/dev/null 2>&1; };
    blank() { [ "$(dd if=/proc/self/fd/4 bs=1 skip=$1 count=64 2>/dev/null | tr -d '\\0' | wc -c)" -eq 0 ]; };
    pass_hole() {
        if [ $1 -lt 64 ] || ! blank 0; then return; fi;
        low=0; pos=$1;
        while [ $((pos - low)) -gt 1 ]; do half=$(((low + pos) / 2)); if blank $half; then low=$half; else pos=$half; fi; done;
        tell hole $pos;
    };
    give() { idle=0; tell now $(date +%s); dd bs=$1 count=1 <&4 2>/dev/null; pos=$((pos + $1)); tell so; };
    send() {
        if [ $pos = 0 ]; then pass_hole $1; seek $pos; fi;
        n=$(($1 - pos));
        if [ $n -gt WHOLE ]; then
            blocks=$(((n - LATEST) / 65536));
            lines=$(dd bs=65536 count=$blocks <&4 2>/dev/null | wc -l);
            pos=$((pos + blocks * 65536)); tell skipped $((blocks * 65536)) $lines; n=$(($1 - pos));
        fi;
        if [ $n -gt 0 ]; then give $n; fi;
    };
    begin() {
        exec 4<"$path"; set -- "$1" $(facts); opened=$2; size=$7;
        if [ "$1" != first ]; then pos=0;
        elif [ "$opened" = "$place" ] && [ $pos -le $size ]; then set -- on;
        elif [ -n "$place" ]; then
            pos=0; if [ "$opened" = "$place" ]; then set -- truncated; else set -- rotated; fi;
        else
            pos=0; pass_hole $size;
            if [ $((size - pos)) -gt WHOLE ]; then
                at=$(tail -c +$((pos + 1)) /proc/self/fd/4 | LC_ALL=C grep -abF STARTS 2>/dev/null | tail -n 1); at=${at%%:*};
                if [ -n "$at" ]; then pos=$((pos + at)); else pos=$((size - WHOLE)); fi;
            fi;
        fi;
        seek $pos;
        tell open $1 $opened $pos $size $(date '+%z %s') $(date -r "$path" +%s 2>/dev/null);
        if [ $1 = first ] && [ $((size - pos)) -gt WHOLE ]; then give HEAD; fi;
    };
    while :; do
        now=; mode=; size=0;
        if out=$(ls -Lind -- "$path" 2>&1); then
            set -- $out; now=$1; mode=$2; size=$6;
            case $mode in
                -*) if [ -r "$path" ]; then why=; else why="Permission denied"; fi;;
                *) why="is not a regular file, it can't be followed";;
            esac;
        elif [ -e "$path" ]; then why=$out; else why="there is no such file yet, or no permission to see it; waiting for it"; fi;
        if [ -n "$opened" ] && [ "$now" != "$opened" ]; then
            set -- $(facts); if [ "$1" = "$opened" ]; then send $6; fi;
        fi;
        if [ "$why" != "$said" ]; then tell why $why; said=$why; fi;
        if [ -z "$why" ]; then
            if [ -z "$opened" ]; then begin first;
            elif [ "$now" != "$opened" ]; then begin rotated;
            elif [ $size -lt $pos ]; then begin truncated; fi;
            send $size;
            if [ -z "$caught" ]; then caught=1; tell caught_up; fi;
        fi;
        idle=$((idle + 1)); if [ $idle -gt 5 ]; then sleep 2; else sleep 1; fi;
    done
    """.strip().splitlines()
).replace("WHOLE", str(WHOLE)).replace("LATEST", str(LATEST)).replace("HEAD", str(HEAD)).replace(
    "STARTS", " ".join(f"-e '{words}'" for words in START_TEXTS)
)  # fmt: skip


async def tail_frames(host: Host, path: str, place: dict[str, Any] | None, *, seconds: float) -> AsyncGenerator[dict[str, Any]]:
    """Yield frames as the probe's role "follow" sends them, and "idle" while there is nothing to tell.

    It ends after about `seconds`, so that the caller can try the probe again.

    `place` is what an earlier run gave as `resume`. Raise NotPermitted, Unreachable; HostError if the shell there ends.
    """
    ends = time.monotonic() + seconds
    mark = f"readyroom:{secrets.token_hex(8)}"
    inode, offset = (str(place["inode"]), str(place["offset"])) if place else ("", "0")
    stream = await host.stream(["sh", "-c", _SCRIPT, "sh", path, mark, inode, offset])
    marks, tail = Marks(mark), _Tail(path, place)
    try:
        async with aclosing(patiently(stream, lambda: QUIET_S)) as output:
            async for data in output:
                if data is None:
                    for frame in tail.quiet():
                        yield frame
                    yield {"f": "idle"}
                for part in marks.feed(data or b""):
                    for frame in tail.take(part):
                        yield frame
                if time.monotonic() > ends and marks.between:
                    return
        raise HostError(await stream.how_it_ended(), "it is started again")
    finally:
        await stream.close()


class Marks:
    """Tells the log's bytes from the shell's own lines, however they are cut."""

    def __init__(self, mark: str) -> None:
        self._mark = f"\n{mark} ".encode()
        self._rest = b""

    @property
    def between(self) -> bool:
        """Whether no half line is held back."""
        return not self._rest

    def feed(self, data: bytes) -> Iterator[bytes | list[str]]:
        """Yield bytes of the log, and the words of the shell's lines, in order."""
        data = self._rest + data
        while (at := data.find(self._mark)) >= 0:
            end = data.find(b"\n", at + len(self._mark))
            if end < 0:
                break
            if at:
                yield data[:at]
            yield data[at + len(self._mark) : end].decode("utf-8", "replace").split(" ")
            data = data[end + 1 :]
        else:
            lengths = range(min(len(self._mark) - 1, len(data)), 0, -1)
            at = len(data) - next((length for length in lengths if data.endswith(self._mark[:length])), 0)
        if at:
            yield data[:at]
        self._rest = data[at:]


class _Tail:
    """Makes frames of what the shell sends."""

    def __init__(self, path: str, place: dict[str, Any] | None) -> None:
        self._path = path
        self._cutter = LineCutter()
        self._inode = 0
        number = place.get("number") if place else 1
        self._number = number if isinstance(number, int) else None
        self._cut = False
        """The next line is without its beginning."""
        self._caught_up = False
        self._written: float | None = None
        self._wall: float | None = None

    def take(self, part: bytes | list[str]) -> Iterator[dict[str, Any]]:
        match part:
            case bytes(data):
                yield from self._lines(self._cutter.feed(data))
            case ["open", what, inode, at, size, *times]:
                yield from self._opened(what, int(inode), int(at), int(size), times)
            case ["skipped", count, lines]:
                self._cutter = LineCutter(self._cutter.read + int(count))
                self._cut, self._number = True, None
                yield {"f": "skipped", "count": int(lines)}
            case ["hole", at]:
                self._cutter = LineCutter(int(at))
            case ["now", wall]:
                self._wall = float(wall) if wall.isdigit() else None
            case ["why", *words]:
                yield {"f": "source", "path": self._path, "why": clean(" ".join(words)).strip() or None}
            case ["caught_up"]:
                self._caught_up = True
                yield {"f": "caught_up"}

    def _opened(self, what: str, inode: int, at: int, size: int, times: list[str]) -> Iterator[dict[str, Any]]:
        if what in ("rotated", "truncated"):
            yield from self._lines(self._cutter.flush(bars_only=False))
            yield {"f": what, "path": self._path}
        elif what == "first":
            yield {"f": "start", "offset": at}
        if what != "on":
            self._number = 1 if at == 0 else None
        self._inode, self._cutter = inode, LineCutter(at)
        self._cut = what == "first" and at > 0 and at == size - WHOLE
        wall, written = (float(word) if word.isdigit() else None for word in [*times[1:], "", ""][:2])
        self._written = written or wall
        yield {"f": "source", "path": self._path, "why": None, "inode": inode, "size": size, "wall": wall, **_zone(times[:1])}

    def quiet(self) -> Iterator[dict[str, Any]]:
        """Take the progress bar that stands there as a line: nothing has come for a while."""
        yield from self._lines(self._cutter.flush(bars_only=True))

    def _lines(self, lines: list[str]) -> Iterator[dict[str, Any]]:
        if lines and self._cut:
            self._cut = False
            lines = lines[1:]
        if not lines:
            return
        place = {"inode": self._inode, "offset": self._cutter.done, "number": None}
        frame: dict[str, Any] = {"f": "lines", "lines": lines, "resume": place}
        if self._number is not None:
            frame["first"] = self._number
            self._number += len(lines)
            place["number"] = self._number
        at = self._wall if self._caught_up else self._written or self._wall
        if at is not None:
            frame["wall" if self._caught_up else "written"] = at
        yield frame


def _zone(words: list[str]) -> dict[str, int]:
    """Return the host's offset from UTC in seconds, of `+0200`."""
    if not words or len(words[0]) != 5 or not words[0][1:].isdigit():
        return {}
    seconds = int(words[0][1:3]) * 3600 + int(words[0][3:]) * 60
    return {"utc_offset": -seconds if words[0][0] == "-" else seconds}
