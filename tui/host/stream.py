"""A foreign command on the shell's leash: for what goes on and on where the probe can't run."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Self

from tui.core.text import clean
from tui.host.base import HostError, NotPermitted, Unreachable
from tui.host.shell import ErrorTail, Process, after_mark, leash_script, new_mark
from tui.probe.leash import SHELL_BEAT, shell_opening
from tui.wire.frames import BEAT_S

START_S = 20.0
"""Seconds until the shell answers; more is a host that doesn't."""
END_S = 5.0
"""Seconds that the leash has to end the command once stdin is closed, before its shell is ended: the command would outlive that."""
PULLED = 137
"""The leash's status where it killed the command."""


class LeashedCommand:
    """See `tui.host.base.CommandStream`. One reader at a time."""

    def __init__(self, process: Process, argv: Sequence[str], where: str) -> None:
        self.role = clean(argv[0])
        """What it is called among the probes that run beside it."""
        self._process = process
        self._where = where
        self._errors = ErrorTail(process)
        self._first = b""
        self._heart: asyncio.Task[None] | None = None
        self._closed = False
        self.on_close: Callable[[], None] = lambda: None

    @classmethod
    async def start(cls, open_shell: Callable[[], Awaitable[Process]], argv: Sequence[str], where: str) -> Self:
        """Starts the command through a fresh shell. Raises NotPermitted or Unreachable."""
        try:
            opening = shell_opening(argv)
        except ValueError as error:
            raise NotPermitted(f"{clean(' '.join(argv))[:200]}: {error}", "rename what holds the newline") from None
        process = await open_shell()
        command = cls(process, argv, where)
        try:
            async with asyncio.timeout(START_S):
                mark = new_mark()
                await process.write(leash_script(mark))
                command._first = await after_mark(process, mark, where)
                await process.write(opening)
        except TimeoutError:
            await command.close()
            raise Unreachable(
                f"{where} gave no shell within {START_S:.0f} s", f"is {where} overloaded? It is tried again"
            ) from None
        except BaseException:
            await command.close()
            raise
        command._heart = asyncio.create_task(command._beat())
        return command

    async def _beat(self) -> None:
        try:
            while True:
                await self._process.write(SHELL_BEAT)
                await asyncio.sleep(BEAT_S)
        except HostError:
            pass  # the reader hears of it, with the reason

    # Not a generator: a reader that leaves one early leaves it to be closed in a task of the loop's own, whenever that comes.
    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first
        if self._closed or not (data := await self._process.read()):
            raise StopAsyncIteration
        return data

    async def how_it_ended(self) -> str:
        said = await self._errors.last_line()
        status = await self._process.wait()
        how = "was ended by a signal" if status in (None, PULLED) else f"ended with status {status}"
        return f"{self.role} on {self._where} {how}" + (f": {said}" if said else "")

    async def close(self) -> None:
        """Ends the command on the host. May be called twice."""
        if self._closed:
            return
        self._closed = True
        if self._heart is not None:
            self._heart.cancel()
        try:
            await self._process.close(grace=END_S)
        finally:
            self._errors.stop()
            self.on_close()
