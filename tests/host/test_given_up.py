"""What is given up while it opens, closes or goes on leaves nothing open: no channel, no process, no connection, no generator."""

import asyncio
import contextlib
import gc
import os
import socket
import ssl
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from conftest import MakeSshd
from endpoint import Endpoint
from scripted_server import SSE, Exchange, scripted
from slow_link import SlowLink
from sshd import Sshd, alive, descendants, eventually

from tui.aio import opened
from tui.core.bench_result import BenchProgress, Plan
from tui.host.api import ApiClient
from tui.host.base import NotPermitted
from tui.host.local import ExecHost, LocalHost
from tui.host.ssh import SshHost
from tui.host.ssh_dial import ProxyCommand, Route
from tui.host.ssh_login import Agent
from tui.services.bench_run import Benchmarks, BenchmarkTarget
from tui.services.deployment_watch import Session
from tui.services.diagnostics import examine
from tui.services.lazy_session import LazySession
from tui.settings import Deployment, EngineSettings, Settings

# -- while it opens ----------------------------------------------------------------------------------------------------------------

DELAY_S = 0.1
MOMENTS = [DELAY_S, 3 * DELAY_S]
"""Before the other side has confirmed the channel, and before it has taken the command."""


@contextlib.asynccontextmanager
async def far_host(sshd: Sshd) -> AsyncIterator[SshHost]:
    """Connect over a link with a round trip of 200 ms."""
    async with SlowLink(sshd.port) as link:
        sshd.write_client_config(f"Host gpu-box\n  Port {link.port}")
        sshd.known_hosts.write_text(sshd.host_line().replace(f":{sshd.port} ", f":{link.port} "))
        async with SshHost("gpu-box", config_files=[sshd.client_config]) as host:
            await host.connect()
            link.delay = DELAY_S
            yield host


@pytest.mark.sshd
@pytest.mark.parametrize("moment", MOMENTS)
async def test_commands_given_up_while_they_start_leave_no_session(make_sshd: MakeSshd, moment: float) -> None:
    server = make_sshd("MaxSessions 2")
    async with far_host(server) as host:
        for _ in range(5):
            # The limit is met for a moment, too: those that were given up have yet to end there.
            with contextlib.suppress(TimeoutError, NotPermitted):
                async with asyncio.timeout(moment):
                    await host.start_probe("watch", {})
        ends = time.monotonic() + 10
        while True:
            try:
                done = await host.run(["echo", "room"])
                break
            except NotPermitted:
                assert time.monotonic() < ends, "sessions are left"
        assert done.stdout == b"room\n"
        await eventually(lambda: not sessions(server), what="the shells' ends")


def sessions(server: Sshd) -> list[int]:
    """Return the processes of the server that are shells or probes."""
    names = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(server.pid) if os.path.exists(f"/proc/{pid}")}
    return [pid for pid, name in names.items() if name.startswith((b"/bin/sh", b"python"))]


@pytest.mark.sshd
async def test_http_given_up_while_it_connects_leaves_no_connection(sshd: Sshd) -> None:
    async with Endpoint() as endpoint, far_host(sshd) as host:
        async with httpx.AsyncClient(transport=host.transport(verify=False), timeout=10) as client:
            assert (await client.get(f"{endpoint.url}/tiny")).text == "ok"  # what needs more rounds at first is behind it
        for number in range(2, 5):
            async with httpx.AsyncClient(transport=host.transport(verify=False), timeout=DELAY_S) as client:
                with pytest.raises(httpx.ConnectTimeout):
                    await client.get(f"{endpoint.url}/tiny")
                await eventually(lambda number=number: endpoint.connections == number, what="the connection that nobody waits for")  # type: ignore[misc]
                await eventually(lambda: not endpoint._writers, what="its end")


@pytest.mark.parametrize("given_up", [True, False], ids=["cancelled", "silent"])
async def test_tls_given_up_during_its_handshake_leaves_no_connection(given_up: bool) -> None:
    """With a server that never says a word of TLS."""
    ended = asyncio.Event()
    begun = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        begun.set()
        with contextlib.suppress(ConnectionError):
            while await reader.read(65536):
                pass
        writer.close()
        await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    host = ExecHost(["env"])
    async with server, host:
        await host.connect()
        timeout = 30.0 if given_up else 1.0
        async with httpx.AsyncClient(transport=host.transport(verify=ssl.create_default_context()), timeout=timeout) as client:
            asking = asyncio.create_task(client.get(f"https://127.0.0.1:{port}/"))
            await asyncio.wait_for(begun.wait(), 10)
            if given_up:
                asking.cancel()
            await asyncio.wait([asking])
            assert asking.cancelled() or isinstance(asking.exception(), httpx.ConnectTimeout)
            await asyncio.wait_for(ended.wait(), 10)  # while the client is still open


async def test_what_is_opened_for_nobody_is_closed() -> None:
    opening = asyncio.Event()
    closed: list[str] = []

    async def open_it(fails: bool) -> str:
        await opening.wait()
        if fails:
            raise OSError("no such thing")
        return "thing"

    for fails in (False, True):
        opening.clear()
        task = asyncio.create_task(opened(open_it(fails), closed.append))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.shield(task)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        opening.set()
        if not fails:
            await eventually(lambda: closed == ["thing"], what="its end")
    assert await opened(open_it(False), closed.append) == "thing"
    with pytest.raises(OSError, match="no such thing"):
        await opened(open_it(True), closed.append)
    assert closed == ["thing"]


@pytest.mark.parametrize("when", ["closed while it connects", "cancelled while it connects", "asked when it is closed"])
async def test_an_agent_is_left(tmp_path: Path, when: str) -> None:
    """An agent that takes every connection and never answers."""
    connected: list[asyncio.StreamReader] = []
    left = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        connected.append(reader)
        while await reader.read(1024):
            pass
        left += 1
        writer.close()
        await writer.wait_closed()

    path = str(tmp_path / "agent")
    async with await asyncio.start_unix_server(serve, path):
        agent = Agent()
        if when == "asked when it is closed":
            await agent.close()
        asking = asyncio.create_task(agent.keys(path))
        await asyncio.sleep(0)  # it has begun to connect
        if when == "cancelled while it connects":
            asking.cancel()
        await agent.close()
        await asyncio.wait([asking])
        assert asking.cancelled() or asking.result() == []
        await eventually(lambda: connected and left == len(connected), seconds=2, what="the agent's connection is closed")


# -- while it closes ---------------------------------------------------------------------------------------------------------------


class Bad:
    """Closes with a failure, or so slowly that whoever waits is cancelled; a second time well."""

    role = "bad"

    def __init__(self, slow: bool) -> None:
        self.slow = slow
        self.closed = False

    async def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self.slow:
            await asyncio.Event().wait()
        raise OSError("it can't be closed")

    aclose = close


async def close(what: Any, slow: bool) -> None:
    """Close it; if a part of it is slow, until it is cancelled."""
    closing = asyncio.create_task(what.close())
    if slow:
        await asyncio.wait([closing], timeout=0.2)
        closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled() if slow else isinstance(closing.exception(), OSError)


@pytest.mark.sshd
@pytest.mark.parametrize("slow", [True, False], ids=["cancelled", "failing"])
@pytest.mark.parametrize("part", ["probe", "proxy"])
async def test_every_connection_of_a_way_is_closed(sshd: Sshd, part: str, slow: bool) -> None:
    async with SshHost("gpu-box", config_files=[sshd.client_config]) as host:
        await host.connect()
        route = host._route
        assert isinstance(route, Route)
        proxy = await ProxyCommand.start("sleep 60")
        if part == "probe":
            route.proxies = [proxy]
            host._standing.add(Bad(slow))  # type: ignore[arg-type]
        else:
            route.proxies = [proxy, Bad(slow)]  # type: ignore[list-item]  # the last is closed first
        await close(host, slow)
        assert route.connections == []
        assert not alive(proxy._process.pid)
        await eventually(lambda: not descendants(sshd.pid), what="the server's end of the connection")


async def test_a_proxy_command_is_ended_by_a_cancelled_close_too(tmp_path: Path) -> None:
    proxy = await ProxyCommand.start(f"sh -c 'trap \"\" TERM; touch {tmp_path}/ready; while :; do sleep 0.1; done'")
    await eventually(lambda: (tmp_path / "ready").exists(), what="the command")
    closing = asyncio.create_task(proxy.close())
    await asyncio.wait([closing], timeout=0.2)
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()
    assert not alive(proxy._process.pid)


@pytest.mark.parametrize("slow", [True, False], ids=["cancelled", "failing"])
@pytest.mark.parametrize("kind", ["exec", "local"])
async def test_every_process_of_a_host_is_ended(kind: str, slow: bool) -> None:
    host = ExecHost(["env"]) if kind == "exec" else LocalHost()
    before = set(descendants(os.getpid()))
    await host.connect()
    await host.start_probe("watch", {})
    assert set(descendants(os.getpid())) > before
    host._standing.add(Bad(slow))  # type: ignore[arg-type]
    await close(host, slow)
    await eventually(lambda: set(descendants(os.getpid())) <= before, what="its processes' ends")


@pytest.mark.parametrize("slow", [True, False], ids=["cancelled", "failing"])
async def test_every_client_of_the_api_is_closed(slow: bool) -> None:
    api = ApiClient("http://127.0.0.1:9", None)
    last = api._client
    api._left = [httpx.AsyncClient(), Bad(slow)]  # type: ignore[list-item]
    await close(api, slow)
    assert api._left[0].is_closed
    assert last.is_closed


@pytest.mark.parametrize("slow", [True, False], ids=["cancelled", "failing"])
async def test_the_host_of_a_session_is_closed_whatever_its_api_does(slow: bool) -> None:
    host = LocalHost()
    deployment = Deployment(engines=(EngineSettings(host="local", log="none"),))
    session = Session("box", "local", deployment, Settings(), host)
    await session.__aenter__()
    await host.connect()
    session.api._left = [Bad(slow)]  # type: ignore[list-item]

    class Leaving:
        async def close(self) -> None:
            await session.__aexit__(None, None, None)

    await close(Leaving(), slow)
    assert session.api._client.is_closed
    assert not host.connection.online


# -- while it goes on --------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def no_generator_left() -> Iterator[None]:
    """None is left for the loop to close in a task of its own, at a time of its own."""
    left: list[str] = []
    before = sys.get_asyncgen_hooks()

    def found(generator: AsyncGenerator[Any, Any]) -> None:
        left.append(str(generator))
        assert before.finalizer is not None
        before.finalizer(generator)

    sys.set_asyncgen_hooks(firstiter=before.firstiter, finalizer=found)
    try:
        yield
        gc.collect()
    finally:
        sys.set_asyncgen_hooks(*before)
    assert left == []


async def test_a_probe_and_a_command_that_are_read_no_more() -> None:
    async with LocalHost() as host:
        await host.connect()
        with no_generator_left():
            probe = await host.start_probe("watch", {"hz": 10.0})
            async for _ in probe:
                break
            command = await host.stream(["sh", "-c", "while echo line; do sleep 0.1; done"])
            async for _ in command:
                break
            await command.close()
            await probe.close()
            assert [frame async for frame in probe] == []
            assert [data async for data in command] == []


async def test_a_benchmark_that_is_left(tmp_path: Path) -> None:
    def endless(exchange: Exchange) -> str:
        exchange.send(SSE)
        exchange.token()
        exchange.wait_closed()
        return "close"

    with scripted(endless) as server:
        benchmarks = Benchmarks("box", BenchmarkTarget(server.url), host=None, open_local=LocalHost, state=tmp_path)
        with no_generator_left():
            async with contextlib.aclosing(benchmarks.run(Plan(concurrency=(2,), requests=4))) as news:
                async for item in news:
                    if isinstance(item, BenchProgress) and item.in_flight == 2:
                        break


async def test_a_check_up_that_is_left() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        api = f"http://127.0.0.1:{closed.getsockname()[1]}"
        deployment = Deployment(api=api, engines=(EngineSettings(host="local", log="none"),))
        for last in ("python3", "GPUs", "API"):
            async with LocalHost() as host:
                session = Session("box", "local", deployment, Settings(), host)
                with no_generator_left():
                    async with contextlib.aclosing(examine(session, token=False)) as checks:
                        async for check in checks:
                            if check.name == last:
                                break
                await session.api.close()


async def test_states_that_are_read_no_more() -> None:
    def open_session() -> Session:
        return Session("box", "local", Deployment(engines=(EngineSettings(host="local", log="none"),)), Settings(), LocalHost())

    async with LazySession("box", "local", open_session) as session:
        with no_generator_left():
            async with contextlib.aclosing(session.states()) as states:
                async for state in states:
                    if state.connection.online:
                        break
