"""Processes that look like an engine's: titles as vLLM sets them, and a leash that none of them survives.

Linux only. A title is written over the process's own argument area, as setproctitle does, and its first 15 bytes become the
name that `/proc/PID/comm` tells.
"""

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

_PR_SET_NAME = 15
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _argument_area() -> tuple[int, int]:
    """Return where this process's arguments lie in memory: fields 48 and 49 of `/proc/self/stat` (proc(5))."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rsplit(b")", 1)[1].split()
    return int(fields[45]), int(fields[46])


def set_title(arguments: Sequence[str], name: str) -> None:
    """Make `ps` show `arguments`, cut to the room that the real ones take."""
    start, end = _argument_area()
    room = end - start
    wanted = b"\0".join(argument.encode() for argument in arguments) + b"\0"
    ctypes.memmove(start, wanted[: room - 1].ljust(room, b"\0"), room)
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def argument_length(arguments: Sequence[str]) -> int:
    """Return the bytes that these arguments take in the argument area."""
    return sum(len(argument.encode()) + 1 for argument in arguments)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent thread ends, whatever ended it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Make descendants whose parent ends children of this process, instead of init's."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def alive(pid: int) -> bool:
    """Return whether the process is there and no zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rsplit(b")", 1)[1].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def children() -> list[int]:
    """Return the processes whose parent this one is, adopted ones among them."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(word) for word in file.read().split()]


def end_descendants(within_s: float = 3.0) -> None:
    """Kill whatever this process started or adopted, until nothing of it is left."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        left = [pid for pid in children() if alive(pid)]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        if not children():
            return
        time.sleep(0.01)


@dataclass(frozen=True, slots=True)
class EngineProcesses:
    """The engine's own process and its workers, by rank."""

    engine: int
    workers: tuple[int, ...]


def _wait_for_end(*pipes: int) -> None:
    """Sleep until one of the pipes is closed at its other end, then end this process."""
    poll = select.poll()
    for pipe in pipes:
        poll.register(pipe, select.POLLIN | select.POLLHUP)
    while True:
        if poll.poll():
            os._exit(0)


def _become(title: str, *keep: int) -> None:
    kept = {0, 1, 2, *keep}
    for descriptor in [int(name) for name in os.listdir("/proc/self/fd")]:
        if descriptor not in kept:
            try:
                os.close(descriptor)
            except OSError:
                continue
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    set_title([title], title)


def start_engine(leash: int, ranks: int) -> EngineProcesses:
    """Fork `VLLM::EngineCore` and, below it, one `VLLM::Worker_TPn` a rank (none for a single GPU, as vLLM does).

    They live until the leash is closed by the host; the workers also end with their engine. They outlive this process when it is
    killed, as the real ones do.
    """
    told, tell = os.pipe()
    engine = os.fork()
    if engine == 0:
        try:
            os.setsid()
            death, hold = os.pipe()
            workers = []
            for rank in range(ranks if ranks > 1 else 0):
                worker = os.fork()
                if worker == 0:
                    _become(f"VLLM::Worker_TP{rank}", leash, death)
                    _wait_for_end(leash, death)
                workers.append(worker)
            os.write(tell, " ".join(map(str, workers)).encode() + b"\n")
            _become("VLLM::EngineCore", leash, hold)
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            _wait_for_end(leash)
        finally:
            os._exit(1)
    os.close(tell)
    with os.fdopen(told, "rb") as pipe:
        workers = [int(word) for word in pipe.readline().split()]
    return EngineProcesses(engine, tuple(workers))
