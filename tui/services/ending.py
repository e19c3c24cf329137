"""Ending what runs beside something else."""

import asyncio
from collections.abc import Coroutine
from typing import Any

CANCEL_AGAIN_S = 3.0
"""Longer than any orderly end of a watcher takes."""


async def ended_for_sure(work: Coroutine[Any, Any, None]) -> None:
    """Runs the work as a task that ends when this one is cancelled, also where something takes a cancellation for its own.

    A watcher that stays would hold up the next connection, and the end of the program.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task])
    finally:
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=CANCEL_AGAIN_S)
    task.result()
