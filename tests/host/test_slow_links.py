"""Links of real life: far away, frozen for a while, frozen for good, cut."""

import asyncio
import time
from collections.abc import AsyncIterator

import httpx
import pytest
from endpoint import Endpoint
from slow_link import SlowLink
from sshd import Sshd, alive, eventually

from tui.core.connection import LinkState
from tui.host.base import HostError, Unreachable
from tui.host.shipped import ShippedProbe
from tui.host.ssh import SshHost

pytestmark = pytest.mark.sshd


@pytest.fixture
async def link(sshd: Sshd) -> AsyncIterator[SlowLink]:
    async with SlowLink(sshd.port) as link:
        sshd.write_client_config(f"Host gpu-box\n  Port {link.port}")
        sshd.known_hosts.write_text(sshd.host_line().replace(f":{sshd.port} ", f":{link.port} "))
        yield link


def host_of(sshd: Sshd) -> SshHost:
    return SshHost("gpu-box", config_files=[sshd.client_config])


async def frames_of(probe: ShippedProbe, count: int) -> None:
    async for _ in probe:
        count -= 1
        if not count:
            return


async def test_a_link_of_300_ms(sshd: Sshd, link: SlowLink) -> None:
    link.delay = 0.15
    async with Endpoint(gap=0.02) as endpoint, host_of(sshd) as host:
        await host.connect()
        probe = await host.start_probe("watch", {"hz": 10.0})
        await asyncio.wait_for(frames_of(probe, 20), 15)
        await eventually(lambda: host.connection.round_trip_ms, what="the first round trip")
        assert host.connection.round_trip_ms is not None
        assert 300 <= host.connection.round_trip_ms < 3000
        async with httpx.AsyncClient(transport=host.transport(verify=False), timeout=10) as client:
            assert (await client.get(f"{endpoint.url}/tiny")).text == "ok"
            async with client.stream("GET", f"{endpoint.url}/events") as reply:
                count = 0
                async for _ in reply.aiter_lines():
                    count += 1
                    if count == 60:
                        break
            await asyncio.wait_for(endpoint.left.wait(), 5)
        assert host.connection.online


async def test_a_pause_of_5_s_is_survived(sshd: Sshd, link: SlowLink) -> None:
    async with host_of(sshd) as host:
        await host.connect()
        probe = await host.start_probe("watch", {"hz": 2.0})
        await frames_of(probe, 3)
        link.freeze()
        await asyncio.sleep(5)  # the pause itself
        link.thaw()
        await asyncio.wait_for(frames_of(probe, 12), 10)
        assert host.connection.online


async def test_a_link_frozen_for_good(sshd: Sshd, link: SlowLink) -> None:
    async with host_of(sshd) as host:
        await host.connect()
        probe = await host.start_probe("watch", {"hz": 2.0})
        pid = probe.hello["pid"]
        link.freeze()
        frozen = time.monotonic()
        error = await asyncio.wait_for(host.wait_lost(), 20)
        noticed = time.monotonic() - frozen
        assert isinstance(error, Unreachable)
        assert host.connection.link is LinkState.LOST
        with pytest.raises(HostError):
            await frames_of(probe, 1000)
        await eventually(lambda: not alive(pid), seconds=12, what="the end of the probe on the host")
        print(
            f"noticed after {noticed:.1f} s; the probe had ended {time.monotonic() - frozen:.1f} s after the freeze at the latest"
        )
        # Closing does not wait for the dead.
        started = time.monotonic()
        await host.close()
        assert time.monotonic() - started < 5


async def test_a_cut_link_is_noticed_at_once_and_connected_again(sshd: Sshd, link: SlowLink) -> None:
    async with host_of(sshd) as host:
        await host.connect()
        link.cut()
        error = await asyncio.wait_for(host.wait_lost(), 2)
        assert isinstance(error, Unreachable)
        await host.connect()
        assert (await host.run(["echo", "back"])).stdout == b"back\n"


async def test_a_link_that_freezes_during_the_login(sshd: Sshd, link: SlowLink) -> None:
    sshd.write_client_config(f"ConnectTimeout 2\nHost gpu-box\n  Port {link.port}")
    link.freeze()
    async with host_of(sshd) as host:
        with pytest.raises(Unreachable, match="no answer"):
            await asyncio.wait_for(host.connect(), 6)
