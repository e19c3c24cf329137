"""Fixtures that several parts of the tests use."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from needs import need
from sshd import SSHD, Sshd

MakeSshd = Callable[..., Sshd]


@pytest.fixture
def make_sshd(tmp_path: Path) -> Iterator[MakeSshd]:
    """Starts real OpenSSH servers with the given lines of sshd_config; they end with the test."""
    need(SSHD, "OpenSSH's server (sshd) isn't installed")
    servers: list[Sshd] = []

    def make(*options: str) -> Sshd:
        server = Sshd(tmp_path / f"sshd{len(servers)}", *options)
        servers.append(server)
        return server.start()

    yield make
    for server in servers:
        server.stop()


@pytest.fixture
def sshd(make_sshd: MakeSshd) -> Sshd:
    """One real OpenSSH server with default options."""
    return make_sshd()
