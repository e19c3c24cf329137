"""The results that benchmarks of one server leave, and the lock that keeps two from measuring each other."""

import fcntl
import hashlib
import os
import time
from dataclasses import replace
from pathlib import Path

import platformdirs

from tui.core.bench_documents import conclusions, json_pieces, plain
from tui.core.bench_result import Result


class BenchmarkRunning(Exception):
    """A benchmark of this server runs already: two would measure each other."""


class Results:
    """A folder of them, readable by its owner alone."""

    def __init__(self, folder: Path | None, name: str) -> None:
        """`folder` is by default below the state directory of XDG; `name` is the server's, as the user calls it."""
        self._folder = folder if folder is not None else platformdirs.user_state_path("readyroom") / "benchmarks"
        self._name = name

    def lock(self, url: str) -> int | None:
        """A lock on the server at `url` that other processes of readyroom see too: the file descriptor that holds it until it is
        closed. Raises BenchmarkRunning; None where the state can't be written."""
        word = hashlib.sha256(f"{self._name}\n{url}".encode()).hexdigest()[:16]
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(self._folder / f".{word}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise BenchmarkRunning(f"another readyroom benchmarks {self._name} now: wait for it or stop it there") from None
        return handle

    def keep(self, result: Result) -> Result:
        """Writes the result as JSON, 0600; the result with its path, or unchanged where it can't be written."""
        if not result.points:
            return result
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(result.started_at or time.time()))
        name = "".join(c if c.isalnum() or c in "._-" else "_" for c in self._name)[:60] or "server"
        path = self._folder / f"{stamp}-{name}.json"
        kept = replace(result, path=str(path))
        fields = {**plain(kept), **conclusions(kept), "schema": 1}
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.writelines(json_pieces(fields))
        except OSError:
            return result
        return kept
