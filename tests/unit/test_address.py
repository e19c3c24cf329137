"""Addresses as they may be shown, and what of them is secret."""

from pathlib import Path

import pytest

from tui.probe.load_http import target_of
from tui.settings import SettingsError, parse_settings
from tui.wire.urls import secrets_of, shown_url, socket_of, unsendable


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
        ("http://a:b@[::1", "http://[::1", ()),
        ("http://gpu-box/x?api_key=ge@heim", "http://gpu-box/x", ()),
        ("http://gpu-box:8000#ge@heim", "http://gpu-box:8000", ()),
        ("gpu-box:8000", "gpu-box:8000", ()),
        ("http://gpu-box:99999/x", "http://gpu-box:99999/x", ()),
        ("http://[::1?api_key=geheim", "http://[::1", ()),
        # if nobody can tell what is the password and what the host
        ("http://[::1?api_key=ge@heim", "http://…", ()),
        ("http://me:ge/heim@gpu-box", "http://…", ()),
        ("http://me:ge?heim@gpu-box", "http://…", ()),
        ("http://me:ge#heim@gpu-box:8000", "http://…", ()),
        ("me:geheim@gpu-box", "gpu-box", ()),
        ("me:ge/heim@gpu-box", "…", ()),
    ],
)
def test_a_url_is_shown_without_its_user(url: str, shown: str, secrets: tuple[str, ...]) -> None:
    assert shown_url(url) == shown
    assert secrets_of(url) == secrets


QUERY = " has a query, which requests can't carry: give a key in a header, not in the URL"
FRAGMENT = " has a part that begins with #, which no request carries: leave it out"
PORT = ": the port is not a number from 1 to 65535"
ENCODED = PORT + "; write a / in a password as %2F, a ? as %3F, a # as %23"
NO_URL = 'must be a URL such as "http://127.0.0.1:8000", not '
GOES_ON = "must be a URL that ends with its path, not "
KEY = " and more: a query string is not sent with requests: give a key by api_key_env or headers"
MARK = " and more: the part after # is never sent"


@pytest.mark.parametrize(
    ("url", "shown", "by_flag", "by_settings"),
    [
        ("ftp://me:geheim@box", "ftp://box", " is not an http:// or https:// URL", NO_URL),
        ("me:geheim@box:8000", "box:8000", " is not an http:// or https:// URL", NO_URL),
        ("http://", "http://", " is not an http:// or https:// URL", NO_URL),
        ("http://me:geheim@[x", "http://[x", " is not a URL", NO_URL),
        ("http://me:geheim@box:99999", "http://box:99999", PORT, NO_URL),
        ("http://me:geheim@box:0", "http://box:0", PORT, NO_URL),
        ("http://me:geheim@box:port", "http://box:port", PORT, NO_URL),
        ("http://me:ge/heim@box", "http://…", ENCODED, NO_URL),
        ("http://me:ge?heim@box", "http://…", ENCODED, NO_URL),
        ("http://me:ge#heim@box:8000", "http://…", ENCODED, NO_URL),
        ("http://box:8000/v1?api_key=geheim", "http://box:8000/v1", QUERY, (GOES_ON, KEY)),
        ("http://box:8000/v1?api_key=sk-ge@heim", "http://box:8000/v1", QUERY, (GOES_ON, KEY)),
        ("http://me:geheim@box/v1?x=ge@heim#ge@heim", "http://box/v1", QUERY, (GOES_ON, KEY)),
        ("http://box#geheim", "http://box", FRAGMENT, (GOES_ON, MARK)),
        ("http://box/v1#ge@heim", "http://box/v1", FRAGMENT, (GOES_ON, MARK)),
    ],
)
def test_a_refused_url_says_why_and_shows_no_secret(url: str, shown: str, by_flag: str, by_settings: str | tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        target_of(url)
    assert str(caught.value) == f"{shown!r}{by_flag}"
    before, behind = (by_settings, "") if isinstance(by_settings, str) else by_settings
    with pytest.raises(SettingsError) as refused:
        parse_settings(f'[deployments.k]\napi = "{url}"', Path("c.toml"))
    assert str(refused.value) == f"c.toml: deployments.k.api: {before}{shown!r}{behind}"


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
