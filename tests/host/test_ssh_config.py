"""What the OpenSSH configuration says of a host: each value as `ssh -G` gives it, too."""

import subprocess
from pathlib import Path

import pytest
from needs import need
from sshd import SSHD

from tui.host.base import Refused
from tui.host.ssh_config import resolve


def write(folder: Path, text: str, name: str = "config") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_defaults(tmp_path: Path) -> None:
    login = resolve("gpu-box", files=[tmp_path / "missing"])
    assert (login.host, login.port, login.name, login.jumps, login.identity_files) == ("gpu-box", 22, "gpu-box", (), None)
    assert [file.name for file in login.known_hosts] == ["known_hosts", "known_hosts2"]
    assert [str(file) for file in login.global_known_hosts] == ["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"]
    assert (login.accept_new, login.never_ask, login.hash_known_hosts) == (False, False, False)


def test_the_target_beats_the_configuration(tmp_path: Path) -> None:
    file = write(tmp_path, "Host *\n  User other\n  Port 22\n")
    login = resolve("gpu-box", "root", 2222, [file])
    assert (login.user, login.port, login.name) == ("root", 2222, "[gpu-box]:2222")


CONFIG = """
Include {folder}/conf.d/*
Match originalhost gpu-box exec "test -e {folder}/conf.d"
  ProxyJump me@jump:2200,inner
Host gpu-?ox !gpu-fox
  HostName %h.lab.example
  User root
  Port 2022
  HostKeyAlias rack-7
  IdentityFile {folder}/first
  IdentityFile {folder}/second
  CertificateFile {folder}/first-cert.pub
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/%n.known {folder}/more
  GlobalKnownHostsFile {folder}/global
  HashKnownHosts yes
  StrictHostKeyChecking accept-new
  ConnectTimeout 7
Host *
  User nobody
  ProxyCommand nc %h %p
"""


def test_an_alias_with_all_it_may_have(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    # The first value wins, and OpenSSH reads included files in the order of their names.
    write(tmp_path / "conf.d", "Host gpu-box\n  IdentityAgent /run/a\n", "10-a")
    write(tmp_path / "conf.d", "Host gpu-box\n  IdentityAgent /run/b\n  Port 1\nHost other\n  Port 2\n", "20-b")
    file = write(tmp_path, CONFIG.format(folder=tmp_path))
    login = resolve("gpu-box", files=[file])
    assert login.host == "gpu-box.lab.example"
    assert login.user == "root"
    assert login.port == 1
    assert login.name == "rack-7"
    assert login.jumps == ("me@jump:2200", "inner")
    assert login.identity_files == (tmp_path / "first", tmp_path / "second")
    assert login.certificate_files == (tmp_path / "first-cert.pub",)
    assert login.identities_only
    assert login.known_hosts == (tmp_path / "gpu-box.known", tmp_path / "more")
    assert login.global_known_hosts == (tmp_path / "global",)
    assert login.hash_known_hosts
    assert login.accept_new
    assert login.connect_timeout == 7
    assert login.agent == "/run/a"
    assert login.proxy_command == "nc gpu-box.lab.example 1"
    assert resolve("gpu-fox", files=[file]).user == "nobody"


def test_openssh_reads_the_same(tmp_path: Path) -> None:
    need(SSHD, "OpenSSH isn't installed")
    (tmp_path / "conf.d").mkdir()
    write(tmp_path / "conf.d", "Host gpu-box\n  Port 2\n", "20")
    write(tmp_path / "conf.d", "Host gpu-box\n  Port 1\n", "10")
    file = write(tmp_path, CONFIG.format(folder=tmp_path))
    for alias in ("gpu-box", "gpu-fox"):
        output = subprocess.run(["ssh", "-G", "-F", str(file), alias], check=True, capture_output=True, text=True).stdout
        theirs: dict[str, list[str]] = {}
        for line in output.splitlines():
            key, _, value = line.partition(" ")
            theirs.setdefault(key, []).append(value)
        ours = resolve(alias, files=[file])
        assert [ours.host] == theirs["hostname"]
        assert [str(ours.port)] == theirs["port"]
        assert [ours.user] == theirs["user"]
        assert list(ours.jumps) == theirs.get("proxyjump", [""])[0].split(",") or not ours.jumps


def test_match_final_is_read_last(tmp_path: Path) -> None:
    file = write(tmp_path, "Host gpu-box\n  HostName gpu.lab\nMatch final host *.lab\n  User root\n")
    assert resolve("gpu-box", files=[file]).user == "root"


@pytest.mark.parametrize("text", ["Port many\n", "Host gpu-box\n  User 'open\n", "Match nonsense x\n"])
def test_a_configuration_that_cannot_be_read_is_named_with_its_line(tmp_path: Path, text: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(Refused, match=rf"{file} line \d"):
        resolve("gpu-box", files=[file])


def test_an_include_in_a_circle_ends(tmp_path: Path) -> None:
    file = write(tmp_path, f"Include {tmp_path}/config\n")
    with pytest.raises(Refused, match="nested"):
        resolve("gpu-box", files=[file])
