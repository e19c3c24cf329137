"""What the user's OpenSSH configuration says of a host.

asyncssh reads `~/.ssh/config` itself (Host, Match, Include, keys, proxies, algorithms). This reads the same files once more for
what the adapter decides on its own, and for what asyncssh leaves out: `/etc/ssh/ssh_config`, StrictHostKeyChecking, HashKnownHosts,
the default known_hosts files, tokens in UserKnownHostsFile and ProxyJump, the order of files that an Include names.
"""

import getpass
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asyncssh.config import ConfigParseError, SSHClientConfig, SSHConfig

from tui.core.text import clean
from tui.host.base import Refused
from tui.host.known_hosts import SSH_PORT, lookup_name

INCLUDE_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Login:
    """How one host is reached and what is trusted there; one of these for each jump, too."""

    alias: str
    host: str
    port: int
    user: str
    key_alias: str | None
    known_hosts: tuple[Path, ...]
    """The user's files first; an accepted key is appended to the first one. Never empty."""
    global_known_hosts: tuple[Path, ...]
    accept_new: bool
    """StrictHostKeyChecking accept-new or no: unknown keys are accepted. Changed keys are refused all the same."""
    never_ask: bool
    """StrictHostKeyChecking yes."""
    hash_known_hosts: bool
    jumps: tuple[str, ...]
    proxy_command: str | None
    identity_files: tuple[Path, ...] | None
    """None where the configuration names none: then the default ones are tried."""
    certificate_files: tuple[Path, ...]
    identities_only: bool
    agent: str | None
    host_key_algorithms: str | None
    ciphers: str | None
    canonicalize: bool
    connect_timeout: float | None
    files: tuple[Path, ...]
    """The configuration files that exist, for asyncssh."""

    @property
    def name(self) -> str:
        """The name in known_hosts. An alias stands without its port, as in OpenSSH."""
        return self.key_alias or lookup_name(self.host.lower(), self.port)

    @property
    def plain_name(self) -> str | None:
        """The name without the port, under which OpenSSH looks next."""
        return None if self.key_alias or self.port == SSH_PORT else self.host.lower()

    @property
    def place(self) -> str:
        """Host and port in words."""
        return self.host if self.port == SSH_PORT else f"{self.host}:{self.port}"


def default_files() -> tuple[Path, ...]:
    return Path("~/.ssh/config").expanduser(), Path("/etc/ssh/ssh_config")


def default_keys() -> tuple[Path, ...]:
    """The key files that are tried where the configuration names none."""
    folder = Path("~/.ssh").expanduser()
    return tuple(folder / name for name in ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk"))


def _include(config: SSHConfig, option: str, args: list[str]) -> None:
    assert isinstance(config, _Config)
    config.include(args)


class _Config(SSHClientConfig):
    """asyncssh's reader of OpenSSH's configuration with a few more options."""

    _handlers = {  # noqa: RUF012
        **SSHClientConfig._handlers,
        "include": ("Include", _include),
        "stricthostkeychecking": ("StrictHostKeyChecking", SSHConfig._set_string),
        "hashknownhosts": ("HashKnownHosts", SSHConfig._set_bool),
    }
    _percent_expand = SSHClientConfig._percent_expand | {"UserKnownHostsFile", "ProxyJump", "HostKeyAlias"}
    _depth = 0

    def include(self, args: list[str]) -> None:
        """Reads the files that the patterns name, sorted as OpenSSH's glob does; the first value of an option wins."""
        path, line, folder = self._path, self._line_no, self._default_path
        if str(path).startswith("/etc/"):
            folder = path.parent
        self._depth += 1
        if self._depth > INCLUDE_DEPTH:
            self._error("Too many nested Includes")
        for pattern in args:
            wanted = Path(pattern).expanduser()
            wanted = wanted if wanted.is_absolute() else folder / wanted
            for file in sorted(Path(wanted.anchor).glob(str(wanted.relative_to(wanted.anchor)))):
                if file.is_file() and os.access(file, os.R_OK):
                    self.parse(file)
        self._depth -= 1
        self._path, self._line_no, self._matching = path, line, True
        args.clear()


def resolve(alias: str, user: str | None = None, port: int | None = None, files: Sequence[Path] | None = None) -> Login:
    """Reads the configuration for a host. Runs the commands of `Match exec`, so call it in a thread.

    Raises Refused when the configuration can't be read as one, or the local user has no name.
    """
    existing = tuple(file for file in (default_files() if files is None else files) if os.access(file, os.R_OK) and file.is_file())
    try:
        local_user = getpass.getuser()
    except (KeyError, OSError) as error:
        raise Refused("this machine has no name for your user", "set LOGNAME and USER in the environment") from error

    def load(last: Any, final: bool) -> Any:
        return _Config.load(
            last, list(existing), bool(last), False, final, local_user, user or (), alias, port if port is not None else ()
        )

    try:
        config = load(None, False)
        if config.has_match_final():
            config = load(config, True)
    except (ConfigParseError, OSError, ValueError) as error:
        raise Refused(f"the ssh configuration can't be read: {clean(str(error))}", "correct that line, then try again") from error
    return _login(alias, config.get, local_user, existing)


def _login(alias: str, get: Callable[..., Any], local_user: str, files: tuple[Path, ...]) -> Login:
    strict = str(get("StrictHostKeyChecking") or "ask").lower()
    identities = get("IdentityFile")
    jumps = str(get("ProxyJump") or "")
    # `UserKnownHostsFile none` would leave nothing to check against: then nothing is known, and each key is asked for.
    known = get("UserKnownHostsFile")
    if known is None:
        known = ["~/.ssh/known_hosts", "~/.ssh/known_hosts2"]
    agent = get("IdentityAgent", os.environ.get("SSH_AUTH_SOCK"))
    if agent == "SSH_AUTH_SOCK":
        agent = os.environ.get("SSH_AUTH_SOCK")
    return Login(
        alias=alias,
        host=str(get("Hostname", alias)),
        port=int(get("Port", SSH_PORT)),
        user=str(get("User") or local_user),
        key_alias=get("HostKeyAlias"),
        known_hosts=tuple(_paths(known)) or (Path(os.devnull),),
        global_known_hosts=tuple(_paths(get("GlobalKnownHostsFile", ["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"]))),
        accept_new=strict in ("accept-new", "no", "off"),
        never_ask=strict in ("yes", "true"),
        hash_known_hosts=bool(get("HashKnownHosts", False)),
        jumps=tuple(jump.strip() for jump in jumps.split(",") if jump.strip()),
        proxy_command=get("ProxyCommand"),
        identity_files=None if identities is None else tuple(_paths(identities)),
        certificate_files=tuple(_paths(get("CertificateFile", []))),
        identities_only=bool(get("IdentitiesOnly", False)),
        agent=os.path.expanduser(os.path.expandvars(agent)) if agent else None,
        host_key_algorithms=get("HostKeyAlgorithms"),
        ciphers=get("Ciphers"),
        canonicalize=bool(get("CanonicalizeHostname", False)),
        connect_timeout=get("ConnectTimeout"),
        files=files,
    )


def _paths(names: Sequence[str]) -> list[Path]:
    return [Path(os.path.expandvars(name)).expanduser() for name in names if name.lower() != "none"]
