"""HTTP whose connections are opened from the host.

`HostTransport` is httpx's own transport over a connection pool with a network backend of ours; the backend asks a *dialer* for a
byte stream (an SSH channel, or a stream of the probe's relay) and TLS runs here, over that stream, through anyio. Nothing listens
on this machine.
"""

import os
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import anyio
import httpcore
import httpx
from anyio.abc import ByteStream
from anyio.streams.tls import TLSAttribute, TLSStream

from tui.core.text import clean
from tui.host.base import HostError, NotPermitted, PortClosed, Unreachable

Dial = Callable[[str, int, str | None], Awaitable[ByteStream]]
"""Opens a byte stream from the host to (host, port), or to the Unix socket if a path is given. Raises HostError."""


class _Stream(httpcore.AsyncNetworkStream):
    """An anyio byte stream as httpcore wants it."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            if timeout is None or getattr(self._stream, "readable", False):
                return await self._stream.receive(max_bytes)  # what is there already needs no timer
            with anyio.fail_after(timeout):
                return await self._stream.receive(max_bytes)
        except anyio.EndOfStream:
            return b""
        except TimeoutError as error:
            raise httpcore.ReadTimeout(f"nothing came for {timeout:g} s") from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ssl.SSLError, HostError) as error:
            raise httpcore.ReadError(str(error) or "the connection was lost") from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            if buffer:
                with anyio.fail_after(timeout):
                    await self._stream.send(buffer)
        except TimeoutError as error:
            raise httpcore.WriteTimeout(f"nothing was accepted for {timeout:g} s") from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ssl.SSLError, HostError) as error:
            raise httpcore.WriteError(str(error) or "the connection was lost") from error

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        try:
            with anyio.fail_after(timeout):
                wrapped = await TLSStream.wrap(
                    self._stream, server_side=False, hostname=server_hostname, ssl_context=ssl_context, standard_compatible=False
                )
        except TimeoutError as error:
            await self.aclose()
            raise httpcore.ConnectTimeout("the TLS handshake got no answer") from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, ssl.SSLError, HostError) as error:
            await self.aclose()
            raise httpcore.ConnectError(f"the TLS handshake failed: {error}") from error
        except BaseException:
            await self.aclose()  # httpcore has not been given it yet: nobody else would
            raise
        return _Stream(wrapped)

    def get_extra_info(self, info: str) -> Any:
        if info == "ssl_object":
            return self._stream.extra(TLSAttribute.ssl_object, None)
        if info == "is_readable":
            # The pool asks it of an idle connection: what is readable then is the server's end.
            return bool(getattr(self._stream, "readable", False))
        return None


class _Backend(httpcore.AsyncNetworkBackend):
    def __init__(self, dial: Dial) -> None:
        self._dial = dial

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return await self._connect(host, port, None, timeout)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        return await self._connect("", 0, path, timeout)

    async def _connect(self, host: str, port: int, path: str | None, timeout: float | None) -> httpcore.AsyncNetworkStream:
        try:
            with anyio.fail_after(timeout):
                return _Stream(await self._dial(host, port, path))
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"no connection to {path or f'{host}:{port}'} within {timeout:g} s") from error
        except HostError as error:
            raise httpcore.ConnectError(error.cause) from error

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


def tls_context(verify: Any) -> ssl.SSLContext:
    """Return what checks a server's certificate: the usual authorities (True), nothing (False), those in a file, or a context.

    Raises NotPermitted if that file, or what SSL_CERT_FILE or SSL_CERT_DIR names, can't be read.
    """
    try:
        return ssl.create_default_context(cafile=verify) if isinstance(verify, str) else httpx.create_ssl_context(verify)
    except (OSError, ssl.SSLError, ValueError) as error:
        why = clean(getattr(error, "strerror", None) or str(error))
        if isinstance(verify, str):
            raise NotPermitted(
                f"the file of certificate authorities {clean(verify)} can't be read: {why}", "correct ca_file in the configuration"
            ) from error
        variable = next((name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)), None)
        named = f"{variable}={clean(os.environ[variable])}" if variable else "this machine"
        raise NotPermitted(
            f"the certificate authorities of {named} can't be read: {why}",
            f"correct or unset {variable}" if variable else "install the certificate authorities (ca-certificates)",
        ) from error


class _Explaining(httpx.AsyncHTTPTransport):
    """Hand a failed connection on as httpx.ConnectError whose cause is a HostError."""

    _no_authorities: NotPermitted | None = None

    def _context(self, verify: Any) -> ssl.SSLContext:
        """Return a context; one that trusts nobody if the environment's authorities can't be read, which only https minds."""
        try:
            return tls_context(verify)
        except NotPermitted as error:
            if isinstance(verify, str):
                raise
            self._no_authorities = error
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._no_authorities is not None and request.url.scheme == "https":
            raise httpx.ConnectError(self._no_authorities.cause, request=request) from self._no_authorities
        try:
            return await super().handle_async_request(request)
        except httpx.ConnectError as error:
            reason = self.reason(error, request)
            if reason is None:
                raise
            raise httpx.ConnectError(reason.cause, request=request) from reason

    def reason(self, error: httpx.ConnectError, request: httpx.Request) -> HostError | None:
        """Return the HostError behind a failed connection, None if httpx's own words say best what happened (TLS)."""
        return next((link for link in _chain(error) if isinstance(link, HostError)), None)


class HostTransport(_Explaining):
    """httpx over streams that `dial` opens from the host."""

    def __init__(self, dial: Dial, *, verify: Any = True, uds: str | None = None) -> None:
        context = self._context(verify)
        super().__init__(verify=context)
        # httpx offers no way to name a network backend; `_pool` is the one private name that is used of it.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context, max_connections=None, keepalive_expiry=30.0, uds=uds, network_backend=_Backend(dial)
        )


class DirectTransport(_Explaining):
    """httpx's own connections from this machine, failures told as for any other host."""

    def __init__(self, *, verify: Any = True, uds: str | None = None) -> None:
        super().__init__(verify=self._context(verify), uds=uds, limits=httpx.Limits(max_connections=None, keepalive_expiry=30.0))
        self._uds = uds

    def reason(self, error: httpx.ConnectError, request: httpx.Request) -> HostError | None:
        where = self._uds or f"{request.url.host}:{request.url.port or (443 if request.url.scheme == 'https' else 80)}"
        return connection_error(error, where)


def connection_error(error: BaseException, where: str) -> HostError | None:
    """Return what an error of a connection from this machine to `where` means; None if its own words say it best (TLS)."""
    for link in _chain(error):
        match link:
            case ConnectionRefusedError() | FileNotFoundError():
                return PortClosed(f"nothing listens on {where}", "the server isn't up yet, or listens elsewhere")
            case PermissionError():
                return NotPermitted(f"connecting to {where} isn't allowed: {link.strerror}")
            case ssl.SSLError():
                return None
            case OSError() if link.strerror:
                return Unreachable(f"{where} can't be reached: {clean(link.strerror)}", "check the address of the API")
    return None


def _chain(error: BaseException) -> Iterable[BaseException]:
    """Return the error and all that stands behind it, groups unfolded; the nearest first."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting:
        link = waiting.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        if isinstance(link, BaseExceptionGroup):
            waiting.extend(link.exceptions)
        waiting.extend(behind for behind in (link.__cause__, link.__context__) if behind is not None)
