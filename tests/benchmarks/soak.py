"""Watches for long, with random faults, and prints what must not grow: python tests/benchmarks/soak.py [minutes]

A session on this machine as host: a server's log is written at high speed, rotated, truncated, filled with garbage; its API
comes and goes; the host is lost and found again, roles of the probe are killed. Each row: seconds, the hours that the starts
written so far took on their hosts, faults so far, resident memory, open files, tasks, processes below this one, states folded. The
last lines compare with the row after the warm-up.
"""

import asyncio
import gc
import os
import random
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "host")]

from sshd import descendants  # noqa: E402
from test_api import UP, Replay  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
from test_session import Cuttable  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

from tui.host.base import Unreachable  # noqa: E402
from tui.services.deployment_watch import Session  # noqa: E402
from tui.settings import Deployment, EngineSettings, Settings  # noqa: E402

LOGS = sorted((Path(__file__).parent.parent / "data" / "logs" / "servers").glob("*.log"))
ROW_S = 10.0
STAMP = re.compile(r"\b(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)\b")


def hours_of(text: str) -> float:
    """Return how long a start took, by the stamps of its first and last lines."""
    stamps = [[int(part) for part in stamp] for stamp in STAMP.findall(text)]
    seconds = [((day * 24 + hour) * 60 + minute) * 60 + second for _, day, hour, minute, second in stamps]
    return max(0.0, seconds[-1] - seconds[0]) / 3600 if seconds else 0.0


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Soak:
    def __init__(self, folder: Path, server: Replay) -> None:
        self.log = folder / "vllm.log"
        self.log.write_text("")
        self.server = server
        self.host = Cuttable()
        deployment = Deployment(api=server.url, engines=(EngineSettings(host="local", log=f"file:{self.log}"),))
        self.session = Session("soak", "local", deployment, Settings(), self.host)
        self.faults = 0
        self.hours = 0.0
        self.states = 0

    async def write(self) -> None:
        """Whole starts, one after the other, some 2,000 lines a second."""
        while True:
            text = random.choice(LOGS).read_text("utf-8", "replace")
            for line in text.splitlines(keepends=True):
                with self.log.open("a") as file:
                    file.write(line * random.choice((1, 1, 1, 20)))
                await asyncio.sleep(0.002)
            self.hours += hours_of(text)

    async def read(self) -> None:
        async for _ in self.session.states():
            self.states += 1

    async def trouble(self) -> None:
        while True:
            await asyncio.sleep(random.uniform(0.3, 1.5))
            self.faults += 1
            match random.randrange(6):
                case 0:
                    if self.session.state.connection.online:
                        await self.host.cut(Unreachable("cut by the soak"))
                    self.session.retry()
                case 1:
                    self.log.rename(self.log.with_suffix(".1"))
                    self.log.write_text("rotated\n")
                case 2:
                    os.truncate(self.log, 0)
                case 3:
                    with self.log.open("ab") as file:
                        file.write(os.urandom(20_000) + b"\n" + b"x" * 1_000_000 + b"\n")
                case 4:
                    self.server.answers = random.choice(({}, dict(UP), {"GET /health": b"garbage"}))
                case 5:
                    below = descendants(os.getpid())
                    if below:
                        os.kill(random.choice(below), signal.SIGKILL)

    def row(self, began: float) -> tuple[float, int, int, int]:
        gc.collect()
        row = (resident_mib(), len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks()), len(descendants(os.getpid())))
        at = f"{time.monotonic() - began:7.0f} s {self.hours:7.1f} h {self.faults:6} faults"
        print(f"{at} {row[0]:8.1f} MiB {row[1]:4} files {row[2]:4} tasks {row[3]:4} processes {self.states:7} states", flush=True)
        return row


async def main(minutes: float) -> None:
    began = time.monotonic()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        async with Replay() as server:
            soak = Soak(Path(folder), server)
            async with soak.session:
                work = [asyncio.create_task(job()) for job in (soak.write, soak.read, soak.trouble)]
                while time.monotonic() - began < minutes * 60:
                    await asyncio.wait(work, timeout=ROW_S, return_when=asyncio.FIRST_EXCEPTION)
                    for task in work:
                        if task.done():
                            task.result()
                    rows.append(soak.row(began))
                for task in work:
                    task.cancel()
                await asyncio.wait(work)
    first, late = rows[min(2, len(rows) - 1)], rows[len(rows) // 2 :]
    worst = [max(row[column] for row in late) - first[column] for column in range(4)]
    print(f"against the warm start: {worst[0]:+.1f} MiB, {worst[1]:+} files, {worst[2]:+} tasks, {worst[3]:+} processes at most")
    print(f"left behind at the end: {len(descendants(os.getpid()))} processes")


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0))
