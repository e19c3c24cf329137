"""Helpers for asyncio: run together, end and await tasks, open something for a caller who may be gone, read with a timeout."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

T = TypeVar("T")

_unwanted: set[asyncio.Future[Any]] = set()
"""Openings that go on without whoever asked for them; the loop itself holds no task."""


async def together(*work: Coroutine[Any, Any, object]) -> None:
    """Run all to their ends. The first failure, or a cancellation, ends the others, and is raised as it is.

    Not a task group: when one of its tasks fails at the moment in which the task around it is cancelled, Python 3.11 and 3.12 raise
    the failure alone. Whoever handles that and goes on never ends, and neither do those who wait for it.
    """
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        await ended(*tasks)
        failures = [error for task in tasks if not task.cancelled() and (error := task.exception()) is not None]
    if failures:
        raise failures[0]


async def ended(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait for their ends. An error that one of them ends with is dropped.

    Not `await task`: its cancellation and that of the task around could not be told apart. Each is cancelled once: a second
    time would break off what it closes on its way out.
    """
    for task in tasks:
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def opened(opening: Awaitable[T], close: Callable[[T], object]) -> T:
    """Return what `opening` gives. If the caller is cancelled meanwhile, it goes on, and its result is closed.

    For what the other side is asked for: the request can't be taken back, and its answer would belong to nobody.
    """
    task = asyncio.ensure_future(opening)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        _unwanted.add(task)
        task.add_done_callback(lambda done: _close_unwanted(done, close))
        raise


def _close_unwanted(task: "asyncio.Future[T]", close: Callable[[T], object]) -> None:
    _unwanted.discard(task)
    if not task.cancelled() and task.exception() is None:
        close(task.result())


async def in_thread(function: Callable[..., T], *args: object) -> T:
    """Run a function that may block for ever in a thread of its own, for which nobody waits at the end of the process.

    For files that may lie on a file system that hangs, or be no files at all: the threads of `asyncio.to_thread` are waited for.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(cast(T, result))
        else:
            done.set_exception(error)

    def work() -> None:
        result, error = None, None
        try:
            result = function(*args)
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, name=getattr(function, "__name__", "work"), daemon=True).start()
    return await done


async def patiently(stream: AsyncIterable[bytes], patience: Callable[[], float]) -> AsyncGenerator[bytes | None]:
    """Yield the output as it comes; None whenever nothing has come for `patience()` seconds. Raise what the stream raises.

    Close it (`contextlib.aclosing`) before the stream.
    """
    source = aiter(stream)
    coming = asyncio.ensure_future(anext(source, b""))
    try:
        while True:
            await asyncio.wait([coming], timeout=patience())
            if not coming.done():
                yield None
                continue
            data = coming.result()
            if not data:
                return
            coming = asyncio.ensure_future(anext(source, b""))
            yield data
    finally:
        await ended(coming)
