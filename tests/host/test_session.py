"""A session on this machine: the real probe, a real log file, a real HTTP server, and a connection that the test can cut."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from test_api import UP, Replay

from tui.core.api_status import Reach
from tui.core.connection import ConnectionState, LinkState
from tui.core.deployment import DeploymentState
from tui.core.deployment_status import Status, conflict_of, status_of
from tui.core.logs.load_state import Phase, ServerStart
from tui.host.base import CommandStream, Completed, Host, HostError, ProbeFailed, ProbeStream, Refused, Unreachable
from tui.host.local import LocalHost
from tui.record.store import RunStore
from tui.services.deployment_watch import Session
from tui.settings import Deployment, EngineSettings, Settings

LOGS = Path(__file__).parent.parent / "data" / "logs"


class Cuttable:
    """This machine, behind a connection that the test cuts or refuses."""

    def __init__(self) -> None:
        self.name = "box"
        self.inner = LocalHost("box")
        self.refuse: list[HostError] = []
        self.connects = 0
        self.without_python = False
        self._lost: asyncio.Future[HostError] | None = None
        self._streams: list[ProbeStream | CommandStream] = []

    async def __aenter__(self) -> Host:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def connection(self) -> ConnectionState:
        return self.inner.connection

    async def connect(self) -> None:
        self.connects += 1
        if self.refuse:
            raise self.refuse.pop(0)
        await self.inner.connect()
        self._lost = asyncio.get_running_loop().create_future()

    async def wait_lost(self) -> HostError:
        assert self._lost is not None
        return await asyncio.shield(self._lost)

    async def cut(self, error: HostError) -> None:
        assert self._lost is not None
        self._lost.set_result(error)
        for stream in self._streams:
            await stream.close()
        self._streams.clear()

    async def run(self, argv: Sequence[str], *, input: bytes = b"", timeout: float = 10.0) -> Completed:
        return await self.inner.run(argv, input=input, timeout=timeout)

    async def start_probe(self, role: str, arguments: Mapping[str, Any]) -> ProbeStream:
        if self.without_python:
            raise ProbeFailed("no python3 on box", "install it")
        stream = await self.inner.start_probe(role, arguments)
        self._streams.append(stream)
        return stream

    async def stream(self, argv: Sequence[str]) -> CommandStream:
        stream = await self.inner.stream(argv)
        self._streams.append(stream)
        return stream

    def transport(self, *, verify: Any = True, uds: str | None = None) -> Any:
        return self.inner.transport(verify=verify, uds=uds)

    async def open_stream(self, host: str, port: int, path: str | None = None) -> Any:
        return await self.inner.open_stream(host, port, path)

    async def close(self) -> None:
        for stream in self._streams:
            await stream.close()
        await self.inner.close()


@pytest.fixture
async def server() -> AsyncIterator[Replay]:
    async with Replay() as replay:
        yield replay


def session_on(host: Host, log: Path | str, api: str, record: RunStore | None = None) -> Session:
    source = log if isinstance(log, str) else f"file:{log}"
    deployment = Deployment(api=api, engines=(EngineSettings(host="local", log=source),))
    return Session("kimi", "local", deployment, Settings(), host, record)


async def until(session: Session, predicate: Callable[[DeploymentState], object], seconds: float = 30.0) -> DeploymentState:
    async def wait() -> DeploymentState:
        async for state in session.states():
            if predicate(state):
                return state
        raise AssertionError("the session ended")

    try:
        return await asyncio.wait_for(wait(), seconds)
    except TimeoutError:
        raise AssertionError(f"never happened; the last state: {session.state}") from None


async def test_from_an_empty_host_to_ready(tmp_path: Path, server: Replay) -> None:
    log = tmp_path / "vllm.log"
    record = RunStore(tmp_path / "record.sqlite")
    port = server.port
    lines = (LOGS / "servers" / "26-kimi-k25-8xh200-ep8-ready.log").read_text().splitlines(keepends=True)
    async with session_on(Cuttable(), log, f"http://127.0.0.1:{port}", record) as session:
        state = await until(session, lambda s: s.log.problem)
        assert "no such file" in (state.log.problem or "")
        shard = next(number for number, line in enumerate(lines) if "% Completed | 2" in line or "% Completed | 1" in line) + 1
        log.write_text("".join(lines[:shard]))
        state = await until(session, lambda s: s.load and s.load.phase is Phase.LOADING)
        assert state.load is not None
        assert state.load.shards is not None
        assert state.log.problem is None
        with log.open("a") as file:
            file.writelines(lines[shard:])
        state = await until(session, lambda s: s.load and s.load.ready)
        server.answers = dict(UP)
        state = await until(session, lambda s: status_of(s) == Status.READY and s.gpus and s.forecast.ready_s)
        assert state.api.version == "0.32.0"
        assert conflict_of(state) is None
        assert len(state.log.lines) == len(lines)
        assert [line.number for line in state.log.lines] == list(range(1, len(lines) + 1))
        await until(session, lambda _: record.loads(ServerStart("kimi", "local", port)))
    assert not server.answers.keys() & {"POST /v1/completions"}
    assert not any(line.startswith("POST") for line, _, _ in server.asked)  # watching generates nothing
    record.close()


async def test_a_lost_link_loses_and_doubles_no_line(tmp_path: Path, unused_tcp_port: int) -> None:
    log = tmp_path / "vllm.log"
    log.write_text("line 0\n")
    host = Cuttable()
    async with session_on(host, log, f"http://127.0.0.1:{unused_tcp_port}") as session:
        await until(session, lambda s: len(s.log.lines) == 1 and s.machine)
        await host.cut(Unreachable("the cable was cut", "plug it in"))
        state = await until(session, lambda s: s.connection.link is LinkState.LOST)
        assert state.connection.cause == "the cable was cut"
        assert state.connection.retry_at is not None
        assert state.machine is not None
        with log.open("a") as file:
            file.writelines(f"line {number}\n" for number in range(1, 50))
        session.retry()
        await until(session, lambda s: len(s.log.lines) >= 50 and s.connection.online)
        with log.open("a") as file:
            file.write("line 50\n")
        state = await until(session, lambda s: len(s.log.lines) >= 51)
        assert [line.text for line in state.log.lines] == [f"line {number}" for number in range(51)]


async def test_refused_is_final_until_retry(tmp_path: Path, unused_tcp_port: int) -> None:
    host, beside = Cuttable(), Cuttable()
    host.refuse = [Refused("the host key changed", "look into it")]
    beside.refuse = [Unreachable("no route"), Unreachable("no route")]
    api = f"http://127.0.0.1:{unused_tcp_port}"
    async with session_on(host, tmp_path / "log", api) as session, session_on(beside, tmp_path / "log", api) as other:
        state = await until(session, lambda s: s.connection.link is LinkState.REFUSED)
        assert state.connection.retry_at is None
        await until(other, lambda s: s.connection.online)  # one that began with it has been tried again, twice
        assert beside.connects == 3
        assert host.connects == 1
        assert session.state.connection.link is LinkState.REFUSED
        session.retry()
        await until(session, lambda s: s.connection.online)
        assert host.connects == 2


async def test_unreachable_is_tried_again(tmp_path: Path, unused_tcp_port: int) -> None:
    host = Cuttable()
    host.refuse = [Unreachable("no route"), Unreachable("no route")]
    async with session_on(host, tmp_path / "log", f"http://127.0.0.1:{unused_tcp_port}") as session:
        state = await until(session, lambda s: s.connection.link is LinkState.UNREACHABLE)
        assert state.connection.attempt == 1
        await until(session, lambda s: s.connection.online)
        assert host.connects == 3


async def test_without_python_the_log_and_the_api_still_tell(tmp_path: Path, server: Replay) -> None:
    log = tmp_path / "vllm.log"
    host = Cuttable()
    host.without_python = True
    server.answers = dict(UP)
    async with session_on(host, log, server.url) as session:
        state = await until(session, lambda s: s.api.ready and s.gpus and s.log.problem)
        assert status_of(state) == Status.READY
        assert state.gpus is not None
        assert "no python3" in (state.gpus.note or "")
        assert "no such file" in (state.log.problem or "")
        assert "no python3" in (state.log.note or "")
        log.write_text("one\ntw")
        await until(session, lambda s: len(s.log.lines) == 1 and s.log.problem is None)
        with log.open("a") as file:
            file.write("o\nthree\n")
        state = await until(session, lambda s: len(s.log.lines) == 3)
        assert [line.text for line in state.log.lines] == ["one", "two", "three"]


async def test_a_role_that_dies_is_started_again(tmp_path: Path, unused_tcp_port: int) -> None:
    log = tmp_path / "vllm.log"
    log.write_text("a\n")
    host = Cuttable()
    async with session_on(host, log, f"http://127.0.0.1:{unused_tcp_port}") as session:
        await until(session, lambda s: len(s.log.lines) == 1)
        for stream in list(host._streams):
            await stream.close()
        with log.open("a") as file:
            file.write("b\n")
        state = await until(session, lambda s: len(s.log.lines) > 1)
        assert [line.text for line in state.log.lines] == ["a", "b"]
        assert state.api.reach is Reach.CLOSED


async def test_leaving_at_once_is_clean(tmp_path: Path) -> None:
    async with session_on(Cuttable(), tmp_path / "log", "http://127.0.0.1:9") as session:
        assert session.state.connection.link in (LinkState.IDLE, LinkState.CONNECTING)
