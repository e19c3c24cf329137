"""`readyroom [TARGET]`: the control room."""

import difflib
import sys
from typing import TYPE_CHECKING, cast

import click
import msgspec

from tui.cli.context import accept_new_option, config_option, open_record, open_session, port_option, resolve
from tui.cli.exit_message import ExitCode, Fail
from tui.cli.signals import Interrupted, first_signal, play
from tui.core.presentation import counted
from tui.settings import THEMES, Settings

if TYPE_CHECKING:
    from tui.app import ControlRoom
    from tui.services.deployment_watch import Session


class _Default(click.Command):
    """Called with or without its name, and shown without: `readyroom TARGET`."""

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage("readyroom", " ".join(self.collect_usage_pieces(ctx)))


@click.command(name="readyroom", cls=_Default)
@click.argument("target", required=False)
@click.option("--theme", type=click.Choice(THEMES), help="Colours; auto looks at the terminal.")
@click.option("--ascii", "plain", is_flag=True, help="Plain ASCII instead of blocks and braille.")
@port_option
@accept_new_option
@config_option
def room(target: str | None, theme: str | None, plain: bool, port: int | None, accept_new: bool, settings: Settings) -> None:
    """Open the control room on a TARGET: a deployment's name, user@host[:port], an alias of ~/.ssh/config, local, or exec:COMMAND.

    Without a TARGET: the configuration's default deployment, or all of its deployments.
    """
    ui = msgspec.structs.replace(settings.ui, theme=theme or settings.ui.theme, ascii=plain or settings.ui.ascii)
    settings = msgspec.structs.replace(settings, ui=ui)
    several = target is None and settings.default is None and len(settings.deployments) > 1
    if several and port is not None:
        raise Fail(ExitCode.USAGE, f"--port means a server of one TARGET: name one of {', '.join(settings.deployments)}, or a host")
    chosen = None if several else resolve(settings, target)[0]  # a target that can't be meant is said before the screen opens
    near = resembled(settings, chosen)
    require_terminal(near)
    _require_keys(settings)
    raise SystemExit(open_room(settings, chosen, accept_new=accept_new, port=port, resembles=near))


def resembled(settings: Settings, target: str | None) -> str | None:
    """Return the command that an unconfigured target may be a misspelling of: `readyroom statsu` asks for a host of that name."""
    from tui.cli.main import COMMANDS

    if target is None or target in settings.deployments:
        return None
    return next(iter(difflib.get_close_matches(target, COMMANDS, 1, 0.8)), None)


def require_terminal(resembles: str | None = None) -> None:
    """Raise Fail if there is no terminal to draw on."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        hint = f" (or did you mean the command {resembles!r}?)" if resembles is not None else ""
        raise Fail(
            ExitCode.USAGE, f"the control room needs a terminal; `readyroom status TARGET` and `wait` work without one{hint}"
        )


def _require_keys(settings: Settings) -> None:
    """Raise Fail if [keys] names what can't be; only here, since the other commands do without the actions."""
    from tui.actions import key_problems

    problems = key_problems(settings.keys)
    if problems:
        raise Fail(ExitCode.USAGE, "\n".join([f"the configuration has {counted(len(problems), 'problem')}:", *problems]))


def open_room(
    settings: Settings, target: str | None, *, accept_new: bool = False, port: int | None = None, resembles: str | None = None
) -> int:
    """Run the control room on a target, or on all configured deployments at once (None); return the exit code."""
    return play(_watch(settings, target, accept_new, port, resembles))


async def _watch(settings: Settings, chosen: str | None, accept_new: bool, port: int | None, resembles: str | None) -> int:
    from tui.app import ControlRoom
    from tui.screens.login_dialogs import ScreenAsker
    from tui.services.lazy_session import Fleet, LazySession

    asker = ScreenAsker()
    record = open_record()

    def opening(target: str) -> LazySession:
        name, host_target, _ = resolve(settings, target)
        its_port, its_near = (port, resembles) if target == chosen else (None, None)

        def opened() -> "Session":
            from tui.services.lazy_session import OpeningFailed

            try:
                return open_session(
                    settings, target, asker=asker, accept_new=accept_new, record=record, port=its_port, resembles=its_near
                )
            except Fail as error:
                raise OpeningFailed(error.message) from None

        return LazySession(name, host_target, opened)

    names = list(settings.deployments)
    if chosen is not None and chosen not in names:
        names.insert(0, chosen)
    try:
        async with Fleet(map(opening, names)) as fleet:
            session = cast("Session", fleet.session(chosen if chosen is not None else names[0]))
            app = ControlRoom(session, settings, asker=asker, record=record, fleet=fleet, all_first=chosen is None)
            await until_left(app)
    finally:
        record.close()
    return app.return_code or ExitCode.OK


async def until_left(app: "ControlRoom") -> None:
    """Show the screen until the user leaves or a signal arrives, then restore the terminal.

    Raises Interrupted after a signal or if the terminal went away, and the original exception if a bug ended the screen.

    Raises Interrupted after a signal, or if the terminal went away, and what broke the screen if that was a bug.
    """
    from tui.terminal_driver import HUNG_UP

    interrupted: list[bool] = []

    def leave() -> None:
        interrupted.append(True)
        app.exit()

    with first_signal(leave):
        await app.run_async()
    if interrupted or app.return_code == HUNG_UP:
        raise Interrupted  # what broke in a screen that was half built when it had to go is no bug
    if app.bug is not None:
        raise app.bug
