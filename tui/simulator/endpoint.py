"""The OpenAI-compatible endpoint of the simulated server: vLLM's routes, reply shapes and errors over the batching engine."""

import asyncio
import functools
import json
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tui.simulator.batching import BLOCK, KV_BLOCKS, BatchingEngine, EngineMetrics, Generation
from tui.simulator.completions import Completion, Refusal, Vocabulary, read_chat, read_completion
from tui.simulator.http_server import HttpConnection, HttpRequest
from tui.simulator.scenarios import Scenario

VERSION = "0.24.0"
FINGERPRINT = "vllm-0.24.0-e353a927"
DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."

_GET = {"/health", "/ping", "/load", "/version", "/metrics", "/v1/models"}
_POST = {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/ping"}


@dataclass(slots=True, eq=False)
class SimulatedEndpoint:
    """Answers requests once `open` was called. `logged` gets the access lines (client, request line, status)."""

    scenario: Scenario
    logged: Callable[[str, str, int], None]
    engine: BatchingEngine = field(init=False)
    metrics: EngineMetrics = field(init=False)
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    _server: asyncio.Server | None = None
    _connections: set[HttpConnection] = field(default_factory=set)
    _created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self.metrics = EngineMetrics(self.scenario.model.name, KV_BLOCKS, BLOCK)
        self.engine = BatchingEngine(self.metrics)

    async def open(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: HttpConnection(self._answer, self._connections), "127.0.0.1", port, backlog=2048, reuse_address=True
        )

    def close(self) -> None:
        """Stop listening and close every connection."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.close()

    # -- routes ------------------------------------------------------------------------------------------------------------------

    async def _answer(self, request: HttpRequest) -> None:
        path = request.path.partition("?")[0]
        reply = request.reply
        reply.on_head = lambda status: self.logged(request.client, f"{request.method} {request.path} HTTP/1.1", status)
        try:
            if path.startswith("/v1/") and not self._allowed(request):
                reply.vary = False
                reply.send(401, b'{"error":"Unauthorized"}')
            elif path not in _GET | _POST:
                reply.send(404, b'{"detail":"Not Found"}')
            elif request.method not in ("GET", "HEAD", "POST") or (request.method == "POST") != (path in _POST and path != "/ping"):
                allow = "POST" if path in _POST else "GET"
                reply.send(405, b'{"detail":"Method Not Allowed"}', extra=f"allow: {allow}\r\n")
            elif request.method == "POST":
                self._post(path, request)
            else:
                self._get(path, request)
        except Refusal as refusal:
            reply.send(refusal.status, refusal.body())

    def _allowed(self, request: HttpRequest) -> bool:
        key = self.scenario.api_key
        return key is None or request.headers.get("authorization") == f"Bearer {key}"

    def _get(self, path: str, request: HttpRequest) -> None:
        reply = request.reply
        match path:
            case "/health":
                reply.send(503 if self.engine.dead else 200)
            case "/ping":
                reply.send(200)
            case "/load":
                reply.send(200, _json({"server_load": self.engine.running + self.engine.waiting}))
            case "/version":
                reply.send(200, _json({"version": VERSION}))
            case "/metrics":
                reply.send(200, self.metrics.exposition(), "text/plain; version=1.0.0; charset=utf-8")
            case _:
                reply.send(200, _json({"object": "list", "data": [self._card()]}))

    def _card(self) -> dict[str, Any]:
        model = self.scenario.model
        permission = {
            "id": f"modelperm-{uuid.uuid4().hex[:16]}",
            "object": "model_permission",
            "created": self._created,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        return {
            "id": model.name,
            "object": "model",
            "created": self._created,
            "owned_by": "vllm",
            "root": model.path,
            "parent": None,
            "max_model_len": model.max_model_len,
            "permission": [permission],
        }

    def _post(self, path: str, request: HttpRequest) -> None:
        body = _object(request)
        match path:
            case "/tokenize":
                self._tokenize(request, body)
            case "/detokenize":
                tokens = [int(token) for token in body.get("tokens", ())]
                request.reply.send(200, _json({"prompt": self.vocabulary.decode(tokens)}))
            case "/v1/chat/completions":
                self._generate(request, read_chat(body, self.scenario, self.vocabulary))
            case _:
                self._generate(request, read_completion(body, self.scenario, self.vocabulary))

    def _tokenize(self, request: HttpRequest, body: Mapping[str, Any]) -> None:
        if "messages" in body:
            tokens = list(read_chat(dict(body), self.scenario, self.vocabulary).prompt)
        else:
            tokens = self.vocabulary.encode(str(body.get("prompt", "")))
        pieces = [self.vocabulary.decode([token]) for token in tokens] if body.get("return_token_strs") else None
        answer = {"count": len(tokens), "max_model_len": self.scenario.model.max_model_len, "tokens": tokens, "token_strs": pieces}
        request.reply.send(200, _json(answer))

    # -- generation --------------------------------------------------------------------------------------------------------------

    def _generate(self, request: HttpRequest, completion: Completion) -> None:
        if self.engine.dead:
            raise Refusal(DEAD, kind="InternalServerError", status=500)
        answer = _Streamed(request, completion, self) if completion.stream else _Whole(request, completion, self)
        for index in range(completion.n):
            generation = Generation(
                completion.prompt,
                completion.reply,
                completion.finish,
                emit=functools.partial(answer.token, index),
                fail=answer.fail,
            )
            answer.generations.append(generation)
            request.reply.on_hang_up.append(functools.partial(self.engine.abort, generation))
            self.engine.submit(generation)


class _Answering(ABC):
    """The reply to one request that generates."""

    def __init__(self, request: HttpRequest, completion: Completion, endpoint: SimulatedEndpoint) -> None:
        self.reply = request.reply
        self.completion = completion
        self.model = endpoint.scenario.model.name
        self.id = f"{'chatcmpl' if completion.chat else 'cmpl'}-{uuid.uuid4().hex[:16]}"
        self.created = int(time.time())
        self.generations: list[Generation] = []
        self.open = completion.n

    def usage(self) -> dict[str, Any]:
        prompt, said = len(self.completion.prompt), sum(generation.said for generation in self.generations)
        cached = self.generations[0].cached
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + said,
            "completion_tokens": said,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    @abstractmethod
    def token(self, index: int, text: str, finish: str | None) -> None:
        """Send a token of a choice; it is the last one if it has a `finish`."""

    @abstractmethod
    def fail(self) -> None:
        """Answer that the engine died before the reply was whole."""


class _Streamed(_Answering):
    """Events as vLLM sends them. What stays the same in every chunk is encoded once."""

    def __init__(self, request: HttpRequest, completion: Completion, endpoint: SimulatedEndpoint) -> None:
        super().__init__(request, completion, endpoint)
        kind = "chat.completion.chunk" if completion.chat else "text_completion"
        head = {"id": self.id, "object": kind, "created": self.created, "model": self.model}
        self._head = b"data: " + _json(head)[:-1]
        self._said = [0] * completion.n
        self.reply.begin("text/event-stream; charset=utf-8")
        if completion.chat:
            for index in range(completion.n):
                choice = {"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
                self._send(b',"choices":[%b],"prompt_token_ids":null,"prompt_text":null}' % _json(choice))

    def token(self, index: int, text: str, finish: str | None) -> None:
        said = self._said[index]
        self._said[index] += 1
        reason = b"null" if finish is None else b'"%b"' % finish.encode()
        stop = b"" if finish is None and self.completion.chat else b',"stop_reason":null'
        if self.completion.chat:
            name = b"reasoning" if said < self.completion.thinking else b"content"
            body = b'"delta":{"%b":%b},"logprobs":null,"finish_reason":%b%b,"token_ids":null' % (name, _json(text), reason, stop)
        else:
            body = b'"text":%b,"logprobs":null,"finish_reason":%b%b,"prompt_token_ids":null,"token_ids":null' % (
                _json(text),
                reason,
                stop,
            )
        usage = b"," + _json({"usage": self.usage()})[1:-1] if self.completion.continuous_usage else b""
        self._send(b',"choices":[{"index":%d,%b}]%b}' % (index, body, usage))
        if finish is not None:
            self.open -= 1
            if not self.open:
                self._finish()

    def _finish(self) -> None:
        if self.completion.include_usage:
            last = {"choices": [], "usage": self.usage(), "system_fingerprint": FINGERPRINT}
            self._send(b"," + _json(last)[1:])
        self.reply.write(b"data: [DONE]\n\n")
        self.reply.end()

    def fail(self) -> None:
        if not self.reply.finished.is_set():
            self.reply.write(b"data: " + Refusal(DEAD, kind="InternalServerError", status=500).body(spaced=True) + b"\n\n")
            self.reply.write(b"data: [DONE]\n\n")
            self.reply.end()

    def _send(self, rest: bytes) -> None:
        self.reply.write(self._head + rest + b"\n\n")


class _Whole(_Answering):
    def __init__(self, request: HttpRequest, completion: Completion, endpoint: SimulatedEndpoint) -> None:
        super().__init__(request, completion, endpoint)
        self._texts: list[list[str]] = [[] for _ in range(completion.n)]
        self._finish = [""] * completion.n

    def token(self, index: int, text: str, finish: str | None) -> None:
        self._texts[index].append(text)
        if finish is not None:
            self._finish[index] = finish
            self.open -= 1
            if not self.open:
                self.reply.send(200, _json(self._body()))

    def fail(self) -> None:
        if not self.reply.finished.is_set():
            self.reply.send(500, Refusal(DEAD, kind="InternalServerError", status=500).body())

    def _body(self) -> dict[str, Any]:
        chat = self.completion.chat
        return {
            "id": self.id,
            "object": "chat.completion" if chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": [self._choice(index) for index in range(self.completion.n)],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": self.usage(),
            "kv_transfer_params": None,
        }

    def _choice(self, index: int) -> dict[str, Any]:
        rest = {"logprobs": None, "finish_reason": self._finish[index], "stop_reason": None, "token_ids": None}
        pieces = self._texts[index]
        if not self.completion.chat:
            return {"index": index, "text": "".join(pieces), **rest}
        thinking = self.completion.thinking
        content = "".join(pieces[thinking:])
        message: dict[str, Any] = {
            "role": "assistant",
            "content": content if content or not thinking else None,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "tool_calls": [],
            "reasoning": "".join(pieces[:thinking]) or None,
        }
        return {"index": index, "message": message, **rest}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def _object(request: HttpRequest) -> dict[str, Any]:
    """Return the request's JSON object. Raises Refusal in the words of vLLM's validation."""
    if not request.body:
        raise Refusal.invalid("missing", "body", "Field required", "None")
    if not request.headers.get("content-type", "application/json").startswith("application/json"):
        message = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
        raise Refusal(message, kind="Bad Request")
    try:
        body = json.loads(request.body)
    except ValueError as error:
        place, why = f"body.{getattr(error, 'pos', 0)}", getattr(error, "msg", str(error))
        detail = f"'type': 'json_invalid', 'loc': '{place}', 'msg': 'JSON decode error', 'input': '<dict of 0 items>'"
        message = f"1 validation error:\n  {{{detail}, 'ctx': {{'error': '{why}'}}}}"
        raise Refusal(message, kind="Bad Request", param=place) from None
    if not isinstance(body, dict):
        raise Refusal.invalid("model_attributes_type", "body", "Input should be a valid dictionary", str(body)[:80])
    return body
