"""The simulated host ends at any moment without a word on stderr: none of its processes outlives the event loop that is told of
their ends."""

import asyncio
import contextlib

import asyncssh
import pytest

from tui.simulator.process import simulated_host

pytestmark = [pytest.mark.timing, pytest.mark.timeout(120)]


async def a_command(connection: asyncssh.SSHClientConnection) -> None:
    await connection.create_process("sleep 60", encoding=None)


@pytest.mark.parametrize("commands", [1, 3, 6])
async def test_while_commands_are_being_started(commands: int, capfd: pytest.CaptureFixture[str]) -> None:
    async with simulated_host("start", speed=400) as sim:
        connection = await asyncssh.connect(sim.target, config=[str(sim.ssh_config)], known_hosts=str(sim.known_hosts))
        starting = [asyncio.create_task(a_command(connection)) for _ in range(commands)]
        await asyncio.wait(starting, return_when=asyncio.FIRST_COMPLETED)
    connection.abort()
    for task in starting:
        with contextlib.suppress(asyncssh.Error, OSError):
            await task
    assert capfd.readouterr().err == ""
