"""Attach, with no configuration, to a real vLLM that was started as people start it: it is found, its log is read from the right
place, and it is seen to become ready.

    way            its output goes to                    what is followed
    -------------  ------------------------------------  ------------------------
    redirect       `> FILE 2>&1`                         FILE
    nohup          what nohup does on a terminal         …/nohup.out
    tee            `2>&1 | tee FILE`, on a terminal      FILE, which tee has open
    tmux           a pane                                tmux:SOCKET:%0
    user unit      the journal, in the unit's cgroup     journal:user/UNIT.service

The unit has no systemd around it, which can't run beside another init: what is real of it is the control group, by which everybody
tells a unit, and journald, in a mount namespace of its own.
"""

import contextlib
import json
import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from needs import allowed, need
from sshd import alive, descendants, free_port, until
from vllm_server import serve_command, vllm_folder

COMMAND = str(Path(sys.executable).with_name("readyroom"))
READY_S = 240
JOURNALD = Path("/lib/systemd/systemd-journald")
UNIT = f"readyroom-test-{os.getpid()}.service"
CGROUP = f"user.slice/user-{os.getuid()}.slice/user@{os.getuid()}.service/app.slice/{UNIT}"
HIERARCHIES = [path for path in map(Path, ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified")) if path.is_dir()]

pytestmark = [pytest.mark.real_vllm, pytest.mark.timeout(360)]


@dataclass
class Started:
    """A server that begins to load. `around`: the words before a command that is to see the same machine."""

    log: str
    around: tuple[str, ...] = ()


class Place:
    """Where one server is started: a folder, the command, and what must end afterwards."""

    def __init__(self, folder: Path, vllm: Path, ending: contextlib.ExitStack) -> None:
        self.folder = folder
        self.ending = ending
        self.port = free_port()
        words, self.environment = serve_command(vllm, self.port, "--max-model-len", "512")
        self.environment = {name: value for name, value in self.environment.items() if not name.startswith("TMUX")}
        self.line = shlex.join(words)

    def shell(self, script: str, *, terminal: bool = False, around: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        """Run a script in the folder; everything below it ends with the test."""
        out: int = subprocess.DEVNULL
        if terminal:
            ours, out = pty.openpty()
            threading.Thread(target=_drain, args=(ours,), daemon=True).start()
        process = subprocess.Popen(
            [*around, "sh", "-c", script],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        if terminal:
            os.close(out)
        self.ending.callback(_end, process)
        return process


def _drain(terminal: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(terminal, 65536):
            pass
    os.close(terminal)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its descendants, wherever they went."""
    below = descendants(process.pid)
    for pid in [*below, process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    until(lambda: not [pid for pid in below if alive(pid)], seconds=20, what="the end of the server's processes")


def redirect(place: Place) -> Started:
    place.shell(f"exec {place.line} > 'vllm log.txt' 2>&1")
    return Started(f"{place.folder}/vllm log.txt")


def nohup(place: Place) -> Started:
    place.shell(f"nohup {place.line} & wait", terminal=True)
    return Started(f"{place.folder}/nohup.out")


def tee(place: Place) -> Started:
    place.shell(f"{place.line} 2>&1 | tee -a vllm.log", terminal=True)
    return Started(f"{place.folder}/vllm.log")


def tmux(place: Place) -> Started:
    need(shutil.which("tmux"), "tmux isn't installed")
    name = f"readyroom-test-{os.getpid()}"
    own = ["tmux", "-L", name, "-f", os.devnull]
    subprocess.run(
        [*own, "new-session", "-d", "-x", "200", "-y", "50", f"exec {place.line}"],
        cwd=place.folder,
        env=place.environment,
        check=True,
    )
    told = subprocess.run(
        [*own, "display-message", "-p", "#{socket_path} #{pane_id} #{pane_pid}"],
        env=place.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    socket, pane, pid = told.stdout.split()

    def end() -> None:
        below = [int(pid), *descendants(int(pid))]
        subprocess.run([*own, "kill-server"], env=place.environment, check=False)
        Path(socket).unlink(missing_ok=True)
        for process in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        until(lambda: not [process for process in below if alive(process)], seconds=20, what="the end of the server's processes")

    place.ending.callback(end)
    return Started(f"tmux:{socket}:{pane}")


def user_unit(place: Place) -> Started:
    need(JOURNALD.exists() and shutil.which("systemd-cat"), "systemd's journald isn't installed")
    allowed(
        subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0,
        "namespaces can't be made here (unshare)",
    )
    groups = [path / CGROUP for path in HIERARCHIES if (path / "cgroup.procs").exists()]
    try:
        for group in groups:
            group.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        allowed(False, f"no control group can be made here: {error}")
    place.ending.callback(_remove_groups, groups)
    journal = place.shell(
        "mount -t tmpfs none /run && mkdir -p /run/systemd/journal /run/log/journal && exec " + str(JOURNALD),
        around=("unshare", "--mount", "--"),
    )
    inside = ("nsenter", f"--mount=/proc/{journal.pid}/ns/mnt", "--")
    waiting = ["sh", "-c", "until [ -S /run/systemd/journal/stdout ]; do sleep 0.1; done"]
    subprocess.run([*inside, *waiting], check=True, timeout=20)
    enter = "".join(f"echo $$ > {shlex.quote(str(group))}/cgroup.procs && " for group in groups)
    place.shell(f"{enter} exec systemd-cat {place.line}", around=inside)
    return Started(f"journal:user/{UNIT}", inside)


def _remove_groups(groups: list[Path]) -> None:
    for group in groups:
        until(lambda group=group: not (group / "cgroup.procs").read_text(), what="the end of the unit")  # type: ignore[misc]
        for folder in (group, *list(group.parents)[:4]):
            with contextlib.suppress(OSError):  # others' groups stay
                folder.rmdir()


@pytest.mark.parametrize("way", [redirect, nohup, tee, pytest.param(tmux, marks=pytest.mark.tmux), user_unit])
def test_found_and_seen_to_become_ready(way: Callable[[Place], Started], tmp_path: Path) -> None:
    vllm = vllm_folder()
    need(vllm, "READYROOM_VLLM names no real vLLM (tests/real/setup.sh makes one)")
    assert vllm is not None
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("TMUX", "READYROOM"))},
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    with contextlib.ExitStack() as ending:
        place = Place(tmp_path, vllm, ending)
        started = way(place)

        def command(*words: str) -> tuple[int, str]:
            done = subprocess.run(
                [*started.around, COMMAND, *words, "local", "--port", str(place.port), "--json"],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=READY_S + 30,
                check=False,
            )
            assert done.stdout, done.stderr
            return done.returncode, done.stdout

        # from its start, with nothing known of it, to the token
        code, told = command("wait", "--timeout", str(READY_S))
        last = json.loads(told.splitlines()[-1])
        assert (code, last["event"]) == (0, "ready"), last

        code, told = command("status")
        document: dict[str, Any] = json.loads(told)
        assert code == 0
        assert document["log"]["source"] == started.log
        assert document["log"]["problem"] is None
        assert document["load"]["phase"] == "ready"
        assert document["load"]["version"].startswith("0.32.0")
        assert document["load"]["shards"]["done"] == document["load"]["shards"]["total"] == 64
        assert [model["id"] for model in document["api"]["models"]] == ["tiny"]
        assert document["api"]["ready"] is True
