"""What a monitored server costs here: processor time of the client and bytes to the terminal, with every GPU sampled at 2 Hz.

python tests/benchmarks/monitoring.py [--seconds 20] [--settle 12] [CASE ...]

The control room runs on the simulated host (a process of its own, which is not counted) in a pseudo-terminal, whose bytes are read
and counted. Processor time is the client's alone, of all its threads, without its children.
"""

import argparse
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

CLIENT = """
import asyncio, sys
from dataclasses import replace
from tui.core.deployment import LOG_LINES
from tui.cli import demo
from tui.simulator import scenarios
name, gpus, lines, speed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
base = scenarios.SCENARIOS[name]
scenarios.SCENARIOS[name] = replace(base, machine=replace(base.machine, gpus=gpus), log_lines_per_s=lines)
from tui.settings import Settings
asyncio.run(demo._demo(name, speed, Settings()))
"""


@dataclass(frozen=True)
class Case:
    """One state of one size. `keys` are pressed once it is there."""

    about: str
    scenario: str
    columns: int
    rows: int
    gpus: int = 8
    lines_per_s: int = 0
    speed: float = 1.0
    keys: bytes = b""


CASES = {
    "ready": Case("ready, chat open, 120×35", "ready", 120, 35),
    "ready-wide": Case("ready, load and log panes, 200×60", "ready", 200, 60, keys=b"\x1b1"),
    "loading": Case("loading, load and log panes, 120×35", "midway", 120, 35),
    "loading-wide": Case("loading, all panes, 200×60", "midway", 200, 60),
    "logging": Case("loading, 10 lines/s, 200×60", "midway", 200, 60, lines_per_s=10),
    "64": Case("64 GPUs, loading, 200×60", "midway", 200, 60, gpus=64),
    "64-gpus": Case("64 GPUs, all their figures, 200×60", "midway", 200, 60, gpus=64, keys=b"4"),
}


class Terminal:
    """The client in a pseudo-terminal; counts what it writes."""

    def __init__(self, case: Case) -> None:
        self.written = 0
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
            arguments = (case.scenario, str(case.gpus), str(case.lines_per_s), str(case.speed))
            os.execv(sys.executable, [sys.executable, "-c", CLIENT, *arguments])
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", case.rows, case.columns, 0, 0))

    def read(self, seconds: float) -> None:
        """Read what arrives for this many seconds."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self._descriptor], [], [], left)[0]:
                self.written += len(os.read(self._descriptor, 65536))

    def read_until(self, enough: Callable[[bytes], bool], seconds: float) -> None:
        """Read until there is enough. Raises TimeoutError."""
        end, seen = time.monotonic() + seconds, b""
        while not enough(seen):
            if not select.select([self._descriptor], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError(f"not painted: {seen[-500:]!r}")
            seen += os.read(self._descriptor, 65536)

    def press(self, keys: bytes) -> None:
        os.write(self._descriptor, keys)

    def cpu_s(self) -> float:
        """Processor time of the client so far, its children's not."""
        with open(f"/proc/{self.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self) -> float:
        with open(f"/proc/{self.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def close(self) -> None:
        os.kill(self.pid, signal.SIGTERM)
        end = time.monotonic() + 10
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0 and time.monotonic() < end:
            try:
                self.read(0.1)
            except OSError:
                time.sleep(0.1)
        os.close(self._descriptor)


def measure(case: Case, settle: float, seconds: float) -> tuple[float, float, float]:
    """Per cent of a core, bytes a second to the terminal, MiB of memory."""
    terminal = Terminal(case)
    try:
        terminal.read(settle)
        terminal.press(case.keys)
        terminal.read(2.0)
        before, written, began = terminal.cpu_s(), terminal.written, time.monotonic()
        terminal.read(seconds)
        took = time.monotonic() - began
        return 100 * (terminal.cpu_s() - before) / took, (terminal.written - written) / took, terminal.memory_mib()
    finally:
        terminal.close()


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--settle", type=float, default=12.0)
    options.add_argument("--scale", type=float, default=1.0, help="how much faster than real the host plays")
    chosen = options.parse_args()
    for name in chosen.cases or CASES:
        case = replace(CASES[name], speed=chosen.scale)
        share, rate, memory = measure(case, chosen.settle, chosen.seconds)
        print(f"{case.about:40} {share:5.1f} % of a core  {rate / 1000:6.2f} KB/s  {memory:4.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
