"""Which server a deployment is, as servers come and go on its host: tables of looks at a host, and who is meant after each."""

from typing import Any

import pytest

from tui.core.server_end import LastServer
from tui.services.server_choice import ServerChoice, Wanted
from tui.services.server_search import FoundServer

PORT_9000 = "http://127.0.0.1:9000"


def server(pid: int, port: int = 8000, at: float | None = None, **facts: Any) -> FoundServer:
    return FoundServer(pid, "vllm", port=port, started_at=float(pid) if at is None else at, **facts)


A, B = server(100), server(200, 9000)
EARLIER = server(50, 9000)


@pytest.mark.parametrize(
    ("wanted", "looks", "pids"),
    [
        (Wanted(), [[A]], [100]),
        (Wanted(), [[A], [A, B], [B], [B]], [100, 100, None, None]),  # another one that runs on does not take its place
        (Wanted(), [[A], [], [B]], [100, None, None]),  # nor does one that is started later elsewhere
        (Wanted(), [[A], [], [server(300)]], [100, None, 300]),  # its next start, on its port
        (Wanted(), [[A], [A, server(300)], [server(300)]], [100, 100, 300]),  # before the old one has gone
        (Wanted(), [[server(100, source="file:/a.log")], [], [B, server(300, 8001, source="file:/a.log")]], [100, None, 300]),
        (Wanted(), [[A], [server(100, 9000, at=500.0)]], [100, None]),  # its number went to another
        (Wanted(), [[server(100, 8000)], [server(100, 8001)]], [100, 100]),  # it has only come to listen
        (Wanted(configured=True), [[A, B], [B]], [100, None]),
        (Wanted(configured=True), [[B]], [200]),  # no port was named, and it is the only one
        (Wanted(PORT_9000, configured=True), [[A]], [None]),  # the one on another port is another
        (Wanted(PORT_9000, configured=True), [[A, B], [A], [A, server(300, 9000)]], [200, None, 300]),
        (Wanted(PORT_9000, configured=True), [[server(100, 8000, own_network=True)]], [100]),  # a container's published port
        (Wanted(PORT_9000, log="file:/a.log", configured=True), [[A, server(101, source="file:/a.log")]], [101]),
        (Wanted(PORT_9000, log="file:/a.log", configured=True), [[A]], [None]),
        (Wanted(port=9000), [[A]], [None]),
        (Wanted(port=9000), [[A, B], [A], [A, EARLIER]], [200, None, 50]),  # the port is what was asked for
        (Wanted(direct=True), [[A]], [100]),  # at this machine's own address
        (Wanted("http://llm.example.com:8000", direct=True, configured=True), [[A]], [None]),  # elsewhere
        (Wanted("https://llm.example.com", direct=True, configured=True), [[A]], [None]),
        (Wanted("https://llm.example.com", direct=True, configured=True, host_named=True), [[A]], [100]),
        (Wanted("http://gpu-box:8000", direct=True, configured=True, host_named=True), [[A, B], [B]], [100, None]),
        (Wanted("http://gpu-box:8080", direct=True, configured=True, host_named=True), [[A]], [None]),
    ],
)
def test_which_one_is_meant(wanted: Wanted, looks: list[list[FoundServer]], pids: list[int | None]) -> None:
    choice = ServerChoice("box", "box", wanted)
    meant = []
    for look in looks:
        choice.see(look, "boot")
        meant.append(choice.server.pid if choice.server is not None else None)
    assert meant == pids


def test_a_choice_holds_until_the_next() -> None:
    choice = ServerChoice("box", "box", Wanted())
    choice.see([A, B], "boot")
    assert choice.undecided
    choice.choose(100)
    choice.see([B], "boot")
    assert (choice.server, choice.alive, choice.undecided) == (None, False, False)
    choice.choose(200)
    assert (choice.server, choice.alive) == (B, True)


@pytest.mark.parametrize(
    ("last", "boot", "found", "pid"),
    [
        (LastServer(100, 1.0, boot="b", port=8000, beside=(200,)), "b", [B], None),  # they ran beside each other
        (LastServer(100, 1.0, boot="b", port=8000), "b", [B], 200),  # it was started since
        (LastServer(100, 1.0, boot="b", port=8000, beside=(200,)), "c", [B], 200),  # the host was restarted: other numbers
        (LastServer(100, 1.0, boot="b", port=8000, beside=(200,)), "b", [A, B], 100),  # undecided: a guess
        (LastServer(100, 1.0, boot="b", port=9000, beside=(200,)), "b", [B], 200),  # on its port
    ],
)
def test_one_that_ran_beside_the_last_is_not_its_next_start(
    last: LastServer, boot: str, found: list[FoundServer], pid: int | None
) -> None:
    choice = ServerChoice("box", "box", Wanted())
    choice.last.server = last
    choice.see(found, boot)
    assert (choice.server.pid if choice.server is not None else None) == pid
