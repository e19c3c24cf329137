"""Addresses as they may be shown: a URL can hold a name and a password."""

from urllib.parse import unquote, urlsplit


def shown_url(url: str) -> str:
    """The URL without the name and the password of its user; one that can't be read without all before its last `@`."""
    try:
        parts = urlsplit(url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else url
    except ValueError:
        return url.rpartition("@")[2]


def secrets_of(url: str) -> tuple[str, ...]:
    """The password in a URL, as written and as meant; empty where there is none."""
    try:
        password = urlsplit(url).password
    except ValueError:
        return ()
    return tuple(dict.fromkeys((password, unquote(password)))) if password else ()
