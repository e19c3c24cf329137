"""What makes a log hard to read: floods, and hostile bytes."""

import asyncio
import os
import select
import time

from tui.simulator.serverlog import ServerLog

_FLOOD_LIMIT = 2 * 2**30
HOSTILE = (
    b"\x1b]0;owned by the log\x07\x1b[2J\x1b[H\x1b[31mred until the end of time",
    b"(Worker_TP3 pid=1) [bold red]markup[/bold red] [link=file:///etc/passwd]x[/] [/nothing] [@click=app.quit]quit[/]",
    b"\xff\xfe\x00\x00 invalid \xc3\x28 utf-8 \xf0\x9f\x92 cut",
    "\u202egnirts desrever\u202c \u200b\u200d zero width \u2066isolated".encode(),
    b"\x9b31m C1 control \x90 device string \x9c",
    b"A" * 300_000,
    b"Loading safetensors checkpoint shards: 999% Completed | 99999999999999999999/3 [xx:yy<??, nan",
    b"\x08\x08\x08\x08 backspaces \x7f\x00\x01\x02",
)


async def hostile_lines(log: ServerLog) -> None:
    """One of them every third of a second, for ever."""
    while True:
        for line in HOSTILE:
            log.raw(line + b"\n")
            await asyncio.sleep(0.33)


def flood(leash: int, lines_per_s: int) -> None:
    """Forks a writer of that many lines a second; it ends with the leash, or when it has written 2 GiB."""
    if os.fork():
        return
    try:
        poll = select.poll()
        poll.register(leash, select.POLLIN | select.POLLHUP)
        written, number, due = 0, 0, time.monotonic()
        part = lines_per_s // 50
        while written < _FLOOD_LIMIT:
            head = f"(Worker_TP2 pid={os.getpid()}) DEBUG {time.strftime('%m-%d %H:%M:%S')} [scheduler.py:412] "
            block = "".join(f"{head}step {number + i}: scheduled 1 request, 1 token, budget 8191\n" for i in range(part)).encode()
            number += part
            written += len(block)
            while block:
                block = block[os.write(1, block) :]
            due += 0.02
            if poll.poll(max(0.0, (due - time.monotonic()) * 1000)):
                break
    finally:
        os._exit(0)
