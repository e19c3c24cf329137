"""This machine as a host: the same probe, the same leash, httpx's own transport."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from tui.core.connection import ConnectionState, Link
from tui.host.base import Completed, HostError, Unreachable
from tui.host.shell import run_command
from tui.host.shipped import LeashedCommand, ShippedProbe

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
        """Raises OSError when the program can't be started."""
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


class LocalHost:
    """See `tui.host.base.Host`."""

    def __init__(self, name: str = "local") -> None:
        self.name = name
        self._state = ConnectionState(host=name)
        self._probes: set[ShippedProbe | LeashedCommand] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def connection(self) -> ConnectionState:
        return self._state

    async def connect(self) -> None:
        self._state = ConnectionState(Link.ONLINE, self.name, since=time.monotonic())

    async def wait_lost(self) -> HostError:
        await asyncio.Event().wait()
        raise AssertionError("this machine is never lost")

    async def _shell(self) -> LocalProcess:
        try:
            return await LocalProcess.start(["/bin/sh"])
        except OSError as error:
            raise Unreachable(f"/bin/sh could not be started on this machine: {error.strerror}") from error

    async def run(self, argv: Sequence[str], *, input: bytes = b"", timeout: float = 10.0) -> Completed:
        return await run_command(await self._shell(), argv, input=input, timeout=timeout, where="this machine")

    async def start_probe(self, role: str, arguments: Mapping[str, Any]) -> ShippedProbe:
        probe = await ShippedProbe.start(self._shell, role, arguments, "this machine")
        self._probes.add(probe)
        probe.on_close = lambda: self._probes.discard(probe)
        return probe

    async def stream(self, argv: Sequence[str]) -> LeashedCommand:
        command = await LeashedCommand.start(self._shell, argv, "this machine")
        self._probes.add(command)
        command.on_close = lambda: self._probes.discard(command)
        return command

    def transport(self, *, verify: Any = True, uds: str | None = None) -> "httpx.AsyncBaseTransport":
        from tui.host.http_transport import DirectTransport

        return DirectTransport(verify=verify, uds=uds)

    async def close(self) -> None:
        self._state = ConnectionState(host=self.name)
        async with contextlib.AsyncExitStack() as closing:  # one that fails leaves none of the others open
            for probe in self._probes:
                closing.push_async_callback(probe.close)
