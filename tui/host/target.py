"""Read TARGET, the way a user names a host on the command line and in the configuration."""

import re
import shlex
from dataclasses import dataclass

from tui.core.text import clean

LOCAL = "local"
EXEC = "exec:"
_HOST = re.compile(r"[A-Za-z0-9_.:%*+~-]+")
_UNSAFE_IN_HOST = frozenset("'`\"$\\;&<>|(){},")
_UNSAFE_IN_USER = frozenset("'`\";&<>|(){}")


@dataclass(frozen=True, slots=True)
class SshTarget:
    """Name a host: a name, an address or an alias of ~/.ssh/config; user and port are None if the target leaves them open."""

    host: str
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (f"{self.user}@" if self.user else "") + host + (f":{self.port}" if self.port is not None else "")


def parse_ssh(text: str) -> SshTarget:
    """Read `[user@]host[:port]`, with an IPv6 address in brackets if a port follows; `ssh://` may stand before it.

    Raises ValueError saying what is wrong.
    """
    rest = text.strip().removeprefix("ssh://").rstrip("/") if text.strip().startswith("ssh://") else text.strip()
    user: str | None
    user, at, host = rest.rpartition("@")
    if at and not user:
        raise ValueError(f"{text!r} has no user before the @")
    if any(ord(letter) < 33 or ord(letter) == 127 for letter in user) or user.startswith("-"):
        raise ValueError(f"{text!r} has no valid user name before the @")
    port: int | None = None
    if host.startswith("["):
        host, closing, tail = host[1:].partition("]")
        if not closing or (tail and not tail.startswith(":")):
            raise ValueError(f"{text!r}: an address in brackets must read [address] or [address]:port")
        port = _port(tail[1:], text) if tail else None
    elif host.count(":") == 1:
        host, _, digits = host.partition(":")
        port = _port(digits, text)
    if not host or host.startswith("-") or not _HOST.fullmatch(host):
        raise ValueError(
            f"{text!r} is not a host: write user@host, user@host:port, an alias of ~/.ssh/config, local or exec:COMMAND"
        )
    require_safe_names(user or None, host)
    return SshTarget(host, user or None, port)


def require_safe_names(user: str | None, host: str) -> None:
    """Refuse names that a shell could take for commands, as OpenSSH does since CVE-2023-51385 (valid_hostname, valid_ruser).

    ProxyCommand and `Match exec` put them into command lines. Raises ValueError naming what is wrong.
    """
    if not host or host.startswith("-") or _unsafe(host, _UNSAFE_IN_HOST) or " " in host:
        raise ValueError(f"{clean(host)!r} contains characters that no host name may have")
    if user is not None and (
        user.startswith("-") or user.endswith("\\") or _unsafe(user, _UNSAFE_IN_USER) or re.search(r"\s-", user)
    ):
        raise ValueError(f"{clean(user)!r} contains characters that no user name may have")


def _unsafe(name: str, forbidden: frozenset[str]) -> bool:
    return any(letter in forbidden or ord(letter) < 32 or ord(letter) == 127 for letter in name)


def parse_exec(text: str) -> list[str]:
    """Split `exec:COMMAND` into words. Raises ValueError saying what is wrong."""
    try:
        words = shlex.split(text.removeprefix(EXEC))
    except ValueError as error:
        raise ValueError(f"{text!r}: the command can't be split into words: {error}") from error
    if not words:
        raise ValueError("exec: needs a command, for example exec:docker exec -i NAME")
    return words


def require_target(text: str) -> None:
    """Check a target of any kind. Raises ValueError saying what is wrong with it."""
    target = text.strip()
    if target.startswith(EXEC):
        parse_exec(target)
    elif target != LOCAL:
        parse_ssh(target)


def _port(digits: str, text: str) -> int:
    if not digits.isascii() or not digits.isdigit() or not 1 <= int(digits) <= 65535:
        raise ValueError(f"{text!r}: the port must be a number from 1 to 65535")
    return int(digits)
