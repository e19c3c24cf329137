"""First paint of the control room against a hello-world Textual app, both in a terminal of their own: `first_paint.py [RUNS]`.

Each program is started in a pseudo-terminal; the time until the bytes of its text are read is measured, in turns, and the medians
are compared. The aim is at most 1.5 times. All modules are compiled beforehand, as those of an installed program are.
"""

import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time

HELLO = """
from textual.app import App
from textual.widgets import Static

class Hello(App):
    def compose(self):
        yield Static('hello-world')

Hello().run()
"""
PROGRAMS = {
    "hello world": ([sys.executable, "-c", HELLO], b"hello-world"),
    "readyroom": ([sys.executable, "-m", "tui", "local"], b"CONNECTING"),
}


def first_paint(argv: list[str], sign: bytes) -> tuple[float, float]:
    """Return the seconds from the start of the process until the sign is on its terminal, and its processor time until then."""
    begun = time.perf_counter()
    pid, descriptor = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        os.execv(argv[0], argv)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 35, 120, 0, 0))
    seen = b""
    try:
        while sign not in seen:
            ready, _, _ = select.select([descriptor], [], [], 30)
            assert ready, f"{argv} did not paint: {seen[-500:]!r}"
            seen += os.read(descriptor, 65536)
        wall = time.perf_counter() - begun
    finally:
        os.kill(pid, signal.SIGKILL)
        _, _, used = os.wait4(pid, 0)
        os.close(descriptor)
    return wall, used.ru_utime + used.ru_stime


def main(runs: int) -> None:
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in PROGRAMS}
    for argv, sign in PROGRAMS.values():
        first_paint(argv, sign)
    for _ in range(runs):
        for name, (argv, sign) in PROGRAMS.items():
            took[name].append(first_paint(argv, sign))
    hello, ours = ([statistics.median(part) for part in zip(*took[name], strict=True)] for name in PROGRAMS)
    for name, (wall, processor) in zip(PROGRAMS, (hello, ours), strict=True):
        print(f"{name:12} {wall * 1000:7.0f} ms, {processor * 1000:6.0f} ms of processor time")
    print(f"ratio        {ours[0] / hello[0]:7.2f}    {ours[1] / hello[1]:6.2f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
