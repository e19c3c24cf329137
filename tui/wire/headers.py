"""What goes into the headers of a request, the same wherever it is sent from. Python 3.8: this runs on the GPU host too."""

import base64
from typing import Dict, Mapping, Optional
from urllib.parse import unquote_to_bytes, urlsplit

AUTHORIZATION = "Authorization"
TOKEN_CHARACTERS = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""Of the name of a header (RFC 9110, 5.6.2)."""


def unsendable(name: str, value: str) -> Optional[str]:
    """Why a header can't be sent; None where it can. The value is not repeated: it may be secret."""
    if not name or not TOKEN_CHARACTERS.issuperset(name):
        return "that is no name of a header"
    if any(c in value for c in "\r\n\0"):
        return "its value has a line break or a NUL, which no header may have"
    if any(ord(c) > 255 for c in value):
        return "its value has characters beyond Latin-1, which no header can have"
    return None


def basic_of(url: str) -> Optional[str]:
    """The value of the Authorization header that the name and password in a URL ask for, as curl sends it: percent-decoded, in
    base64 (RFC 7617). None where the URL has neither, or can't be read."""
    try:
        user, at, _ = urlsplit(url).netloc.rpartition("@")
    except ValueError:
        return None
    if not at:
        return None
    name, _, password = user.partition(":")
    return "Basic " + base64.b64encode(unquote_to_bytes(name) + b":" + unquote_to_bytes(password)).decode("ascii")


def merged(*groups: Mapping[str, str]) -> Dict[str, str]:
    """Headers of several origins in one: a later one takes the place of an earlier one of its name, however that is written."""
    found: Dict[str, str] = {}
    names: Dict[str, str] = {}
    for group in groups:
        for name, value in group.items():
            found.pop(names.get(name.lower(), ""), None)
            names[name.lower()] = name
            found[name] = value
    return found


def authorized(url: str, key: Optional[str], headers: Mapping[str, str]) -> Dict[str, str]:
    """The headers with the one that lets the request in: a given Authorization, else the URL's name and password, else the key."""
    value = basic_of(url) or ("Bearer " + key if key else None)
    return merged({AUTHORIZATION: value} if value else {}, headers)
