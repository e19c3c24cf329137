"""`readyroom doctor TARGET`: from here to the first token, each line with its fix."""

import json
from contextlib import closing

import click

from tui.cli.context import accept_new_option, config_option, open_record, open_session, port_option, run
from tui.cli.exit_message import ExitCode
from tui.core.checks import Check, Grade
from tui.core.connection import LinkState
from tui.settings import Settings

SIGNS = {Grade.OK: ("✓", "green"), Grade.WARN: ("▲", "yellow"), Grade.FAIL: ("✗", "red"), Grade.SKIPPED: ("·", "bright_black")}

LINK_CODES = {
    LinkState.UNREACHABLE: ExitCode.UNREACHABLE,
    LinkState.LOST: ExitCode.UNREACHABLE,
    LinkState.REFUSED: ExitCode.REFUSED,
}
"""As for every command: a host that is not reached, or that refuses, is no finding about the server."""


@click.command()
@click.argument("target", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--no-token", is_flag=True, help="Do not generate a token at the end.")
@port_option
@accept_new_option
@config_option
def doctor(target: str | None, as_json: bool, no_token: bool, port: int | None, accept_new: bool, settings: Settings) -> None:
    """Check ssh, host key, python3, NVML, nvidia-smi, log source and API, each with a fix.

    Exit code 1 when something failed, 5 when the host can't be reached, 8 when it refuses.
    """
    run(_doctor(settings, target, as_json, not no_token, accept_new, port))


async def _doctor(settings: Settings, target: str | None, as_json: bool, token: bool, accept_new: bool, port: int | None) -> int:
    from tui.cli.login_prompts import terminal_asker
    from tui.services.diagnostics import examine

    checks: list[Check] = []
    with closing(open_record()) as record:
        session = open_session(settings, target, asker=terminal_asker(), accept_new=accept_new, record=record, port=port)
        async with session.host:
            try:
                async for check in examine(session, token=token):
                    checks.append(check)
                    if not as_json:
                        _print(check)
            finally:
                await session.api.close()
            link = session.host.connection.link
    failed = any(check.grade is Grade.FAIL for check in checks)
    if as_json:
        rows = [{"name": check.name, "grade": check.grade.value, "says": check.says, "fix": check.fix} for check in checks]
        click.echo(json.dumps({"schema": 1, "target": target, "ok": not failed, "checks": rows}, ensure_ascii=False))
    return LINK_CODES.get(link, ExitCode.NEGATIVE) if failed else ExitCode.OK


def _print(check: Check) -> None:
    sign, colour = SIGNS[check.grade]
    click.echo(f"{click.style(sign, fg=colour)} {check.name:<20} {check.says}")
    if check.fix and check.grade in (Grade.WARN, Grade.FAIL):
        click.echo(f"  {'':<20} → {check.fix}")
