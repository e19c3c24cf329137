"""What the OpenSSH configuration says of a host: each value as `ssh -G` gives it, too."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from needs import need
from sshd import SSHD

from tui.host.base import HostError, Refused, Unreachable
from tui.host.ssh_config import Login, resolve
from tui.host.target import parse_ssh


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
    assert login.proxy_command is None  # the jump came first
    assert resolve("gpu-fox", files=[file]).proxy_command == "nc gpu-fox 22"
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
    with pytest.raises(Refused, match=r"nested|recursive"):
        resolve("gpu-box", files=[file])


# -- what `ssh` accepts is accepted, with and without OpenSSH's client -------------------------------------------------------------

KEYWORDS = [
    line.partition(" ")[::2]
    for line in (Path(__file__).parent.parent / "data" / "ssh" / "keywords.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
SPELLINGS: dict[str, Callable[[str, str], str]] = {
    "plain": lambda keyword, value: f"{keyword} {value}",
    "lower case, equals": lambda keyword, value: f"\t{keyword.lower()}={value}",
    "upper case, spaced equals": lambda keyword, value: f"{keyword.upper()}  =  {value}  ",
}


@pytest.fixture(params=["ssh -G", "own reader"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Read a configuration in both ways: with OpenSSH, and without it."""
    if request.param == "own reader":
        monkeypatch.setattr("shutil.which", lambda program, **options: None)
    else:
        need(SSHD, "OpenSSH isn't installed")
    return str(request.param)


def accepted_by_ssh(file: Path, alias: str = "box") -> dict[str, list[str]] | None:
    done = subprocess.run(
        ["ssh", "-G", "-F", str(file), alias], check=False, capture_output=True, encoding="utf-8", errors="replace"
    )
    if done.returncode:
        return None
    values: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        values.setdefault(key, []).append(value)
    return values


def test_every_keyword_that_ssh_accepts_is_accepted(tmp_path: Path, way: str) -> None:
    accepted = 0
    for keyword, value in KEYWORDS:
        for spelling, write_as in SPELLINGS.items():
            file = write(tmp_path, write_as(keyword, value) + "\n")
            if accepted_by_ssh(file) is not None:
                accepted += 1
                assert isinstance(resolve("box", files=[file]), Login), (keyword, value, spelling)
    assert accepted > 280


def test_an_unknown_keyword_is_a_note(tmp_path: Path) -> None:
    need(SSHD, "OpenSSH isn't installed")
    file = write(tmp_path, "Host *\n  UseKeychain yes\n  Port 2022\n  FutureThing on\n")
    login = resolve("box", files=[file])
    assert login.port == 2022
    assert len(login.notes) == 2
    assert "usekeychain" in login.notes[0]


LINES = [
    "ServerAliveInterval 1m",
    "ConnectTimeout 10s",
    "ConnectTimeout none",
    "UserKnownHostsFile ~/.ssh/known_hosts.d/%k",
    "HostKeyAlias rack\nUserKnownHostsFile ~/.ssh/known_hosts.d/%k /etc/more",
    "IdentityFile ~/.ssh/%k",
    'Match exec "test %h = other"\n  Port 2',
    'Match exec "test %h = box"\n  Port 2',
    "Match exec=true\n  Port 3",
    "Host b?x !other\n  Port 4\nHost *\n  Port 5",
    "Host !box *\n  Port 4\nHost *\n  Port 5",
    "Port ssh",
    "User=root",
    'User "root"',
    "HostName %h.lab.example",
    "ProxyJump a,b:2200",
    "ProxyJump none\nProxyCommand nc %h %p",
    "ProxyCommand none",
    "Match user root\n  Port 6\nMatch all\n  User root",
    "Match final\n  Port 7",
    "Port 8 # a comment",
    "Host box\n  HostName 127.0.0.1\nMatch host 127.0.0.1\n  Port 9",
]


@pytest.mark.parametrize("text", LINES)
def test_a_line_means_what_it_means_to_ssh(tmp_path: Path, way: str, text: str) -> None:
    need(SSHD, "OpenSSH isn't installed")
    file = write(tmp_path, text + "\n")
    theirs = accepted_by_ssh(file)
    assert theirs is not None
    ours = resolve("box", files=[file])
    assert [ours.host, str(ours.port), ours.user] == [theirs["hostname"][0], theirs["port"][0], theirs["user"][0]]
    timeout = theirs["connecttimeout"][0]
    assert ours.connect_timeout == (None if timeout == "none" else float(timeout))
    known = [str(path).replace(os.path.expanduser("~"), "HOME") for path in ours.known_hosts]
    assert " ".join(known) == theirs["userknownhostsfile"][0].replace(os.path.expanduser("~"), "HOME")
    assert ",".join(ours.jumps) == theirs.get("proxyjump", [""])[0].replace("none", "")


@pytest.mark.parametrize("criterion", ["localnetwork 10.0.0.0/8", "version OpenSSH_9*", "sessiontype exec", "command rsync*"])
def test_newer_criteria_are_passed_over_without_openssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, criterion: str) -> None:
    monkeypatch.setattr("shutil.which", lambda program, **options: None)
    assert resolve("box", files=[write(tmp_path, f"Match {criterion}\n  Port 2\n")]).port == 22


def test_a_latin_1_byte_in_a_comment_does_not_matter(tmp_path: Path, way: str) -> None:
    file = tmp_path / "config"
    file.write_bytes(b"# M\xfcller\nPort 2022\n")
    assert resolve("box", files=[file]).port == 2022


@pytest.mark.parametrize("port", ["99999", "0", "-1", "many"])
def test_a_port_that_is_none_is_named(tmp_path: Path, way: str, port: str) -> None:
    file = write(tmp_path, f"Host box\n  Port {port}\n")
    with pytest.raises(Refused, match=r"(?i)port"):
        resolve("box", files=[file])


def test_a_match_exec_that_does_not_end_is_given_up(tmp_path: Path, way: str) -> None:
    file = write(tmp_path, 'Match exec "sleep 60"\n  Port 2\n')
    started = time.monotonic()
    if way == "ssh -G":
        with pytest.raises(Unreachable, match="Match exec"):
            resolve("box", files=[file])
    else:
        login = resolve("box", files=[file])
        assert login.port == 22
        assert "sleep 60" in login.notes[0]
    assert time.monotonic() - started < 10


# -- names that a shell could take for commands ------------------------------------------------------------------------------------

HOSTILE = ["$(>pwned)", "`>pwned`", "a;b", "a|b", "a&b", "a'b", 'a"b', "a>b", "a<b", "a(b", "a{b}", "-oProxyCommand=x", "a\nb"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_refused_wherever_it_comes_from(tmp_path: Path, way: str, name: str) -> None:
    file = write(tmp_path, "ProxyCommand echo %r %h %n\n")
    for target in (f"{name}@box", name):
        with pytest.raises(ValueError, match="no"):
            parse_ssh(target)
    for alias, user in ((name, None), ("box", name)):
        with pytest.raises(HostError, match="contains characters"):
            resolve(alias, user, files=[file])
    if "\n" not in name:
        quoted = "'" + name + "'" if '"' in name else f'"{name}"'
        file = write(tmp_path, f"Host box\n  HostName {quoted}\n")
        with pytest.raises(HostError):
            resolve("box", files=[file])


def test_a_dollar_in_a_user_name_stays_a_letter(tmp_path: Path, way: str) -> None:
    file = write(tmp_path, "ProxyCommand printf %%s '' \"%r\" %r\n")
    command = resolve("box", "DOM\\me$HOME", files=[file]).proxy_command
    assert command is not None
    assert subprocess.run(["/bin/sh", "-c", command], check=True, capture_output=True, text=True).stdout == "DOM\\me$HOME" * 2
