"""Starts that others end: systemd, docker and Kubernetes by stand-in programs, a server that is killed by real processes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from needs import allowed
from sshd import descendants, until
from test_api import UP, Replay, recorded

OVER = "/usr/local/sbin"
LOGS = Path(__file__).parent.parent / "data" / "logs"
READY = (LOGS / "servers" / "26-kimi-k25-8xh200-ep8-ready.log").read_text()
FAILED = (LOGS / "servers" / "09-cpu-032-kv-too-small.log").read_text()
LOADING = READY[: READY.index("\n", READY.index("% Completed")) + 1]


class Deployed:
    """A deployment `kimi` on this machine whose log is told by stand-in programs on the PATH."""

    def __init__(self, folder: Path, api: Replay, log: str) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        config = folder / "config.toml"
        config.write_text(f'[deployments.kimi]\napi = "{api.url}"\n[[deployments.kimi.engines]]\nhost = "local"\nlog = "{log}"\n')
        self.env = {
            **os.environ,
            "READYROOM_CONFIG": str(config),
            "XDG_STATE_HOME": str(folder / "state"),
            "PYTHONUNBUFFERED": "1",
        }

    def put(self, name: str, script: str) -> None:
        """Put a program on the host's PATH."""
        beside = self.bin / f".{name}"
        beside.write_text("#!/bin/sh\n" + textwrap.dedent(script))
        beside.chmod(0o755)
        beside.rename(self.bin / name)

    def log(self, name: str, text: str, *, stamp: str = "") -> Path:
        path = self.folder / name
        path.write_text("".join(f"{stamp}{line}\n" for line in text.splitlines()))
        return path

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        # The host's own folders come first in the probe's search, so the stand-ins lie over one of them.
        over = ["unshare", "--mount", "--", "sh", "-c", f'mount --bind "$0" {OVER} && exec "$@"', str(self.bin)]
        made = subprocess.run([*over, "true"], capture_output=True, check=False)  # noqa: ASYNC221
        allowed(made.returncode == 0, "namespaces can't be made here (unshare)")
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *over, sys.executable, "-m", "tui", *words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=self.env
        )

    async def run(self, *words: str) -> tuple[int, str, str]:
        return await self.end(await self.start(*words))

    async def end(self, process: asyncio.subprocess.Process) -> tuple[int, str, str]:
        try:
            out, errors = await asyncio.wait_for(process.communicate(), 60)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
        assert process.returncode is not None
        return process.returncode, out.decode(), errors.decode()


@pytest.fixture
async def api() -> AsyncIterator[Replay]:
    async with Replay() as replay:
        yield replay


@pytest.fixture
def deploy(tmp_path: Path, api: Replay) -> Callable[[str], Deployed]:
    return lambda log: Deployed(tmp_path, api, log)


STAMP = "2026-11-29T10:00:0{}.000000000Z "


@pytest.mark.parametrize("program", ["docker", "podman"])
async def test_a_container_that_was_killed_for_memory(program: str, deploy: Callable[[str], Deployed], api: Replay) -> None:
    box = deploy(f"{program}:vllm")
    log = box.log("log", LOADING, stamp=STAMP.format(1))
    state = json.dumps({"Status": "exited", "Running": False, "OOMKilled": True, "ExitCode": 137})
    box.put(
        program,
        f"""
        case "$*" in
        *json*) echo '0 {state}';;
        *inspect*) echo {STAMP.format(0)};;
        *logs*) cat '{log}';;
        esac
        """,
    )
    await api.stop()
    code, out, _ = await box.run("status", "kimi", "--json")
    document = json.loads(out)
    assert (code, document["status"]) == (4, "failed")
    assert document["supervisor"]["oom_killed"] is True
    assert document["supervisor"]["exit_code"] == 137
    assert document["supervisor"]["by"] == program
    code, out, _ = await box.run("status", "kimi")
    assert "OOMKilled" in out


async def test_a_pod_in_a_crash_loop(deploy: Callable[[str], Deployed], api: Replay) -> None:
    box = deploy("kubectl:prod/vllm-0")
    now = box.log("now", LOADING, stamp=STAMP.format(5))
    before = box.log("before", FAILED, stamp=STAMP.format(1))
    count = box.folder / "count"
    count.write_text("3")
    box.put(
        "kubectl",
        f"""
        ended='{{"terminated": {{"exitCode": 1, "reason": "Error"}}}}'
        case "$*" in
        *"get pod"*) printf '{{"status": {{"containerStatuses": [{{"name": "vllm", "restartCount": %s,
            "state": {{"running": {{}}}}, "lastState": %s}}]}}}}' "$(cat '{count}')" "$ended";;
        *--previous*) cat '{before}';;
        *logs*) cat '{now}'; seen=$(cat '{count}'); while [ "$(cat '{count}')" = "$seen" ]; do sleep 0.1; done;;
        esac
        """,
    )
    await api.stop()
    code, out, _ = await box.run("status", "kimi", "--json")
    document = json.loads(out)
    assert (code, document["load"]["phase"]) == (3, "loading")
    assert document["supervisor"]["restarts"] == 3
    assert document["supervisor"]["before"]["kind"] == "kv_cache_too_small"
    assert "restarted 3 times" in document["supervisor"]["says"]

    waiting = await box.start("wait", "kimi", "--restarts", "1")
    assert waiting.stdout is not None
    while "loading" not in (await asyncio.wait_for(waiting.stdout.readline(), 60)).decode():
        pass
    count.write_text("5")
    code, _, errors = await box.end(waiting)
    assert code == 4
    assert "2 starts have failed" in errors
    assert "KV cache" in errors


JOURNAL = """
since=0
for word in "$@"; do case $word in --since=*) since=1;; --until=*) exec cat '{before}';; esac; done
cat '{now}'
exec sleep 100
"""


async def test_the_result_of_a_unit(deploy: Callable[[str], Deployed], api: Replay) -> None:
    box = deploy("journal:vllm.service")

    def entries(name: str, text: str) -> Path:
        path = box.folder / name
        rows = [
            {"__CURSOR": f"c{number}", "__REALTIME_TIMESTAMP": f"{1795946400000000 + number}", "MESSAGE": f"{line}\u2028"}
            for number, line in enumerate(text.splitlines())
        ]
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))  # journalctl escapes no such separator
        return path

    box.put("journalctl", JOURNAL.format(before=entries("before", FAILED), now=entries("now", LOADING)))
    box.put(
        "systemctl",
        """
        case "$*" in
        *NRestarts*) printf 'NRestarts=2\\nResult=exit-code\\nExecMainCode=1\\nExecMainStatus=1\\nActiveState=active\\n';;
        *) echo 'Sun 2026-11-29 10:00:00 UTC';;
        esac
        """,
    )
    await api.stop()
    code, out, _ = await box.run("status", "kimi", "--json")
    by = json.loads(out)["supervisor"]
    assert (code, by["by"], by["restarts"], by["reason"]) == (3, "systemd", 2, "exit-code")
    assert by["before"]["kind"] == "kv_cache_too_small"


async def test_after_systemctl_restart(deploy: Callable[[str], Deployed], api: Replay, tmp_path: Path) -> None:
    """The log ends in the old crash, the old server still answers; then it is away, and the new one comes."""
    box = deploy(f"file:{tmp_path}/vllm.log")
    log = box.log("vllm.log", FAILED)
    api.answers = UP | {"POST /v1/completions": recorded("completions")}
    plain = json.loads((await box.run("status", "kimi", "--json"))[1])
    assert plain["status"] == "ready"
    assert "an older server still runs" in plain["conflict"]
    waiting = await box.start("wait", "kimi", "--new", "--json")
    assert waiting.stdout is not None
    first = json.loads(await asyncio.wait_for(waiting.stdout.readline(), 60))
    assert first["event"] == "progress"
    with pytest.raises(TimeoutError):  # the old server's answer is not taken for the new one's
        await asyncio.wait_for(waiting.wait(), 3)
    api.answers = {}
    with log.open("a") as file:
        file.write(READY)
    api.answers = UP | {"POST /v1/completions": recorded("completions")}
    code, out, _ = await box.end(waiting)
    assert (code, json.loads(out.splitlines()[-1])["event"]) == (0, "ready")


ENGINE = """
import ctypes, os, sys, time
def title(name):
    # what setproctitle does: the command line is what the process says it is
    os.execv(sys.executable, [name, "-c", "import time; time.sleep(60)"])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        title("VLLM::Worker_TP0")
    title("VLLM::EngineCore")
time.sleep(60)
"""


async def test_what_a_killed_server_leaves_is_named(deploy: Callable[[str], Deployed], api: Replay, tmp_path: Path) -> None:
    box = deploy("auto")
    await api.stop()
    script = tmp_path / "vllm"
    script.write_text(ENGINE)
    log = tmp_path / "vllm.log"
    with log.open("wb") as file:
        server = subprocess.Popen(  # noqa: ASYNC220 it only starts
            [sys.executable, str(script), "serve", "m"], stdout=file, stderr=file
        )

    def engines() -> list[int]:
        return [
            int(entry)
            for entry in os.listdir("/proc")
            if entry.isdigit() and _reads(f"/proc/{entry}/cmdline").startswith(b"VLLM::EngineCore")
            and os.readlink(f"/proc/{entry}/fd/1") == str(log)
        ]  # fmt: skip

    try:
        until(engines, what="the engine")
        engine = engines()[0]
        before = json.loads((await box.run("status", "kimi", "--json"))[1])
        assert engine not in before["orphans"]
        server.send_signal(signal.SIGKILL)
        server.wait()
        after = json.loads((await box.run("status", "kimi", "--json"))[1])
        assert engine in after["orphans"]
        assert "an engine without its server still holds GPU memory: kill " in after["conflict"]
        assert str(engine) in after["conflict"]
    finally:
        for pid in engines():
            os.killpg(pid, signal.SIGKILL)
        if server.poll() is None:
            server.kill()
            server.wait()


OFFLINE = """
import os, sys, time
if os.fork() == 0:
    os.execv(sys.executable, ["VLLM::EngineCore", "-c", "import time; time.sleep(60)"])
time.sleep(60)
"""


async def test_the_engine_of_a_script_is_nobodys_leftover(deploy: Callable[[str], Deployed], tmp_path: Path) -> None:
    box = deploy("none")
    script = tmp_path / "offline.py"
    script.write_text(OFFLINE)
    process = subprocess.Popen([sys.executable, str(script)], start_new_session=True)  # noqa: ASYNC220 it only starts
    try:
        until(lambda: [pid for pid in descendants(process.pid) if _reads(f"/proc/{pid}/cmdline").startswith(b"VLLM")], what="it")
        engine = descendants(process.pid)[0]
        assert engine not in json.loads((await box.run("status", "kimi", "--json"))[1])["orphans"]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert engine in json.loads((await box.run("status", "kimi", "--json"))[1])["orphans"]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _reads(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
