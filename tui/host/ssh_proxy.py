"""ProxyCommand: a connection to a host through a local command, as OpenSSH runs it.

asyncssh would run it without a shell, take its stderr for the host's words, and end the connection when stderr closes. So it gets
a socket pair here instead, and what it says on stderr is kept for the error message.
"""

import asyncio
import contextlib
import os
import signal
import socket

from tui.host.shell import ERROR_TAIL, last_line

TOKENS = "%hnpr"


class ProxyCommand:
    """The running command; `socket` is the connection to the host."""

    def __init__(self, process: asyncio.subprocess.Process, near: socket.socket) -> None:
        self.socket = near
        self._process = process
        self._said = b""
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, command: str) -> "ProxyCommand":
        """Raises OSError when no shell can be started."""
        near, far = socket.socketpair()
        with far:
            try:
                near.setblocking(False)
                process = await asyncio.create_subprocess_exec(
                    "/bin/sh",
                    "-c",
                    f"exec {command}",
                    stdin=far.fileno(),
                    stdout=far.fileno(),
                    stderr=asyncio.subprocess.PIPE,
                    start_new_session=True,
                )
            except BaseException:
                near.close()
                raise
        return cls(process, near)

    async def _read(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(4096):
            self._said = (self._said + data)[-ERROR_TAIL:]

    async def said(self) -> str:
        """The last line of its stderr, cleaned."""
        await asyncio.wait([self._reading], timeout=0.5)
        return last_line(self._said)

    async def close(self) -> None:
        """Ends the command and what it started. May be called twice."""
        self.socket.close()
        self._reading.cancel()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(1.0):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:  # cancelled meanwhile, too
            if self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                await self._process.wait()
            self._process._transport.close()  # type: ignore[attr-defined]
