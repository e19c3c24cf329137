"""How long it takes until phase and facts of a server with a very long log are known, and how much is sent for it.

    python tests/benchmarks/attach.py [GB] [FOLDER]

The last start stands at the beginning, in the middle and near the end of the log in turn. Bytes are counted on the probe's output
and turned into seconds of a link of 2 MB/s.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tui.core.logs.log_filters import IMPORTANT, NOISE
from tui.core.logs.log_reader import LogReader
from tui.engines.registry import START_MARKERS
from tui.probe.boot import BOOT, opening

START = Path(__file__).parent.parent / "data" / "logs" / "servers" / "26-kimi-k25-8xh200-ep8-ready.log"
ACCESS = '(APIServer pid=1) INFO:     10.0.0.7:{port} - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
STATS = (
    "(APIServer pid=1) INFO 11-29 12:{minute:02}:{second:02} [loggers.py:257] Engine 000: Avg prompt throughput: 812.4 tokens/s, "
    "Avg generation throughput: 2941.7 tokens/s, Running: 31 reqs, Waiting: 0 reqs, GPU KV cache usage: 12.1%, "
    "Prefix cache hit rate: 44.1%\n"
)


def serving() -> bytes:
    """About 4 MB of a busy server's log."""
    lines = []
    for number in range(500):
        lines += [ACCESS.format(port=40000 + number % 2000)] * 80
        lines.append(STATS.format(minute=number // 6 % 60, second=number % 6 * 10))
    return "".join(lines).encode()


def write(path: Path, size: int, share: float) -> None:
    start, noise = START.read_bytes(), serving()
    with path.open("wb") as file:
        file.write(start)
        while file.tell() < size * share:
            file.write(noise)
        if share:
            file.write(start)
        while file.tell() < size:
            file.write(noise)


def frames(probe: "subprocess.Popen[bytes]") -> Iterator[tuple[dict[str, object], int]]:
    assert probe.stdout is not None
    for line in probe.stdout:
        yield json.loads(line), len(line)


def attach(path: Path) -> None:
    patterns = {"start_markers": list(START_MARKERS), "important": list(IMPORTANT), "noise": list(NOISE)}
    plan = {"role": "follow", "source": "file", "path": str(path), "tail": 400, **patterns}
    began = time.monotonic()
    with subprocess.Popen([sys.executable, "-I", "-c", BOOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as probe:
        assert probe.stdin is not None
        probe.stdin.write(opening(plan))
        probe.stdin.flush()
        beating = threading.Event()

        def beat() -> None:
            while not beating.wait(1.0) and probe.stdin is not None:
                probe.stdin.write(b'{"do":"beat"}\n')
                probe.stdin.flush()

        threading.Thread(target=beat, daemon=True).start()
        reader, sent = LogReader(), 0
        for frame, size in frames(probe):
            sent += size
            if frame["f"] == "start":
                reader.reset()
            elif frame["f"] == "lines":
                lines = frame["lines"]
                assert isinstance(lines, list)
                for line in lines:
                    reader.feed(line)
            elif frame["f"] == "caught_up":
                break
        beating.set()
        took = time.monotonic() - began
        state = reader.state
        print(
            f"  {took:.2f} s, {sent / 1e6:.2f} MB ({sent / 2e6:.2f} s at 2 MB/s): {state.phase.value}, version {state.version}, "
            f"KV cache {state.kv_tokens}"
        )
        probe.kill()


def main() -> None:
    size = int(float(sys.argv[1] if len(sys.argv) > 1 else 1) * 1e9)
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as folder:
        path = Path(folder) / "vllm.log"
        for share in (0.0, 0.5, 0.95):
            write(path, size, share)
            print(f"{size / 1e9:g} GB, last start at {100 * share:.0f} %")
            attach(path)


if __name__ == "__main__":
    main()
