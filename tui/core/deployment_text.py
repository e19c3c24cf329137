"""A deployment as commented TOML, for `readyroom init` and the key that keeps what was found."""

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FoundDeployment:
    """What was found on a host, as far as the configuration holds it."""

    name: str
    host: str
    api: str
    log: str | None
    model: str | None = None
    needs_key: bool = False
    remark: str = ""


def deployment_toml(found: FoundDeployment) -> str:
    """The table to append to the configuration."""
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
