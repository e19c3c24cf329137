"""Hosts that are reached through a local process: this machine itself, and a command prefix such as `kubectl exec`."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from anyio.abc import ByteStream
from msgspec.structs import replace

from tui.aio import ended
from tui.core.connection import ConnectionState, Link
from tui.core.text import clean
from tui.host.base import Completed, HostError, NotPermitted, ProbeFailed, Refused, Unreachable
from tui.host.relay_streams import RelayClient
from tui.host.shell import ErrorTail, after_mark, new_mark, run_command, watch_script
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

    async def open_stream(self, host: str, port: int, path: str | None = None) -> ByteStream:
        import anyio

        from tui.host.http_transport import connection_error

        try:
            return await (anyio.connect_tcp(host, port) if path is None else anyio.connect_unix(path))
        except OSError as error:
            where = path or f"{host}:{port}"
            raise (connection_error(error, where) or Unreachable(f"{where} can't be reached: {clean(str(error))}")) from error

    async def close(self) -> None:
        self._state = ConnectionState(host=self.name)
        async with contextlib.AsyncExitStack() as closing:  # one that fails leaves none of the others open
            for probe in self._probes:
                closing.push_async_callback(probe.close)


CONNECT_S = 20.0
"""Seconds until the prefix gives a shell: a job's or container's start is not waited for."""
BEAT_S = 2.0
SILENCE_S = 8.0


class ExecHost:
    """See `tui.host.base.Host`. One standing shell echoes a byte every 2 s: the round trip, and the sign that the link is alive."""

    def __init__(self, prefix: Sequence[str], *, name: str = "") -> None:
        self._prefix = list(prefix)
        self.name = name or "exec:" + " ".join(prefix)
        self._program = clean(self._prefix[0])
        self._state = ConnectionState(host=self.name)
        self._probes: set[ShippedProbe | LeashedCommand] = set()
        self._relay = RelayClient(lambda: self.start_probe("relay", {}), self.name)
        self._line: LocalProcess | None = None
        self._watch: asyncio.Task[None] | None = None
        self._lost: asyncio.Future[HostError] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def connection(self) -> ConnectionState:
        return self._state

    def _set(self, link: Link, error: HostError | None = None) -> None:
        self._state = ConnectionState(
            link, self.name, time.monotonic(), error.cause if error else None, (error.advice if error else "") or None
        )

    async def connect(self) -> None:
        await self._drop()
        self._set(Link.CONNECTING)
        try:
            await self._connect()
        except HostError as error:
            await self._drop()
            self._set(Link.REFUSED if isinstance(error, Refused) else Link.UNREACHABLE, error)
            raise
        except BaseException:
            await self._drop()
            self._set(Link.IDLE)
            raise
        self._set(Link.ONLINE)

    async def _connect(self) -> None:
        line = self._line = await self._shell()
        errors = ErrorTail(line)
        try:
            async with asyncio.timeout(CONNECT_S):
                mark = new_mark()
                await line.write(watch_script(mark))
                await after_mark(line, mark, self.name)
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
        self._lost = asyncio.get_running_loop().create_future()
        self._watch = asyncio.create_task(self._follow(line, errors, self._lost))

    async def _follow(self, line: LocalProcess, errors: ErrorTail, lost: "asyncio.Future[HostError]") -> None:
        try:
            while True:
                started = time.monotonic()
                async with asyncio.timeout(SILENCE_S):
                    await line.write(b"b")
                    if not await line.read():
                        break
                if self._state.link is Link.ONLINE:
                    self._state = replace(self._state, round_trip_ms=(time.monotonic() - started) * 1000)
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
        self._set(Link.LOST, error)
        if not lost.done():
            lost.set_result(error)

    async def wait_lost(self) -> HostError:
        if self._lost is None:
            return Unreachable(f"{self.name} isn't connected")
        return await asyncio.shield(self._lost)

    async def _shell(self) -> LocalProcess:
        try:
            return await LocalProcess.start([*self._prefix, "/bin/sh"])
        except FileNotFoundError as error:
            raise Refused(
                f"{self._program} isn't installed on this machine", "install it, or name its full path in the target"
            ) from error
        except OSError as error:
            raise Refused(f"{self._program} can't be started: {error.strerror}", "correct the target") from error

    async def run(self, argv: Sequence[str], *, input: bytes = b"", timeout: float = 10.0) -> Completed:
        return await run_command(await self._shell(), argv, input=input, timeout=timeout, where=self.name)

    async def start_probe(self, role: str, arguments: Mapping[str, Any]) -> ShippedProbe:
        probe = await ShippedProbe.start(self._shell, role, arguments, self.name)
        self._probes.add(probe)
        probe.on_close = lambda: self._probes.discard(probe)
        return probe

    async def stream(self, argv: Sequence[str]) -> LeashedCommand:
        command = await LeashedCommand.start(self._shell, argv, self.name)
        self._probes.add(command)
        command.on_close = lambda: self._probes.discard(command)
        return command

    def transport(self, *, verify: Any = True, uds: str | None = None) -> "httpx.AsyncBaseTransport":
        from tui.host.http_transport import HostTransport

        return HostTransport(self.open_stream, verify=verify, uds=uds)

    async def open_stream(self, host: str, port: int, path: str | None = None) -> ByteStream:
        try:
            return await self._relay.open(host, port, path)
        except ProbeFailed as error:
            cause = f"through a command prefix the API is reached by the probe only, and {error.cause}"
            raise NotPermitted(
                cause, f"{error.advice.partition(';')[0]}, or set direct = true if its address is reached from here"
            ) from error

    async def _drop(self) -> None:
        watch, self._watch = self._watch, None
        line, self._line = self._line, None
        async with AsyncExitStack() as closing:  # the last comes first; one that fails leaves none of the others open
            if line is not None:
                closing.push_async_callback(line.close)
            closing.callback(self._relay.reset)
            for probe in self._probes:
                closing.push_async_callback(probe.close)
            if watch is not None:
                await ended(watch)

    async def close(self) -> None:
        try:
            await self._drop()
        finally:
            if self._lost is not None and not self._lost.done():
                self._lost.set_result(Unreachable(f"{self.name} was disconnected"))
            self._set(Link.IDLE)
