"""The probe as it is shipped: BOOT in a Python of its own, the bundle on its stdin, frames on its stdout."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from queue import Empty, Queue
from types import TracebackType
from typing import Any, Self, TypeVar

from tui.probe.boot import BOOT, opening
from tui.probe.leash import BEAT
from tui.wire.frames import BEAT_S, decode, encode

T = TypeVar("T")


def until(what: Callable[[], T], seconds: float = 15.0) -> T:
    """Return the first true value of `what`; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found


def alive(pid: int) -> bool:
    """Tell whether a process runs (a zombie does not)."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


class ShippedProbe:
    """A running role; heartbeats are sent as a client does."""

    def __init__(
        self,
        role: str,
        arguments: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        self.process = subprocess.Popen(
            [python, "-I", "-c", BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})},
        )
        self._frames: Queue[dict[str, Any] | None] = Queue()
        self.seen: list[dict[str, Any]] = []
        self._write(opening({"role": role, **(arguments or {})}))
        self._done = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._read, self._beat)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._frames.put(decode(line))
        self._frames.put(None)

    def _beat(self) -> None:
        while not self._done.wait(BEAT_S):
            try:
                self._write(BEAT)
            except (OSError, ValueError):
                return

    def send(self, message: dict[str, Any]) -> None:
        self._write(encode(message))

    def frame(self, wanted: Callable[[dict[str, Any]], object], seconds: float = 15.0) -> dict[str, Any]:
        """Return the next frame that fits, skipping the ones before it."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                frame = self._frames.get(timeout=max(0.01, deadline - time.monotonic()))
            except Empty:
                raise AssertionError(f"no such frame in time; the last ones: {self.seen[-3:]}") from None
            assert frame is not None, f"the probe ended: {self.errors()}"
            self.seen.append(frame)
            if wanted(frame):
                return frame

    def named(self, name: str, seconds: float = 15.0) -> dict[str, Any]:
        return self.frame(lambda frame: frame.get("f") == name, seconds)

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def close(self) -> None:
        self._done.set()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            for thread in self._threads:
                thread.join(5.0)
            self.process.stdout.close()
            self.process.stderr.close()
