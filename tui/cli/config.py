"""`readyroom config check | show | path`."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tui.cli.context import accept_new_option, config_path_option, open_session, run, settings_of
from tui.cli.exit_message import ExitCode, Fail
from tui.core.presentation import counted
from tui.engines.registry import titles
from tui.settings import Settings, SettingsError, load_settings, redacted, settings_path


@click.group()
def config() -> None:
    """Check, show or locate the configuration."""


@config.command()
@click.argument("named", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@config_path_option
def check(named: Path | None, file: Path | None) -> None:
    """List every problem of the configuration; exit 2 if there is one."""
    from tui.actions import key_problems

    if named is not None and file is not None:
        raise Fail(ExitCode.USAGE, "name the file once: as FILE or with --config")
    file = named or file
    path = file or settings_path()
    settings: Settings | None
    try:
        settings, problems = load_settings(file), []
    except SettingsError as error:
        settings, problems = error.fitting, error.problems
    problems += [f"{path}: {problem}" for problem in key_problems(settings.keys if settings is not None else {})]
    if problems or settings is None:
        raise Fail(ExitCode.USAGE, "\n".join([f"the configuration has {counted(len(problems), 'problem')}:", *problems]))
    if not path.exists():
        click.echo(f"{path}: does not exist; the defaults are in use")
    elif not settings.deployments:
        click.echo(f"{path}: ok, but no deployment is configured: `readyroom init HOST` adds the server that runs on a host")
    else:
        click.echo(f"{path}: ok, {counted(len(settings.deployments), 'deployment')}: {', '.join(settings.deployments)}")


@config.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@config_path_option
def show(as_json: bool, file: Path | None) -> None:
    """Show the settings in effect, with secrets hidden, and the actions that keys can be bound to."""
    from tui.actions import ACTIONS

    settings = settings_of(file)
    path = file or settings_path()
    document = redacted(settings)
    document["keys"] = {action.id: document["keys"].get(action.id, action.keys) for action in ACTIONS}
    if as_json:
        click.echo(json.dumps({"schema": 1, "path": str(path), "settings": document}, ensure_ascii=False))
        return
    click.echo(f"# {path}")
    for key, value in _flat(document):
        click.echo(f"{key} = {value}")


@config.command("path")
@config_path_option
def path_(file: Path | None) -> None:
    """Show which configuration file is used."""
    click.echo(file or settings_path())


def _flat(document: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys and values as TOML writes them; what is unset is left out."""
    for key, value in document.items():
        name = prefix + (key if re.fullmatch(r"[\w-]+", key) else json.dumps(key))
        if isinstance(value, dict):
            yield from _flat(value, f"{name}.")
        elif value is not None:
            yield name, _literal(value)


def _literal(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_literal, value)) + "]"
    if isinstance(value, dict):
        inner = ", ".join(f"{key} = {_literal(entry)}" for key, entry in value.items() if entry is not None)
        return f"{{ {inner} }}"
    return json.dumps(value, ensure_ascii=False)


@click.command()
@click.argument("target")
@click.option("--name", metavar="NAME", help="The deployment's name; default: made from the model's.")
@click.option("--port", type=click.IntRange(1, 65535), help="The server on this port, when several run.")
@click.option("--stdout", "to_stdout", is_flag=True, help="Print it instead of writing it.")
@accept_new_option
@config_path_option
def init(target: str, name: str | None, port: int | None, to_stdout: bool, accept_new: bool, file: Path | None) -> None:
    """Add the server that runs on a host to the configuration."""
    settings = Settings() if file is not None and not file.exists() else settings_of(file)  # a file that is named may be a new one
    run(_init(settings, file, target, name, port, to_stdout, accept_new))


async def _init(
    settings: Settings, file: Path | None, target: str, name: str | None, port: int | None, to_stdout: bool, accept_new: bool
) -> int:
    from tui.cli.login_prompts import terminal_asker
    from tui.services.save_deployment import KeepFailed, deployment_toml, found_deployment, keep, name_for
    from tui.services.server_search import FoundServer, find_servers

    session = open_session(settings, target, asker=terminal_asker(), accept_new=accept_new)
    async with session.host:
        await session.host.connect()
        servers = await find_servers(session.host)
    chosen: list[FoundServer] = [server for server in servers if port is None or server.port == port]
    if not chosen:
        what = f"on port {port}" if port else "there"
        raise Fail(ExitCode.NEGATIVE, f"no {titles()} server runs {what}: start it first, or write the configuration by hand")
    if len(chosen) > 1:
        listed = "\n".join(f"  --port {server.port or '?'}  {server.model or '—'} (pid {server.pid})" for server in chosen)
        raise Fail(ExitCode.USAGE, f"{len(chosen)} servers run on {target}; name one:\n{listed}")
    server = chosen[0]
    wanted = name or name_for(server, session.host.name)
    if wanted in settings.deployments:
        raise Fail(ExitCode.USAGE, f"the configuration already has a deployment {wanted!r}; give another --name")
    try:
        found = found_deployment(server, session.target, wanted)
        if to_stdout:
            click.echo(deployment_toml(found), nl=False)
            return ExitCode.OK
        path = keep(found, file)
    except KeepFailed as error:
        raise Fail(ExitCode.USAGE, str(error)) from None
    there = f" --config {shlex.quote(str(file))}" if file is not None else ""
    click.echo(f"{path}: deployment {wanted!r} added; open it with: readyroom {wanted}{there}")
    return ExitCode.OK
