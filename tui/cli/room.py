"""`readyroom [TARGET]`: the control room."""

import asyncio
import gc
import sys
from typing import TYPE_CHECKING, cast

import click
import msgspec

from tui.cli.context import Exit, Fail, accept_new_option, config_option, open_record, open_session, resolve
from tui.settings import THEMES, Settings

if TYPE_CHECKING:
    from tui.services.session import Session


@click.command(name="readyroom")
@click.argument("target", required=False)
@click.option("--theme", type=click.Choice(THEMES), help="Colours; auto looks at the terminal.")
@click.option("--ascii", "plain", is_flag=True, help="Plain ASCII instead of blocks and braille.")
@accept_new_option
@config_option
def room(target: str | None, theme: str | None, plain: bool, accept_new: bool, settings: Settings) -> None:
    """The control room on a TARGET: a deployment's name, user@host[:port], an alias of ~/.ssh/config, local, or exec:COMMAND."""
    ui = msgspec.structs.replace(settings.ui, theme=theme or settings.ui.theme, ascii=plain or settings.ui.ascii)
    settings = msgspec.structs.replace(settings, ui=ui)
    name, _, _ = resolve(settings, target)  # a target that can't be meant is said before the screen opens
    require_terminal()
    raise SystemExit(open_room(settings, target or name, accept_new=accept_new))


def require_terminal() -> None:
    """Raises Fail where there is no terminal to draw on."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Fail(Exit.USAGE, "the control room needs a terminal; `readyroom status TARGET` and `wait` work without one")


def open_room(settings: Settings, target: str, *, accept_new: bool = False) -> int:
    """Runs the control room, on one deployment after the other as the user picks them; returns the exit code."""
    chosen: str | None = target
    while chosen is not None:
        chosen = asyncio.run(_watch(settings, chosen, accept_new))
    return Exit.OK


async def _watch(settings: Settings, target: str, accept_new: bool) -> str | None:
    gc.disable()
    from tui.app import ControlRoom
    from tui.screens.asking import ScreenAsker
    from tui.services.opening import OpeningSession

    gc.freeze()  # what was imported stays: to look through it for garbage, again and again, took a tenth of the start
    gc.enable()

    asker = ScreenAsker()
    name, host_target, _ = resolve(settings, target)
    record = open_record()

    def opened() -> "Session":
        return open_session(settings, target, asker=asker, accept_new=accept_new, record=record)

    try:
        async with OpeningSession(name, host_target, opened) as session:
            app = ControlRoom(cast("Session", session), settings, asker=asker, record=record)
            chosen = await app.run_async()
    finally:
        record.close()
    if app.return_code:
        raise SystemExit(app.return_code)
    return chosen
