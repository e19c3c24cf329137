"""`readyroom demo` as it is typed: in a terminal, until it is ready, and out again with nothing left."""

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import which

import pytest
from needs import need

pytestmark = [pytest.mark.slow, pytest.mark.tmux]


class Terminal:
    """A tmux server of its own with one pane."""

    def __init__(self, command: str, width: int, height: int) -> None:
        self._name = f"readyroom-{uuid.uuid4().hex[:8]}"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), command)

    def tmux(self, *words: str) -> str:
        done = subprocess.run(["tmux", "-L", self._name, *words], capture_output=True, text=True, check=False)
        return done.stdout

    @property
    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def until(self, look: Callable[[str], bool], what: str, within_s: float = 60.0) -> str:
        ends = time.monotonic() + within_s
        while not look(screen := self.screen):
            if time.monotonic() > ends:
                pytest.fail(f"not within {within_s:g} s: {what}\n{screen}")
            time.sleep(0.1)
        return screen

    def end(self) -> None:
        self.tmux("kill-server")


@pytest.fixture
def terminal() -> Iterator[Callable[[str, int, int], Terminal]]:
    need(which("tmux"), "tmux isn't installed")
    opened: list[Terminal] = []

    def make(command: str, width: int, height: int) -> Terminal:
        opened.append(Terminal(command, width, height))
        return opened[-1]

    yield make
    for terminal in opened:
        terminal.end()


def hosts_left(marker: Path) -> list[str]:
    """Return the processes whose environment names the marker."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if str(marker).encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


def test_the_demo_becomes_ready_and_leaves_nothing(terminal: Callable[[str, int, int], Terminal], tmp_path: Path) -> None:
    done = tmp_path / "done"
    environment = f"HOME={tmp_path} XDG_STATE_HOME={tmp_path} XDG_CONFIG_HOME={tmp_path}"
    command = f"exec env {environment} sh -c '{sys.executable} -m tui demo --speed 400; echo $? >{done}; cat'"
    pane = terminal(command, 80, 24)
    pane.until(lambda screen: "LOADING" in screen and "of 64" in screen, "the load is shown")
    pane.until(lambda screen: "READY" in screen, "ready is shown")
    assert hosts_left(tmp_path)
    pane.tmux("send-keys", "C-c", "C-c")
    pane.until(lambda screen: done.exists(), "the demo ends")
    assert done.read_text().strip() == "0"
    pane.until(lambda screen: "READY" not in screen, "the terminal is as before")
    left = [command for command in hosts_left(tmp_path) if "tui" in command or "VLLM" in command or "vllm" in command]
    assert not [command for command in left if not command.startswith(("sh -c", "env "))]
