"""The shipped sampler beside `nvidia-smi -lms` and nvitop on a host with NVIDIA GPUs: what each costs, and whether they agree.

    python tests/benchmarks/samplers.py [--seconds 30] [--hz 2,10] [--nvitop "python3 -m nvitop"] [--as-many 8]

All of them run at the same time, each at the same rate, but nvitop at 4 Hz at most. Processor time is that of their processes
with all threads and children, once their start is over. Memory: every value of the sampler is held against the two readings of
nvidia-smi around it; power against the nearest one. `--as-many` then runs the sampler alone, with the driver's own GPUs told
several times over: the real calls that so many GPUs would take, answered by the real driver.
"""

import argparse
import bisect
import contextlib
import fcntl
import io
import json
import math
import os
import pty
import shlex
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tui.probe.boot import BOOT, bundle, opening_with
from tui.wire.summary import percentile

START_S = 5.0
"""Left out at the beginning: the interpreter's start, the driver's, and readings taken once."""

Reading = tuple[float, int, float, float]
"""Monotonic seconds, GPU's index, MiB in use, watts; not a number if not known."""

AGAIN = """
_count, _at = nvmlDeviceGetCount, nvmlDeviceGetHandleByIndex
def nvmlDeviceGetCount():
    return %d
def nvmlDeviceGetHandleByIndex(index):
    return _at(index %% _count())
"""


def processor_s(root: int) -> float:
    """Time on a processor so far of a process, its descendants and all their threads, to the nanosecond."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
    spent = 0.0
    todo = [root]
    while todo:
        pid = todo.pop()
        todo += parents.get(pid, [])
        for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                spent += int(thread.read_text().split()[0]) / 1e9
    return spent


class Sampler:
    """A sampler that runs, and the readings that it told of."""

    def __init__(self, name: str, hz: float, process: "subprocess.Popen[bytes]") -> None:
        self.name = name
        self.hz = hz
        self.process = process
        self.readings: list[Reading] = []
        self.bytes = 0
        self._spent = 0.0
        self._since = 0.0

    def begin(self) -> None:
        """Count from now on."""
        self._spent, self._since, self.bytes = processor_s(self.process.pid), time.monotonic(), 0

    def cost(self) -> tuple[float, float]:
        """Return the share of a core and the bytes a second since `begin`. Raises RuntimeError if it ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended with {self.process.returncode}")
        seconds = time.monotonic() - self._since
        return (processor_s(self.process.pid) - self._spent) / seconds, self.bytes / seconds


@contextlib.contextmanager
def running(sampler: Sampler) -> Iterator[Sampler]:
    """End the sampler with all that it started: each has a process group of its own."""
    try:
        yield sampler
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(sampler.process.pid, signal.SIGKILL)
        sampler.process.wait()


def value(words: str) -> float:
    """Return a figure of nvidia-smi; NaN if it has none ([N/A], [GPU is lost])."""
    try:
        return float(words)
    except ValueError:
        return math.nan


def probe(hz: float, times: int = 0) -> Sampler:
    """Run the sampler as it is shipped; `times` multiplies the GPUs."""
    code = bundle(True)
    if times:
        target = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(code)) as old, zipfile.ZipFile(target, "w") as new:
            for entry in old.infolist():
                new.writestr(entry, old.read(entry) + (AGAIN % times).encode() * (entry.filename == "pynvml.py"))
        code = target.getvalue()
    command = [sys.executable, "-I", "-c", BOOT]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    sampler = Sampler(f"readyroom, {times} GPUs" if times else "readyroom", hz, process)
    feed, frames = process.stdin, process.stdout
    assert feed is not None
    assert frames is not None
    feed.write(opening_with({"role": "watch", "hz": hz, "paths": ["/"]}, code))
    feed.flush()

    def beat() -> None:
        with contextlib.suppress(OSError):
            while process.poll() is None:
                feed.write(b'{"do":"beat"}\n')
                feed.flush()
                time.sleep(1.0)

    def read() -> None:
        for line in frames:
            sampler.bytes += len(line)
            frame = json.loads(line)
            if frame.get("f") == "gpus":
                for row in frame["gpus"]:
                    used, watts = row.get("memory_used_mib", math.nan), row.get("power_w", math.nan)
                    sampler.readings.append((frame["mono"], row["index"], used, watts))

    threading.Thread(target=beat, daemon=True).start()
    threading.Thread(target=read, daemon=True).start()
    return sampler


def nvidia_smi(hz: float) -> Sampler:
    query = "--query-gpu=index,memory.used,power.draw,utilization.gpu,temperature.gpu"
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits", "-lms", str(round(1000 / hz))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    sampler = Sampler("nvidia-smi", hz, process)
    lines = process.stdout
    assert lines is not None

    def read() -> None:
        for line in lines:
            sampler.bytes += len(line)
            index, used, watts = line.decode().split(",")[:3]
            sampler.readings.append((time.monotonic(), int(index), value(used), value(watts)))

    threading.Thread(target=read, daemon=True).start()
    return sampler


def nvitop(command: str, hz: float) -> Sampler:
    """Run nvitop in a terminal of 120×35. Its shortest interval is a quarter of a second."""
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 35, 120, 0, 0))
    hz = min(hz, 4.0)
    words = [*shlex.split(command), "--monitor", "full", "--interval", str(1 / hz)]
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(words, stdin=there, stdout=there, stderr=there, env=environment, start_new_session=True)
    os.close(there)
    sampler = Sampler("nvitop", hz, process)

    def read() -> None:
        with contextlib.suppress(OSError), os.fdopen(here, "rb", buffering=0):
            while data := os.read(here, 65536):
                sampler.bytes += len(data)

    threading.Thread(target=read, daemon=True).start()
    return sampler


def agreement(ours: list[Reading], theirs: list[Reading]) -> str:
    """Say how many of our memory values lie between the two of nvidia-smi around them, how far off the rest are, and the power."""
    between, off, apart, moved = 0, [], [], 0.0
    for gpu in {reading[1] for reading in ours}:
        readings = sorted(reading for reading in theirs if reading[1] == gpu and not math.isnan(reading[2]))
        times = [reading[0] for reading in readings]
        if readings:
            moved = max(moved, max(used for _, _, used, _ in readings) - min(used for _, _, used, _ in readings))
        for at, _, used, watts in (reading for reading in ours if reading[1] == gpu and not math.isnan(reading[2])):
            after = bisect.bisect(times, at)
            if 0 < after < len(times):
                near = min(readings[after - 1 : after + 1], key=lambda reading, at=at: abs(reading[0] - at))  # type: ignore[misc]
                if near[3] > 0 and not math.isnan(watts):
                    apart.append(abs(watts / near[3] - 1))
                low, high = sorted((readings[after - 1][2], readings[after][2]))
                between += low <= used <= high
                if not low <= used <= high:
                    off.append(max(low - used, used - high))
    if not between and not off:
        return "no memory to compare"
    worst = f"; the others are off by at most {max(off):,.0f} MiB" if off else ""
    apart.sort()
    power = f"power {percentile(apart, 50):.1%} apart (median), {percentile(apart, 95):.1%} (p95)" if apart else "no power compared"
    many = f"{between} of {between + len(off)}"
    return f"memory between its neighbours in {many} samples while that of a GPU moved by {moved:,.0f} MiB{worst}; {power}"


def told(sampler: Sampler) -> str:
    share, size = sampler.cost()
    return f"| {sampler.name} | {sampler.hz:g} | {share:.2%} | {size:,.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--hz", default="2,10")
    parser.add_argument("--nvitop", help="the command that starts it")
    parser.add_argument("--as-many", type=int, default=0, help="GPUs that the driver's own are told as, for the sampler alone")
    options = parser.parse_args()
    print("| sampler | Hz | of a core | bytes/s |\n| --- | ---: | ---: | ---: |")
    words = []
    for hz in map(float, options.hz.split(",")):
        with contextlib.ExitStack() as stack:
            samplers = [stack.enter_context(running(sampler)) for sampler in (probe(hz), nvidia_smi(hz))]
            if options.nvitop:
                samplers.append(stack.enter_context(running(nvitop(options.nvitop, hz))))
            time.sleep(START_S)
            for sampler in samplers:
                sampler.begin()
            time.sleep(options.seconds)
            for sampler in samplers:
                print(told(sampler), flush=True)
            words.append(f"{hz:g} Hz: {agreement(list(samplers[0].readings), list(samplers[1].readings))}")
        if options.as_many:
            with running(probe(hz, options.as_many)) as sampler:
                time.sleep(START_S)
                sampler.begin()
                time.sleep(options.seconds)
                print(told(sampler), flush=True)
    print("\n" + "\n".join(words))


if __name__ == "__main__":
    main()
