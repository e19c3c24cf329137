"""Leaving, or being interrupted, in the middle of a benchmark: no request and no process is left, here or on the host."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from needs import need
from scripted_server import SSE, Exchange, Scripted, scripted
from sshd import Sshd, descendants, until
from terminal import TMUX, Terminal
from test_demo import ours

ROOM = str(Path(sys.executable).with_name("readyroom"))
GONE_S = 5.0
pytestmark = [pytest.mark.tmux, pytest.mark.timeout(180)]


class Streaming:
    """Replies that go on for as long as they are read; `open` says how many."""

    def __init__(self) -> None:
        self.open = 0
        self.seen = 0

    def __call__(self, exchange: Exchange) -> str:
        self.open += 1
        self.seen += 1
        try:
            exchange.send(SSE)
            while True:
                exchange.token()
                time.sleep(0.02)
        except OSError:
            return "close"
        finally:
            self.open -= 1


def generators(sshd: Sshd) -> list[int]:
    """Python processes on the host: the probes, the load generator and its workers."""
    found = []
    for pid in descendants(sshd.pid):
        try:
            if b"python" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0", 1)[0]:
                found.append(pid)
        except OSError:
            continue
    return found


def configured(folder: Path, server: Scripted) -> Path:
    path = folder / "config.toml"
    path.write_text(f'[deployments.box]\napi = "{server.url}"\n[[deployments.box.engines]]\nhost = "gpu-box"\nlog = "none"\n')
    return path


def environment(sshd: Sshd, folder: Path) -> dict[str, str]:
    return {**sshd.write_home(), "XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "none")}


def leave_by_q(terminal: Terminal) -> None:
    terminal.send("q")
    terminal.until(lambda screen: "A benchmark is running" in screen)
    terminal.send("y")


def leave_by_interrupts(terminal: Terminal) -> None:
    """Leave by ctrl+c: the second asks, the third leaves at once."""
    terminal.send("C-c")
    terminal.until(lambda screen: "ctrl+c again asks whether to end the benchmark" in screen)
    terminal.send("C-c")
    terminal.until(lambda screen: "A benchmark is running" in screen)
    terminal.send("C-c")


def leave_by_signal(terminal: Terminal) -> None:
    """Leave by closing the terminal, like a lost SSH login."""
    terminal.__exit__()


@pytest.mark.sshd
@pytest.mark.parametrize(("key", "leave"), [("F6", leave_by_q), ("F7", leave_by_interrupts), ("F6", leave_by_signal)])
def test_the_screen_over_a_real_sshd(sshd: Sshd, tmp_path: Path, key: str, leave: Callable[[Terminal], None]) -> None:
    need(TMUX, "tmux isn't installed")
    replies = Streaming()
    with scripted(replies) as server:
        command = f"{ROOM} box --config {configured(tmp_path, server)}"
        with Terminal(command, 120, 35, environment(sshd, tmp_path)) as terminal:
            terminal.until(lambda screen: "READY" in screen)
            terminal.send(key)
            until(lambda: replies.open, seconds=30, what="a streamed reply")
            assert generators(sshd)
            leave(terminal)
            until(lambda: replies.open == 0, seconds=GONE_S, what="no request is left")
            until(lambda: not generators(sshd), seconds=GONE_S, what="no process is left on the host")
            seen = replies.seen
            if leave is not leave_by_signal:
                terminal.until(lambda screen: "LEFT WITH 0" in screen)
        assert replies.seen == seen


@pytest.mark.sshd
@pytest.mark.parametrize("how", [[signal.SIGINT], [signal.SIGINT, signal.SIGINT], [signal.SIGTERM], [signal.SIGHUP]])
@pytest.mark.parametrize("vantage", ["host", "direct", "tunnel"])
def test_the_command_over_a_real_sshd(sshd: Sshd, tmp_path: Path, how: list[signal.Signals], vantage: str) -> None:
    replies = Streaming()
    with scripted(replies) as server:
        words = ["bench", "box", "--config", str(configured(tmp_path, server)), "--concurrency", "4", "--vantage", vantage]
        client = subprocess.Popen([ROOM, *words, "--duration", "60s"], env=environment(sshd, tmp_path), stderr=subprocess.DEVNULL)
        try:
            until(lambda: replies.open >= 4, seconds=30, what="four streams")
            here = descendants(client.pid)
            for number in how:
                os.kill(client.pid, number)
            client.wait(GONE_S + 5)
            until(lambda: replies.open == 0, seconds=GONE_S, what="no request is left")
            until(lambda: not generators(sshd), seconds=GONE_S, what="no process is left on the host")
            assert not [pid for pid in here if Path(f"/proc/{pid}").exists()]
        finally:
            client.kill()
            client.wait()


@pytest.mark.sshd
def test_what_was_measured_is_kept(sshd: Sshd, tmp_path: Path) -> None:
    need(TMUX, "tmux isn't installed")
    with scripted(lambda exchange: exchange.reply()) as server:
        config = configured(tmp_path, server)
        with Terminal(f"{ROOM} box --config {config}", 120, 35, environment(sshd, tmp_path)) as terminal:
            terminal.until(lambda screen: "READY" in screen)
            terminal.send("F7")
            until(lambda: server.served > 20, seconds=30, what="a point in progress")
            leave_by_q(terminal)
            terminal.until(lambda screen: "LEFT WITH 0" in screen, GONE_S + 5)
        command = [ROOM, "runs", "--json"]
        done = subprocess.run(
            command, env={**os.environ, **environment(sshd, tmp_path)}, capture_output=True, text=True, timeout=60
        )
    (run,) = [entry for entry in json.loads(done.stdout)["runs"] if entry["kind"] == "benchmark"]
    assert "sweep" in run["title"]


def test_the_simulated_host(tmp_path: Path) -> None:
    need(TMUX, "tmux isn't installed")
    marker = f"{tmp_path.name}-{os.getpid()}"
    more = {
        "READYROOM_TEST_MARK": marker,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "none"),
    }
    with Terminal(f"{ROOM} demo --speed 400", 120, 35, more) as terminal:
        terminal.until(lambda screen: "READY" in screen, 60)
        terminal.send("Escape")
        terminal.send("F7")
        terminal.until(lambda screen: "peak so far" in screen)
        terminal.until(lambda screen: "measuring" in screen or "tok/s at" in screen or "requests" in screen)
        leave_by_q(terminal)
        terminal.until(lambda screen: "LEFT WITH 0" in screen, GONE_S + 5)

        def left() -> list[str]:
            return [line for line in ours(marker) if "sh -c" not in line and not line.startswith(("cat", "tmux"))]

        until(lambda: not left(), seconds=GONE_S, what="no process is left")
