"""Addresses of servers as they are written, and as they may be shown: a URL can hold a password or a key. Python 3.8: this runs on
the GPU host too."""

import re
from urllib.parse import unquote, urlsplit

SOCKET = "unix:"
"""How the address of a server on a Unix socket begins; the socket's absolute path follows, percent-encoded where need be."""


def socket_path(written: str) -> str:
    """The path of a Unix socket as it stands behind `unix:`: `unix:///run/a%20b` is `unix:/run/a%20b`, and both are `/run/a b`."""
    path = unquote(written)
    return "/" + path.lstrip("/") if path.startswith("/") else path


def port_of(url: str) -> int:
    """The port that a URL names, or its scheme's. Raises ValueError for one that can't be read, or whose port is none."""
    parts = urlsplit(url)
    port = parts.port
    if port == 0:
        raise ValueError("port 0")
    return port or (443 if parts.scheme == "https" else 80)


def shown_url(url: str) -> str:
    """The URL without the name and the password of its user, and without a query and a fragment, which may hold a key.

    Of one that can't be read no more than its host and its path, and not even those where they may be a part of a password.
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
    if "@" in behind:  # http://me:pass/word@box, where nobody can tell what is the host
        return scheme + "…"
    return scheme + host.rpartition("@")[2] + re.split("[?#]", behind, maxsplit=1)[0]
