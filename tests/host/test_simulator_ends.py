"""The simulated host ends at any moment without a word on stderr: none of its processes outlives the event loop that is told of
their ends."""

import asyncio
import contextlib
import os
import sys
from pathlib import Path

import asyncssh
import pytest
from sshd import eventually, free_port

from tui.simulator.scenarios import SCENARIOS
from tui.simulator.simulated_host import SimulatedHost, Specification
from tui.simulator.simulation import SimulatorFailed, simulated_host
from tui.simulator.vllm_serve import ServerSupervisor

pytestmark = [pytest.mark.timeout(120)]


async def a_command(connection: asyncssh.SSHClientConnection) -> None:
    await connection.create_process("sleep 60", encoding=None)


@pytest.mark.parametrize("commands", [1, 3, 6])
async def test_while_commands_are_being_started(commands: int) -> None:
    async with simulated_host("start", speed=400) as sim:
        connection = await asyncssh.connect(sim.target, config=[str(sim.ssh_config)], known_hosts=str(sim.known_hosts))
        starting = [asyncio.create_task(a_command(connection)) for _ in range(commands)]
        await asyncio.wait(starting, return_when=asyncio.FIRST_COMPLETED)
    connection.abort()
    for task in starting:
        with contextlib.suppress(asyncssh.Error, OSError):
            await task
    assert sim.said == ""


async def test_what_breaks_it_is_said_and_kept_off_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SimulatorFailed) as failed:
        async with simulated_host("start", speed="fast"):  # type: ignore[arg-type]
            pass
    assert str(failed.value).startswith("the simulated host ended with status 1: ")
    assert str(failed.value).endswith("Expected `float`, got `str` - at `$.speed`")
    assert capfd.readouterr() == ("", "")


def descriptors() -> dict[int, str]:
    return {
        int(name): os.readlink(f"/proc/self/fd/{name}")
        for name in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{name}")
    }


def opened(before: dict[int, str]) -> dict[int, str]:
    return {number: what for number, what in descriptors().items() if before.get(number) != what}


@pytest.mark.parametrize("when", ["at once", "while the server starts", "after restarts", "with clients"])
async def test_a_host_that_is_closed_has_nothing_open(tmp_path: Path, when: str) -> None:
    """In a process of its own, as it takes one: it lays files over the /proc that it sees."""
    folders = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", "import test_simulator_ends as here; here.open_and_close()", str(tmp_path), when),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert (process.returncode, said.decode()) == (0, "")


def open_and_close() -> None:
    """Run in that process; its arguments are the folder and the moment."""
    asyncio.run(_open_and_close(Path(sys.argv[1]), sys.argv[2]))


async def _open_and_close(folder: Path, when: str) -> None:
    before = descriptors()
    host = SimulatedHost(folder, Specification(SCENARIOS["start"], 400.0))
    clients: list[asyncssh.SSHClientConnection] = []
    try:
        await host.open()
        facts = host.facts()
        if when == "while the server starts":
            await eventually(lambda: host._supervisor.server is not None, what="the server's process")
        if when == "after restarts":
            for _ in range(3):
                await host.do("restart_server", {})
            await eventually(lambda: host._supervisor.pid, what="the server's process")
        if when == "with clients":
            given = {"config": [facts["ssh_config"]], "known_hosts": facts["known_hosts"]}
            clients += [await asyncssh.connect(facts["alias"], **given) for _ in range(3)]
            assert len(host._logins) == 3
            await clients[0].create_process("sleep 60", encoding=None)
    finally:
        await host.close()
    assert host._logins == set()
    for client in clients:
        await client.wait_closed()
    await eventually(lambda: not opened(before), what="every descriptor is closed")


async def test_a_server_that_cannot_be_started_leaves_nothing_open(tmp_path: Path) -> None:
    """Its folder is missing; or its start is cancelled, as a restart does it."""
    supervisor = ServerSupervisor(
        SCENARIOS["start"], 400.0, directory=tmp_path, home=tmp_path / "missing", log_path=tmp_path / "log", port=free_port()
    )
    before = descriptors()
    with pytest.raises(FileNotFoundError):
        await supervisor._serve()
    await eventually(lambda: not opened(before), what="every descriptor is closed")
    (tmp_path / "missing").mkdir()
    for turns in range(6):
        starting = asyncio.create_task(supervisor._serve())
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()
        await eventually(lambda: not opened(before), what="every descriptor is closed")
    await supervisor.close()
