"""Addresses of servers as they are written, and as they may be shown: a URL can hold a password or a key. Python 3.8: this runs on
the GPU host too."""

import base64
import re
from typing import Any, Dict, List, Mapping, Optional, Tuple
from urllib.parse import quote, unquote, unquote_to_bytes, urlsplit

SOCKET = "unix:"
"""How the address of a server on a Unix socket begins; the socket's absolute path follows, percent-encoded where need be."""


def socket_path(written: str) -> str:
    """Return the path of a Unix socket as it stands behind `unix:`.

    `unix:///run/a%20b` is `unix:/run/a%20b`, and both are `/run/a b`.
    """
    path = unquote(written)
    return "/" + path.lstrip("/") if path.startswith("/") else path


def port_of(url: str) -> int:
    """Return the port that a URL names, or its scheme's. Raises ValueError for one that can't be read, or whose port is none."""
    parts = urlsplit(url)
    port = parts.port
    if port == 0:
        raise ValueError("port 0")
    return port or (443 if parts.scheme == "https" else 80)


def shown_url(url: str) -> str:
    """Return the URL without the name and the password of its user, and without query and fragment, which may hold a key.

    Of one that can't be read it keeps its host and its path at most, and not even those if they may be part of a password.
    """
    if url.startswith(SOCKET):
        return url
    try:
        port_of(url)
        parts = urlsplit(url)
    except ValueError:
        return _unreadable(url)
    if not parts.netloc:
        return _unreadable(url)
    if "@" not in parts.netloc and not parts.query and not parts.fragment:
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _unreadable(url: str) -> str:
    begin = url.find("://") + 3 if "://" in url else 0
    scheme, rest = url[:begin], url[begin:]
    host = re.split("[/?#]", rest, maxsplit=1)[0]
    behind = rest[len(host) :]
    if "@" in behind:  # http://me:pass/word@box, if nobody can tell what is the host
        return scheme + "…"
    return scheme + host.rpartition("@")[2] + re.split("[?#]", behind, maxsplit=1)[0]


AUTHORIZATION = "Authorization"
TOKEN_CHARACTERS = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""Of the name of a header (RFC 9110, 5.6.2)."""


def unsendable(name: str, value: str) -> Optional[str]:
    """Say why a header can't be sent; return None if it can. The value is not repeated: it may be secret."""
    if not name or not TOKEN_CHARACTERS.issuperset(name):
        return "that is no name of a header"
    if any(c in value for c in "\r\n\0"):
        return "its value has a line break or a NUL, which no header may have"
    if any(c != "\t" and (ord(c) < 32 or ord(c) == 127) for c in value):
        return "its value has control characters, which no header may have"
    if any(ord(c) > 255 for c in value):
        return "its value has characters beyond Latin-1, which no header can have"
    return None


def basic_of(url: str) -> Optional[str]:
    """Return the Authorization header's value that the name and password in a URL ask for; None if it has neither or can't be
    read.

    As curl sends it: percent-decoded, in base64 (RFC 7617).
    """
    try:
        user, at, _ = urlsplit(url).netloc.rpartition("@")
    except ValueError:
        return None
    if not at:
        return None
    name, _, password = user.partition(":")
    return "Basic " + base64.b64encode(unquote_to_bytes(name) + b":" + unquote_to_bytes(password)).decode("ascii")


def merged(*groups: Mapping[str, str]) -> Dict[str, str]:
    """Merge headers of several origins: a later one takes the place of an earlier one of its name, however that is written."""
    found: Dict[str, str] = {}
    names: Dict[str, str] = {}
    for group in groups:
        for name, value in group.items():
            found.pop(names.get(name.lower(), ""), None)
            names[name.lower()] = name
            found[name] = value
    return found


def authorized(url: str, key: Optional[str], headers: Mapping[str, str]) -> Dict[str, str]:
    """Add the header that lets the request in: a given Authorization, else the URL's name and password, else the key."""
    value = basic_of(url) or ("Bearer " + key if key else None)
    return merged({AUTHORIZATION: value} if value else {}, headers)


LONGEST_ID = 4096
"""Bytes of the name of a model: longer ones are no names, and would go with every request."""


def askable(listed: Any) -> Tuple[List[Dict[str, Any]], str]:
    """Return the entries of `data` whose id can be sent with a request, unchanged, and what is wrong with the others (empty:
    nothing).

    An id is sent as the server writes it, whatever is in it: a cleaned one would be the name of no model.
    """
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    named = [entry for entry in entries if isinstance(entry.get("id"), str) and entry["id"]]
    fit = [entry for entry in named if len(entry["id"].encode("utf-8", "surrogatepass")) <= LONGEST_ID]
    left = len(named) - len(fit)
    if not left:
        return fit, ""
    which = "a model whose name is" if left == 1 else "%d models whose names are" % left
    return fit, "/v1/models lists %s longer than %d KiB, too long to be asked for" % (which, LONGEST_ID >> 10)


__all__ = ["SOCKET", "of_socket", "secrets_of", "shown_url", "socket_of"]


def socket_of(url: str) -> str | None:
    """Return the path of the Unix socket that an address names; None for a URL."""
    return socket_path(url.removeprefix(SOCKET)) if url.startswith(SOCKET) else None


def of_socket(path: str) -> str:
    """Return the address of a server on a Unix socket."""
    return SOCKET + quote(path)


def secrets_of(url: str) -> Tuple[str, ...]:
    """Return the password in a URL, or the name that stands alone for one (a token), as written, as meant and as sent.

    Empty if there is neither.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return ()
    secret = parts.password or parts.username
    sent = (basic_of(url) or "").rpartition(" ")[2]
    return tuple(dict.fromkeys((secret, unquote(secret), sent))) if secret else ()
