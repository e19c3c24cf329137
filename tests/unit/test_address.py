"""Addresses as they may be shown, and what of them is secret."""

import pytest

from tui.core.address import secrets_of, shown_url
from tui.probe.load_http import target_of


@pytest.mark.parametrize(
    ("url", "shown", "secrets"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000", ()),
        ("https://[::1]:8000/v1", "https://[::1]:8000/v1", ()),
        (
            "http://me:pass%40word@gpu-box:8000/a@b?c=d",
            "http://gpu-box:8000/a@b?c=d",
            ("pass%40word", "pass@word", "bWU6cGFzc0B3b3Jk"),
        ),
        ("http://token@gpu-box", "http://gpu-box", ("token", "dG9rZW46")),
        ("http://a:b:c@[::1]:1/x", "http://[::1]:1/x", ("b:c", "YTpiOmM=")),
        ("unix:/run/vllm.sock", "unix:/run/vllm.sock", ()),
        ("http://a:b@[::1", "[::1", ()),
    ],
)
def test_a_url_is_shown_without_its_user(url: str, shown: str, secrets: tuple[str, ...]) -> None:
    assert shown_url(url) == shown
    assert secrets_of(url) == secrets


@pytest.mark.parametrize(
    "url", ["ftp://me:geheim@box", "http://me:geheim@box:99999", "http://me:geheim@box/a b", "http://me:geheim@[x"]
)
def test_a_refused_url_does_not_show_its_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"box|x") as caught:
        target_of(url)
    assert "geheim" not in str(caught.value)
