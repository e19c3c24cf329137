"""Addresses as they may be shown: a URL can hold a name and a password."""

from urllib.parse import quote, unquote, urlsplit

from tui.wire.headers import basic_of

SOCKET = "unix:"
"""How the address of a server on a Unix socket begins; the socket's absolute path follows, percent-encoded where need be."""


def socket_of(url: str) -> str | None:
    """The path of the Unix socket that an address names; None for a URL."""
    return unquote(url.removeprefix(SOCKET)) if url.startswith(SOCKET) else None


def of_socket(path: str) -> str:
    """The address of a server on a Unix socket."""
    return SOCKET + quote(path)


def shown_url(url: str) -> str:
    """The URL without the name and the password of its user; one that can't be read without all before its last `@`."""
    try:
        parts = urlsplit(url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else url
    except ValueError:
        return url.rpartition("@")[2]


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
