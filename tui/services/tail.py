"""A log file followed with nothing but `stat` and `tail`: for hosts where the probe can't run (no python3)."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from tui.core.text import LineSplitter
from tui.host.base import Host, ProbeFailed

EVERY_S = 2.0
WHOLE = 2 << 20
"""A log up to this many bytes is read whole."""
AT_ONCE = 512 << 10
"""Of more than this in one round, the end only."""
TIMEOUT_S = 20.0


async def tail_frames(host: Host, path: str, place: dict[str, Any] | None, *, seconds: float) -> AsyncIterator[dict[str, Any]]:
    """Frames as the probe's role "follow" sends them, for about `seconds`, so that the caller can try the probe again.

    `place` is what an earlier run gave as `resume`. Raises Unreachable.
    """
    ends = time.monotonic() + seconds
    splitter = LineSplitter()
    inode, offset = (int(place["inode"]), int(place["offset"])) if place else (0, -1)
    said: str | None = ""
    first = True
    while time.monotonic() < ends:
        try:
            now_inode, size = await _status(host, path)
        except ProbeFailed as error:
            if said != error.cause:
                said = error.cause
                yield {"f": "source", "path": path, "why": error.cause}
            await asyncio.sleep(EVERY_S)
            continue
        if said is not None:
            said = None
            yield {"f": "source", "path": path, "why": None}
        if offset < 0 or now_inode != inode or size < offset:
            if offset >= 0:
                yield {"f": "rotated" if now_inode != inode else "truncated", "path": path}
            else:
                yield {"f": "start", "offset": 0}
            inode, offset = now_inode, 0 if size <= WHOLE else size - AT_ONCE
            splitter = LineSplitter()
        if size > offset:
            if size - offset > WHOLE:
                offset = size - AT_ONCE
            done = await host.run(["tail", "-c", f"+{offset + 1}", path], timeout=TIMEOUT_S)
            offset += len(done.stdout)
            lines = splitter.feed(done.stdout)
            # The place is that of the bytes that were read; an unfinished line is kept here until its end comes.
            frame = {"f": "lines", "lines": lines, "resume": {"inode": inode, "offset": offset}}
            yield frame | ({"written": time.time()} if first else {"wall": time.time()})
        if first:
            first = False
            yield {"f": "caught_up"}
        await asyncio.sleep(EVERY_S)


async def _status(host: Host, path: str) -> tuple[int, int]:
    """(inode, size). Raises ProbeFailed with the reason where the file can't be seen."""
    try:
        done = await host.run(["stat", "-L", "-c", "%i %s", path], timeout=TIMEOUT_S)
    except TimeoutError:
        raise ProbeFailed("the host does not answer in time") from None
    words = done.stdout.split()
    if done.status != 0 or len(words) != 2:
        errors = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ProbeFailed(errors[-1] if errors else "its size can't be asked")
    return int(words[0]), int(words[1])
