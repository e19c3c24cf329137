"""Leaving while something goes wrong: a cancellation is never taken for something else, and nothing is waited for that stays."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from sshd import free_port
from test_session import Cuttable, session_on, until

from tui.aio import together
from tui.host.base import Unreachable


async def test_what_fails_while_it_is_cancelled() -> None:
    failing = asyncio.Event()

    async def fail() -> None:
        await failing.wait()
        raise ValueError

    async def parent() -> None:
        with contextlib.suppress(ValueError):
            await together(fail(), asyncio.sleep(60))

    for steps in range(5):
        failing.clear()
        task = asyncio.create_task(parent())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        failing.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        if task.cancel():
            await asyncio.wait([task], timeout=5)
            assert task.cancelled() or steps > 2
        assert task.done()


async def test_the_first_failure_ends_the_others() -> None:
    ended: list[str] = []

    async def stay() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("stayed")

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("why")

    with pytest.raises(ValueError, match="why"):
        await together(stay(), fail())
    assert ended == ["stayed"]
    await together(asyncio.sleep(0), asyncio.sleep(0.01))
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


@pytest.mark.parametrize("steps", range(5))
async def test_quitting_at_the_moment_in_which_the_link_is_lost(tmp_path: Path, steps: int) -> None:
    log = tmp_path / "vllm.log"
    log.write_text("line 0\n")
    host = Cuttable()
    session = session_on(host, log, f"http://127.0.0.1:{free_port()}")
    async with asyncio.timeout(60):
        await session.__aenter__()
        await until(session, lambda state: state.connection.online and state.log.lines)
        assert host._lost is not None
        host._lost.set_result(Unreachable("cut"))
        for _ in range(steps):
            await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await session.__aexit__(None, None, None)
    assert host.connects == 1
