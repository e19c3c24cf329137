"""Hosts without SSH: this machine, and whatever a command prefix reaches."""

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from needs import allowed
from sshd import Sshd, descendants, eventually

from tui.core.connection import LinkState
from tui.host.base import HostError, NotPermitted, ProbeFailed, Refused, Unreachable
from tui.host.local import ExecHost, LocalHost
from tui.host.open import open_host


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


async def test_this_machine_runs_commands_and_probes() -> None:
    async with LocalHost() as host:
        await host.connect()
        assert host.connection.online
        done = await host.run(["sh", "-c", "cat; exit 3"], input=b"\0\xff\n")
        assert (done.status, done.stdout) == (3, b"\0\xff\n")
        assert (await host.run(["no-such-program"])).status == 127
        with pytest.raises(TimeoutError):
            await host.run(["sleep", "60"], timeout=0.2)
        probe = await host.start_probe("watch", {"hz": 5.0})
        kinds = set()
        async for frame in probe:
            kinds.add(frame["f"])
            if {"hello", "machine"} <= kinds:
                break
        await probe.close()
    assert not [pid for pid in descendants(os.getpid()) if "sleep" in command_line(pid)]


async def test_a_role_that_does_not_exist_is_a_failure_in_words() -> None:
    async with LocalHost() as host:
        await host.connect()
        with pytest.raises(ProbeFailed):
            async for _ in await host.start_probe("no-such-role", {}):
                pass


async def test_closing_the_host_ends_its_probes() -> None:
    async with LocalHost() as host:
        await host.connect()
        probe = await host.start_probe("watch", {})
        pid = probe.hello["pid"]
    await eventually(lambda: not Path(f"/proc/{pid}").exists(), what="the end of the probe")
    assert [frame async for frame in probe] == []


async def test_a_prefix_gives_a_host() -> None:
    host = open_host("exec:env READYROOM_TEST='a b'")
    assert isinstance(host, ExecHost)
    async with host:
        await host.connect()
        assert host.connection.online
        assert (await host.run(["sh", "-c", 'printf %s "$READYROOM_TEST"'])).stdout == b"a b"
        await eventually(lambda: host.connection.round_trip_ms, what="the first round trip")
        probe = await host.start_probe("watch", {"hz": 2.0})
        assert probe.hello["role"] == "watch"


@pytest.mark.sshd
async def test_a_prefix_that_parses_words_again(sshd: Sshd) -> None:
    """`ssh` joins its words and has the login shell parse them: only a prefix without quotes survives that."""
    prefix = ["ssh", "-F", str(sshd.client_config), "-o", "BatchMode=yes", "gpu-box"]
    async with ExecHost(prefix) as host:
        await host.connect()
        words = ["$(id)", "it's", "a  b", "new\nline", '"']
        done = await host.run(["printf", "%s\\0", *words])
        assert done.stdout == b"".join(word.encode() + b"\0" for word in words)
        probe = await host.start_probe("watch", {})
        await probe.close()


@pytest.mark.sshd
async def test_a_lost_prefix_is_told_and_started_again(sshd: Sshd) -> None:
    async with ExecHost(["ssh", "-F", str(sshd.client_config), "-o", "BatchMode=yes", "gpu-box"], name="box") as host:
        await host.connect()
        sshd.restart()
        error = await asyncio.wait_for(host.wait_lost(), 15)
        assert isinstance(error, Unreachable)
        assert host.connection.link is LinkState.LOST
        await host.connect()
        assert (await host.run(["echo", "back"])).stdout == b"back\n"


@pytest.mark.parametrize(
    ("command", "kind", "words"),
    [
        ("no-such-wrapper exec -i pod --", Refused, "no-such-wrapper isn't installed"),
        ("/etc/passwd", Refused, "can't be started"),
        ("sh -c 'echo Error from server: pods kimi not found >&2; exit 1'", Unreachable, "pods kimi not found"),
        ("sh -c 'printf \"\\033]0;owned\\007no such container\\n\" >&2; exit 1'", Unreachable, "gave no shell: no such container"),
        ("true", Unreachable, "status 0"),
        ("false", Unreachable, "false gave no shell: it ended with status 1"),
        ("sh -c 'echo Try this for more information. >&2; exit 1'", Unreachable, "Try this for more information"),
    ],
)
async def test_a_prefix_that_fails_says_why(command: str, kind: type[HostError], words: str) -> None:
    async with ExecHost(shlex.split(command)) as host:
        with pytest.raises(kind) as caught:
            await host.connect()
        assert words in caught.value.cause
        assert "\x1b" not in caught.value.cause
        assert not caught.value.cause.endswith(".")
        assert caught.value.cause.count("gave no shell") <= 1
        assert not host.connection.online


async def test_a_host_without_python_is_named_and_still_runs_commands(tmp_path: Path) -> None:
    hide = tmp_path / "hide"
    hide.write_text(
        "#!/bin/sh\nfor folder in $(printf %s \"$PATH:/usr/bin:/usr/local/bin\" | tr : ' '); do\n"
        'for python in "$folder"/python*; do\n[ -e "$python" ] && mount --bind /dev/null "$python" 2>/dev/null\ndone\ndone\n'
        'exec "$@"\n'
    )
    hide.chmod(0o755)
    possible = subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode == 0  # noqa: ASYNC221
    allowed(possible, "mount namespaces aren't allowed here")
    async with ExecHost(["unshare", "-m", str(hide)]) as host:
        await host.connect()
        with pytest.raises(ProbeFailed, match=r"no Python 3\.8") as caught:
            await host.start_probe("watch", {})
        assert "install python3" in caught.value.advice
        assert (await host.run(["echo", "still"])).stdout == b"still\n"
        async with httpx.AsyncClient(transport=host.transport()) as client:
            with pytest.raises(httpx.ConnectError) as unreached:
                await client.get("http://127.0.0.1:1/health")
        assert isinstance(unreached.value.__cause__, NotPermitted)
        assert "by the probe only" in unreached.value.__cause__.cause


async def test_a_frozen_prefix_is_noticed() -> None:
    async with ExecHost(["env"]) as host:
        await host.connect()
        await eventually(lambda: host.connection.round_trip_ms, what="the first round trip")
        stopped = [pid for pid in descendants(os.getpid()) if "head" in command_line(pid) or "/bin/sh" in command_line(pid)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        error = await asyncio.wait_for(host.wait_lost(), 20)
        assert "nothing came for 8 s" in error.cause
        await host.connect()
        assert host.connection.online


async def test_leaving_while_the_standing_shell_ends_stays_a_cancellation() -> None:
    """The caller's own cancellation must not be taken for that of the task that it waits for."""
    host = ExecHost(["env"])
    await host.connect()

    async def leave() -> str:
        asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)  # type: ignore[union-attr]
        await host.close()
        return "went on"

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(leave())
    await host.close()


# -- interpreters that hang --------------------------------------------------------------------------------------------------------


def hanging(folder: Path, name: str) -> Path:
    """Write a python that hangs for ever in a child of its own, like a wrapper on a file system that hangs."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text("#!/bin/sh\nsleep 600.25\n")
    program.chmod(0o755)
    return program


def sleepers() -> list[str]:
    return [path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if b"600.25" in _read(path)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


async def test_the_next_interpreter_is_tried_after_one_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.host.shell.PYTHONS", (str(hanging(tmp_path, "python3")), sys.executable))
    async with LocalHost() as host:
        await host.connect()
        async with asyncio.timeout(9):
            probe = await host.start_probe("watch", {})
        assert probe.hello
        assert not sleepers()


async def test_interpreters_that_hang_are_named_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pythons = [str(hanging(tmp_path / str(number), "python3")) for number in range(3)]
    monkeypatch.setattr("tui.host.shell.PYTHONS", (*pythons, sys.executable))
    async with LocalHost() as host:
        await host.connect()
        async with asyncio.timeout(10):
            with pytest.raises(ProbeFailed, match=f"{pythons[0]} {pythons[1]} doesn't within 4 s"):
                await host.start_probe("watch", {})
    assert not sleepers()
