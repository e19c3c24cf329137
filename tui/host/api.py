"""The server's HTTP API: OpenAI-like calls and vLLM's own endpoints, typed, bounded, with every shape of error put into words.

Watching (`poll`) only reads: it never generates a token.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from typing import Any

import httpx
from msgspec.structs import replace

from tui.core.api_status import ApiStatus, Reach, ServedModel
from tui.core.text import clean
from tui.host.api_errors import ERROR_LIMIT, ApiError, Words
from tui.host.prometheus import MetricsReader, samples_of
from tui.wire.event_stream import DONE, EventDecoder
from tui.wire.urls import askable, authorized, merged, secrets_of, shown_url, socket_of

__all__ = ["ApiClient", "ApiError"]

if find_spec("sniffio") is None:
    # httpcore tries to import it several times a request; what is known to be missing is not sought on the whole path each time
    sys.modules["sniffio"] = None  # type: ignore[assignment]

POLL_TIMEOUT_S = 5.0
START_S = 1.0
"""Beyond its timeout, how long a reply may take to begin: one that comes byte by byte is never silent."""
BODY_S = 10.0
"""How long the body of a polled reply may take, also over a slow link."""
METRICS_AGAIN_S = 60.0
"""Seconds after which /metrics that did not answer in time is asked again."""
MODELS_EVERY_S = 15.0
REPLY_LIMIT = 32 * 1024 * 1024
POLL_LIMIT = 4 * 1024 * 1024
MODELS_LIMIT = 5000
"""Models that a server may list; with adapters there are hundreds."""
LARGE_PAGE = 128 * 1024
"""Bytes of /metrics from which on it is read in a thread: a page of many engines takes longer than a frame of the screen."""
STREAM_STALL_S = 600.0
NO_HEALTH = (404, 405, 501)


class ApiClient:
    """One server. `transport` decides from where connections are opened; None opens them from this machine.

    `base_url` may have a path prefix; a trailing `/v1` is taken off, since vLLM's own endpoints lie beside it. `unix:/path` is a
    server on a Unix socket; a given transport leads to that socket then. A configured Authorization header goes before a name and
    password in the URL, and those before the key.
    """

    def __init__(
        self,
        base_url: str,
        transport: httpx.AsyncBaseTransport | None,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        ca_file: str | None = None,
    ) -> None:
        """Set up the client. Raises NotPermitted if `ca_file` can't be read."""
        self.base_url = base_url.rstrip("/").removesuffix("/v1")
        # Of the headers, what is long enough to be a secret: "true" is none.
        own_headers = [value for value in (headers or {}).values() if len(value) >= 8]
        kept = (api_key, *own_headers, *secrets_of(base_url))
        self._words = Words(self.shown, tuple(value for value in kept if value and len(value) >= 4))
        own = {"Accept-Encoding": "identity", "User-Agent": "readyroom"}
        if transport is None:
            from tui.host.http_transport import DirectTransport

            transport = DirectTransport(verify=ca_file or True, uds=socket_of(base_url))
        sent = merged(own, authorized(base_url, api_key, headers or {}))
        # httpx takes texts in ASCII only; a header may hold Latin-1 (RFC 9110).
        self._headers = [(name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in sent.items()]
        self._client = httpx.AsyncClient(transport=transport, headers=self._headers, timeout=POLL_TIMEOUT_S)
        self._left: list[httpx.AsyncClient] = []
        self._status = ApiStatus()
        self._models_at: float | None = None
        self._metrics = MetricsReader()
        self._no_metrics = False
        self._metrics_at = 0.0

    def move(self, base_url: str, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """Ask another address from now on, through another transport if one is given: the server was found elsewhere than was
        thought. Replies that are under way are read to their end."""
        if transport is not None:
            self._left.append(self._client)
            self._client = httpx.AsyncClient(transport=transport, headers=self._headers, timeout=POLL_TIMEOUT_S)
        self.base_url = base_url.rstrip("/").removesuffix("/v1")
        self._words.where = self.shown
        self._status = ApiStatus()
        self._models_at = None

    @property
    def shown(self) -> str:
        """Return the address as it may be shown."""
        return shown_url(self.base_url)

    async def close(self) -> None:
        async with AsyncExitStack() as closing:  # one that fails leaves none of the others open
            for client in (*self._left, self._client):
                closing.push_async_callback(client.aclose)

    # -- watching ------------------------------------------------------------------------------------------------------------------

    async def poll(self) -> ApiStatus:
        """Return how the server is now: health, models, version, metrics. Never raises for what the server or the network does."""
        before = self._status
        try:
            status = await self._poll(before)
        except ApiError as error:
            reach = Reach.CLOSED if error.kind == "closed" else Reach.ERROR
            said = None if error.kind == "closed" else error.message
            status = ApiStatus(reach=reach, error=said)
        if status.reach not in (Reach.UP, Reach.SICK):
            # The next server on this port may be another one.
            self._models_at = None
            self._no_metrics = False
            self._metrics = MetricsReader()
        self._status = replace(status, received_at=time.monotonic())
        return self._status

    async def _poll(self, before: ApiStatus) -> ApiStatus:
        code = await self._health()
        reach = Reach.UP if code == 200 else Reach.SICK
        models, version, error, key_refused = before.models, before.version, before.error, before.key_refused
        now = time.monotonic()
        was_up = before.reach is Reach.UP and bool(before.models)
        no_health = code in NO_HEALTH or 300 <= code < 400
        if no_health or not was_up or self._models_at is None or now - self._models_at > MODELS_EVERY_S:
            self._models_at = now
            models_code, models, error = await self._models()
            key_refused = models_code in (401, 403)
            if no_health:
                # An OpenAI-like server without /health: what /v1/models says stands for it.
                code, reach = models_code, Reach.UP if models_code == 200 else Reach.SICK
            version = await self._version()
        metrics = None if self._no_metrics else await self._read_metrics()
        if code != 200 and error is None:
            error = f"/health answers {code}"
        return ApiStatus(reach, code, models, version, metrics, error, key_refused)

    async def _health(self) -> int:
        try:
            return (await self._get("/health"))[0]
        except ApiError as error:
            if error.kind != "redirect" or error.status is None:
                raise
            return error.status

    async def _models(self) -> tuple[int, tuple[ServedModel, ...], str | None]:
        code, body = await self._get("/v1/models")
        if code != 200:
            return code, (), self._words.refusal(code, body).message
        try:
            listed = json.loads(body)["data"]
            entries, refused = askable(listed[:MODELS_LIMIT])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ApiError(code, self._words.no_models(body), "garbage") from None
        # Names that can't be asked for are no fault of a server whose other models can.
        return code, tuple(map(_model, entries)), refused if refused and not entries else None

    async def _version(self) -> str | None:
        try:
            version = json.loads((await self._get("/version"))[1])["version"]
        except ApiError as error:
            if error.kind != "redirect":
                raise
            return None
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return clean(str(version))[:80]

    async def _read_metrics(self) -> Any:
        if time.monotonic() < self._metrics_at:
            return None
        try:
            code, body = await self._get("/metrics")
        except ApiError as error:
            if error.kind == "timeout":  # the rest of the server answers
                self._metrics_at = time.monotonic() + METRICS_AGAIN_S
            elif error.kind not in ("too_large", "redirect"):
                raise
            return None
        if code != 200:
            self._no_metrics = code in NO_HEALTH
            return None
        samples = await asyncio.to_thread(samples_of, body) if len(body) > LARGE_PAGE else samples_of(body)
        return self._metrics.take(samples, time.monotonic())

    # -- calls ---------------------------------------------------------------------------------------------------------------------

    async def get(self, path: str, *, timeout: float = POLL_TIMEOUT_S) -> dict[str, Any]:
        """Return the JSON object at a path. Raises ApiError."""
        code, body = await self._get(path, timeout=timeout, limit=REPLY_LIMIT)
        return self._words.answer(code, body)

    async def post(self, path: str, body: Mapping[str, Any], *, timeout: float = STREAM_STALL_S) -> dict[str, Any]:
        """Return the JSON object that a call answers with. `timeout` is the longest silence, in seconds. Raises ApiError."""
        with self._words:
            async with self._post(path, body, timeout) as response:
                data = await self._bounded(response, REPLY_LIMIT)
        return self._words.answer(response.status_code, data)

    async def stream(
        self, path: str, body: Mapping[str, Any], *, timeout: float = STREAM_STALL_S
    ) -> AsyncGenerator[tuple[float, dict[str, Any]], None]:
        """Return the objects of a streamed reply, each with the monotonic time at which its bytes arrived here.

        Closing the iterator closes the connection, which ends the generation on the server. `timeout` is the longest silence, in
        seconds. Raises ApiError, also for an error object inside the stream and for a stream that is cut off.
        """
        decoder = EventDecoder()
        finished = False
        with self._words:
            async with self._post(path, body, timeout) as response:
                if response.status_code != 200:
                    raise self._words.refusal(response.status_code, await self._bounded(response, ERROR_LIMIT))
                async for data in response.aiter_raw():
                    at = time.monotonic()
                    for payload in decoder.feed(data):
                        if payload == DONE:
                            return
                        obj = self._words.event(payload)
                        finished = finished or _finishes(obj)
                        yield at, obj
                at = time.monotonic()
                for payload in decoder.close():
                    if payload == DONE:
                        return
                    obj = self._words.event(payload)
                    finished = finished or _finishes(obj)
                    yield at, obj
        if not finished:
            raise ApiError(None, "the stream ended before the reply did: the server may have died", "cut")

    # -- requests ------------------------------------------------------------------------------------------------------------------

    def _url(self, path: str) -> str:
        """Without the name and password of the user: they are in a header already, unless another one goes before them."""
        return ("http://localhost" if socket_of(self.base_url) else self.shown) + path

    def _post(self, path: str, body: Mapping[str, Any], silence_s: float) -> AbstractAsyncContextManager[httpx.Response]:
        headers = {"Content-Type": "application/json"}
        return self._response("POST", path, content=_json(body), headers=headers, timeout=_patient(silence_s))

    async def _get(self, path: str, *, timeout: float = POLL_TIMEOUT_S, limit: int = POLL_LIMIT) -> tuple[int, bytes]:
        with self._words:
            try:
                async with asyncio.timeout(timeout + START_S) as patience:
                    async with self._response("GET", path, timeout=timeout) as response:
                        patience.reschedule(asyncio.get_running_loop().time() + max(timeout, BODY_S))
                        return response.status_code, await self._bounded(response, limit)
            except TimeoutError:
                raise ApiError(None, f"{self.shown} answers a byte at a time: is it an inference server?", "timeout") from None

    @asynccontextmanager
    async def _response(self, method: str, path: str, **request: Any) -> AsyncGenerator[httpx.Response]:
        """Ask the server, and once more if it ended a connection that was kept open, as it was used anew, before
        a word of an answer (as curl does): it has not read the request then, and that is no word on how it is."""
        while True:
            opening = _Opening()
            asked = self._client.build_request(method, self._url(path), extensions={"trace": opening.see}, **request)
            try:
                response = await self._client.send(asked, stream=True)
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                if opening.seen:
                    raise
            else:
                break
        try:
            if response.is_redirect:
                raise self._words.redirect(response.status_code, response.headers["Location"], path)
            yield response
        finally:
            await response.aclose()

    async def _bounded(self, response: httpx.Response, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for data in response.aiter_raw():
            size += len(data)
            if size > limit:
                if response.status_code != 200:
                    break  # the beginning of an error is enough to say what is wrong
                raise ApiError(response.status_code, f"{response.url.path} answers more than {limit >> 20} MiB", "too_large")
            parts.append(data)
        return b"".join(parts)


class _Opening:
    """Whether a request opened a connection of its own, rather than using one that was kept open."""

    def __init__(self) -> None:
        self.seen = False

    async def see(self, event: str, info: object) -> None:
        self.seen = self.seen or event.startswith("connection.connect_")


def _patient(silence_s: float) -> httpx.Timeout:
    return httpx.Timeout(silence_s, connect=10.0)


def _json(body: Mapping[str, Any]) -> bytes:
    """Encode as JSON in ASCII: half a surrogate pair, as a model's name may hold one, can't be written otherwise."""
    return json.dumps(dict(body), separators=(",", ":")).encode("ascii")


def _model(entry: Mapping[str, Any]) -> ServedModel:
    length = entry.get("max_model_len")
    root = entry.get("root")
    name = entry["id"]
    shown = clean(name)[:400]
    return ServedModel(
        id=shown,
        called="" if shown == name else name,
        max_model_len=length if isinstance(length, int) else None,
        root=clean(root)[:400] if isinstance(root, str) else None,
    )


def _finishes(obj: Mapping[str, Any]) -> bool:
    choices = obj.get("choices")
    return isinstance(choices, list) and any(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices)
