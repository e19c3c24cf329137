"""`readyroom demo`: the control room on a simulated GPU host, reached as any other host is."""

import tempfile
from contextlib import closing
from pathlib import Path

import click

from tui.cli.context import Exit, Fail, config_option, run
from tui.settings import Settings

SPEED = 120.0
"""At this speed the 36-minute start takes 18 seconds."""
FASTER = ("start", "slow", "oom", "stall")
"""Scenarios that take many minutes at speed 1; the others are short, and are played as they are."""


@click.command()
@click.option(
    "--speed", type=click.FloatRange(0.1, 10_000), metavar="X", help=f"How much faster than real, until ready ({SPEED:g})."
)
@click.option("--scenario", "name", default="start", show_default=True, metavar="NAME", help="What happens on the host.")
@click.option("--list", "listing", is_flag=True, help="List the scenarios.")
@config_option
def demo(speed: float | None, name: str, listing: bool, settings: Settings) -> None:
    """The control room on a simulated GPU host: a real SSH server, a real HTTP endpoint, a 36-minute start played fast.

    Nothing of it touches your configuration, your record or your known hosts.
    """
    from tui.simulator.scenarios import SCENARIOS

    if listing:
        width = max(map(len, SCENARIOS))
        for scenario in SCENARIOS.values():
            click.echo(f"{scenario.name:{width}}  {scenario.about}")
        return
    if name not in SCENARIOS:
        raise Fail(Exit.USAGE, f"there is no scenario {name!r}; known are {', '.join(SCENARIOS)}")
    run(_demo(name, speed if speed is not None else SPEED if name in FASTER else 1.0, settings))


async def _demo(name: str, speed: float, settings: Settings) -> int:
    import msgspec

    from tui.app import ControlRoom
    from tui.host.ssh import SshHost
    from tui.record.store import Record
    from tui.screens.asking import ScreenAsker
    from tui.services.session import Session
    from tui.simulator.process import SimulatorFailed, simulated_host

    with tempfile.TemporaryDirectory(prefix="readyroom-demo-") as folder, closing(Record(Path(folder) / "record.sqlite")) as record:
        try:
            async with simulated_host(name, speed=speed) as sim:
                own = msgspec.structs.replace(settings, default=sim.target, deployments={sim.target: sim.deployment})
                asker = ScreenAsker()
                host = SshHost(sim.target, asker=asker, config_files=[sim.ssh_config])
                async with Session(sim.target, sim.target, sim.deployment, own, host, record) as session:
                    await ControlRoom(session, own, asker=asker, record=record).run_async()
        except (SimulatorFailed, TimeoutError) as error:
            raise Fail(Exit.BUG, f"the simulated host did not start: {error}") from None
    return Exit.OK
