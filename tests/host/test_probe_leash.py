"""Nothing stays behind on a host: the leash, held by real processes and pulled in every way that there is."""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from shipped import ShippedProbe, alive, until
from sshd import running

from tui.probe.boot import BOOT, LOADER, bundle, opening
from tui.probe.leash import SHELL_BEAT, SHELL_LEASH, shell_opening

SLEEPERS = ["sh", "-c", "sleep 4711 & echo $!; exec sleep 4712"]
"""A command that leaves a grandchild behind."""

CLIENT = textwrap.dedent("""
    import subprocess, sys, time
    from tui.probe.boot import BOOT, opening
    from tui.probe.leash import BEAT
    probe = subprocess.Popen([sys.executable, "-I", "-c", BOOT], stdin=subprocess.PIPE)
    probe.stdin.write(opening({"role": "run", "argv": %r}))
    probe.stdin.flush()
    while True:
        probe.stdin.write(BEAT)
        probe.stdin.flush()
        time.sleep(2)
""")


@pytest.fixture
def client() -> Iterator[tuple[subprocess.Popen[bytes], int, tuple[int, int]]]:
    """Start a client with a probe that has SLEEPERS; yield the client, the probe's pid and the two sleepers' pids."""
    # its stdout goes to the test: the frames come straight from the probe
    process = subprocess.Popen([sys.executable, "-c", CLIENT % SLEEPERS], stdout=subprocess.PIPE)
    assert process.stdout is not None
    frames = {}
    for line in process.stdout:
        frame = json.loads(line)
        frames[frame["f"]] = frame
        if frame["f"] == "out":
            break
    child = int(frames["started"]["pid"])
    grandchild = int(base64.b64decode(frames["out"]["b64"]))
    yield process, int(frames["hello"]["pid"]), (child, grandchild)
    process.kill()
    process.wait()
    process.stdout.close()


Client = tuple[subprocess.Popen[bytes], int, tuple[int, int]]


def test_client_killed(client: Client) -> None:
    process, probe, sleepers = client
    assert all(map(alive, (probe, *sleepers)))
    process.kill()
    until(lambda: not any(map(alive, (probe, *sleepers))), 3.0)


def test_client_frozen(client: Client) -> None:
    """A frozen link closes nothing; only the silence tells."""
    process, probe, sleepers = client
    process.send_signal(signal.SIGSTOP)
    until(lambda: not any(map(alive, (probe, *sleepers))), 14.0)


def test_probe_killed(client: Client) -> None:
    """Not even the probe's own kill -9 (by the kernel, out of memory) leaves the command behind, nor what that started."""
    _, probe, sleepers = client
    os.kill(probe, signal.SIGKILL)
    until(lambda: not any(map(alive, sleepers)), 3.0)


def test_a_command_that_cannot_be_started_is_forgotten(tmp_path: Path) -> None:
    """Its number goes to somebody else's process sooner or later, which must outlive the probe."""
    code = """if True:
        import subprocess, sys
        from tui.probe import leash
        leash._Guard.SCRIPT = "cat > " + sys.argv[1]
        link = leash.Link()
        try:
            link.spawn(["no-such-program"])
        except FileNotFoundError:
            link.reaped(link.spawn(["true"]))
    """
    told = tmp_path / "told"
    subprocess.run([sys.executable, "-c", code, str(told)], check=True, timeout=20)
    until(lambda: told.read_text().count("-") == 2)
    signs, numbers = zip(*(line.split() for line in told.read_text().splitlines()), strict=True)
    assert signs == ("+", "-", "+", "-")
    assert numbers[0] == numbers[1] != numbers[2] == numbers[3]


def test_main_thread_hangs_in_a_write() -> None:
    with running([sys.executable, "-I", "-c", BOOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(opening({"role": "run", "argv": ["yes"]}))
        process.stdin.flush()
        # nobody reads: the pipe fills, and the probe's main thread waits in the kernel
        until(lambda: "pipe" in Path(f"/proc/{process.pid}/wchan").read_text() or _asleep_in_write(process.pid))
        process.stdin.close()
        assert process.wait(3.0) == 0


def _asleep_in_write(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/syscall").read_text().startswith("1 ")
    except OSError:
        return False


def test_main_thread_hangs_in_a_foreign_call() -> None:
    code = """if True:
        import ctypes
        from tui.probe.leash import Link
        link = Link()
        link.start()
        link.send({"f": "started"})
        ctypes.CDLL(None).pause()
    """
    with running([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        process.stdin.close()
        assert process.wait(3.0) == 0


def test_only_the_constant_stands_in_the_list_of_processes() -> None:
    assert not set("'\"`$\\!%") & set(BOOT)
    with ShippedProbe("run", {"argv": ["sleep", "4713"]}) as probe:
        probe.named("started")
        line = Path(f"/proc/{probe.process.pid}/cmdline").read_bytes()
        assert line.split(b"\0")[1:-1] == [b"-I", b"-c", BOOT.encode()]
        deleted = [os.readlink(f"/proc/{probe.process.pid}/fd/{name}") for name in os.listdir(f"/proc/{probe.process.pid}/fd")]
        assert "/memfd:readyroom (deleted)" in deleted


def test_the_bundle_is_the_same_every_time() -> None:
    first = bundle()
    bundle.cache_clear()
    assert bundle() == first
    assert len(bundle(driver=False)) < len(first) - 40_000
    assert opening({"role": "run"}).startswith(b"%d\n%b" % (len(LOADER), LOADER))
    with pytest.raises(ValueError, match="role"):
        opening({})


def test_errors_come_with_file_and_line() -> None:
    with ShippedProbe("run", {}) as probe:
        end = probe.named("end")
        assert end["ok"] is False
        assert end["why"].startswith("KeyError: 'argv' (probe/run.py:")
        assert probe.process.wait(3.0) == 1
        assert 'argv = [str(word) for word in arguments["argv"]]' in probe.errors()


def test_an_unknown_role() -> None:
    with ShippedProbe("dance") as probe:
        assert "the probe has no role 'dance'" in probe.named("end")["why"]


# -- role "run" --------------------------------------------------------------------------------------------------------------------


def test_run_passes_output_and_status() -> None:
    with ShippedProbe(
        "run", {"argv": ["sh", "-c", 'printf "$GREETING"; echo no >&2; exit 3'], "environment": {"GREETING": "a\nb"}}
    ) as probe:
        assert probe.named("exit")["status"] == 3
        output = {fd: b"".join(base64.b64decode(frame["b64"]) for frame in probe.seen if frame.get("fd") == fd) for fd in (1, 2)}
        assert output == {1: b"a\nb", 2: b"no\n"}


def test_run_stops_on_request_with_all_that_it_started() -> None:
    with ShippedProbe("run", {"argv": SLEEPERS}) as probe:
        child = probe.named("started")["pid"]
        grandchild = int(base64.b64decode(probe.named("out")["b64"]))
        probe.send({"do": "stop"})
        assert probe.named("exit")["signal"] == signal.SIGKILL
        until(lambda: not alive(child) and not alive(grandchild), 3.0)


def test_run_says_what_cannot_be_started() -> None:
    with ShippedProbe("run", {"argv": ["no-such-program"]}) as probe:
        assert probe.named("error")["code"] == "ENOENT"


# -- role "relay" ------------------------------------------------------------------------------------------------------------------


def test_relay_carries_bytes_both_ways_and_tells_a_closed_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ShippedProbe("relay") as probe:
        port = server.getsockname()[1]
        probe.send({"do": "open", "id": 1, "host": "127.0.0.1", "port": port})
        probe.send({"do": "data", "id": 1, "b64": base64.b64encode(b"ping" * 50_000).decode()})
        peer, _ = server.accept()
        with peer:
            probe.named("opened")
            got = b""
            while len(got) < 200_000:
                got += peer.recv(65536)
            assert got == b"ping" * 50_000
            peer.sendall(b"pong")
            assert base64.b64decode(probe.named("data")["b64"]) == b"pong"
            probe.send({"do": "eof", "id": 1})
            assert peer.recv(10) == b""
        assert probe.named("closed")["id"] == 1
        server.close()
        probe.send({"do": "open", "id": 2, "host": "127.0.0.1", "port": port})
        failed = probe.named("failed")
        assert (failed["id"], failed["code"]) == (2, 2)


def test_relay_reaches_unix_sockets_and_closes_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "api.sock")
    with socket.socket(socket.AF_UNIX) as server, ShippedProbe("relay") as probe:
        server.bind(path)
        server.listen()
        probe.send({"do": "open", "id": "a", "path": path})
        peer, _ = server.accept()
        with peer:
            probe.named("opened")
            probe.send({"do": "close", "id": "a"})
            peer.settimeout(5.0)
            assert peer.recv(10) == b""
        probe.send({"do": "open", "id": "b", "path": path + "x"})
        assert probe.named("failed")["code"] == 2


# -- hosts without Python ----------------------------------------------------------------------------------------------------------


def shell(argv: list[str]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        ["/bin/sh", "-c", SHELL_LEASH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(shell_opening(argv))
    process.stdin.flush()
    return process


def ended(process: subprocess.Popen[bytes], seconds: float) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        return process.wait(seconds)
    finally:
        process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()


def test_shell_leash_passes_words_output_and_status() -> None:
    words = ["a b", "$HOME", "'", '"', "*", "\\n", ""]
    process = shell(["sh", "-c", 'printf "<%s>" "$@"; exit 7', "sh", *words])
    assert process.stdout is not None
    assert process.stdout.read() == "".join(f"<{word}>" for word in words).encode()
    assert ended(process, 3.0) == 7
    with pytest.raises(ValueError, match="newline"):
        shell_opening(["a\nb"])


@pytest.mark.parametrize("how", ["eof", "silence"])
def test_shell_leash_pulled(how: str) -> None:
    process = shell(SLEEPERS)
    assert process.stdin is not None
    assert process.stdout is not None
    grandchild = int(process.stdout.readline())
    for _ in range(3):
        process.stdin.write(SHELL_BEAT)
        process.stdin.flush()
    assert alive(grandchild)
    if how == "eof":
        process.stdin.close()
    until(lambda: not alive(grandchild), 3.0 if how == "eof" else 14.0)
    assert ended(process, 3.0) == 128 + signal.SIGKILL
