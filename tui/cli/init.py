"""`readyroom init TARGET`: writes what serves on a host into the configuration, commented and valid."""

import shlex
from pathlib import Path

import click

from tui.cli.context import Exit, Fail, accept_new_option, config_path_option, open_session, run, settings_of
from tui.settings import Settings


@click.command()
@click.argument("target")
@click.option("--name", metavar="NAME", help="The deployment's name; made from the model's unless given.")
@click.option("--port", type=click.IntRange(1, 65535), help="The server on this port, when several run.")
@click.option("--stdout", "to_stdout", is_flag=True, help="Print it instead of writing it.")
@accept_new_option
@config_path_option
def init(target: str, name: str | None, port: int | None, to_stdout: bool, accept_new: bool, file: Path | None) -> None:
    """Writes what serves on a host into the configuration, commented and valid."""
    settings = Settings() if file is not None and not file.exists() else settings_of(file)  # a file that is named may be a new one
    run(_init(settings, file, target, name, port, to_stdout, accept_new))


async def _init(
    settings: Settings, file: Path | None, target: str, name: str | None, port: int | None, to_stdout: bool, accept_new: bool
) -> int:
    from tui.cli.asking import terminal_asker
    from tui.core.deployment_text import deployment_toml
    from tui.services.found import Server
    from tui.services.keeping import KeepFailed, found_deployment, keep, name_for
    from tui.services.search import find_servers

    session = open_session(settings, target, asker=terminal_asker(), accept_new=accept_new)
    async with session.host:
        await session.host.connect()
        servers = await find_servers(session.host)
    chosen: list[Server] = [one for one in servers if port is None or one.port == port]
    if not chosen:
        what = f"on port {port}" if port else "there"
        raise Fail(Exit.NEGATIVE, f"no vLLM or SGLang server runs {what}: start it first, or write the configuration by hand")
    if len(chosen) > 1:
        listed = "\n".join(f"  --port {one.port or '?'}  {one.model or '—'} (pid {one.pid})" for one in chosen)
        raise Fail(Exit.USAGE, f"{len(chosen)} servers run on {target}; name one:\n{listed}")
    server = chosen[0]
    wanted = name or name_for(server, session.host.name)
    if wanted in settings.deployments:
        raise Fail(Exit.USAGE, f"the configuration has a deployment {wanted!r} already; give another --name")
    try:
        found = found_deployment(server, session.target, wanted)
        if to_stdout:
            click.echo(deployment_toml(found), nl=False)
            return Exit.OK
        path = keep(found, file)
    except KeepFailed as error:
        raise Fail(Exit.USAGE, str(error)) from None
    there = f" --config {shlex.quote(str(file))}" if file is not None else ""
    click.echo(f"{path}: deployment {wanted!r} added; open it with: readyroom {wanted}{there}")
    return Exit.OK
