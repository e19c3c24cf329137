"""known_hosts: which lines speak of a host, what is appended."""

import stat
from pathlib import Path

import asyncssh
import pytest

from tui.host import known_hosts

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIH52fbWQHcCvTZhVVv2hbtyfAZSmPo3dXt5vhvSXJ0hL"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKtAe7MFsjhcHpAtwGjEzVDP/w5cZu/UxKBBRF10cuQh"
# Written by `ssh-keygen -H` (OpenSSH 9.2) for the names gpu-box and [gpu-box]:2222.
HASHED = "|1|58t7q4Lt26ed9oFwM6wqwCvgi/0=|+xrUuj9raQZ1vQCKCU1+BU65STA="
HASHED_2222 = "|1|htJ3qd/TqhVpnSCdkHsDnBgc91A=|mj5MWtLbY6j2d6VxS/Z06oz1pco="


@pytest.mark.parametrize(
    ("names", "name", "expected"),
    [
        ("gpu-box", "gpu-box", True),
        ("gpu-box", "gpu-box2", False),
        ("GPU-Box", "gpu-box", True),
        ("gpu-box,10.0.0.7", "10.0.0.7", True),
        ("*.lab", "gpu.lab", True),
        ("gpu?", "gpu1", True),
        ("gpu?", "gpu12", False),
        ("*,!gpu1", "gpu1", False),
        ("!gpu1,*", "gpu1", False),
        ("!gpu1,*", "gpu2", True),
        ("[gpu-box]:2222", "[gpu-box]:2222", True),
        ("[gpu-box]:2222", "gpu-box", False),
        ("[g]pu-box", "gpu-box", False),
        ("[*]:2222", "[gpu-box]:2222", True),
        (HASHED, "gpu-box", True),
        (HASHED, "[gpu-box]:2222", False),
        (HASHED_2222, "[gpu-box]:2222", True),
        ("|1|not base64|", "gpu-box", False),
        ("|1|YQ==", "gpu-box", False),
    ],
)
def test_names_of_a_line(names: str, name: str, expected: bool) -> None:
    assert known_hosts.names_match(names, name) is expected


def test_lines_are_read_with_their_numbers(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(
        f"# a comment\n\ngpu-box {KEY} me@home\n@revoked * {OTHER}\n@cert-authority *.lab {KEY}\n"
        f"broken\n@unknown gpu-box {KEY}\ngpu-box ssh-ed25519 nonsense\ngpu-box\t{KEY}\r\n"
    )
    entries = known_hosts.read([tmp_path / "missing", file])
    assert [(entry.line, entry.marker, entry.names) for entry in entries] == [
        (3, "", "gpu-box"),
        (4, "@revoked", "*"),
        (5, "@cert-authority", "*.lab"),
        (9, "", "gpu-box"),
    ]
    known = known_hosts.matching(entries, "gpu-box")
    assert [entry.line for entry in known.keys] == [3, 9]
    assert [entry.place for entry in known.revoked] == [f"{file}:4"]
    assert known.authorities == ()
    assert [entry.line for entry in known_hosts.matching(entries, "x.lab").authorities] == [5]


def test_another_port_may_carry_the_key_of_port_22(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"gpu-box {KEY}\n")
    known = known_hosts.matching(known_hosts.read([file]), "[gpu-box]:2222", "gpu-box")
    assert [entry.line for entry in known.keys] == [1]
    assert known_hosts.changed(known, "[gpu-box]:2222") is None  # another key there is unknown, not changed
    file.write_text(f"gpu-box {KEY}\n[gpu-box]:2222 {OTHER}\n")
    known = known_hosts.matching(known_hosts.read([file]), "[gpu-box]:2222", "gpu-box")
    assert [entry.line for entry in known.keys] == [2]


@pytest.mark.parametrize("hashed", [False, True])
def test_an_accepted_key_is_appended_and_found_again(tmp_path: Path, hashed: bool) -> None:
    key = asyncssh.import_public_key(KEY)
    file = tmp_path / "new" / "known_hosts"
    known_hosts.append(file, known_hosts.line_for("[gpu-box]:2222", key, hashed=hashed))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert ("gpu-box" in file.read_text()) is not hashed
    (entry,) = known_hosts.matching(known_hosts.read([file]), "[gpu-box]:2222").keys
    assert entry.key == key


def test_appending_ends_an_unfinished_last_line(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"other {OTHER}")
    known_hosts.append(file, known_hosts.line_for("gpu-box", asyncssh.import_public_key(KEY), hashed=False))
    assert file.read_text() == f"other {OTHER}\ngpu-box {KEY}\n"
