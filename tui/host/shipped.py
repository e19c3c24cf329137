"""Programs that run on a host on the leash: the probe, which is shipped over a shell, and foreign commands."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self

from tui.core.text import clean
from tui.host.base import HostError, NotPermitted, ProbeFailed, Unreachable
from tui.host.shell import ErrorTail, HostProcess, after_mark, leash_script, new_mark, probe_script
from tui.probe.boot import opening
from tui.probe.leash import SHELL_BEAT, shell_opening
from tui.wire import frames
from tui.wire.frames import BEAT_S

START_S = 20.0
"""Seconds from the shell to the probe's first frame; more is a host that doesn't answer."""
FRAME_LIMIT = 64 << 20
"""Bytes of one frame; more is not one of ours."""
END_S = 5.0
"""Seconds that the leash has to end a command once stdin is closed, before its shell is ended: the command would outlive that."""
PULLED = 137
"""The leash's exit status if it killed the command."""


class _Shipped:
    """Keep a program alive on a host with heartbeats, keep the last of its stderr, and end it there. One reader at a time."""

    heartbeat: bytes
    grace_s = 1.0
    """Seconds to end by itself once its stdin is closed."""

    def __init__(self, process: HostProcess, role: str, where: str) -> None:
        self.role = role
        """What it is called among those that run beside it."""
        self._process = process
        self._where = where
        self._errors = ErrorTail(process)
        self._heart: asyncio.Task[None] | None = None
        self._closed = False
        self.on_close: Callable[[], None] = lambda: None

    def _start_heart(self) -> None:
        self._heart = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        try:
            while True:
                await self._process.write(self.heartbeat)
                await asyncio.sleep(BEAT_S)
        except HostError:
            pass  # the reader hears of it, with the reason

    async def _ending(self) -> str:
        """Wait for the end; return how it ended and the last words on stderr, for "NAME on HOST …"."""
        said = await self._errors.last_line()
        status = await self._process.wait()
        how = "was ended by a signal" if status in (None, PULLED) else f"ended with status {status}"
        return f"{self._where} {how}" + (f": {said}" if said else "")

    # Not a generator: a reader that leaves one early leaves it to be closed in a task of the loop's own, whenever that comes.
    def __aiter__(self) -> Self:
        return self

    async def close(self) -> None:
        """End the program on the host. May be called twice."""
        if self._closed:
            return
        self._closed = True
        if self._heart is not None:
            self._heart.cancel()
        try:
            await self._process.close(grace=self.grace_s)
        finally:
            self._errors.stop()
            self.on_close()


class ShippedProbe(_Shipped):
    """Read the frames of a probe role; see `tui.host.base.ProbeStream`."""

    heartbeat = frames.encode({"do": "beat"})

    def __init__(self, process: HostProcess, role: str, where: str) -> None:
        super().__init__(process, role, where)
        self.hello: dict[str, Any] = {}
        self._pieces: list[bytes] = []
        """Of the frame that has begun; joined once, when it is whole."""
        self._size = 0
        self._ready: deque[dict[str, Any]] = deque()
        self._ended: dict[str, Any] | None = None

    @classmethod
    async def start(
        cls, open_shell: Callable[[], Awaitable[HostProcess]], role: str, arguments: Mapping[str, Any], where: str
    ) -> Self:
        """Ship the probe through a fresh shell and wait for its first frame.

        Raises ProbeFailed (no python3, a host that forbids commands, a probe that ends at once) or Unreachable.
        """
        process = await open_shell()
        probe = cls(process, role, where)
        try:
            async with asyncio.timeout(START_S):
                await probe._open({**arguments, "role": role})
        except TimeoutError:
            await probe.close()
            raise ProbeFailed(
                f"the probe's role {role} did not start on {where} within {START_S:.0f} s", f"is {where} overloaded? Try again"
            ) from None
        except NotPermitted as error:
            try:
                said = await probe._errors.last_line()
            finally:
                await probe.close()
            raise ProbeFailed(error.cause + (f": {said}" if said else ""), error.advice) from None
        except BaseException:
            await probe.close()
            raise
        return probe

    async def _open(self, arguments: dict[str, Any]) -> None:
        mark = new_mark()
        await self._process.write(probe_script(mark))
        self._pieces = [await after_mark(self._process, mark, self._where)]
        await self._process.write(opening(arguments))
        self._start_heart()
        while not self._ready:
            await self._read()
        self.hello = self._ready[0]

    async def _read(self) -> None:
        """Wait for bytes and add the frames in them. Raises ProbeFailed at an end that the probe did not announce."""
        data = await self._process.read()
        if not data:
            raise ProbeFailed(f"the probe's role {self.role} on {await self._ending()}")
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._pieces, lines[0]])
            self._pieces, self._size = [], 0
        self._pieces.append(rest)
        self._size += len(rest)
        if self._size > FRAME_LIMIT:
            raise ProbeFailed(f"the probe on {self._where} sent a frame without end")
        for line in lines:
            try:
                self._ready.append(frames.decode(line))
            except ValueError:
                continue  # a library that prints to stdout; no frame of ours

    async def __anext__(self) -> dict[str, Any]:
        if self._closed:
            raise StopAsyncIteration
        while not self._ready:
            try:
                await self._read()
            except ProbeFailed:
                if self._closed or (self._ended is not None and self._ended.get("ok", True)):
                    raise StopAsyncIteration from None
                if self._ended is not None:
                    why = clean(str(self._ended.get("why", "")))
                    raise ProbeFailed(f"the probe's role {self.role} on {self._where} failed: {why}") from None
                raise
        frame = self._ready.popleft()
        if frame.get("f") == "end":
            self._ended = frame
        return frame

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a request of the role. Raises Unreachable when the connection is lost, ProbeFailed when the probe was closed."""
        if self._closed:
            raise ProbeFailed(f"the probe's role {self.role} on {self._where} has been closed")
        await self._process.write(frames.encode(dict(message)))


def problem(frame: Mapping[str, Any]) -> str:
    """Return the words of an `error` frame, cleaned, in one line."""
    return clean(f"{frame.get('what', '')}: {frame.get('why', '')}").strip(": ")


class LeashedCommand(_Shipped):
    """Read the output of a foreign command; see `tui.host.base.CommandStream`."""

    heartbeat = SHELL_BEAT
    grace_s = END_S

    def __init__(self, process: HostProcess, argv: Sequence[str], where: str) -> None:
        super().__init__(process, clean(argv[0]), where)
        self._first = b""

    @classmethod
    async def start(cls, open_shell: Callable[[], Awaitable[HostProcess]], argv: Sequence[str], where: str) -> Self:
        """Start the command through a fresh shell. Raises NotPermitted or Unreachable."""
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
        command._start_heart()
        return command

    async def __anext__(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first
        if self._closed or not (data := await self._process.read()):
            raise StopAsyncIteration
        return data

    async def how_it_ended(self) -> str:
        return f"{self.role} on {await self._ending()}"
