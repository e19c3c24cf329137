"""The terminal is closed, stopped or continued at any moment: the process ends, and leaves no folder and no report of a bug."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import need
from sshd import descendants, until
from terminal import TMUX, Terminal
from test_signals import of_the_screen

COMMAND = str(Path(sys.executable).with_name("readyroom"))
pytestmark = [pytest.mark.timeout(180)]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "tmp").mkdir()
    return {"TMPDIR": str(tmp_path / "tmp"), "XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config")}


@pytest.fixture
def demo(environment: dict[str, str], request: pytest.FixtureRequest) -> Iterator[tuple[Terminal, int]]:
    """Start a demo; yield its terminal and its pid when it is ready."""
    need(TMUX, "tmux isn't installed")
    before = getattr(request, "param", "")
    with Terminal(f"{before}{COMMAND} demo --scenario ready", 100, 30, environment) as terminal:
        terminal.until(lambda screen: "READY" in screen, 60)
        yield terminal, of_the_screen(int(terminal.mode("pane_pid")))


def nothing_left(folder: Path, pid: int, started: list[int]) -> None:
    until(lambda: not Path(f"/proc/{pid}").exists(), seconds=20, what="the end of the process")
    until(lambda: not [pid for pid in started if Path(f"/proc/{pid}").exists()], seconds=20, what="the end of all that it started")
    assert list((folder / "tmp").iterdir()) == []
    assert [path for path in folder.rglob("reports/*") if path.is_file()] == []


@pytest.mark.tmux
@pytest.mark.parametrize("demo", ["", "trap '' HUP; "], indirect=True, ids=["hang-up", "hang-up ignored"])
def test_it_is_closed(demo: tuple[Terminal, int], tmp_path: Path) -> None:
    terminal, process = demo
    started = descendants(process)
    terminal.close_pane()
    nothing_left(tmp_path, process, started)


@pytest.mark.tmux
def test_it_is_closed_on_the_way_out(demo: tuple[Terminal, int], tmp_path: Path) -> None:
    terminal, process = demo
    started = descendants(process)
    terminal.send("q")
    until(lambda: terminal.mode("alternate_on") == "0", what="the screen's end")
    terminal.close_pane()
    nothing_left(tmp_path, process, started)


@pytest.mark.tmux
def test_it_is_continued_on_the_way_out(demo: tuple[Terminal, int], tmp_path: Path) -> None:
    """As a hang-up does, after its SIGHUP."""
    terminal, process = demo
    started = descendants(process)
    terminal.send("q")
    until(lambda: terminal.mode("alternate_on") == "0", what="the screen's end")
    os.kill(process, signal.SIGCONT)
    assert "LEFT WITH 0" in terminal.until(lambda screen: "LEFT WITH" in screen)
    assert [terminal.mode(name) for name in ("alternate_on", "cursor_flag", "mouse_any_flag")] == ["0", "1", "0"]
    nothing_left(tmp_path, process, started)


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


@pytest.mark.tmux
@pytest.mark.parametrize("stop", [signal.SIGSTOP, signal.SIGTSTP, None])
def test_it_is_stopped_and_continued(demo: tuple[Terminal, int], stop: signal.Signals | None, tmp_path: Path) -> None:
    terminal, process = demo
    started = descendants(process)
    terminal.until(lambda screen: "Ask kimi" in screen)
    before = threads(process)
    for _ in range(3):
        if stop is not None:
            os.kill(process, stop)
            until(lambda: state(process) == "T", what="the process stopped")
        os.kill(process, signal.SIGCONT)
        until(lambda: state(process) != "T", what="the process continued")
        terminal.until(lambda screen: "READY" in screen and terminal.mode("alternate_on") == "1")
    until(lambda: threads(process) <= before, what="one thread that reads, one that writes")

    def the_log(screen: str) -> bool:
        terminal.send("5")  # what is typed while it comes back may be lost
        return "Application startup complete" in screen

    terminal.until(the_log)
    terminal.send("q")
    assert "LEFT WITH 0" in terminal.until(lambda screen: "LEFT WITH" in screen)
    assert [terminal.mode(name) for name in ("alternate_on", "cursor_flag", "mouse_any_flag")] == ["0", "1", "0"]
    nothing_left(tmp_path, process, started)


def broken() -> int:
    """Return the writing end of a pipe that nobody reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize("words", [["log", "/nowhere"], ["--such"], ["config", "check", "--config", "/nowhere"]])
def test_an_error_that_nobody_hears(words: list[str], environment: dict[str, str], tmp_path: Path) -> None:
    heard = subprocess.run([COMMAND, *words], env={**os.environ, **environment}, capture_output=True, check=False)
    assert heard.returncode
    assert heard.stderr
    nobody = broken()
    try:
        done = subprocess.run(
            [COMMAND, *words], env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=nobody, check=False
        )
        assert (done.returncode, done.stdout) == (heard.returncode, b"")
    finally:
        os.close(nobody)
    closed = ["sh", "-c", 'exec "$0" "$@" 2>&-', COMMAND, *words]
    done = subprocess.run(closed, env={**os.environ, **environment}, stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (heard.returncode, b"")
    assert [path for path in tmp_path.rglob("reports/*") if path.is_file()] == []


def test_an_interruption_that_nobody_hears(environment: dict[str, str], tmp_path: Path) -> None:
    nobody = broken()
    process = subprocess.Popen(
        [COMMAND, "log", "-"], env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=nobody
    )
    try:
        until(lambda: Path(f"/proc/{process.pid}/syscall").read_text().startswith("0 0x0 "), seconds=30, what="it reads")
        process.send_signal(signal.SIGHUP)
        assert process.wait(20) == 130
    finally:
        os.close(nobody)
        process.kill()
        process.communicate()
    assert [path for path in tmp_path.rglob("reports/*") if path.is_file()] == []
