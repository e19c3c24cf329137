"""`readyroom init TARGET`: writes what serves on a host into the configuration, commented and valid."""

import os
import re
from pathlib import Path

import click

from tui.cli.context import Exit, Fail, accept_new_option, config_option, open_session, run
from tui.core.deployment_text import FoundDeployment, deployment_toml
from tui.settings import Settings, SettingsError, parse_settings, settings_path


@click.command()
@click.argument("target")
@click.option("--name", metavar="NAME", help="The deployment's name; made from the model's unless given.")
@click.option("--port", type=click.IntRange(1, 65535), help="The server on this port, when several run.")
@click.option("--stdout", "to_stdout", is_flag=True, help="Print it instead of writing it.")
@accept_new_option
@config_option
def init(target: str, name: str | None, port: int | None, to_stdout: bool, accept_new: bool, settings: Settings) -> None:
    """Writes what serves on a host into the configuration, commented and valid."""
    run(_init(settings, target, name, port, to_stdout, accept_new))


async def _init(settings: Settings, target: str, name: str | None, port: int | None, to_stdout: bool, accept_new: bool) -> int:
    from tui.cli.asking import terminal_asker
    from tui.services.found import Server
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
    wanted = name or _name(server.model or session.host.name)
    if wanted in settings.deployments:
        raise Fail(Exit.USAGE, f"the configuration has a deployment {wanted!r} already; give another --name")
    address = "127.0.0.1" if server.host in (None, "0.0.0.0", "::", "localhost", "") else server.host
    found = FoundDeployment(
        name=wanted,
        host=session.target,
        api=f"http://{address}:{server.port or 8000}",
        log=server.source,
        model=None,
        needs_key=bool(server.needs_key),
        remark=f"{server.engine} {server.model or ''}, found as pid {server.pid} of {server.user or '—'}"
        + (f"; {server.why}" if server.why else ""),
    )
    text = deployment_toml(found)
    if to_stdout:
        click.echo(text, nl=False)
        return Exit.OK
    path = settings_path()
    before = path.read_text("utf-8") if path.exists() else ""
    after = f"{before.rstrip()}\n\n{text}" if before.strip() else text
    try:
        parse_settings(after, path)
    except SettingsError as error:
        raise Fail(Exit.USAGE, f"nothing was written, since the result would not be valid:\n{error}") from None
    _write(path, after)
    click.echo(f"{path}: deployment {wanted!r} added; open it with: readyroom {wanted}")
    return Exit.OK


def _name(model: str) -> str:
    """`/models/Kimi-K2.5` -> `kimi-k2-5`."""
    return re.sub(r"[^a-z0-9]+", "-", model.rstrip("/").rsplit("/", 1)[-1].lower()).strip("-") or "server"


def _write(path: Path, text: str) -> None:
    """Replaces the file in one step, 0600, so that a full disk leaves the old one whole."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        beside.replace(path)
    except OSError as error:
        raise Fail(Exit.NEGATIVE, f"{path} can't be written: {error.strerror}") from None
