"""The simulated host as its clients see it: OpenSSH's ssh, asyncssh, the log reader, the control channel; and its end."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from shutil import which
from typing import Any, TypeVar

import asyncssh
import httpx
import pytest
from needs import allowed, need

from tui.core.logs.load_state import LoadState, Phase
from tui.core.logs.log_reader import LogReader
from tui.core.text import LineSplitter
from tui.simulator.engine_processes import alive
from tui.simulator.scenarios import SCENARIOS
from tui.simulator.simulation import Simulation, SimulatorFailed, simulated_host

T = TypeVar("T")


async def until(look: Callable[[], T], what: str, within_s: float = 30.0) -> T:
    """Return what `look` gives, once it gives something."""
    ends = time.monotonic() + within_s
    while not (found := look()):
        if time.monotonic() > ends:
            pytest.fail(f"not within {within_s:g} s: {what}")
        await asyncio.sleep(0.05)
    return found


async def stopped(sim: Simulation) -> dict[str, Any]:
    """Return the host's state once its server has ended."""
    async with asyncio.timeout(15):
        while True:
            state: dict[str, Any] = await sim.do("state")
            if state["server"] is None:
                return state
            await asyncio.sleep(0.05)


def content(path: str) -> bytes:
    return Path(path).read_bytes()


def read(path: str) -> LoadState:
    reader, lines = LogReader(), LineSplitter()
    for line in [*lines.feed(Path(path).read_bytes()), *lines.flush()]:
        reader.feed(line)
    return reader.state


async def connected(sim: Simulation) -> asyncssh.SSHClientConnection:
    return await asyncssh.connect(sim.target, config=[str(sim.ssh_config)])


async def ssh(sim: Simulation, command: str, sent: bytes = b"") -> tuple[int | None, bytes, bytes]:
    """Run a command with OpenSSH's client."""
    need(which("ssh"), "OpenSSH's client (ssh) isn't installed")
    process = await asyncio.create_subprocess_exec(
        *("ssh", "-F", str(sim.ssh_config), sim.target, command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await process.communicate(sent)
    return process.returncode, out, err


# -- the SSH server --------------------------------------------------------------------------------------------------------------


async def test_openssh_runs_commands_there() -> None:
    async with simulated_host("start", speed=1) as sim:
        assert await ssh(sim, "cat; echo oops >&2; exit 7", b"\x00\xff\n" * 3) == (7, b"\x00\xff\n" * 3, b"oops\n")
        status, out, _ = await ssh(sim, "head -c 3000000 /dev/zero | wc -c; echo $HOME")
        assert (status, out.split()[0]) == (0, b"3000000")
        assert out.split()[1].decode().startswith(str(sim.directory))
        status, out, _ = await ssh(sim, "kill -9 $$")
        assert (status, out) == (255, b"")


async def test_asyncssh_streams_and_signals() -> None:
    async with simulated_host("start", speed=1) as sim, await connected(sim) as connection:
        async with connection.create_process("while read line; do echo got $line; done; echo end") as process:
            process.stdin.write("one\n")
            assert await process.stdout.readline() == "got one\n"
            process.stdin.write_eof()
            assert await process.stdout.read() == "end\n"
        process = await connection.create_process("echo $$; exec sleep 100")
        pid = int(await process.stdout.readline())
        process.send_signal("TERM")
        done = await process.wait()
        assert done.exit_signal is not None
        assert done.exit_signal[0] == "TERM"
        assert not alive(pid)


async def test_what_reads_its_input_ends_when_the_client_goes() -> None:
    async with simulated_host("start", speed=1) as sim:
        connection = await connected(sim)
        process = await connection.create_process("echo $$; exec cat")
        pid = int(await process.stdout.readline())
        connection.abort()
        await until(lambda: not alive(pid), "the process ends", 5)


async def test_sessions_are_limited_as_by_sshd() -> None:
    async with simulated_host("start", speed=1) as sim, await connected(sim) as connection:
        running = [await connection.create_process("cat") for _ in range(10)]
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.create_process("cat")
        running[0].stdin.write_eof()
        await running[0].wait()
        assert (await connection.run("echo free again")).stdout == "free again\n"


async def test_forwards_to_the_loopback_only() -> None:
    async with simulated_host("ready") as sim, await connected(sim) as connection:
        port = int(sim.api_url.rpartition(":")[2])
        reader, writer = await connection.open_connection("127.0.0.1", port)
        writer.write(b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b'{"version":"0.24.0"}' in await reader.read()
        with pytest.raises(asyncssh.ChannelOpenError) as closed:
            await connection.open_connection("127.0.0.1", 1)
        assert closed.value.code == asyncssh.OPEN_CONNECT_FAILED
        with pytest.raises(asyncssh.ChannelOpenError) as forbidden:
            await connection.open_connection("192.0.2.1", 80)
        assert forbidden.value.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED


async def test_strangers_are_refused() -> None:
    async with simulated_host("start", speed=1) as sim:
        with pytest.raises(asyncssh.PermissionDenied):
            await asyncssh.connect(
                "127.0.0.1",
                sim.ssh_port,
                username="engineer",
                known_hosts=str(sim.known_hosts),
                client_keys=None,
                agent_path=None,
                config=None,
            )
        with pytest.raises(asyncssh.HostKeyNotVerifiable):
            await asyncssh.connect(
                "127.0.0.1",
                sim.ssh_port,
                username="engineer",
                known_hosts=([], [], []),
                client_keys=[str(sim.identity)],
                config=None,
            )


# -- the scenarios, as the log reader sees them ----------------------------------------------------------------------------------


async def test_the_start_becomes_ready_with_the_right_facts() -> None:
    async with simulated_host("start", speed=900) as sim, httpx.AsyncClient() as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(sim.api_url + "/health")
        await until(lambda: read(sim.log_path).phase is Phase.READY, "ready")
        load = read(sim.log_path)
        assert load.shards is not None
        assert (load.shards.done, load.shards.total) == (64, 64)
        assert (load.version, load.tensor_parallel, load.max_model_len) == ("0.24.0", 8, 131_072)
        assert load.quantization == "compressed-tensors"
        assert load.gib_per_gpu == pytest.approx(547e9 / 8 / 2**30, abs=0.01)
        assert load.kv_tokens == 837_936
        assert load.failure is None
        assert (await client.get(sim.api_url + "/health")).status_code == 200
        state = await sim.do("state")
        assert state["memory_mib"] == 96_733
        assert all(alive(pid) for pid in (state["server"], state["engine"], *state["workers"]))
        assert content(f"/proc/{state['workers'][7]}/cmdline").rstrip(b"\0") == b"VLLM::Worker_TP7"
        words = content(f"/proc/{state['server']}/cmdline").split(b"\0")
        assert words[1:4] == [b"/opt/vllm/bin/vllm", b"serve", b"/models/kimi-k2-w4"]
        assert words[-2:] == [b"fp8", b""]
        assert os.readlink(f"/proc/{state['workers'][0]}/fd/1") == sim.log_path


async def test_out_of_memory_is_told_by_the_worker() -> None:
    async with simulated_host("oom", speed=2000) as sim:
        load = await until(lambda: (load := read(sim.log_path)).failure and load, "failed")
        assert isinstance(load, LoadState)
        assert load.failure is not None
        assert load.failure.kind == "cuda_oom"
        assert load.failure.phase is Phase.LOADING
        assert "GPU 3 has a total capacity of 95.59 GiB" in load.failure.cause
        assert load.shards is not None
        assert load.shards.done == 40
        state = await stopped(sim)
        assert state["exit_status"] == 1
        assert not any(alive(pid) for pid in state["workers"])


async def test_a_crash_loop_ends_in_ready() -> None:
    async with simulated_host("restart", speed=30) as sim:
        await until(lambda: read(sim.log_path).phase is Phase.READY, "ready")
        load = read(sim.log_path)
        assert load.restarts == 3
        assert load.failure is None


async def test_a_server_that_was_up_before_has_its_start_in_the_past() -> None:
    async with simulated_host("ready") as sim, httpx.AsyncClient() as client:
        load = read(sim.log_path)
        assert load.phase is Phase.READY
        assert load.started_at is not None
        assert load.ready_at is not None
        assert 2050 < load.ready_at - load.started_at < 2300
        body = {"messages": [{"role": "user", "content": "What is the capital of Japan?"}]}
        answer = (await client.post(sim.api_url + "/v1/chat/completions", json=body)).json()
        assert "Tokyo" in answer["choices"][0]["message"]["content"]


async def test_the_engines_death_is_told_then_the_server_leaves() -> None:
    async with simulated_host("ready") as sim, httpx.AsyncClient() as client:
        await sim.do("kill_engine")
        load = await until(lambda: (load := read(sim.log_path)).failure and load, "failed")
        assert isinstance(load, LoadState)
        assert load.failure is not None
        assert load.failure.kind in ("engine_died", "host_oom_or_killed")
        assert load.was_ready
        assert (await client.get(sim.api_url + "/health")).status_code == 503
        state = await stopped(sim)
        assert state["exit_status"] == 0
        with pytest.raises(httpx.ConnectError):
            await client.get(sim.api_url + "/health")


async def test_the_engine_outlives_a_killed_api_server() -> None:
    async with simulated_host("ready") as sim:
        await sim.do("kill_server")
        state = await stopped(sim)
        assert alive(state["engine"])
        assert all(alive(pid) for pid in state["workers"])
        await sim.do("restart_server")
        await until(lambda: not alive(state["engine"]), "the old engine ends")


@pytest.mark.parametrize("name", ["garbage", "flood", "stall"])
async def test_troubled_logs_can_be_read(name: str) -> None:
    async with simulated_host(name, speed=60 if name == "stall" else 10, at_shard=3) as sim:
        await until(lambda: (shards := read(sim.log_path).shards) is not None and shards.done >= 2, "two shards")
        assert read(sim.log_path).failure is None


# -- the GPUs and the machine ------------------------------------------------------------------------------------------------------


async def used(sim: Simulation) -> list[str]:
    _, out, _ = await ssh(sim, "nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits")
    return out.decode().split("\n")[:-1]


async def test_nvidia_smi_tells_of_the_load_and_of_what_a_test_sets() -> None:
    async with simulated_host("ready") as sim:
        assert await used(sim) == ["96733"] * 8
        await sim.do("set_gpu", gpu=5, fields={"memory_used_mib": 1234})
        assert (await used(sim))[4:6] == ["96733", "1234"]
        await sim.do("lose_gpu", gpu=7)
        assert (await used(sim))[7] == "[GPU is lost]"
        await sim.do("kill_server")
        await sim.do("kill_engine")
        await stopped(sim)
        for _ in range(50):
            if (await used(sim))[0] == "0":
                break
        else:
            pytest.fail("the GPUs keep the memory of an engine that is gone")


@pytest.mark.parametrize(
    ("name", "expected"), [("odd", ["96733"] * 5 + ["94121"] + ["96733"] * 2), ("oom", ["0"] * 3 + ["53555"] + ["0"] * 4)]
)
async def test_odd_memory(name: str, expected: list[str]) -> None:
    async with simulated_host(name, already_up=name == "odd") as sim:
        assert await used(sim) == expected


async def test_a_host_without_gpus_has_no_tools_for_them() -> None:
    async with simulated_host("no-gpu", already_up=True) as sim:
        assert sim.gpu_source == "none"
        status, _, _ = await ssh(sim, "nvidia-smi")
        assert status == 127


async def test_a_host_without_python_still_has_nvidia_smi() -> None:
    allowed(os.geteuid() == 0 and which("unshare"), "hiding Python takes root and unshare")
    async with simulated_host("no-python") as sim:
        status, out, _ = await ssh(sim, "/usr/bin/python3 -c 'print(1)' || python3 -c 'print(2)' || echo none")
        assert (status, out) == (0, b"none\n")
        assert len(await used(sim)) == 8


async def test_the_kernels_counters_follow_the_load() -> None:
    async with simulated_host("ready") as sim:
        _, out, _ = await ssh(sim, "grep -h MemTotal /proc/meminfo; cat /proc/stat | head -1; readlink /proc/self/ns/mnt")
        allowed(b"1584000000 kB" in out, "laying files over /proc takes the right to mount")
        worker = (await sim.do("state"))["workers"][3]
        _, out, _ = await ssh(sim, f"grep rchar /proc/{worker}/io")
        assert int(out.split()[1]) == pytest.approx(547e9 / 8, rel=0.01)
    assert b"1584000000" not in content("/proc/meminfo")


async def test_a_users_commands_reach_it_by_its_alias(tmp_path: Path) -> None:
    async with simulated_host("ready") as sim:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tui", "smoke", "--json"), env=sim.user(tmp_path), stdout=subprocess.PIPE
        )
        out, _ = await process.communicate()
    assert process.returncode == 0
    assert b'"passed"' in out


# -- the control channel ---------------------------------------------------------------------------------------------------------


async def test_the_link_can_be_cut_frozen_and_refused() -> None:
    async with simulated_host("start", speed=1) as sim:
        connection = await connected(sim)
        await sim.do("freeze_link")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connection.run("true"), 0.3)
        await sim.do("thaw_link")
        assert (await connection.run("echo back")).stdout == "back\n"
        await sim.do("drop_link")
        await connection.wait_closed()
        await sim.do("refuse_link", on=True)
        with pytest.raises((OSError, asyncssh.Error)):
            await connected(sim)
        await sim.do("refuse_link", on=False)
        async with await connected(sim) as again:
            assert (await again.run("echo again")).stdout == "again\n"
        with pytest.raises(SimulatorFailed, match="no request"):
            await sim.do("nonsense")


async def test_the_log_can_be_rotated_and_written() -> None:
    async with simulated_host("ready") as sim:
        await sim.do("rotate_log")
        assert content(sim.log_path) == b""
        await sim.do("write_log", text="hello\n")
        assert content(sim.log_path) == b"hello\n"


# -- the end ---------------------------------------------------------------------------------------------------------------------

HOLD = """
import asyncio, sys
from tui.simulator.simulation import simulated_host
async def main():
    async with simulated_host(sys.argv[1]) as sim:
        state = await sim.do("state")
        print(sim.directory, sim.pid, state["server"], state["engine"], *state["workers"], flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_nothing_is_left_when_the_parent_is_killed(number: signal.Signals) -> None:
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLD, "ready", stdout=subprocess.PIPE)
    assert parent.stdout is not None
    words = (await parent.stdout.readline()).split()
    pids = [int(word) for word in words[1:]]
    assert len(pids) == 11
    assert all(alive(pid) for pid in pids)
    parent.send_signal(number)
    await parent.wait()
    await until(lambda: not any(alive(pid) for pid in pids), "all processes end", 10)
    await until(lambda: not Path(words[0].decode()).exists(), "the directory goes", 10)


async def test_nothing_is_left_when_the_host_itself_is_killed() -> None:
    async with simulated_host("ready") as sim:
        state = await sim.do("state")
        os.kill(sim.pid, signal.SIGKILL)
        pids = [state["server"], state["engine"], *state["workers"]]
        await until(lambda: not any(alive(pid) for pid in pids), "all processes end", 10)
    assert not sim.directory.exists()


def test_each_scenario_says_what_it_is_about() -> None:
    for name, scenario in SCENARIOS.items():
        assert scenario.name == name
        assert scenario.about


async def test_the_port_of_a_server_that_is_gone_is_given_to_nobody_else() -> None:
    async with simulated_host("oom", speed=2000) as sim:
        await until(lambda: read(sim.log_path).failure, "failed")
        await stopped(sim)
        port = int(sim.api_url.rpartition(":")[2])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
