"""What a flood of log lines does to a session: how late the event loop runs, what is read, what memory it takes.

python tests/benchmarks/flood.py [LINES_PER_SECOND] [SECONDS]
"""

import asyncio
import resource
import sys
import tempfile
import time
from pathlib import Path

from tui.core.deployment import DeploymentState
from tui.host.local import LocalHost
from tui.services.deployment_watch import Session
from tui.settings import Deployment, EngineSettings, Settings

LINE = '(APIServer pid=1) INFO:     10.0.0.7:40000 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
ODD = "(EngineCore pid=2) DEBUG 11-29 10:00:00 [scheduler.py:1] scheduled {number} requests in step {number}\n"


async def write(path: Path, rate: int, seconds: float) -> int:
    written = 0
    with path.open("a") as file:
        began = time.monotonic()
        while (past := time.monotonic() - began) < seconds:
            wanted = int(rate * past) - written
            file.write((LINE + ODD.format(number=written)) * (wanted // 2))
            file.flush()
            written += wanted // 2 * 2
            await asyncio.sleep(0.02)
        file.write("INFO 11-29 10:00:00 [x.py:1] the end\n")
    return written + 1


async def lags(found: list[float]) -> None:
    while True:
        before = time.monotonic()
        await asyncio.sleep(0.005)
        found.append(time.monotonic() - before - 0.005)


def ended(state: DeploymentState) -> bool:
    return any("the end" in line.text for line in state.log.lines[-3:])


async def main() -> None:
    rate = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 8.0
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "vllm.log"
        log.write_text("start\n")
        deployment = Deployment(api="http://127.0.0.1:9", engines=(EngineSettings(log=f"file:{log}"),))
        async with Session("flood", "local", deployment, Settings(), LocalHost("local")) as session:
            async for state in session.states():
                if state.log.lines:
                    break
            found: list[float] = []
            measuring = asyncio.create_task(lags(found))
            writer = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                f"import asyncio,sys;sys.path.insert(0,{str(Path(__file__).parent)!r});import flood;"
                f"from pathlib import Path;asyncio.run(flood.write(Path({str(log)!r}),{rate},{seconds}))",
            )
            began = time.monotonic()
            async for state in session.states():
                if ended(state):
                    break
            took = time.monotonic() - began
            await writer.wait()
            measuring.cancel()
            found.sort()
            state = session.state
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"{rate:,} lines/s for {seconds:g} s; the end was on screen after {took:.1f} s")
            print(f"read {state.log.seen:,}, skipped {state.log.skipped:,}; {memory:.0f} MiB")
            share = [found[int(len(found) * part)] * 1000 for part in (0.5, 0.99)]
            print(f"loop late by {share[0]:.1f} ms p50, {share[1]:.1f} ms p99, {found[-1] * 1000:.1f} ms at most")


if __name__ == "__main__":
    asyncio.run(main())
