"""SIGINT, SIGTERM and SIGHUP while a command runs: it ends in order with 130 and one line, the terminal is as it was before, and
nothing is left on the host."""

import contextlib
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from needs import need
from sshd import Sshd, descendants, free_port, until
from terminal import TMUX, Terminal

COMMAND = str(Path(sys.executable).with_name("readyroom"))
SIGNALS = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]
pytestmark = [pytest.mark.timeout(180)]


@pytest.fixture
def environment(sshd: Sshd, tmp_path: Path) -> dict[str, str]:
    log = tmp_path / "vllm.log"
    log.write_text("line 0\n")
    config = tmp_path / "config.toml"
    config.write_text(
        f'[deployments.box]\napi = "http://127.0.0.1:{free_port()}"\n[[deployments.box.engines]]\nhost = "gpu-box"\n'
        f'log = "file:{log}"\n'
    )
    return {
        **sshd.write_home(),
        "READYROOM_CONFIG": str(config),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PYTHONUNBUFFERED": "1",
    }


def probes(sshd: Sshd) -> bool:
    """Tell whether a probe runs there."""
    for pid in sshd.sessions():
        with contextlib.suppress(OSError):
            if b"sys.stdin.buffer" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
    return False


def of_the_screen(below: int) -> int:
    """Return the pid of the one `readyroom` in a pane."""
    found = [pid for pid in descendants(below) if b"readyroom\0" in Path(f"/proc/{pid}/cmdline").read_bytes() + b"\0"]
    return found[-1]


@pytest.mark.tmux
@pytest.mark.sshd
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("what", ["box", "demo --speed 400"])
def test_the_screen(sshd: Sshd, environment: dict[str, str], number: signal.Signals, what: str) -> None:
    need(TMUX, "tmux isn't installed")
    with Terminal(f"{COMMAND} {what}", 100, 30, environment) as terminal:
        terminal.until(lambda screen: "quit" in screen.lower(), 60)
        if what == "box":
            until(lambda: probes(sshd) or "LEFT WITH" in terminal.screen(), seconds=60, what="the probes on the host")
        assert terminal.mode("alternate_on") == "1"
        shell = int(terminal.mode("pane_pid"))
        process = of_the_screen(shell)
        started = descendants(process)
        os.kill(process, number)
        screen = terminal.until(lambda screen: "LEFT WITH" in screen, 30)
        assert "LEFT WITH 130" in screen
        assert "readyroom: interrupted" in screen
        assert "Traceback" not in screen
        assert [terminal.mode(name) for name in ("alternate_on", "cursor_flag", "mouse_any_flag")] == ["0", "1", "0"]
        until(lambda: not sshd.sessions(), seconds=20, what="the end of all processes on the host")
        until(lambda: not [pid for pid in started if Path(f"/proc/{pid}").exists()], seconds=20, what="the end of all started here")


def connected(pid: int, port: int) -> bool:
    """Tell whether a process is connected to a port of this machine: a command that has reached its host."""
    try:
        files = {os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}
        rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    except OSError:
        return False
    return any(int(row[2].partition(":")[2], 16) == port and f"socket:[{row[9]}]" in files for row in rows)


def waits_for_input(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/syscall").read_text().startswith("0 0x0 ")
    except OSError:
        return False


@pytest.mark.sshd
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("words", [["wait", "box"], ["wait", "box", "--json"], ["status", "--all"], ["smoke", "box"], ["log", "-"]])
def test_a_command(sshd: Sshd, environment: dict[str, str], words: list[str], number: signal.Signals) -> None:
    if words[0] in ("smoke", "status"):
        sshd.signal_sessions(signal.SIGSTOP)
        os.kill(sshd.pid, signal.SIGSTOP)  # the host does not answer, so that the command is still at it
    process = subprocess.Popen(
        [COMMAND, *words], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        if words[0] == "wait":
            until(lambda: probes(sshd) or process.poll() is not None, seconds=60, what="the probes on the host")
        else:
            begun = waits_for_input if words[0] == "log" else partial(connected, port=sshd.port)
            until(lambda: begun(process.pid), seconds=30, what="the command at its work")
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    finally:
        os.kill(sshd.pid, signal.SIGCONT)
        sshd.signal_sessions(
            signal.SIGCONT
        )  # what the test before had left in the listener's queue may have been let in and stopped
        if process.poll() is None:
            process.kill()
            process.wait()
    said = errors.decode()
    assert process.returncode == 130, said
    assert said.strip().splitlines()[-1] == "readyroom: interrupted"
    assert "Traceback" not in said
    until(lambda: not sshd.sessions(), seconds=20, what="the end of all processes on the host")


def ignored(pid: int, number: signal.Signals) -> bool:
    """Tell whether the kernel drops the signal before the process sees it."""
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(mask >> (number - 1) & 1)


@pytest.mark.sshd
def test_what_nohup_ignores_stays_ignored(sshd: Sshd, environment: dict[str, str]) -> None:
    """The terminal that a long wait was started from may be closed."""
    process = subprocess.Popen(
        ["nohup", COMMAND, "wait", "box"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        until(lambda: probes(sshd) or process.poll() is not None, seconds=60, what="the probes on the host")
        assert ignored(process.pid, signal.SIGHUP)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert process.returncode == 130
    assert errors.decode().strip().splitlines()[-1] == "readyroom: interrupted"
