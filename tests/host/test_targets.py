"""TARGET syntax: what each form means, and what is said of a wrong one."""

import pytest

from tui.host.local import ExecHost, LocalHost
from tui.host.open import open_host
from tui.host.ssh import SshHost
from tui.host.target import SshTarget, parse_ssh


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu-box", SshTarget("gpu-box")),
        ("root@gpu-box", SshTarget("gpu-box", "root")),
        ("root@gpu-box:2222", SshTarget("gpu-box", "root", 2222)),
        ("gpu_box.lab-1.example.com:22", SshTarget("gpu_box.lab-1.example.com", None, 22)),
        ("me@corp.example@gpu-box", SshTarget("gpu-box", "me@corp.example")),
        ("ssh://root@gpu-box:2222/", SshTarget("gpu-box", "root", 2222)),
        ("root@[fe80::1%eth0]:22", SshTarget("fe80::1%eth0", "root", 22)),
        ("[::1]", SshTarget("::1")),
        ("fe80::1", SshTarget("fe80::1")),
        (" 10.0.0.7 ", SshTarget("10.0.0.7")),
    ],
)
def test_a_target_is_read(text: str, expected: SshTarget) -> None:
    assert parse_ssh(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a host"),
        ("@gpu-box", "no user"),
        ("root@", "not a host"),
        ("gpu-box:0", "port"),
        ("gpu-box:65536", "port"),
        ("gpu-box:ssh", "port"),
        ("gpu-box:", "port"),
        ("-oProxyCommand=evil", "not a host"),
        ("gpu box", "not a host"),
        ("gpu-box;reboot", "not a host"),
        ("$(id)@gpu box", "not a host"),
        ("ro\not@gpu-box", "user name"),
        ("-l@gpu-box", "user name"),
        ("[::1", "brackets"),
        ("[::1]22", "brackets"),
    ],
)
def test_a_wrong_target_is_named(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_ssh(text)


def test_each_form_opens_its_host() -> None:
    assert isinstance(open_host("local"), LocalHost)
    assert isinstance(open_host("exec:docker exec -i 'my box'"), ExecHost)
    host = open_host("root@gpu-box:2222", name="kimi")
    assert isinstance(host, SshHost)
    assert host.name == "kimi"
    assert not host.connection.online


@pytest.mark.parametrize("text", ["", "  ", "exec:", "exec:   ", "exec:docker 'exec"])
def test_a_target_that_names_no_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"empty|needs a command|split into words"):
        open_host(text)
