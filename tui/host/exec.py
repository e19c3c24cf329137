"""A host reached through a command prefix: `kubectl exec -i -n NS POD --`, `docker exec -i NAME`, `srun --jobid J --overlap`,
`ssh -S CTL host`, `tsh ssh host`.

The prefix is run with the one word `/bin/sh` appended, which no wrapper can misquote; all else goes over its stdin, HTTP through
the probe's relay.
"""

import asyncio
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
from tui.host.local import LocalProcess
from tui.host.relay_streams import Relay
from tui.host.shell import ErrorTail, after_mark, new_mark, run_command, watch_script
from tui.host.shipped import LeashedCommand, ShippedProbe

if TYPE_CHECKING:
    import httpx

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
        self._relay = Relay(lambda: self.start_probe("relay", {}), self.name)
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

        return HostTransport(self._reach, verify=verify, uds=uds)

    async def _reach(self, host: str, port: int, path: str | None = None) -> ByteStream:
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
