"""How long a key takes to its paint: on a quiet start, and while the log brings 100,000 lines a second.

python tests/benchmarks/key_latency.py [--presses 40] [--rate 100000]

The control room runs in a pseudo-terminal, as in `monitoring.py`. A press is a letter typed into the line that filters the log: all
lines kept are searched for it, besides. The time ends when the bytes of that letter, which no line of the log has, are read.
"""

import argparse
import statistics
import time
from dataclasses import replace

from monitoring import CASES, Case, Terminal

LETTER = "þ".encode()
BACKSPACE = b"\x7f"


def latencies(case: Case, presses: int, settle: float) -> tuple[list[float], float, float]:
    """Milliseconds of each press, MiB of memory before and after."""
    terminal = Terminal(case)
    try:
        terminal.read(settle)
        terminal.press(b"/")
        terminal.read(1.0)
        before = terminal.memory_mib()
        took = []
        for _ in range(presses):
            began = time.monotonic()
            terminal.press(LETTER)
            terminal.read_until(lambda seen: LETTER in seen, 10.0)
            took.append((time.monotonic() - began) * 1000)
            terminal.press(BACKSPACE)
            terminal.read(0.5)
        return took, before, terminal.memory_mib()
    finally:
        terminal.close()


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--presses", type=int, default=40)
    options.add_argument("--rate", type=int, default=100_000)
    options.add_argument("--settle", type=float, default=12.0)
    chosen = options.parse_args()
    for name, rate in (("quiet", 0), (f"{chosen.rate:,} lines/s", chosen.rate)):
        case = replace(CASES["loading"], lines_per_s=rate)
        took, before, after = latencies(case, chosen.presses, chosen.settle)
        p99 = statistics.quantiles(took, n=100, method="inclusive")[98]
        print(f"{name:16} p50 {statistics.median(took):5.0f} ms  p99 {p99:5.0f} ms  {before:.0f} to {after:.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
