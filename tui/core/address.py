"""Addresses as they may be shown: a URL can hold a name and a password."""

from urllib.parse import quote, unquote, urlsplit

from tui.wire.headers import basic_of, socket_path

SOCKET = "unix:"
"""How the address of a server on a Unix socket begins; the socket's absolute path follows, percent-encoded where need be."""


def socket_of(url: str) -> str | None:
    """The path of the Unix socket that an address names; None for a URL."""
    return socket_path(url.removeprefix(SOCKET)) if url.startswith(SOCKET) else None


def of_socket(path: str) -> str:
    """The address of a server on a Unix socket."""
    return SOCKET + quote(path)


def shown_url(url: str) -> str:
    """The URL without the name and the password of its user, and without a query, which may hold a key; one that can't be read
    without all before its last `@`."""
    if url.startswith(SOCKET):
        return url
    try:
        parts = urlsplit(url)
        if "@" not in parts.netloc and not parts.query and not parts.fragment:
            return url
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    except ValueError:
        return url.rpartition("@")[2].partition("?")[0]


def secrets_of(url: str) -> tuple[str, ...]:
    """The password in a URL, or the name that stands alone for one (a token), as written, as meant and as sent; empty where there
    is neither."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ()
    secret = parts.password or parts.username
    sent = (basic_of(url) or "").rpartition(" ")[2]
    return tuple(dict.fromkeys((secret, unquote(secret), sent))) if secret else ()
