"""`readyroom config check | show | path`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tui.cli.context import Exit, Fail, config_path_option, settings_of
from tui.core.counted import counted
from tui.settings import Settings, SettingsError, load_settings, redacted, settings_path


@click.group()
def config() -> None:
    """Check, show or locate the configuration."""


@config.command()
@click.argument("named", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@config_path_option
def check(named: Path | None, file: Path | None) -> None:
    """Lists every problem of the configuration; exit 2 when there is one."""
    from tui.actions import key_problems

    if named is not None and file is not None:
        raise Fail(Exit.USAGE, "name the file once: as FILE or with --config")
    file = named or file
    path = file or settings_path()
    settings: Settings | None
    try:
        settings, problems = load_settings(file), []
    except SettingsError as error:
        settings, problems = error.fitting, error.problems
    problems += [f"{path}: {one}" for one in key_problems(settings.keys if settings is not None else {})]
    if problems or settings is None:
        raise Fail(Exit.USAGE, "\n".join([f"the configuration has {counted(len(problems), 'problem')}:", *problems]))
    if not path.exists():
        click.echo(f"{path}: not there; the defaults are in use")
    elif not settings.deployments:
        click.echo(f"{path}: ok, but no deployment is configured: `readyroom init HOST` writes what serves on a host into it")
    else:
        click.echo(f"{path}: ok, {counted(len(settings.deployments), 'deployment')}: {', '.join(settings.deployments)}")


@config.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@config_path_option
def show(as_json: bool, file: Path | None) -> None:
    """The settings in force, secrets hidden, and the actions that keys can be given to."""
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
    """Where the configuration is looked for."""
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
        inner = ", ".join(f"{key} = {_literal(one)}" for key, one in value.items() if one is not None)
        return f"{{ {inner} }}"
    return json.dumps(value, ensure_ascii=False)
