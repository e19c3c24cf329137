"""`readyroom [TARGET]`: the control room."""

import asyncio
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
    """The control room on a TARGET: a deployment's name, user@host[:port], an alias of ~/.ssh/config, local, or exec:COMMAND.

    Without one: the default of the configuration, or all its deployments at once.
    """
    ui = msgspec.structs.replace(settings.ui, theme=theme or settings.ui.theme, ascii=plain or settings.ui.ascii)
    settings = msgspec.structs.replace(settings, ui=ui)
    several = target is None and settings.default is None and len(settings.deployments) > 1
    chosen = None if several else resolve(settings, target)[0]  # a target that can't be meant is said before the screen opens
    require_terminal()
    _require_keys(settings)
    raise SystemExit(open_room(settings, chosen, accept_new=accept_new))


def require_terminal() -> None:
    """Raises Fail where there is no terminal to draw on."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Fail(Exit.USAGE, "the control room needs a terminal; `readyroom status TARGET` and `wait` work without one")


def _require_keys(settings: Settings) -> None:
    """Raises Fail where [keys] names what can't be: looked at here only, since the other commands do without the actions."""
    from tui.actions import key_problems

    problems = key_problems(settings.keys)
    if problems:
        raise Fail(Exit.USAGE, "\n".join([f"the configuration has {len(problems)} problem(s):", *problems]))


def open_room(settings: Settings, target: str | None, *, accept_new: bool = False) -> int:
    """Runs the control room on a target, or on all configured deployments at once (None); returns the exit code."""
    return asyncio.run(_watch(settings, target, accept_new))


async def _watch(settings: Settings, target: str | None, accept_new: bool) -> int:
    from tui.app import ControlRoom
    from tui.screens.asking import ScreenAsker
    from tui.services.fleet import Fleet
    from tui.services.opening import OpeningSession

    asker = ScreenAsker()
    record = open_record()

    def opening(target: str) -> OpeningSession:
        name, host_target, _ = resolve(settings, target)

        def opened() -> "Session":
            from tui.services.opening import OpeningFailed

            try:
                return open_session(settings, target, asker=asker, accept_new=accept_new, record=record)
            except Fail as error:
                raise OpeningFailed(error.message) from None

        return OpeningSession(name, host_target, opened)

    names = list(settings.deployments)
    if target is not None and target not in names:
        names.insert(0, target)
    try:
        async with Fleet(map(opening, names)) as fleet:
            session = cast("Session", fleet.session(target if target is not None else names[0]))
            app = ControlRoom(session, settings, asker=asker, record=record, fleet=fleet, all_first=target is None)
            await app.run_async()
    finally:
        record.close()
    return app.return_code or Exit.OK
