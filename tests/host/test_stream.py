"""A foreign command that goes on, on the shell's leash: what it prints, and that nothing of it stays behind."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from needs import allowed
from sshd import Sshd, alive, eventually, until

from tui.aio import patiently
from tui.core.gpu import GpuSample
from tui.host.base import Host, NotPermitted
from tui.host.local import ExecHost, LocalHost
from tui.host.ssh import STANDING_LIMIT, SshHost
from tui.services.server_search import servers_of
from tui.services.smi_stream import sample_smi
from tui.simulator import installed
from tui.simulator.nvml import scenario_file

LIMIT_S = 12.0
"""8 s of silence, and what a loaded machine adds."""

CLIENT = """
import asyncio, sys
from pathlib import Path
from tui.core.smi_csv import smi_stream
from tui.host.local import ExecHost, LocalHost
from tui.host.ssh import SshHost

async def main():
    kind, config, *argv = sys.argv[1:]
    host = {"ssh": lambda: SshHost("gpu-box", config_files=[Path(config)]),
            "local": LocalHost,
            "exec": lambda: ExecHost(["env"])}[kind]()
    async with host:
        await host.connect()
        stream = await host.stream(argv or smi_stream(500))
        async for data in stream:
            sys.stdout.buffer.write(data)
            sys.stdout.flush()

asyncio.run(main())
"""

QUIET = ["sh", "-c", "echo $$; sleep 4321 & echo $!; exec sleep 4322"]
"""A command that never writes again, with a child."""


@pytest.fixture
def gpus(tmp_path: Path) -> dict[str, str]:
    """Return an environment whose PATH has an nvidia-smi that shows two GPUs."""
    allowed(not Path("/usr/bin/nvidia-smi").exists(), "this machine has an nvidia-smi of its own")
    programs = tmp_path / "programs"
    programs.mkdir()
    installed.install_smi(programs)
    rows = [{"index": rank, "uuid": f"GPU-{rank}", "memory_used_mib": 90_000, "memory_total_mib": 97_887} for rank in range(2)]
    scenario_file.write(tmp_path / "scenario", rows)
    return {"PATH": f"{programs}:{os.environ['PATH']}", scenario_file.VARIABLE: str(tmp_path / "scenario")}


@pytest.fixture(params=[pytest.param("ssh", marks=pytest.mark.sshd), "local", "exec"])
async def host(request: pytest.FixtureRequest) -> AsyncIterator[Host]:
    found: Host
    if request.param == "ssh":
        found = SshHost("gpu-box", config_files=[request.getfixturevalue("sshd").client_config])
    else:
        found = LocalHost() if request.param == "local" else ExecHost(["env"])
    async with found:
        await found.connect()
        yield found


async def output(host: Host, *argv: str) -> tuple[bytes, str]:
    stream = await host.stream(argv)
    try:
        said = b"".join([data async for data in stream])
        return said, await stream.how_it_ended()
    finally:
        await stream.close()


async def test_words_output_and_end(host: Host) -> None:
    said, ended = await output(host, "sh", "-c", 'printf "<%s>" "$@"; echo sorry >&2; exit 7', "sh", "a b", "$HOME", "'", "", "*")
    assert said == b"<a b><$HOME><'><><*>"
    assert ended.endswith("ended with status 7: sorry")
    _, ended = await output(host, "no-such-program")
    assert "127" in ended or "not found" in ended or "No such file" in ended
    with pytest.raises(NotPermitted, match="newline"):
        await host.stream(["a\nb"])


async def test_closing_ends_it_on_the_host(host: Host) -> None:
    stream = await host.stream(QUIET)
    said = b""
    async with aclosing(patiently(stream, lambda: 5.0)) as pieces:
        async for data in pieces:
            said += data or b""
            if said.count(b"\n") == 2:
                break
    pids = [int(word) for word in said.split()]
    assert all(map(alive, pids))
    await stream.close()
    await stream.close()
    await eventually(lambda: not any(map(alive, pids)), seconds=5, what="the end of the command")


@pytest.mark.sshd
async def test_no_more_than_the_server_allows(sshd: Sshd) -> None:
    async with SshHost("gpu-box", config_files=[sshd.client_config]) as host:
        await host.connect()
        for _ in range(STANDING_LIMIT):
            await host.stream(["sleep", "60"])
        with pytest.raises(NotPermitted, match="probes already"):
            await host.stream(["sleep", "60"])


class Client:
    """A client of its own, whose remote command's pids it prints."""

    def __init__(self, kind: str, config: Path | str, environment: dict[str, str], *argv: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, kind, str(config), *argv], stdout=subprocess.PIPE, env={**os.environ, **environment}
        )
        assert self.process.stdout is not None
        self.out = self.process.stdout

    def end(self) -> None:
        self.process.kill()
        self.process.wait(5)
        self.out.close()


@pytest.fixture(params=[pytest.param("ssh", marks=pytest.mark.sshd), "local", "exec"])
def start(request: pytest.FixtureRequest) -> Iterator[Callable[..., Client]]:
    clients: list[Client] = []

    def make(*argv: str) -> Client:
        config = request.getfixturevalue("sshd").client_config if request.param == "ssh" else "-"
        clients.append(Client(request.param, config, {}, *argv))
        return clients[-1]

    yield make
    for client in clients:
        client.end()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_nothing_outlives_a_killed_or_stopped_client(start: Callable[..., Client], number: signal.Signals) -> None:
    client = start(*QUIET)
    pids = [int(client.out.readline()) for _ in range(2)]
    assert all(map(alive, pids))
    client.process.send_signal(number)
    until(lambda: not any(map(alive, pids)), seconds=LIMIT_S, what="the end of the remote command")


def smi_pids(environment: dict[str, str]) -> list[int]:
    """Return the processes that sample the GPUs of a test."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line, variables = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            except OSError:
                continue
            if b"--query-gpu" in line and environment[scenario_file.VARIABLE].encode() in variables and alive(int(entry.name)):
                found.append(int(entry.name))
    return found


@pytest.mark.sshd
@pytest.mark.parametrize("how", ["kill the client", "freeze the link"])
def test_no_nvidia_smi_is_left_on_the_host(sshd: Sshd, gpus: dict[str, str], how: str) -> None:
    sshd.environment |= gpus
    sshd.restart()
    client = Client("ssh", sshd.client_config, {})
    try:
        lines = [client.out.readline() for _ in range(5)]
        assert lines[0].startswith(b"index, ")
        assert [line.split(b",")[0] for line in lines[1:]] == [b"0", b"1", b"0", b"1"]
        (pid,) = smi_pids(gpus)
        if how == "kill the client":
            client.process.kill()
        else:
            sshd.signal_sessions(signal.SIGSTOP)
        until(lambda: not alive(pid), seconds=LIMIT_S, what="the end of nvidia-smi")
    finally:
        client.end()
        sshd.signal_sessions(signal.SIGCONT)


@pytest.mark.sshd
async def test_one_nvidia_smi_samples_all_the_time(sshd: Sshd, gpus: dict[str, str]) -> None:
    sshd.environment |= gpus
    sshd.restart()
    seen: list[GpuSample] = []
    async with SshHost("gpu-box", config_files=[sshd.client_config]) as host:
        await host.connect()
        sampling = asyncio.create_task(sample_smi(host, seen.append, note="no Python there", seconds=600))
        await eventually(lambda: len(seen) >= 3, seconds=25, what="three samples")
        assert [len(sample.gpus) for sample in seen] == [2] * len(seen)
        first = smi_pids(gpus)
        assert len(first) == 1
        await eventually(lambda: len(seen) >= 5, seconds=25, what="more samples")
        assert smi_pids(gpus) == first
        # It ends: the last values stay, marked; another one is started.
        count = len(seen)
        os.kill(first[0], signal.SIGKILL)
        await eventually(lambda: any(item.late for item in seen[count:]), seconds=10, what="the end is told")
        late = next(item for item in seen if item.late)
        assert (len(late.gpus), late.received_at) == (2, seen[count - 1].received_at)
        assert "ended by a signal" in (late.note or "")
        await eventually(lambda: not seen[-1].late and len(seen[-1].gpus) == 2, seconds=25, what="it is sampled again")
        sampling.cancel()
        await asyncio.wait([sampling])
        await eventually(lambda: not smi_pids(gpus), seconds=10, what="the end of nvidia-smi")


def test_servers_are_told_from_what_mentions_them() -> None:
    said = """
pid 10
stat S 1 10 10 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 1 0 5000 1 1
boot 1795990000
user kim
other1 pipe:[1]
file2 /var/log/a [b] log
word /usr/bin/python3
word /usr/local/bin/vllm
word serve
word /models/kimi
word --port=8123
word --api-key
word secret
pid 11
stat S 10 10 10 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 1 0 5001 1 1
boot 1795990000
word VLLM::EngineCore
pid 12
word grep
word vllm
pid 13
stat S 1 13 13 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 1 0 4000 1 1
boot 1795990000
word VLLM::EngineCore
pid 14
elsewhere net:[5]
other2 /dev/pts/3
word python3
word -m
word sglang.launch_server
word --model-path
word /m
""".strip().splitlines()
    kimi, orphan, glm = servers_of(said)
    assert (kimi.pid, kimi.source, kimi.api, kimi.user) == (10, "file:/var/log/a [b] log", "http://127.0.0.1:8123", "kim")
    assert (kimi.started_at, kimi.needs_key, "secret" in kimi.argv) == (1795990050.0, True, False)
    assert (orphan.pid, orphan.orphan) == (13, True)
    assert (glm.engine, glm.model, glm.port, glm.api, glm.source) == ("sglang", "/m", 30000, None, None)
    assert "/dev/pts/3" in (glm.why or "")
