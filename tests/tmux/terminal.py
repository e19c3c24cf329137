"""A terminal for tests: one tmux server of its own, one pane, one command."""

import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

TMUX = shutil.which("tmux")


class Terminal:
    """`with Terminal("readyroom demo", 80, 24) as terminal`: the command runs in a pane of that size, under a shell that stays, so
    that what the command leaves behind can be seen. Ending it ends everything in it."""

    def __init__(self, command: str, columns: int, rows: int, environment: dict[str, str] | None = None) -> None:
        self._folder = tempfile.mkdtemp(prefix="readyroom-tmux-")
        self._socket = str(Path(self._folder) / "socket")
        self._columns, self._rows = columns, rows
        self._command = command
        self._environment = {**os.environ, "TERM": "xterm-256color", **(environment or {})}

    def _tmux(self, *words: str) -> str:
        assert TMUX is not None
        done = subprocess.run(
            [TMUX, "-S", self._socket, "-f", os.devnull, *words], capture_output=True, text=True, env=self._environment, check=False
        )
        return done.stdout

    def __enter__(self) -> Self:
        script = f"{self._command}; echo LEFT WITH $?; exec cat"
        self._tmux("new-session", "-d", "-x", str(self._columns), "-y", str(self._rows), f"sh -c {shlex.quote(script)}")
        return self

    def __exit__(self, *exc: object) -> None:
        self._tmux("kill-server")
        shutil.rmtree(self._folder, ignore_errors=True)

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def send(self, *keys: str) -> None:
        """tmux's names of keys; a text is typed with `type`."""
        self._tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def close_pane(self) -> None:
        """Close the terminal under the running program, like a closed window or a lost login."""
        self._tmux("kill-session")

    def mode(self, name: str) -> str:
        """Return a flag of the pane, such as alternate_on, cursor_flag, mouse_any_flag."""
        return self._tmux("display-message", "-p", f"#{{{name}}}").strip()

    def until(self, holds: Callable[[str], object], seconds: float = 30.0) -> str:
        """Return the screen as soon as the predicate holds on it."""
        deadline = time.monotonic() + seconds
        while True:
            screen = self.screen()
            if holds(screen):
                return screen
            assert time.monotonic() < deadline, f"not within {seconds:g} s; the screen shows:\n{screen}"
            time.sleep(0.05)
