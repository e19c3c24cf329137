"""What two offers of algorithms lack in common, by messages as RFC 4253, section 7.1, lays them out."""

import pytest

from tui.host.ssh_login import nothing_in_common

BOTH = ("curve25519-sha256", "ssh-ed25519", "aes256-ctr", "aes256-ctr", "hmac-sha2-256", "hmac-sha2-256", "none", "none", "", "")


def offer(*lists: str) -> bytes:
    """Return a KEXINIT message: its number, 16 bytes of cookie, ten lists of names, a flag and four reserved bytes."""
    named = b"".join(len(names).to_bytes(4, "big") + names.encode() for names in lists)
    return bytes([20]) + bytes(16) + named + bytes(5)


def but(**changes: str) -> bytes:
    return offer(*(changes.get(f"_{number}", names) for number, names in enumerate(BOTH)))


@pytest.mark.parametrize(
    ("client", "server", "words"),
    [
        (but(), but(), None),
        (but(_0="ext-info-c,kex-strict-c-v00@openssh.com"), but(_0="a,ext-info-s"),
         "key exchange algorithm found, sent <None> and received a"),
        (but(_0="a,b"), but(_0="c,b"), None),
        (but(_1="null"), but(), "host key algorithm found, sent null and received ssh-ed25519"),
        (but(_3="x"), but(), "encryption algorithm found, sent x and received aes256-ctr"),
        (but(_4="x"), but(), "MAC algorithm found, sent x and received hmac-sha2-256"),
        (but(_2="aes256-gcm@openssh.com", _4="x"), but(_2="aes256-gcm@openssh.com"), None),
        (but(_3="chacha20-poly1305@openssh.com", _5="x"), but(_3="chacha20-poly1305@openssh.com"), None),
        (but(_7="zlib"), but(), "compression algorithm found, sent zlib and received none"),
        (but(_0="a"), b"", None),
        (but(_0="a"), but(_0="b")[:40], None),
        (but(_0="a"), bytes(17) + b"\xff" * 40, None),
    ],
)  # fmt: skip
def test_what_is_lacking(client: bytes, server: bytes, words: str | None) -> None:
    assert nothing_in_common(client, server) == (None if words is None else f"No matching {words}")
