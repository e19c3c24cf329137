"""Fixtures that several parts of the tests use."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from needs import need
from sshd import SSHD, Sshd

MakeSshd = Callable[..., Sshd]

# What runs the tests (nohup, a shell's background job) may ignore these: the commands under test would inherit it.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest first, so that none of them is left alone at the end."""
    items.sort(key=lambda item: not any(part in item.nodeid for part in ("tests/real/", "tests/tmux/", "test_static")))


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
