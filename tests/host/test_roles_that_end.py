"""The probe's roles end while the client sleeps: what ran before is started again at once, and nothing is said to be missing."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from simulated_driver import SimulatedDriver, row
from test_session import Cuttable

from tui.core.gpu import GpuSample
from tui.host.base import ProbeFailed, ProbeStream
from tui.services import watchers
from tui.services.watchers import GpuWatcher


class Ending:
    """A real role, which ends after some frames as if its host had heard nothing of the client."""

    def __init__(self, inner: ProbeStream, frames: int) -> None:
        self.inner = inner
        self.frames = frames

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        async for frame in self.inner:
            yield frame
            self.frames -= 1
            if self.frames == 0:
                raise ProbeFailed("the probe's role watch on box ended with status 0")

    async def send(self, message: Mapping[str, Any]) -> None:
        await self.inner.send(message)

    async def close(self) -> None:
        await self.inner.close()


class Sleepy(Cuttable):
    """A host whose roles end early, and some of which can't be started again at once."""

    def __init__(self, frames: int, refused: int) -> None:
        super().__init__()
        self.frames = frames
        self.refused = refused
        self.begun = 0

    async def start_probe(self, role: str, arguments: Mapping[str, Any]) -> ProbeStream:
        self.begun += 1
        if 1 < self.begun <= 1 + self.refused:
            raise ProbeFailed("the relay on box has ended")
        inner = await super().start_probe(role, arguments)
        return Ending(inner, self.frames) if self.begun == 1 else inner


@pytest.mark.parametrize("refused", [0, 3])
async def test_gpus_that_were_sampled_are_sampled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int) -> None:
    driver = SimulatedDriver(tmp_path)
    driver.play(row(0))
    for name, value in driver.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(watchers, "OLD_S", 1.0)
    host = Sleepy(frames=8, refused=refused)
    samples: list[tuple[float, GpuSample]] = []
    watcher = GpuWatcher(host, lambda sample: samples.append((time.monotonic(), sample)), hz=10)
    async with host:
        await host.connect()
        work = asyncio.create_task(watcher.run())
        try:
            async with asyncio.timeout(40):
                while host.begun < 2 + refused or not (samples and samples[-1][1].source == "nvml" and not samples[-1][1].late):
                    assert not work.done()
                    await asyncio.sleep(0.05)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
    assert {sample.source for _, sample in samples} == {"nvml"}
    assert not [sample.note for _, sample in samples if "nvidia-smi" in (sample.note or "")]
    old = [sample for at, sample in samples if sample.late]
    assert bool(old) == (refused > 0)
    assert all(sample.unheard and sample.late_s and sample.late_s >= 1.0 for sample in old)
