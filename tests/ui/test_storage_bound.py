"""The load pane of a load whose pace the storage sets, and of one that comes from the page cache."""

from dataclasses import replace

import pytest
from needs import allowed
from room import screen, until

from tui.app import ControlRoom
from tui.host.ssh import SshHost
from tui.services.deployment_watch import Session
from tui.settings import Settings, UiSettings
from tui.simulator.scenarios import SCENARIOS
from tui.simulator.simulation import simulated_host

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["midway", "cached"])
async def test_the_pane_says_whether_the_storage_is_the_bound(name: str) -> None:
    # A shard every second and a half: long enough to be sure of it, short enough to wait for.
    scenario = replace(SCENARIOS[name], under_way_s=0.0, times=replace(SCENARIOS["fast"].times, starting=2.0, shard=1.5))
    async with simulated_host(scenario) as sim:
        host = SshHost(sim.target, config_files=[sim.ssh_config])
        async with Session("sim", sim.target, sim.deployment, Settings(), host) as session:
            app = ControlRoom(session, Settings(ui=UiSettings(theme="dark")))
            async with app.run_test(size=(80, 24)) as pilot:
                await until(pilot, lambda: app.main.shown.machine is not None, 30)
                machine = app.main.shown.machine
                assert machine is not None
                allowed(machine.ram_total_mib == 1_584_000_000 // 1024, "laying files over /proc takes the right to mount")
                await until(
                    pilot, lambda: app.main.shown.machine is not None and app.main.shown.machine.storage_bound is not None, 40
                )
                await until(pilot, lambda: "of 64" in screen(pilot))
                if name == "cached":
                    assert "storage-bound" not in screen(pilot)
                    return
                for size in ((80, 24), (120, 35), (200, 60)):
                    await pilot.resize_terminal(*size)
                    await until(pilot, lambda: "storage-bound" in screen(pilot) and "MB/s" in screen(pilot), 30)
