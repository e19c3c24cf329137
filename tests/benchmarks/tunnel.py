"""What a streamed event costs in this process, by the way it comes: direct, through a forward of sshd, through the probe's relay.

    python tests/benchmarks/tunnel.py [EVENTS]

Prints microseconds of CPU and of wall time an event, the round trip of a tiny request, and what Nagle's algorithm would add where
no command ran before the first forward. The server runs in a process of its own; compare the rows of one run, not two machines.
"""

import asyncio
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

from sshd import SSHD, Sshd

from tui.host.base import Host
from tui.host.local import ExecHost, LocalHost
from tui.host.ssh import SshHost

SERVER = """
import asyncio, sys
EVENT = b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" token"}}]}\\n\\n'
CHUNK = b"%x\\r\\n%b\\r\\n" % (len(EVENT), EVENT)
async def serve(reader, writer):
    try:
        while head := await reader.readuntil(b"\\r\\n\\r\\n"):
            path = head.split(b" ", 2)[1]
            if path.startswith(b"/events"):
                writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n")
                for number in range(int(path.partition(b"?")[2])):
                    writer.write(CHUNK)
                    if number % 4 == 3:
                        await asyncio.sleep(0.0005)
                        await writer.drain()
                writer.write(b"0\\r\\n\\r\\n")
            else:
                writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def endpoint() -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVER, stdout=subprocess.PIPE)
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


async def measure(name: str, host: Host, url: str, events: int) -> None:
    async with httpx.AsyncClient(transport=host.transport(verify=False), timeout=60) as client:
        trips = []
        for _ in range(200):
            started = time.perf_counter()
            await client.get(f"{url}/tiny")
            trips.append((time.perf_counter() - started) * 1000)
        cpu, wall, seen = time.process_time(), time.perf_counter(), 0
        async with client.stream("GET", f"{url}/events?{events}") as reply:
            async for data in reply.aiter_bytes():
                seen += data.count(b"data:")
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert seen == events
    print(f"{name:28} {cpu / events * 1e6:8.1f} {wall / events * 1e6:8.1f} {statistics.median(trips):10.2f}", flush=True)


async def main(events: int) -> None:
    print(f"{'way':28} {'CPU µs':>8} {'wall µs':>8} {'trip ms p50':>11}")
    with tempfile.TemporaryDirectory() as folder:
        async with endpoint() as url:
            async with LocalHost() as local:
                await local.connect()
                await measure("direct", local, url, events)
            if SSHD is not None:
                server = Sshd(Path(folder)).start()
                try:
                    async with SshHost("gpu-box", config_files=[server.client_config]) as host:
                        await host.connect()
                        await measure("sshd", host, url, events)
                    async with SshHost("gpu-box", config_files=[server.client_config]) as host:
                        await host.connect()
                        host._executed = True  # the command before the first forward left out
                        await measure("sshd, Nagle's algorithm on", host, url, events)
                finally:
                    server.stop()
            async with ExecHost(["env"]) as prefix:
                await prefix.connect()
                await measure("relay", prefix, url, events)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000))
