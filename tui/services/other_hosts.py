"""The further hosts of a deployment: their GPUs are watched, its log and API are the first host's."""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence

from tui.aio import together
from tui.core.connection import ConnectionState, LinkState, retry_delay_s
from tui.core.deployment import HostSeen
from tui.core.gpu import GpuSample
from tui.core.gpu_findings import only
from tui.core.gpu_frames import gpus_from_frame
from tui.host.base import Host, HostError, ProbeFailed, Refused
from tui.services.smi_stream import WithoutNvml, sample_smi


class _LinkLost(Exception):
    """Ends the sampler of a connection that is gone."""

    def __init__(self, error: HostError) -> None:
        super().__init__(str(error))
        self.error = error


class OtherHost:
    """Connects, samples, and connects again, for ever. A refused login waits for `retry`."""

    def __init__(self, host: Host, target: str, wanted: str = "all", *, hz: float = 2.0, become: Sequence[str] = ()) -> None:
        self.host = host
        self.target = target
        self._wanted = wanted
        self._hz = hz
        self._become = list(become)
        self._again = asyncio.Event()
        self._publish: Callable[[HostSeen], None] = lambda seen: None
        self._seen = HostSeen(target)
        self._without_nvml = WithoutNvml(host, self._take)

    def retry(self) -> None:
        """Tries to connect now."""
        self._again.set()

    async def run(self, publish: Callable[[HostSeen], None]) -> None:
        """Watches until it is cancelled; then the host is closed."""
        self._publish = publish
        async with self.host:
            attempt = 0
            while True:
                attempt += 1
                self._again.clear()
                self._link(LinkState.CONNECTING)
                try:
                    await self.host.connect()
                except Refused as error:
                    self._link(LinkState.REFUSED, error)
                    await self._again.wait()
                    attempt = 0
                except HostError as error:
                    await self._back_off(LinkState.UNREACHABLE, error, attempt)
                else:
                    lost = await self._while_online()
                    attempt = 1
                    await self._back_off(LinkState.LOST, lost, attempt)

    async def _while_online(self) -> HostError:
        self._link(LinkState.ONLINE)
        try:
            # what breaks the sampler breaks the watch: figures must not stand still unseen
            await together(self._sample(), self._without_nvml.run(), self._notice_loss())
        except _LinkLost as lost:
            return lost.error
        raise AssertionError("the sampler ends only with the connection")

    async def _notice_loss(self) -> None:
        raise _LinkLost(await self.host.wait_lost())

    async def _sample(self) -> None:
        while True:
            with contextlib.suppress(HostError):
                try:
                    await self._sample_once()
                except ProbeFailed as error:
                    await sample_smi(self.host, self._take, note=error.cause, seconds=60.0)
            await asyncio.sleep(1.0)

    async def _sample_once(self) -> None:
        stream = await self.host.start_probe("watch", {"hz": self._hz, "become": self._become, "pids": None, "paths": []})
        try:
            async for frame in stream:
                if frame.get("f") == "gpus":
                    self._without_nvml.see(gpus_from_frame(frame, time.monotonic()))
        finally:
            await stream.close()

    def _take(self, sample: GpuSample) -> None:
        self._tell(HostSeen(self.target, self._seen.connection, only(sample, self._wanted)))

    async def _back_off(self, link: LinkState, error: HostError, attempt: int) -> None:
        delay = retry_delay_s(attempt, random.random())
        self._link(link, error, time.monotonic() + delay)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._again.wait()

    def _link(self, link: LinkState, error: HostError | None = None, retry_at: float | None = None) -> None:
        connection = ConnectionState(
            link=link,
            host=self.target,
            since=time.monotonic(),
            cause=error.cause if error is not None else None,
            advice=error.advice if error is not None else None,
            retry_at=retry_at,
        )
        self._tell(HostSeen(self.target, connection, self._seen.gpus))

    def _tell(self, seen: HostSeen) -> None:
        self._seen = seen
        self._publish(seen)
