"""Resolve what the user's OpenSSH configuration says of a host, in the terms of asyncssh.

OpenSSH's own client is asked, so that every configuration that `ssh` accepts means the same here; if it isn't installed, the files
are read by `tui.host.ssh_config_files`. Nothing is left to asyncssh's parser, which refuses much that OpenSSH accepts.
"""

import getpass
import hashlib
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from asyncssh.compression import get_compression_algs
from asyncssh.encryption import get_default_encryption_algs, get_encryption_algs
from asyncssh.kex import get_default_kex_algs, get_kex_algs
from asyncssh.mac import get_default_mac_algs, get_mac_algs
from asyncssh.public_key import (
    get_certificate_algs,
    get_default_certificate_algs,
    get_default_public_key_algs,
    get_public_key_algs,
)

from tui.core.text import clean
from tui.host.base import Refused
from tui.host.known_hosts import SSH_PORT, lookup_name
from tui.host.openssh import SshConfiguration, Values, ask_openssh
from tui.host.ssh_config_files import read_configuration
from tui.host.target import require_safe_names

_TOKEN = re.compile(r"%(.)")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}
_METHODS = ("gssapi-keyex", "gssapi-with-mic", "hostbased", "publickey", "keyboard-interactive", "password")


@dataclass(frozen=True, slots=True)
class Login:
    """Say how one host is reached and what is trusted there; one of these for each jump, too."""

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
    """None if the configuration names none: then the default ones are tried."""
    certificate_files: tuple[Path, ...]
    identities_only: bool
    agent: str | None
    options: Mapping[str, Any]
    """What asyncssh is told of algorithms, addresses, methods and the environment."""
    connect_timeout: float | None
    notes: tuple[str, ...] = ()
    """What of the configuration is passed over, and why."""

    @property
    def name(self) -> str:
        """Return the name in known_hosts. An alias stands without its port, as in OpenSSH."""
        return self.key_alias or lookup_name(self.host.lower(), self.port)

    @property
    def plain_name(self) -> str | None:
        """Return the name without the port, under which OpenSSH looks next."""
        return None if self.key_alias or self.port == SSH_PORT else self.host.lower()

    @property
    def place(self) -> str:
        """Host and port in words."""
        return self.host if self.port == SSH_PORT else f"{self.host}:{self.port}"


def default_files() -> tuple[Path, ...]:
    return Path("~/.ssh/config").expanduser(), Path("/etc/ssh/ssh_config")


def default_keys() -> tuple[Path, ...]:
    """Return the key files that are tried if the configuration names none."""
    folder = Path("~/.ssh").expanduser()
    return tuple(folder / name for name in ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk"))


def resolve(alias: str, user: str | None = None, port: int | None = None, files: Sequence[Path] | None = None) -> Login:
    """Return how a host is reached. Blocks while the commands of `Match exec` run, so call it in a thread.

    Raises Refused if the configuration can't be read as one, if it names a host or user that a shell could take for a command, or
    if the local user has no name; Unreachable if it takes too long.
    """
    try:
        local_user = getpass.getuser()
    except (KeyError, OSError) as error:
        raise Refused("this machine has no name for your user", "set LOGNAME and USER in the environment") from error
    _require_safe(alias, user, alias)
    configuration = ask_openssh(alias, user, port, files)
    if configuration is None:
        given: Values = {}
        if user is not None:
            given["user"] = [user]
        if port is not None:
            given["port"] = [str(port)]

        def expand(values: Values, text: str) -> str:
            return _expand(text, _tokens(alias, local_user, values))

        configuration = read_configuration(alias, local_user, given, default_files() if files is None else files, expand)
    return _login(alias, local_user, configuration)


def _require_safe(alias: str, user: str | None, host: str) -> None:
    try:
        require_safe_names(user, host)
    except ValueError as error:
        where = "correct the target" if host == alias else f"correct HostName and User of {clean(alias)} in ~/.ssh/config"
        raise Refused(str(error), where) from None


def _login(alias: str, local_user: str, configuration: SshConfiguration) -> Login:
    values = configuration.values

    def first(keyword: str, default: str = "") -> str:
        return values.get(keyword, [default])[0]

    def told(keyword: str) -> str | None:
        """Return a value that isn't `none`."""
        value = first(keyword)
        return None if value.lower() in ("", "none") else value

    tokens = _tokens(alias, local_user, values)
    host, user = tokens["h"], tokens["r"]
    _require_safe(alias, user, host)
    key_alias = told("hostkeyalias")
    strict = first("stricthostkeychecking", "ask").lower()
    jumps = told("proxyjump") or ""
    known = _listed(values, "userknownhostsfile", ["~/.ssh/known_hosts", "~/.ssh/known_hosts2"])
    everyone = _listed(values, "globalknownhostsfile", ["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"])
    identities = values.get("identityfile") if configuration.sets("identityfile") else None

    def paths(names: Sequence[str]) -> tuple[Path, ...]:
        found = [_expand(name, tokens) for name in names if name.lower() != "none"]
        home = configuration.home
        moved = [f"~{name[len(home) :]}" if home and name.startswith(f"{home}/") else name for name in found]
        return tuple(Path(name).expanduser() for name in moved)

    agent = first("identityagent", "SSH_AUTH_SOCK")
    if agent.startswith("$") and not agent.startswith("${"):
        agent = os.environ.get(agent[1:], "")
    agent = os.environ.get("SSH_AUTH_SOCK", "") if agent == "SSH_AUTH_SOCK" else _expand(agent, tokens)
    command = None if jumps else told("proxycommand")
    return Login(
        alias=alias,
        host=host,
        port=_port(tokens["p"], alias),
        user=user,
        key_alias=key_alias,
        # `UserKnownHostsFile none` would leave nothing to check against: then nothing is known, and each key is asked for.
        known_hosts=paths(known) or (Path(os.devnull),),
        global_known_hosts=paths(everyone),
        accept_new=strict in ("accept-new", "no", "off", "false"),
        never_ask=strict in ("yes", "true"),
        hash_known_hosts=_yes(first("hashknownhosts")),
        jumps=tuple(jump.strip() for jump in jumps.split(",") if jump.strip()),
        proxy_command=None if command is None else _expand(command, {name: _shell_safe(text) for name, text in tokens.items()}),
        identity_files=None if identities is None else paths(identities),
        certificate_files=paths(values.get("certificatefile", [])),
        identities_only=_yes(first("identitiesonly")),
        agent=os.path.expanduser(agent) if agent and agent.lower() != "none" else None,
        options=_options(alias, configuration),
        connect_timeout=_seconds(first("connecttimeout")),
        notes=configuration.notes,
    )


def _listed(values: Values, keyword: str, default: list[str]) -> list[str]:
    """Return paths that `ssh -G` writes on one line; all of them are absolute or begin with a tilde."""
    written = values.get(keyword, default)
    return re.split(r" (?=[/~])", written[0]) if len(written) == 1 else written


# -- tokens ------------------------------------------------------------------------------------------------------------------------


def _tokens(alias: str, local_user: str, values: Values) -> dict[str, str]:
    """Return what the `%` tokens stand for (ssh_config(5), TOKENS), without those that only a connection can fill."""
    local_host = socket.gethostname()
    host = values.get("hostname", [alias])[0]
    port = values.get("port", [str(SSH_PORT)])[0]
    user = values.get("user", [local_user])[0]
    jump = values.get("proxyjump", [""])[0]
    jump = "" if jump.lower() == "none" else jump
    return {
        "%": "%",
        "C": hashlib.sha1(f"{local_host}{host}{port}{user}{jump}".encode("utf-8", "surrogateescape")).hexdigest(),
        "d": os.path.expanduser("~"),
        "h": host,
        "i": str(os.getuid()),
        "j": jump,
        "k": values.get("hostkeyalias", [alias])[0],
        "L": local_host.partition(".")[0],
        "l": local_host,
        "n": alias,
        "p": port,
        "r": user,
        "u": local_user,
    }


def _expand(text: str, tokens: Mapping[str, str]) -> str:
    """Fill in tokens and ${VARIABLES}; what isn't known stays as it is."""
    text = _TOKEN.sub(lambda found: tokens.get(found[1], found[0]), text)
    return _VARIABLE.sub(lambda found: os.environ.get(found[1], found[0]), text)


def _shell_safe(text: str) -> str:
    """Escape what a shell would still expand in a name that `require_safe_names` lets through."""
    return re.sub(r"([\\$`\"'])", r"\\\1", text)


# -- values ------------------------------------------------------------------------------------------------------------------------


def _yes(value: str) -> bool:
    return value.lower() in ("yes", "true")


def _seconds(value: str) -> float | None:
    """Read a time as sshd_config(5) writes it (`90`, `1m30s`); None for `none` and what is none."""
    parts = re.findall(r"(\d+)([smhdw]?)", value.lower())
    if not parts or "".join(number + unit for number, unit in parts) != value.lower():
        return None
    return float(sum(int(number) * _SECONDS[unit] for number, unit in parts)) or None


def _port(value: str, alias: str) -> int:
    """Read a port's number or the name of its service. Raises Refused."""
    try:
        port = int(value) if value.isascii() and value.isdigit() else socket.getservbyname(value, "tcp")
    except (OSError, ValueError):
        port = 0
    if not 1 <= port <= 65535:
        raise Refused(
            f"Port {clean(value)[:40]} of {alias} is not a port: it must be a number from 1 to 65535", "correct ~/.ssh/config"
        )
    return port


def _options(alias: str, configuration: SshConfiguration) -> dict[str, Any]:
    """Return what the configuration sets beyond OpenSSH's defaults, as options of asyncssh.connect. Raises Refused."""
    values = configuration.values
    options: dict[str, Any] = {}
    public, certificates = get_default_public_key_algs(), get_default_certificate_algs()
    for keyword, option, known, usual in (
        ("KexAlgorithms", "kex_algs", get_kex_algs(), get_default_kex_algs()),
        ("Ciphers", "encryption_algs", get_encryption_algs(), get_default_encryption_algs()),
        ("MACs", "mac_algs", get_mac_algs(), get_default_mac_algs()),
        ("HostKeyAlgorithms", "server_host_key_algs", [*get_certificate_algs(), *get_public_key_algs()], [*certificates, *public]),
    ):
        if configuration.sets(keyword.lower()):
            options[option] = _algorithms(alias, keyword, values[keyword.lower()][0], known, usual)
    if _yes(values.get("compression", [""])[0]):
        known_names = [name.decode("ascii") for name in get_compression_algs()]
        options["compression_algs"] = [name for name in ("zlib@openssh.com", "zlib", "none") if name in known_names]
    if (family := values.get("addressfamily", [""])[0].lower()) in _FAMILIES:
        options["family"] = _FAMILIES[family]
    if address := values.get("bindaddress", [""])[0]:
        options["local_addr"] = (address, 0)
    for keyword, option in (
        ("pubkeyauthentication", "public_key_auth"),
        ("passwordauthentication", "password_auth"),
        ("kbdinteractiveauthentication", "kbdint_auth"),
        ("challengeresponseauthentication", "kbdint_auth"),
        ("tcpkeepalive", "tcp_keepalive"),
    ):
        if values.get(keyword, [""])[0].lower() in ("no", "false"):
            options[option] = False
    for keyword, option in (("gssapiauthentication", "gss_auth"), ("gssapikeyexchange", "gss_kex")):
        options[option] = _yes(values.get(keyword, [""])[0])
    if configuration.sets("preferredauthentications"):
        wanted = re.split(r"[,\s]+", values["preferredauthentications"][0])
        options["preferred_auth"] = [method for method in wanted if method in _METHODS]
    if configuration.sets("rekeylimit"):
        options |= _rekeying(values["rekeylimit"][0])
    if names := values.get("sendenv"):
        options["send_env"] = names
    if pairs := [pair for pair in values.get("setenv", []) if "=" in pair]:
        options["env"] = pairs
    return options


def _algorithms(alias: str, keyword: str, written: str, known: Sequence[bytes], usual: Sequence[bytes]) -> list[str]:
    """Return those of the named algorithms that are spoken here; `+`, `-` and `^` change the usual ones.

    Raises Refused if none is spoken.
    """
    names, defaults = ([name.decode("ascii") for name in group] for group in (known, usual))
    sign = written[:1] if written[:1] in "+-^" else ""
    patterns = written.removeprefix(sign).split(",")
    wanted = list(dict.fromkeys(name for pattern in patterns for name in names if fnmatchcase(name, pattern.strip())))
    match sign:
        case "+":
            wanted = [*defaults, *(name for name in wanted if name not in defaults)]
        case "-":
            wanted = [name for name in defaults if name not in wanted]
        case "^":
            wanted = [*wanted, *(name for name in defaults if name not in wanted)]
    if not wanted:
        raise Refused(
            f"{keyword} of {alias} in the ssh configuration names none that readyroom supports: {clean(written)[:200]}",
            f"add one of: {', '.join(defaults[:6])}",
        )
    return wanted


def _rekeying(written: str) -> dict[str, Any]:
    """Read RekeyLimit: bytes, then a time; 0, `default` and `none` leave asyncssh's own."""
    size, _, time_limit = written.lower().partition(" ")
    found = re.fullmatch(r"(\d+)([kmg]?)", size)
    options: dict[str, Any] = {}
    if found and int(found[1]):
        options["rekey_bytes"] = max(1 << 16, int(found[1]) * _SIZES[found[2]])
    if seconds := _seconds(time_limit.strip()):
        options["rekey_seconds"] = seconds
    return options
