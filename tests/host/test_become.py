"""`become`: an ordinary user's probe gets at what only root may see, by a stand-in for sudo, or says what is missing."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from elevated import Sudo
from needs import allowed
from shipped import ShippedProbe, alive, until

from tui.engines.registry import commands

SUDO = ["sudo", "-n"]


@pytest.fixture
def sudo(tmp_path: Path) -> Iterator[Sudo]:
    allowed(os.geteuid() == 0, "only root can play sudo for another user")
    with Sudo(tmp_path / "sudo") as sudo:
        yield sudo


def probe(sudo: Sudo, role: str, **arguments: Any) -> ShippedProbe:
    return ShippedProbe(role, arguments, sudo.env, str(sudo.python))


def log_of_root(tmp_path: Path) -> Path:
    log = tmp_path / "vllm $(touch pwned); 'x'.log"
    log.write_text("first\n")
    log.chmod(0o600)
    return log


def test_follow_a_log_of_root(sudo: Sudo, tmp_path: Path) -> None:
    log = log_of_root(tmp_path)
    with probe(sudo, "follow", source="file", path=str(log), become=SUDO) as follower:
        assert follower.named("lines")["lines"] == ["first"]
        follower.named("caught_up")
        with log.open("a") as file:
            file.write("second\n")
        assert follower.named("lines")["lines"] == ["second"]
        assert not any(str(log) in " ".join(argv) for argv in sudo.asked)  # no data in command lines
        helpers = [child.pid for child in sudo.children if child.poll() is None]
        assert len(helpers) == 1
        follower.process.kill()  # the client's end of the leash is gone, and nobody may kill root's process
        until(lambda: not alive(helpers[0]), 12)


def test_follow_says_what_become_would_give(sudo: Sudo, tmp_path: Path) -> None:
    with probe(sudo, "follow", source="file", path=str(log_of_root(tmp_path))) as follower:
        why = follower.frame(lambda frame: frame["f"] == "source" and frame["why"])["why"]
    assert "no permission to read it as nobody" in why
    assert 'become = "sudo -n"' in why
    assert not sudo.asked


def test_follow_says_that_sudo_would_ask(sudo: Sudo, tmp_path: Path) -> None:
    sudo.allows = lambda argv: False
    log = log_of_root(tmp_path)
    with probe(sudo, "follow", source="file", path=str(log), become=SUDO) as follower:
        why = follower.frame(lambda frame: frame["f"] == "source" and frame["why"])["why"]
        assert "`sudo -n` does not help: sudo: a password is required" in why
        log.chmod(0o644)
        assert follower.named("lines")["lines"] == ["first"]
    assert len(sudo.asked) == 1  # a refusal is not asked for again and again


def test_become_that_does_not_exist_or_changes_nothing(sudo: Sudo, tmp_path: Path) -> None:
    log = log_of_root(tmp_path)
    for words, said in ((["doas-is-not-here"], "doas-is-not-here: "), (["env"], "it changes nothing")):
        with probe(sudo, "follow", source="file", path=str(log), become=words) as follower:
            assert said in follower.frame(lambda frame: frame["f"] == "source" and frame["why"])["why"]


def test_what_needs_no_rights_takes_none(sudo: Sudo, tmp_path: Path) -> None:
    log = log_of_root(tmp_path)
    log.chmod(0o644)
    with probe(sudo, "follow", source="file", path=str(log), become=SUDO) as follower:
        assert follower.named("lines")["lines"] == ["first"]
    assert not sudo.asked


SERVER = """
import socket, sys, time

from tui.engines.registry import commands
with socket.socket() as listener:
    listener.bind(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
    listener.listen()
    time.sleep(120)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """Start a server of root's whose log is a file; yield its pid and log."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = tmp_path / "vllm"
    script.write_text(SERVER)
    log = tmp_path / "of root.log"
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, str(script), "serve", "m", "--port", str(port)], stdout=file, stderr=file)
    yield process.pid, log
    process.kill()
    process.wait()


def found(sudo: Sudo, pid: int, **arguments: Any) -> dict[str, Any]:
    with probe(sudo, "find", every=0.5, engines=commands(), **arguments) as finder:
        frame = finder.frame(lambda frame: any(server["pid"] == pid for server in frame.get("servers", ())))
    return dict(next(server for server in frame["servers"] if server["pid"] == pid))


def test_find_where_a_server_of_root_writes(sudo: Sudo, server: tuple[int, Path]) -> None:
    pid, log = server
    one = found(sudo, pid, become=SUDO)
    assert one["source"] == f"file:{log}"
    assert one["user"] == "root"
    assert "python" in json.dumps(sudo.asked)


@pytest.mark.parametrize(
    ("become", "said"), [([], 'become = "sudo -n"'), (SUDO, "`sudo -n` does not help: sudo: a password is required")]
)
def test_find_says_what_is_missing(sudo: Sudo, server: tuple[int, Path], become: list[str], said: str) -> None:
    sudo.allows = lambda argv: False
    one = found(sudo, server[0], become=become)
    assert one["source"] is None
    assert said in one["why"]
    assert one["model"] == "m"  # command lines are for everybody to see


def test_watch_counts_what_a_server_of_root_reads(sudo: Sudo, server: tuple[int, Path]) -> None:
    arguments: dict[str, Any] = {"hz": 2.0, "pids": [server[0]], "paths": []}
    with probe(sudo, "watch", **arguments) as watcher:
        assert "engine_read_bytes" not in watcher.named("machine")
    with probe(sudo, "watch", become=SUDO, **arguments) as watcher:
        assert watcher.frame(lambda frame: frame["f"] == "machine" and "engine_read_bytes" in frame)


def test_journal_of_the_system(sudo: Sudo) -> None:
    entry = json.dumps({"__CURSOR": "c1", "__REALTIME_TIMESTAMP": "1795946401000000", "MESSAGE": "of the system"})
    hint = "Hint: You are currently not seeing messages from other users and the system."
    (sudo.bin / "journalctl").write_text(
        f"#!/bin/sh\n[ $(id -u) = 0 ] && echo '{entry}' || echo '{hint}' >&2\ncase \"$*\" in *-f*) exec sleep 60;; esac\n"
    )
    (sudo.bin / "journalctl").chmod(0o755)
    arguments = {"source": "journal", "name": "vllm.service"}
    with probe(sudo, "follow", **arguments) as follower:
        why = follower.frame(lambda frame: frame["f"] == "source" and frame["why"])["why"]
        assert 'become = "sudo -n"' in why
    with probe(sudo, "follow", become=SUDO, **arguments) as follower:
        assert follower.named("lines")["lines"] == ["of the system"]
