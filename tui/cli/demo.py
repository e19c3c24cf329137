"""`readyroom demo`: the control room on a simulated GPU host, reached as any other host is."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
import msgspec

from tui.cli.context import config_option, run
from tui.cli.exit_message import ExitCode, Fail
from tui.cli.room import require_terminal, until_left
from tui.settings import THEMES, Settings

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
@click.option("--theme", type=click.Choice(THEMES), help="Colours; auto looks at the terminal.")
@click.option("--ascii", "plain", is_flag=True, help="Plain ASCII instead of blocks and braille.")
@config_option
def demo(speed: float | None, name: str, listing: bool, theme: str | None, plain: bool, settings: Settings) -> None:
    """Open the control room on a simulated GPU host: a real SSH server, a real HTTP endpoint, a 36-minute start played fast.

    It touches neither your configuration, nor your record, nor your known hosts.
    """
    from tui.simulator.scenarios import SCENARIOS

    if listing:
        width = max(map(len, SCENARIOS))
        for scenario in SCENARIOS.values():
            click.echo(f"{scenario.name:{width}}  {scenario.about}")
        return
    if name not in SCENARIOS:
        raise Fail(ExitCode.USAGE, f"there is no scenario {name!r}; known are {', '.join(SCENARIOS)}")
    require_terminal()
    ui = msgspec.structs.replace(settings.ui, theme=theme or settings.ui.theme, ascii=plain or settings.ui.ascii)
    settings = msgspec.structs.replace(settings, ui=ui)
    run(_demo(name, speed if speed is not None else SPEED if name in FASTER else 1.0, settings))


def _import_screen() -> None:
    """Import the screen, which takes as long as the host takes to start, so both are done at once."""


@contextlib.contextmanager
def _folder_of_its_own() -> Iterator[Path]:
    """Give what a key writes within the block to the demo; it goes with it, and what is written later must not bring it back."""
    with tempfile.TemporaryDirectory(prefix="readyroom-demo-") as name:
        own = {"READYROOM_CONFIG": str(Path(name) / "config.toml"), "XDG_STATE_HOME": name}
        before = {key: os.environ.get(key) for key in own}
        os.environ |= own
        try:
            yield Path(name)
        finally:
            for key, value in before.items():
                if value is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = value


async def _demo(name: str, speed: float, settings: Settings) -> int:
    import asyncio

    from tui.record.store import RunStore
    from tui.simulator.simulation import SimulatorFailed, simulated_host

    importing = asyncio.create_task(asyncio.to_thread(_import_screen))
    with _folder_of_its_own() as folder, closing(RunStore(folder / "record.sqlite")) as record:
        try:
            async with simulated_host(name, speed=speed) as sim:
                await importing
                from tui.app import ControlRoom
                from tui.host.ssh import SshHost
                from tui.screens.login_dialogs import ScreenAsker
                from tui.services.deployment_watch import Session

                own = msgspec.structs.replace(settings, default=sim.target, deployments={sim.target: sim.deployment})
                asker = ScreenAsker()
                host = SshHost(sim.target, asker=asker, config_files=[sim.ssh_config])
                async with Session(sim.target, sim.target, sim.deployment, own, host, record) as session:
                    app = ControlRoom(session, own, asker=asker, record=record)
                    await until_left(app)
        except (SimulatorFailed, TimeoutError) as error:
            raise Fail(ExitCode.BUG, f"the simulated host did not start: {error}") from None
    return ExitCode.OK
