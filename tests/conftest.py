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


FIRST = ("tests/real/test_end_to_end", "tests/tmux/", "tests/real/", "test_static")
"""The files that take longest, in the order in which they begin: no two real vLLMs at once, and none of them alone at the end."""
SLOW = ("tests/host/", "tests/real/", "tests/tmux/")
"""Folders whose tests start real processes; a slow test elsewhere is marked where it stands."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: next((rank for rank, part in enumerate(FIRST) if part in item.nodeid), len(FIRST)))


@pytest.fixture
def make_sshd(tmp_path: Path) -> Iterator[MakeSshd]:
    """Start real OpenSSH servers with the given lines of sshd_config; they end with the test."""
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
    """Start one real OpenSSH server with default options."""
    return make_sshd()
