"""GPU samples from one nvidia-smi that runs on: for hosts on which the probe can't run, or finds no NVML."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import NoReturn

from msgspec.structs import replace

from tui.aio import ended, patiently
from tui.core.connection import retry_delay_s
from tui.core.gpu import GpuSample
from tui.core.smi_csv import APPS_END, SmiReader, apps_stream, smi_stream, with_processes
from tui.core.text import LineSplitter
from tui.host.base import CommandStream, Host, HostError, Unreachable

EVERY_S = 2.0
APPS_EVERY_S = 20
SILENCE_S = 15.0
"""Seconds without output after which an nvidia-smi hangs in the driver."""
QUIET_S = 1.0
"""Seconds without another line after which a sample is complete, if the number of its GPUs doesn't tell."""
AGAIN_S = 300.0
"""Seconds after which an nvidia-smi that told of no GPU is asked again."""
STEADY_S = 30.0
"""An nvidia-smi that ran longer than this before it ended is started again at once; a shorter one after a growing pause."""


async def sample_smi(host: Host, sampled: Callable[[GpuSample], None], *, note: str, seconds: float) -> None:
    """Sample for about `seconds`, once at least; then the caller can try the probe again. `note` says why it isn't NVML.

    A command that hangs is waited for, however long: another one would only hang beside it. Raise Unreachable.
    """
    sampling = _Sampling(host, sampled, note, time.monotonic() + seconds)
    listing = asyncio.create_task(sampling.list_processes())
    try:
        await sampling.run()
    finally:
        await ended(listing)


class SmiFallback:
    """Asks nvidia-smi while the probe finds no NVML: the two may see different libraries (a container, an odd installation)."""

    def __init__(self, host: Host, publish: Callable[[GpuSample], None]) -> None:
        self._host = host
        self._publish = publish
        self._wanted = asyncio.Event()
        self.serves = False
        """Whether nvidia-smi tells of GPUs, so that its samples are the ones to show."""

    def start(self) -> None:
        """Ask nvidia-smi: the probe finds no GPU."""
        self._wanted.set()

    def stop(self) -> None:
        """Leave it to the probe, which finds GPUs."""
        self._wanted.clear()
        self.serves = False

    async def run(self) -> NoReturn:
        """Ask whenever that is wanted, until cancelled."""
        while True:
            await self._wanted.wait()
            await self._sample(0.0)
            while self.serves:
                await self._sample(60.0)
            await asyncio.sleep(AGAIN_S)

    async def _sample(self, seconds: float) -> None:
        try:
            await sample_smi(self._host, self._take, note="NVML can't be loaded here: values come from nvidia-smi", seconds=seconds)
        except Unreachable:
            await asyncio.sleep(1.0)  # the link's own task notices and ends this one

    def _take(self, sample: GpuSample) -> None:
        self.serves = bool(sample.gpus)
        if self.serves:
            self._publish(sample)


class _Sampling:
    """Two commands that go on: the samples, and who computes on the GPUs."""

    def __init__(self, host: Host, sampled: Callable[[GpuSample], None], note: str, ends: float) -> None:
        self._host = host
        self._sampled = sampled
        self._note = note
        self._ends = ends
        self._last = GpuSample()
        self._processes: list[str] = []
        self._over = False

    async def run(self) -> None:
        attempt = 0
        while True:
            began = time.monotonic()
            try:
                await self._follow()
            except Unreachable:
                raise
            except HostError as error:
                self._complain(str(error))
            if self._over:
                return
            attempt = 1 if time.monotonic() - began > STEADY_S else attempt + 1
            await asyncio.sleep(retry_delay_s(attempt, 0.5))

    async def _follow(self) -> None:
        """Publish what one nvidia-smi prints, until it ends or the time is up."""
        reader, splitter = SmiReader(), LineSplitter()
        stream = await self._host.stream(smi_stream(int(EVERY_S * 1000)))
        heard = time.monotonic()
        try:
            async with contextlib.aclosing(patiently(stream, lambda: QUIET_S if reader.begun else SILENCE_S)) as output:
                async for data in output:
                    now = time.monotonic()
                    if data is None and not reader.begun:
                        self._hold(f"nvidia-smi has not answered for {now - heard:.0f} s", now - heard)
                        continue
                    heard = now
                    for line in splitter.feed(data) if data is not None else ():
                        self._publish(reader.feed(line, now))
                    if reader.begun and (reader.whole or data is None):
                        self._publish(reader.flush(now))
                    if self._over:
                        return
            for line in splitter.flush():
                self._publish(reader.feed(line, heard))
            if reader.begun:
                self._publish(reader.flush(time.monotonic()))
            else:
                how = await stream.how_it_ended()
                missing = "status 127" in how
                self._complain("there is no nvidia-smi: no NVIDIA driver, or not on the PATH" if missing else how)
        finally:
            await stream.close()

    def _publish(self, sample: GpuSample | None) -> None:
        if sample is None:
            return
        self._last = with_processes(sample, self._processes) if sample.gpus else sample
        self._sampled(replace(self._last, note=f"{sample.note}; {self._note}" if sample.note else self._note))
        self._over = time.monotonic() + EVERY_S > self._ends

    def _hold(self, why: str, late_s: float | None = None) -> None:
        """Show the last values as late."""
        at = self._last.received_at if self._last.gpus else time.monotonic()
        self._sampled(replace(self._last, note=f"{why}; {self._note}", received_at=at, late=True, late_s=late_s))

    def _complain(self, why: str) -> None:
        self._hold(why)
        self._over = time.monotonic() + EVERY_S > self._ends

    async def list_processes(self) -> None:
        """Keep the list of processes up to date; without one the GPUs are shown without processes."""
        attempt = 0
        while True:
            with contextlib.suppress(HostError):  # `run` hears the same and says it
                stream = await self._host.stream(apps_stream(APPS_EVERY_S))
                try:
                    await self._keep(stream)
                finally:
                    await stream.close()
            attempt += 1
            await asyncio.sleep(retry_delay_s(attempt, 0.5))

    async def _keep(self, stream: CommandStream) -> None:
        splitter = LineSplitter()
        lines: list[str] = []
        async for data in stream:
            for line in splitter.feed(data):
                if line == APPS_END:
                    self._processes, lines = lines, []
                else:
                    lines.append(line)
