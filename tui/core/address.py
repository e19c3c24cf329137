"""Addresses as they may be shown: a URL can hold a name and a password."""

from urllib.parse import quote, unquote, urlsplit

from tui.wire.address import SOCKET, shown_url, socket_path
from tui.wire.headers import basic_of

__all__ = ["SOCKET", "of_socket", "secrets_of", "shown_url", "socket_of"]


def socket_of(url: str) -> str | None:
    """The path of the Unix socket that an address names; None for a URL."""
    return socket_path(url.removeprefix(SOCKET)) if url.startswith(SOCKET) else None


def of_socket(path: str) -> str:
    """The address of a server on a Unix socket."""
    return SOCKET + quote(path)


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
