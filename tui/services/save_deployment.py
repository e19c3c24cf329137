"""Save a server that was found as a deployment in the configuration."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from tui.services.server_search import FoundServer
from tui.settings import SettingsError, parse_settings, settings_path
from tui.wire.urls import of_socket


@dataclass(frozen=True, slots=True)
class FoundDeployment:
    """A server that was found on a host, as the configuration describes it."""

    name: str
    host: str
    api: str
    log: str | None
    model: str | None = None
    needs_key: bool = False
    remark: str = ""


def deployment_toml(found: FoundDeployment) -> str:
    """Return the TOML table to append to the configuration."""
    key = found.name if _bare(found.name) else _quoted(found.name)
    lines = [f"[deployments.{key}]"]
    if found.remark:
        lines.insert(0, f"# {_one_line(found.remark)}")
    lines.append(f"api = {_quoted(found.api)}  # as seen from the host")
    if found.needs_key:
        lines.append('api_key_env = "VLLM_API_KEY"  # the server asks for a key: set this variable here')
    if found.model:
        lines.append(f"model = {_quoted(found.model)}")
    lines += ["", f"[[deployments.{key}.engines]]", f"host = {_quoted(found.host)}"]
    if found.log:
        lines.append(f"log = {_quoted(found.log)}")
    else:
        lines.append('log = "auto"  # where the server writes could not be read')
    return "\n".join(lines) + "\n"


def _bare(name: str) -> bool:
    return bool(name) and all(sign.isascii() and (sign.isalnum() or sign in "-_") for sign in name)


def _quoted(text: str) -> str:
    # JSON's strings are TOML's basic strings but for DEL
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _one_line(text: str) -> str:
    return " ".join(text.split())


class KeepFailed(Exception):
    """The deployment could not be saved, and nothing was changed. The message says why."""


def name_for(server: FoundServer, host: str) -> str:
    """Return a name for the deployment: `/models/Kimi-K2.5` -> `kimi-k2-5`; the host's if the model is not known."""
    model = server.served_name or server.model or host
    return re.sub(r"[^a-z0-9]+", "-", model.rstrip("/").rsplit("/", 1)[-1].lower()).strip("-") or "server"


def found_deployment(server: FoundServer, target: str, name: str) -> FoundDeployment:
    """Return what the configuration is to say of a server."""
    address = "127.0.0.1" if server.host in (None, "0.0.0.0", "::", "localhost", "") else server.host
    address = f"[{address}]" if address and ":" in address else address
    return FoundDeployment(
        name=name,
        host=target,
        api=of_socket(server.uds) if server.uds else f"http{'s' if server.tls else ''}://{address}:{server.port or 8000}",
        log=server.source,
        model=None,
        needs_key=bool(server.needs_key),
        remark=f"{server.engine} {server.model or ''}, found as pid {server.pid} of {server.user or '—'}"
        + (f"; {server.why}" if server.why else ""),
    )


def keep(found: FoundDeployment, path: Path | None = None) -> Path:
    """Append it to the configuration file and return the file's path. Raise KeepFailed.

    The file is read anew: it may have been edited since this program read it.
    """
    path = path or settings_path()
    try:
        before = path.read_text("utf-8") if path.exists() else ""
        known = parse_settings(before, path)
    except (OSError, UnicodeDecodeError, SettingsError) as error:
        raise KeepFailed(f"the configuration can't be read as it is: {error}") from None
    if found.name in known.deployments:
        raise KeepFailed(f"the configuration already has a deployment {found.name!r}; give another name")
    text = deployment_toml(found)
    after = f"{before.rstrip()}\n\n{text}" if before.strip() else text
    try:
        parse_settings(after, path)
    except SettingsError as error:
        raise KeepFailed(f"nothing was written, since the result would not be valid:\n{error}") from None
    _replace(path, after)
    return path


def _replace(path: Path, text: str) -> None:
    """Write the file in one step, mode 0600, so that a full disk leaves the old one whole; a link stays one."""
    try:
        path = path.resolve()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        beside.replace(path)
    except OSError as error:
        raise KeepFailed(f"{path} can't be written: {error.strerror}") from None
