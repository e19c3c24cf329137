"""The installed command in a real terminal, on the embedded simulated host: start, load, talk, measure, resize, leave."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from needs import need
from terminal import TMUX, Terminal

COMMAND = str(Path(sys.executable).with_name("readyroom"))
pytestmark = [pytest.mark.tmux, pytest.mark.timeout(240)]


def ours(marker: str) -> list[str]:
    """Living processes whose environment holds the marker: the command's and everything that it started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                if marker.encode() in (entry / "environ").read_bytes() and (entry / "cmdline").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
            except OSError:
                continue
    return found


def no_wider(screen: str, columns: int) -> bool:
    return all(len(line) <= columns for line in screen.splitlines())


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 35), (200, 60)], ids=["80x24", "120x35", "200x60"])
def test_a_whole_deployment(columns: int, rows: int, tmp_path: Path) -> None:
    need(TMUX, "tmux isn't installed")
    marker = f"READYROOM_TEST_MARK={tmp_path.name}-{columns}-{os.getpid()}"
    environment = dict([marker.split("=")]) | {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    environment.pop("NO_COLOR", None)
    with Terminal(f"{COMMAND} demo --speed 300", columns, rows, environment) as terminal:
        terminal.until(lambda screen: "LOADING" in screen)
        counts = set()

        def counting(screen: str) -> bool:
            counts.update(re.findall(r"(\d+)(?: of |/)64", screen))
            return len(counts) >= 3

        terminal.until(counting)
        terminal.until(lambda screen: "READY" in screen, 60)

        terminal.until(lambda screen: "Ask kimi" in screen)  # the chat opens by itself, and enter begins to type

        def typing(screen: str) -> bool:
            if "enter send" not in screen:
                terminal.send("Enter")
            return "enter send" in screen

        terminal.until(typing)
        terminal.type("What is 2+2?")
        terminal.send("Enter")
        terminal.until(lambda screen: "tok/s" in screen and "TTFT" in screen and "4" in screen)

        terminal.send("F6")
        terminal.until(lambda screen: "single stream" in screen.lower() and re.search(r"\d+\.\d", screen))
        terminal.send("F8")

        terminal.resize(20, 5)
        terminal.until(lambda screen: no_wider(screen, 20) and screen.strip())
        terminal.resize(columns, rows)
        terminal.until(lambda screen: "READY" in screen and no_wider(screen, columns))

        terminal.send("Escape")
        terminal.send("Escape")
        terminal.send("1")
        terminal.send("q")
        screen = terminal.until(lambda screen: "LEFT WITH" in screen)
        assert "LEFT WITH 0" in screen
        assert terminal.mode("alternate_on") == "0"
        assert terminal.mode("cursor_flag") == "1"
        assert terminal.mode("mouse_any_flag") == "0"
        left = [line for line in ours(marker) if "sh -c" not in line and not line.startswith(("cat", "tmux"))]
        assert left == []


def test_errors_that_go_to_a_file_leave_the_screen_in_the_terminal(tmp_path: Path) -> None:
    need(TMUX, "tmux isn't installed")
    homes = {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    with Terminal(f"{COMMAND} demo --speed 300 2> {tmp_path}/errors", 80, 24, homes) as terminal:
        terminal.until(lambda screen: "LOADING" in screen)
        terminal.send("q")
        terminal.until(lambda screen: "LEFT WITH 0" in screen)
    assert "\x1b" not in (tmp_path / "errors").read_text("utf-8")


def test_without_a_terminal_it_says_what_to_do() -> None:
    done = subprocess.run([COMMAND, "local"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "needs a terminal" in done.stderr
    assert "status TARGET" in done.stderr
    assert done.stdout == ""
