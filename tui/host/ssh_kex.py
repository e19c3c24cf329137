"""The algorithms that both sides of an SSH connection offer (RFC 4253, section 7.1), and what they lack in common."""

_KINDS = ("key exchange", "host key", "encryption", "encryption", "MAC", "MAC", "compression", "compression")
"""Of the first lists of a KEXINIT message, in its order: of those that come twice, the second is for what the server sends."""
_COOKIE_END = 17
_BUILT_IN = ("-gcm@openssh.com", "chacha20-poly1305@openssh.com")
"""Ends of the ciphers that bring their own check, so that no MAC is agreed on."""

_NO_ALGORITHMS = ("ext-info-", "kex-strict-")
"""Beginnings of names in the list of key exchanges that say what a side can do."""


def nothing_in_common(client: bytes, server: bytes) -> str | None:
    """What keeps two KEXINIT messages from an agreement, in asyncssh's words; None where they agree or can't be read."""
    try:
        pairs = list(zip(_KINDS, _lists(client), _lists(server), strict=True))
    except ValueError:
        return None
    ciphers: list[str] = []
    for kind, ours, theirs in pairs:
        if kind == "MAC" and ciphers.pop(0).endswith(_BUILT_IN):
            continue
        chosen = next((name for name in ours if name in theirs), None)
        if chosen is None:
            sent, received = ",".join(ours) or "<None>", ",".join(theirs) or "<None>"
            return f"No matching {kind} algorithm found, sent {sent} and received {received}"
        if kind == "encryption":
            ciphers.append(chosen)
    return None


def _lists(message: bytes) -> list[list[str]]:
    """Raises ValueError for what is cut off."""
    lists: list[list[str]] = []
    at = _COOKIE_END
    for _ in _KINDS:
        end = at + 4 + int.from_bytes(message[at : at + 4], "big")
        if end > len(message) or at + 4 > len(message):
            raise ValueError("a KEXINIT message that is cut off")
        names = message[at + 4 : end].decode("ascii", "replace").split(",")
        lists.append([name for name in names if name and not name.startswith(_NO_ALGORITHMS)])
        at = end
    return lists
