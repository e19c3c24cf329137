"""Host keys that the user trusts: OpenSSH's known_hosts files, read with line numbers and appended to.

Format: sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT": an optional marker (@cert-authority, @revoked), names (patterns with * ? and !,
comma separated, `[name]:port` for other ports than 22; or one hashed name, `|1|salt|HMAC-SHA1`), key type, base64 key, comment.
"""

import base64
import functools
import hashlib
import hmac
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import asyncssh

SSH_PORT = 22
REVOKED = "@revoked"
AUTHORITY = "@cert-authority"


def lookup_name(host: str, port: int) -> str:
    """Return the name under which OpenSSH keeps a host: `host`, or `[host]:port` for other ports than 22."""
    return host if port == SSH_PORT else f"[{host}]:{port}"


@functools.lru_cache(maxsize=4096)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile("".join({"*": ".*", "?": "."}.get(letter, re.escape(letter)) for letter in text), re.IGNORECASE | re.DOTALL)


def _hashed(name: str, salt: bytes) -> bytes:
    return hmac.new(salt, name.encode(), hashlib.sha1).digest()


def names_match(names: str, name: str) -> bool:
    """Return whether the names field of a line covers a host's lookup name."""
    if names.startswith("|1|"):
        try:
            salt, digest = (base64.b64decode(part) for part in names.split("|")[2:4])
        except ValueError:
            return False
        return hmac.compare_digest(_hashed(name.lower(), salt), digest)
    found = False
    for pattern in names.split(","):
        if _pattern(pattern.removeprefix("!")).fullmatch(name):
            if pattern.startswith("!"):
                return False
            found = True
    return found


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a known_hosts file. `marker` is empty, REVOKED or AUTHORITY."""

    file: Path
    line: int
    marker: str
    names: str
    key: asyncssh.SSHKey

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Known:
    """What the files say of one host."""

    keys: tuple[Entry, ...] = ()
    authorities: tuple[Entry, ...] = ()
    revoked: tuple[Entry, ...] = ()

    def algorithms(self) -> list[str]:
        """Signature algorithms of the known keys, which the key exchange should ask for first: another key would look changed."""
        found: dict[str, None] = {}
        for entry in self.keys:
            found.update((name.decode("ascii"), None) for name in entry.key.sig_algorithms)
        return list(found)


def read(files: Iterable[Path]) -> tuple[Entry, ...]:
    """Return the entries of the files. Missing or unreadable files, and lines that are no entry, are left out, as OpenSSH does."""
    entries: list[Entry] = []
    for file in files:
        try:
            if not file.is_file():  # a FIFO would never end
                continue
            text = file.read_text("utf-8", "replace")
        except OSError:
            continue
        for number, line in enumerate(text.split("\n"), 1):
            words = line.split(None, 2)
            marker = words[0].lower() if words and words[0].startswith("@") else ""
            if marker:
                words = words[1].split(None, 1) + words[2:] if len(words) == 3 else []
                words = [words[0], words[1]] if len(words) == 2 else []
            elif len(words) == 3:
                words = [words[0], f"{words[1]} {words[2]}"]
            if len(words) != 2 or words[0].startswith("#") or marker not in ("", REVOKED, AUTHORITY):
                continue
            try:
                key = asyncssh.import_public_key(words[1])
            except (asyncssh.KeyImportError, ValueError):
                continue
            entries.append(Entry(file, number, marker, words[0], key))
    return tuple(entries)


def matching(entries: Iterable[Entry], name: str, fallback: str | None = None) -> Known:
    """Return what is known of a lookup name.

    A host on another port that is not listed itself may carry the key listed for port 22 (`fallback`), as in OpenSSH; such a key
    helps to trust, but another key does not count as changed: see `changed`.
    """
    entries = tuple(entries)
    own = [entry for entry in entries if names_match(entry.names, name)]
    if fallback is not None and not any(entry.marker != REVOKED for entry in own):
        own += [entry for entry in entries if names_match(entry.names, fallback)]
    return Known(
        tuple(entry for entry in own if not entry.marker),
        tuple(entry for entry in own if entry.marker == AUTHORITY),
        tuple(entry for entry in own if entry.marker == REVOKED),
    )


def changed(known: Known, name: str) -> Entry | None:
    """Return the line that names another key for exactly this host, if there is one."""
    return next((entry for entry in known.keys if names_match(entry.names, name)), None)


def line_for(name: str, key: asyncssh.SSHKey, *, hashed: bool) -> str:
    """Return the line that OpenSSH would write for an accepted key."""
    if hashed:
        salt = os.urandom(20)
        name = "|1|" + base64.b64encode(salt).decode() + "|" + base64.b64encode(_hashed(name.lower(), salt)).decode()
    algorithm, data = key.export_public_key("openssh").decode("ascii").split()[:2]
    return f"{name} {algorithm} {data}\n"


def append(file: Path, line: str) -> None:
    """Append a line in one write. A new file or directory is readable by the user only.

    Raises OSError.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        unfinished = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        os.write(descriptor, (("\n" if unfinished else "") + line).encode())
    finally:
        os.close(descriptor)
