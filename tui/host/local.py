"""Hosts that are reached through a local process: this machine itself, and a command prefix such as `kubectl exec`."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from anyio.abc import ByteStream

from tui.aio import ended
from tui.core.text import clean
from tui.host.adapter import HostAdapter
from tui.host.base import HostError, NotPermitted, ProbeFailed, Refused, Unreachable
from tui.host.shell import ErrorTail, after_mark, new_mark, watch_script

if TYPE_CHECKING:
    import httpx


CHUNK = 1 << 16
KILLED_S = 2.0
"""How long a killed process is waited for: one that hangs in the kernel outlives that, and nobody can change it."""


class LocalProcess:
    """A child of this process, in a session of its own: what the terminal sends (Ctrl+C) does not reach it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._stderr = process.stderr
        self._closed = False

    @classmethod
    async def start(cls, argv: Sequence[str]) -> Self:
        """Start a program. Raises OSError if it can't be started."""
        pipe = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, limit=1 << 20)
        )

    async def read(self) -> bytes:
        return await self._stdout.read(CHUNK)

    async def read_error(self) -> bytes:
        return await self._stderr.read(CHUNK)

    async def write(self, data: bytes) -> None:
        try:
            self._stdin.write(data)
            await self._stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has ended; its output says why

    async def write_eof(self) -> None:
        try:
            self._stdin.close()
            await self._stdin.wait_closed()
        except (BrokenPipeError, ConnectionResetError):
            pass

    async def wait(self) -> int | None:
        status = await self._process.wait()
        return status if status >= 0 else None

    async def close(self, grace: float = 1.0) -> None:
        if self._closed:
            return
        self._closed = True
        running = self._process.returncode is None
        try:
            if running and grace:
                self._stdin.close()
                try:
                    async with asyncio.timeout(grace):
                        await self._process.wait()
                except TimeoutError:
                    pass
        finally:
            if running:
                # The group, for what it started; not long after its end, when the number may be another's.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            # asyncio has no other way to let go of pipes that a grandchild may hold open.
            self._process._transport.close()  # type: ignore[attr-defined]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(KILLED_S):
                    await self._process.wait()


class LocalHost(HostAdapter):
    """This machine: the same probe and the same leash as anywhere, and httpx's own transport."""

    def __init__(self, name: str = "local") -> None:
        super().__init__(name, "this machine")

    async def _open(self) -> None:
        """Do nothing: this machine is always there."""

    async def wait_lost(self) -> HostError:
        await asyncio.Event().wait()
        raise AssertionError("this machine is never lost")

    async def _shell(self) -> LocalProcess:
        try:
            return await LocalProcess.start(["/bin/sh"])
        except OSError as error:
            raise Unreachable(f"/bin/sh could not be started on this machine: {error.strerror}") from error

    async def open_stream(self, host: str, port: int, path: str | None = None) -> ByteStream:
        import anyio

        from tui.host.http_transport import connection_error

        try:
            return await (anyio.connect_tcp(host, port) if path is None else anyio.connect_unix(path))
        except OSError as error:
            where = path or f"{host}:{port}"
            raise (connection_error(error, where) or Unreachable(f"{where} can't be reached: {clean(str(error))}")) from error

    def transport(self, *, verify: Any = True, uds: str | None = None) -> "httpx.AsyncBaseTransport":
        from tui.host.http_transport import DirectTransport

        return DirectTransport(verify=verify, uds=uds)


CONNECT_S = 20.0
"""Seconds until the prefix gives a shell: a job's or container's start is not waited for."""
BEAT_S = 2.0
SILENCE_S = 8.0


class ExecHost(HostAdapter):
    """A host behind a command prefix: `kubectl exec -i -n NS POD --`, `docker exec -i NAME`, `srun --jobid J --overlap`,
    `ssh -S CTL host`, `tsh ssh host`.

    The prefix is run with the one word `/bin/sh` appended, which no wrapper can misquote; all else goes over its stdin, HTTP
    through the probe's relay. One standing shell echoes a byte every 2 s: the round trip, and the sign that the link is alive.
    """

    def __init__(self, prefix: Sequence[str], *, name: str = "") -> None:
        super().__init__(name or "exec:" + " ".join(prefix))
        self._prefix = list(prefix)
        self._program = clean(self._prefix[0])
        self._line: LocalProcess | None = None
        self._watch: asyncio.Task[None] | None = None

    async def _open(self) -> None:
        line = self._line = await self._shell()
        errors = ErrorTail(line)
        try:
            async with asyncio.timeout(CONNECT_S):
                mark = new_mark()
                await line.write(watch_script(mark))
                await after_mark(line, mark, self.name, 2 * CONNECT_S)
        except TimeoutError:
            said = await errors.last_line()
            raise Unreachable(
                f"{self._program} gave no shell within {CONNECT_S:.0f} s" + (f": {said}" if said else ""),
                "does it ask for something?",
            ) from None
        except NotPermitted as error:
            said = await errors.last_line()
            why = said or error.cause.removeprefix(f"{self.name} gave no shell: ")
            raise Unreachable(
                f"{self._program} gave no shell: {why}",
                "try the command by hand with /bin/sh after it",
            ) from None
        self._watch = asyncio.create_task(self._follow(line, errors))

    async def _follow(self, line: LocalProcess, errors: ErrorTail) -> None:
        try:
            while True:
                started = time.monotonic()
                async with asyncio.timeout(SILENCE_S):
                    await line.write(b"b")
                    if not await line.read():
                        break
                self._set_round_trip((time.monotonic() - started) * 1000)
                await asyncio.sleep(BEAT_S)
            said = await errors.last_line()
            status = await line.wait()
            error = Unreachable(
                f"{self._program} ended" + (f" with status {status}" if status is not None else "") + (f": {said}" if said else ""),
                "it is started again",
            )
        except TimeoutError:
            error = Unreachable(
                f"the link through {self._program} is dead: nothing came for {SILENCE_S:.0f} s", "it is started again"
            )
        self._lose(error)

    async def _shell(self) -> LocalProcess:
        try:
            return await LocalProcess.start([*self._prefix, "/bin/sh"])
        except FileNotFoundError as error:
            raise Refused(
                f"{self._program} isn't installed on this machine", "install it, or name its full path in the target"
            ) from error
        except OSError as error:
            raise Refused(f"{self._program} can't be started: {error.strerror}", "correct the target") from error

    async def open_stream(self, host: str, port: int, path: str | None = None) -> ByteStream:
        try:
            return await super().open_stream(host, port, path)
        except ProbeFailed as error:
            cause = f"through a command prefix the API is reached by the probe only, and {error.cause}"
            raise NotPermitted(
                cause, f"{error.advice.partition(';')[0]}, or set direct = true if its address is reached from here"
            ) from error

    def _detach(self, closing: AsyncExitStack) -> None:
        watch, self._watch = self._watch, None
        line, self._line = self._line, None
        if line is not None:
            closing.push_async_callback(line.close)
        if watch is not None:
            closing.push_async_callback(ended, watch)
