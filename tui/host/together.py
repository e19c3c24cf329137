"""Several coroutines at once, ended together."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def together(*work: Coroutine[Any, Any, object]) -> None:
    """Runs all to their ends. The first failure, or a cancellation, ends the others, and is raised as it is.

    Not a task group: when one of its tasks fails at the moment in which the task around it is cancelled, Python 3.11 and 3.12 raise
    the failure alone. Whoever handles that and goes on never ends, and neither do those who wait for it.
    """
    tasks = [asyncio.create_task(one) for one in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        failures = [error for task in tasks if not task.cancelled() and (error := task.exception()) is not None]
    if failures:
        raise failures[0]
