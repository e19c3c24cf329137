"""The further hosts of a deployment, over real connections: their GPUs come into its state, one that is not there says why."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tui.cli.context import open_session
from tui.core.connection import LinkState
from tui.core.deployment import DeploymentState, HostSeen
from tui.core.gpu import Gpu, GpuSample
from tui.core.gpu_findings import only, together
from tui.core.gpu_health import health
from tui.host.base import HostError, ProbeStream, Unreachable
from tui.host.local import LocalHost
from tui.host.shipped import ShippedProbe
from tui.services.deployment_watch import Session
from tui.services.log_following import LogFollower
from tui.services.other_hosts import OtherHost
from tui.settings import Deployment, EngineSettings, Settings

ENGINES = (
    EngineSettings(host="local", log="none"),
    EngineSettings(host="exec:env", log="none"),
    EngineSettings(host="exec:env", gpus="0-3", log="none"),
    EngineSettings(host="exec:/nonexistent/prefix", log="none"),
)


async def test_every_further_host_is_watched_once_and_none_stops_the_others() -> None:
    settings = Settings(deployments={"two": Deployment(engines=ENGINES)})

    def there(state: DeploymentState) -> bool:
        first, second = state.others
        return (
            state.gpus is not None
            and first.gpus is not None
            and first.connection.online
            and second.connection.link in (LinkState.UNREACHABLE, LinkState.REFUSED)
        )

    async with open_session(settings, "two") as session:
        assert [other.host for other in session.state.others] == ["exec:env", "exec:/nonexistent/prefix"]
        deadline = time.monotonic() + 30
        while not there(session.state):
            assert time.monotonic() < deadline, session.state.others
            await session.next_state(1.0)
        assert session.state.others[1].connection.cause
        session.retry()
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


class Unsteady(LocalHost):
    """This machine, on a link that is cut when told, and with a probe whose frames may be beyond reading."""

    def __init__(self, broken: Exception | None = None) -> None:
        super().__init__()
        self.broken = broken
        self.cut = asyncio.Event()

    async def start_probe(self, role: str, arguments: Mapping[str, Any]) -> ShippedProbe:
        if self.broken is not None:
            raise self.broken
        return await super().start_probe(role, arguments)

    async def wait_lost(self) -> HostError:
        await self.cut.wait()
        self.cut.clear()
        return Unreachable("the cable was cut", "plug it in")


async def test_a_sampler_that_breaks_is_seen() -> None:
    other = OtherHost(Unsteady(ValueError("no frame at all")), "gpu-2")
    async with asyncio.timeout(20):
        with pytest.raises(ValueError, match="no frame at all"):
            await other.run(lambda seen: None)


async def test_a_lost_link_is_tried_again_and_nothing_stays() -> None:
    host, links = Unsteady(), list[LinkState]()
    came = asyncio.Event()

    def publish(seen: HostSeen) -> None:
        if links[-1:] != [seen.connection.link]:
            links.append(seen.connection.link)
            came.set()

    async def until(*wanted: LinkState) -> None:
        async with asyncio.timeout(30):
            while tuple(links[-len(wanted) :]) != wanted:
                came.clear()
                await came.wait()

    other = OtherHost(host, "gpu-2")
    watching = asyncio.create_task(other.run(publish))
    await until(LinkState.ONLINE)
    host.cut.set()
    await until(LinkState.ONLINE, LinkState.LOST)
    other.retry()
    await until(LinkState.LOST, LinkState.CONNECTING, LinkState.ONLINE)
    watching.cancel()
    await asyncio.wait([watching])
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


class Blind(LogFollower):
    """A host that can't tell where the chosen server writes."""

    def _elsewhere(self, source: str) -> bool:
        raise ValueError("a source beyond reading")


async def test_what_breaks_beside_a_log_is_seen(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("a line\n")
    deployment = Deployment(engines=(EngineSettings(host="local", log="auto"),))
    async with LocalHost() as host, asyncio.timeout(20):
        await host.connect()
        session = Session("kimi", "local", deployment, Settings(), host)
        with pytest.raises(ValueError, match="a source beyond reading"):
            await Blind(session.host, session.store, session.choice, "auto")._follow_once(f"file:{log}")


class Slow:
    """A stream that is not yet closed when it has ended."""

    def __init__(self, stream: ProbeStream) -> None:
        self.stream = stream
        self.closed = False

    def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        return aiter(self.stream)

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            await self.stream.close()
            await asyncio.Event().wait()


async def test_what_breaks_is_seen_where_closing_takes_longer_than_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "server.log"
    log.write_text("a line\n")
    deployment = Deployment(engines=(EngineSettings(host="local", log="auto"),))
    async with LocalHost() as host, asyncio.timeout(20):
        await host.connect()
        start = host.start_probe

        async def slow(*arguments: Any, **options: Any) -> Any:
            return Slow(await start(*arguments, **options))

        monkeypatch.setattr(host, "start_probe", slow)
        session = Session("kimi", "local", deployment, Settings(), host)
        with pytest.raises(ValueError, match="a source beyond reading"):
            await Blind(session.host, session.store, session.choice, "auto")._follow_once(f"file:{log}")


def test_the_gpus_that_a_configuration_means() -> None:
    sample = GpuSample(gpus=tuple(Gpu(index=n, uuid=f"GPU-{n}") for n in range(8)), source="nvml")
    assert only(sample, "all") is sample
    assert [gpu.index for gpu in only(sample, "4-5,7").gpus] == [4, 5, 7]
    assert [gpu.index for gpu in only(sample, "GPU-2").gpus] == [2]
    assert only(sample, "12").gpus == sample.gpus  # a wrong index hides nothing
    assert health(only(sample, "4-7")) == ()  # those left out are not missing
    assert together(["0-3", "6"]) == "0-3,6"
    assert together(["0-3", "all"]) == "all"
