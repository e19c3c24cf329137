"""Every state that GPUs, their driver and their host can be in, played by the simulated host: what the screen says of it."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from needs import allowed, need
from room import Room, screen, until

from tui.app import ControlRoom
from tui.host.ssh import SshHost
from tui.services.deployment_watch import Session
from tui.settings import Settings, UiSettings
from tui.simulator import installed
from tui.simulator.scenarios import SCENARIOS, Scenario
from tui.simulator.simulation import Simulation, simulated_host

pytestmark = pytest.mark.slow

SMALL, LARGE = (80, 24), (120, 35)


def soon(name: str) -> Scenario:
    """Return the scenario with its first event 2 s after the start; the others keep their distance from it."""
    scenario = SCENARIOS[name]
    events = scenario.machine.events
    moved = tuple(replace(event, after_s=event.after_s - events[0].after_s + 2.0) for event in events)
    return replace(scenario, machine=replace(scenario.machine, events=moved))


@asynccontextmanager
async def watched(scenario: Scenario, speed: float = 1.0) -> AsyncIterator[tuple[Room, Simulation]]:
    """Open the control room on that host, with the GPUs' own tab in front."""
    need(installed.compiler(), "there is no C compiler")
    async with simulated_host(scenario, speed=speed) as sim:
        host = SshHost(sim.target, config_files=[sim.ssh_config])
        async with Session("sim", sim.target, sim.deployment, Settings(), host) as session:
            app = ControlRoom(session, Settings(ui=UiSettings(theme="dark")))
            async with app.run_test(size=SMALL) as pilot:
                await until(pilot, lambda: app.main.shown.gpus is not None, 30)
                if scenario.already_up:
                    await until(pilot, lambda: app.main.shown.api.ready and app.main.tab == "chat", 30)
                    await pilot.press("escape")
                await pilot.press("4")
                yield pilot, sim


def flat(pilot: Room) -> str:
    """Return the screen's words, regardless of line breaks."""
    return re.sub(r"[\s│]+", " ", screen(pilot))


async def says(pilot: Room, *words: str) -> None:
    """Check that these words are on the screen, at both sizes."""
    for size in (LARGE, SMALL):
        await pilot.resize_terminal(*size)
        await until(pilot, lambda: all(word in flat(pilot) for word in words), 25)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lost-gpu", ("6 ✗ GPU is lost", "XID 79, GPU has fallen off the bus")),
        ("unknown-error", ("2 ✗ Unknown Error", "GPU 2: Unknown Error")),
        ("sensor-error", ("GPU 5: the driver fails to read fan, power: Unknown Error", "dmesg")),
        ("untold", ("— — ", "RAM", "of 1,511 GiB")),
        ("no-gpu", ("no NVIDIA driver on this host", "no GPU on its PCI bus", "RAM", "of 1,511 GiB")),
        ("amd", ("8 × AMD Instinct MI300X OAM, not read: only NVIDIA's GPUs can be", "the host's memory", "of 1,511 GiB")),
        ("no-driver", ("8 NVIDIA GPUs here, but no driver (libnvidia-ml.so.1 not found): install NVIDIA's driver",)),
        ("driver-mismatch", ("driver/library version mismatch", "reboot, or unload and load its kernel modules")),
        ("no-permission", ("no permission to ask the NVIDIA driver", "/dev/nvidia*")),
        ("hung-smi", ("the NVIDIA driver has not answered for",)),
        ("wsl", ("21.36", "WSL: the driver is Windows' own, and tells neither the processes nor all sensors")),
    ],
)
async def test_what_is_said(name: str, words: tuple[str, ...]) -> None:
    scenario = soon(name)
    async with watched(scenario, 20.0 if not scenario.already_up else 1.0) as (pilot, _):
        if "of 1,511 GiB" in words:
            await until(pilot, lambda: "RAM" in screen(pilot))
            allowed("of 1,511 GiB" in screen(pilot), "laying files over /proc and /sys takes the right to mount")
        await says(pilot, *words)
        assert "0.00" not in screen(pilot)


async def test_a_gpu_that_goes_while_it_is_watched_is_lost() -> None:
    (goes,) = SCENARIOS["gone-gpu"].machine.events
    async with watched(SCENARIOS["ready"]) as (pilot, sim):
        await until(pilot, lambda: "94.47" in screen(pilot))
        await sim.do("set_gpu", gpu=goes.gpu, fields=goes.change)
        await says(pilot, "3 ✗ GPU is lost", "odd GPU 3 (TP3)", "the engine can't go on without it")


async def test_a_driver_that_hangs_leaves_its_last_values_with_their_age() -> None:
    hangs, answers = SCENARIOS["hung-driver"].machine.events
    async with watched(SCENARIOS["ready"]) as (pilot, sim):
        await until(pilot, lambda: "94.47" in screen(pilot))
        await sim.do("set_driver", fields=hangs.change)
        await says(pilot, "94.47", "the driver does not answer: last known values", "has not answered for")
        await sim.do("set_driver", fields=answers.change)
        await until(pilot, lambda: "does not answer" not in screen(pilot))
        assert "94.47" in screen(pilot)


async def test_a_driver_that_was_replaced_is_found_again() -> None:
    replaced, back = SCENARIOS["driver-reload"].machine.events
    async with watched(SCENARIOS["ready"]) as (pilot, sim):
        await until(pilot, lambda: "94.47" in screen(pilot))
        await sim.do("set_driver", fields=replaced.change)
        await until(pilot, lambda: "94.47" not in screen(pilot))
        await says(pilot, "the NVIDIA driver")
        await sim.do("set_driver", fields=back.change)
        await until(pilot, lambda: "94.47" in screen(pilot) and "mismatch" not in screen(pilot))


async def test_nvidia_smi_tells_the_same_where_the_probe_can_not_run() -> None:
    """Without Python there: lost GPUs, ERR! and complaints as nvidia-smi prints them."""
    machine = replace(SCENARIOS["no-python"].machine, broken={5: ("power_w",)})
    scenario = replace(SCENARIOS["no-python"], already_up=True, machine=machine)
    try:
        async with watched(scenario) as (pilot, sim):
            await says(pilot, "GPU 5: the driver fails to read power: ERR!")
            await sim.do("set_gpu", gpu=3, fields={"gone": True})
            await says(pilot, "3 ✗ GPU is lost")
            await sim.do("set_gpu", gpu=2, fields={"error": "Unknown Error"})
            await says(pilot, "2 ✗ Unknown Error")
            await sim.do("set_driver", fields={"start": "driver/library version mismatch"})
            await says(pilot, "Failed to initialize NVML: Driver/library version mismatch", "reboot")
            await sim.do("set_driver", fields={"start": ""})
            await says(pilot, "94.47")
    except RuntimeError as error:
        allowed("unshare" not in str(error), str(error))
        raise
