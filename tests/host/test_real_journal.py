"""`journal:` against a real systemd-journald and journalctl, in a mount namespace of their own: nothing of the machine's journal is
touched."""

import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from needs import allowed, need
from sshd import until
from test_follow import Follower, follow  # noqa: F401

Follow = Callable[..., Follower]
JOURNALD = Path("/lib/systemd/systemd-journald")
CONFIGURATION = "[Journal]\nStorage=volatile\nAudit=no\nReadKMsg=no\nRateLimitIntervalSec=0\nForwardToSyslog=no\n"
UNIT = "vllm.service"


class Journal:
    """A running journald; `write` is what a unit's service would log."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.socket = Path(f"/proc/{process.pid}/root/run/systemd/journal/socket")

    def listens(self) -> bool:
        """Tell whether it has come so far; before it has a namespace of its own, its files are the machine's."""
        own = Path(f"/proc/{self._process.pid}/ns/mnt")
        return own.exists() and own.stat().st_ino != Path("/proc/self/ns/mnt").stat().st_ino and self.socket.exists()

    def command(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["nsenter", "-t", str(self._process.pid), "-m", *words], capture_output=True, check=False, timeout=30)

    def write(self, *messages: bytes, unit: str = UNIT) -> None:
        """Write in the native protocol, whose second form takes any bytes.

        Without a service manager nobody tells journald the unit, so it is named as one that root logs about, which `journalctl -u`
        finds as well.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.connect(str(self.socket))
            for message in messages:
                out.send(b"OBJECT_SYSTEMD_UNIT=%s\nMESSAGE\n%s%s\n" % (unit.encode(), struct.pack("<Q", len(message)), message))


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
    journalctl = shutil.which("journalctl")
    need(JOURNALD.exists() and journalctl, "systemd-journald and journalctl aren't installed")
    allowed(
        os.geteuid() == 0 and shutil.which("unshare") and shutil.which("nsenter"), "a journal of its own takes root and unshare"
    )
    (tmp_path / "journald.conf").write_text(CONFIGURATION)
    script = (
        "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && mount -t tmpfs none /var/log && "
        f"mount --bind {tmp_path}/journald.conf /etc/systemd/journald.conf && exec {JOURNALD}"
    )
    process = subprocess.Popen(["unshare", "-m", "/bin/sh", "-c", script], stderr=subprocess.PIPE)
    started = Journal(process)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "journalctl").write_text(f'#!/bin/sh\nexec nsenter -t {process.pid} -m {journalctl} "$@"\n')
    (programs / "journalctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    try:
        until(lambda: started.listens() or process.poll() is not None, what="journald's socket")
        allowed(process.poll() is None, "systemd-journald does not start here")
        yield started
    finally:
        process.terminate()
        process.communicate(timeout=10)


def test_every_line_once_across_a_lost_link(journal: Journal, follow: Follow) -> None:  # noqa: F811
    journal.write(b"before", *(b"line %d" % n for n in range(500)))
    journal.write(b"another unit's", unit="other.service")
    first = follow(source="journal", name=UNIT)
    first.caught_up()
    journal.write(*(b"line %d" % n for n in range(500, 600)))
    first.until(lambda f: len(f.lines) >= 601)
    place = first.place
    first.close()
    journal.write(*(b"line %d" % n for n in range(600, 1600)))
    assert journal.command("journalctl", "--rotate").returncode == 0
    journal.write(*(b"line %d" % n for n in range(1600, 1700)))
    again = follow(source="journal", name=UNIT, **{"from": place})
    again.until(lambda f: len(f.lines) >= 1100)
    journal.write(b"after")
    again.until(lambda f: "after" in f.lines)
    assert first.lines + again.lines == ["before", *(f"line {n}" for n in range(1700)), "after"]


def test_bars_and_colours_come_whole(journal: Journal, follow: Follow) -> None:  # noqa: F811
    """What `journalctl` shows as `[105B blob data]`."""
    bar = b"(Worker_TP0 pid=7) \rLoading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03,  1.02s/it]"
    journal.write(b"\x1b[32mINFO\x1b[0m one", bar, b"\xff\xfe not text")
    following = follow(source="journal", name=UNIT)
    following.until(lambda f: any("not text" in line for line in f.lines))
    joined = "\n".join(following.lines)
    assert "\x1b[32mINFO\x1b[0m one" in joined
    assert "25% Completed | 1/4 [00:01<00:03,  1.02s/it]" in joined
    assert "blob data" not in joined
    assert "\ufffd\ufffd not text" in joined
