"""GPU samples from nvidia-smi, asked again and again: for hosts where the probe can't run (no python3)."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from tui.core.gpu import GpuSample
from tui.core.smi import SMI_APPS, SMI_QUERY, gpus_from_smi, with_processes
from tui.host.base import Host, HostError, Unreachable

EVERY_S = 2.0
TIMEOUT_S = 15.0


async def sample_smi(host: Host, sampled: Callable[[GpuSample], None], *, note: str, seconds: float) -> None:
    """Samples for about `seconds`, once at least; then the caller can try the probe again. `note` says why it isn't NVML.

    Raises Unreachable.
    """
    ends = time.monotonic() + seconds
    last = GpuSample()
    while True:
        try:
            last = gpus_from_smi(await _lines(host, SMI_QUERY), time.monotonic())
            if last.gpus:
                last = with_processes(last, await _lines(host, SMI_APPS))
            sampled(replace(last, note=f"{last.note}; {note}" if last.note else note))
        except TimeoutError:
            why = f"nvidia-smi has not answered for {TIMEOUT_S:.0f} s; {note}"
            sampled(replace(last, note=why, received_at=time.monotonic(), late=True))
        except Unreachable:
            raise
        except (HostError, ValueError) as error:
            sampled(GpuSample(note=f"{error}; {note}", received_at=time.monotonic()))
        if time.monotonic() + EVERY_S > ends:
            return
        await asyncio.sleep(EVERY_S)


async def _lines(host: Host, command: Sequence[str]) -> list[str]:
    done = await host.run(command, timeout=TIMEOUT_S)
    return done.stdout.decode("utf-8", "replace").splitlines()
