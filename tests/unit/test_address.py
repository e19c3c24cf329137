"""Addresses as they may be shown, and what of them is secret."""

import pytest

from tui.core.address import secrets_of, shown_url, socket_of
from tui.probe.load_http import target_of
from tui.wire.headers import unsendable


@pytest.mark.parametrize(
    ("url", "shown", "secrets"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000", ()),
        ("https://[::1]:8000/v1", "https://[::1]:8000/v1", ()),
        (
            "http://me:pass%40word@gpu-box:8000/a@b?c=d",
            "http://gpu-box:8000/a@b",
            ("pass%40word", "pass@word", "bWU6cGFzc0B3b3Jk"),
        ),
        ("http://token@gpu-box", "http://gpu-box", ("token", "dG9rZW46")),
        ("http://a:b:c@[::1]:1/x", "http://[::1]:1/x", ("b:c", "YTpiOmM=")),
        ("unix:/run/vllm.sock", "unix:/run/vllm.sock", ()),
        ("http://gpu-box/x?api_key=geheim", "http://gpu-box/x", ()),
        ("unix:/run/a?b", "unix:/run/a?b", ()),
        ("http://a:b@[::1", "[::1", ()),
    ],
)
def test_a_url_is_shown_without_its_user(url: str, shown: str, secrets: tuple[str, ...]) -> None:
    assert shown_url(url) == shown
    assert secrets_of(url) == secrets


@pytest.mark.parametrize(
    "url",
    [
        "ftp://me:geheim@box",
        "http://me:geheim@box:99999",
        "http://me:geheim@box/a b",
        "http://me:geheim@[x",
        "http://box/v1?api_key=geheim",
        "http://box#geheim",
    ],
)
def test_a_refused_url_does_not_show_its_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"box|x") as caught:
        target_of(url)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("unix:/run/vllm.sock", "/run/vllm.sock"),
        ("unix:///run/vllm.sock", "/run/vllm.sock"),
        ("unix://run/vllm.sock", "/run/vllm.sock"),
        ("unix:/run/a%20b", "/run/a b"),
        ("unix:run/vllm.sock", "run/vllm.sock"),
        ("http://box", None),
    ],
)
def test_a_socket_has_one_name(url: str, path: str | None) -> None:
    assert socket_of(url) == path
    if path is not None and path.startswith("/"):
        assert target_of(url).unix == path


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("X-Team", "a b; c=d", None),
        ("X-Team", "grün", None),
        ("X-Team", "a\nEvil: yes", "line break"),
        ("X-Team", "a\r", "line break"),
        ("X-Team", "\0", "NUL"),
        ("X-Team", "模型", "Latin-1"),
        ("X Team", "a", "no name"),
        ("X\nEvil", "a", "no name"),
        ("", "a", "no name"),
    ],
)
def test_which_headers_can_be_sent(name: str, value: str, words: str | None) -> None:
    said = unsendable(name, value)
    assert said is None if words is None else words in (said or "")
