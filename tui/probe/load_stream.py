"""One request in flight: feeds the bytes of its response to the decoders, and judges how it ended. Python 3.8."""

import contextlib
import json
from json.scanner import make_scanner
from typing import Any, Callable, List, Optional, Tuple

from tui.probe.load_http import Response
from tui.probe.load_net import PIECE, Connection
from tui.wire.event_stream import CONTENT, REASONING, EventDecoder, error_of, token_of
from tui.wire.request_record import COMPLETED, FAILED, RequestRecord

scan = make_scanner(json.JSONDecoder())  # type: ignore[arg-type]

MAX_PLAIN_BYTES = 256 * 1024
"""As much of a body that is no event stream (an error) is kept."""

STALE_S = 1.0
"""A connection that was closed while idle says so at once; a server that closes later has failed the request."""

LARGE = 64 * 1024
"""Bytes of a request that may take a while to be sent."""

LINGER_S = 1.0
"""So long after the end of the stream the end of its framing is waited for."""

QUOTE, BACKSLASH = b'"\\'
"""As numbers: Python looks for bytes in bytes ten times slower than for a number."""


def _sizes(form: bytes) -> List[bytes]:
    """`SIZES` of servers that write it in that form."""
    lines = [b"\0"] * (PIECE + 1)
    for size in range(1, PIECE + 1):
        line = form % size
        if len(line) + size + 2 <= PIECE:
            lines[len(line) + size + 2] = line
    return lines


SIZES = _sizes(b"%x\r\n")
"""By the length of a piece that is exactly one HTTP chunk: its first line, as vLLM writes it; no piece begins with a NUL."""
UPPER_SIZES = _sizes(b"%X\r\n")

ABORTED = ("abort", "aborted", "error", "cancelled")
"""Finish reasons with which servers end a reply that they gave up."""


class RequestFailure(Exception):
    """The request failed: `kind` for the count, the message for the example."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class ReplyStream:
    """One request in flight on a connection."""

    __slots__ = (
        "arrived",
        "behind",
        "body",
        "connection",
        "decoder",
        "done",
        "endpoint",
        "events",
        "finish",
        "heard",
        "keep_text",
        "moved",
        "plain",
        "plain_size",
        "quick",
        "record",
        "recvmsg",
        "response",
        "sent",
        "sizes",
        "template",
        "texts",
        "together",
        "touched",
        "unsent",
    )

    def __init__(
        self, connection: Optional[Connection], record: RequestRecord, body: bytes, endpoint: str, keep_text: bool
    ) -> None:
        self.connection = connection
        self.recvmsg: Optional[Callable[..., Any]] = None
        """That of its connection, if it has one."""
        self.record = record
        self.body = body
        """The whole request, kept until it is certain that it needs not be sent again."""
        self.endpoint = endpoint
        self.keep_text = keep_text
        self.texts: List[str] = []
        self.template: Tuple[bytes, bytes] = (b"", b"")
        """The JSON of the last token's chunk before and behind its string."""
        self.quick = b""
        """What stands between the size of an HTTP chunk and the string of its token, when the next piece may be such a chunk."""
        self.sizes = SIZES
        """The first line of a piece that is one HTTP chunk, by the length of the piece, as this server writes it."""
        self.behind = b""
        """What follows the string in such a piece."""
        self.arrived = record.chunks.append
        self.together = 0
        """Chunks with a token that were read together with a later one: they have its stamp."""
        self.response = Response()
        self.decoder = EventDecoder()
        self.plain: Optional[List[bytes]] = None
        self.plain_size = 0
        self.done = False
        self.finish = ""
        self.touched = False
        """Whether any byte of the response came."""
        self.heard = 0.0
        """When its last byte came, or when it was sent."""
        self.moved = 0.0
        """When its head or the last event came that was read whole, or when it was sent: single bytes and comments are no reply."""
        self.sent = 0.0
        """When it was sent, by the monotonic clock."""
        self.unsent = 0
        """Bytes of a large request that the server had not taken at the last look."""
        self.events = 0

    def feed(self, data: bytes, stamp: float) -> bool:
        """Take bytes that arrived at `stamp`; return whether the response is complete. Raises RequestFailure if they say so."""
        self.heard = stamp
        quick = self.quick
        if quick and len(data) <= PIECE:
            # Nearly every piece of a token stream is one HTTP chunk with one event that differs from the last one in the token's
            # string alone: framing, event and JSON are then known without reading them again.
            size = self.sizes[len(data)]
            if data.startswith(size) and data.startswith(quick, len(size)) and data.endswith(self.behind):
                string = data[len(size) + len(quick) : -len(self.behind)]
                if string and QUOTE not in string and BACKSLASH not in string:
                    self.arrived(stamp)
                    if self.keep_text:
                        self.texts.append(string.decode("utf-8", "replace"))
                    return False
        self.touched = True
        response = self.response
        beginning = not response.headed
        try:
            body = response.feed(data)
        except ValueError as error:
            raise RequestFailure("bad_http", str(error)) from None
        if beginning and response.headed:
            self.moved = stamp
        if body:
            self.feed_body(body, stamp)
        before, behind = self.template
        self.quick = b""
        if before and response.between and self.decoder.idle:
            self.quick = b"data: " + before
            self.behind = behind + b"\n\n\r\n"
            self.sizes = UPPER_SIZES if data[: data.find(b"\r")].isupper() else SIZES
        return response.done

    def hear_out(self, connection: Connection) -> Optional[float]:
        """Read what has come on a connection that can't be sent on any more; return the stamp of the response's end, if complete.

        Raises RequestFailure.
        """
        with contextlib.suppress(OSError):
            while True:
                data, stamp = connection.receive()
                if not data:
                    break
                if self.feed(data, stamp):
                    return stamp
        return None

    def feed_body(self, body: bytes, stamp: float) -> None:
        """Take bytes of the body, the head being known. Raises RequestFailure."""
        self.touched = True
        self.heard = stamp
        response = self.response
        refused = response.status != 200 or "json" in response.headers.get("content-type", "")
        if self.plain is None and self.events == 0 and not self.record.chunks and refused:
            self.plain = []
        if self.plain is not None:
            if self.plain_size < MAX_PLAIN_BYTES:
                self.plain.append(body)
                self.plain_size += len(body)
            return
        try:
            payloads = self.decoder.feed(body)
        except ValueError as error:
            raise RequestFailure("bad_event", str(error)) from None
        if payloads:
            self.moved = stamp
        had = len(self.record.chunks)
        for payload in payloads:
            self._event(payload, stamp)
        if len(payloads) > 1:
            self.together += max(0, len(self.record.chunks) - had - 1)

    def _event(self, payload: bytes, stamp: float) -> None:
        before, behind = self.template
        if before and payload.startswith(before) and payload.endswith(behind):
            # The same JSON as before but for the string of the token: what it says is known without reading it again.
            string = payload[len(before) : -len(behind)]
            if string and QUOTE not in string and BACKSLASH not in string:
                self.record.chunks.append(stamp)
                if self.keep_text:
                    self.texts.append(string.decode("utf-8", "replace"))
                return
        if payload == b"[DONE]":
            self.done = True
            return
        self.events += 1
        try:
            obj = scan(payload.decode("utf-8"), 0)[0]
        except (StopIteration, ValueError, RecursionError):
            obj = None
        if type(obj) is not dict:
            obj = self._lenient(payload)
        record = self.record
        choices = obj.get("choices")
        if choices:
            kind, text = token_of(obj, self.endpoint)
            if kind is not None:
                record.chunks.append(stamp)
                if record.answer is None and kind != REASONING:
                    record.answer = stamp
                if self.keep_text:
                    self.texts.append(text)
            choice = choices[0] if type(choices) is list else None
            finish = choice.get("finish_reason") if type(choice) is dict else None
            if finish:
                self.finish = str(finish)
        usage = obj.get("usage")
        if usage:
            self._usage(usage)
        elif choices and kind == CONTENT and not finish and record.answer is not None:
            self._learn(payload, text)
        if not choices or "error" in obj:
            message = error_of(obj)
            if message is not None:
                raise RequestFailure("error_object", message)

    def _learn(self, payload: bytes, text: str) -> None:
        """Remember what stands around the token's string, if that is beyond doubt."""
        string = b'":"' + text.encode("utf-8", "replace") + b'"'
        at = payload.find(string)
        if text and at >= 0 and payload.find(string, at + 1) < 0 and payload[:at].endswith((b'"content', b'"text')):
            self.template = (payload[: at + 3], payload[at + len(string) - 1 :])

    def _lenient(self, payload: bytes) -> Any:
        try:
            obj = json.loads(payload.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            obj = None
        if not isinstance(obj, dict):
            raise RequestFailure("bad_event", "an event is not a JSON object: %r" % payload[:200])
        return obj

    def _usage(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        record = self.record
        prompt = usage.get("prompt_tokens_details")
        completion = usage.get("completion_tokens_details")
        record.n_out = _count(usage.get("completion_tokens"), record.n_out)
        record.n_in = _count(usage.get("prompt_tokens"), record.n_in)
        record.cached = _count(prompt.get("cached_tokens") if isinstance(prompt, dict) else None, record.cached)
        record.reasoning = _count(completion.get("reasoning_tokens") if isinstance(completion, dict) else None, record.reasoning)

    def overdue(self, wall: float, now: float, stall_s: float, timeout_s: float) -> Optional[RequestFailure]:
        """Say why it is given up: nothing came for too long, or it takes too long; return None if it is in time.

        `wall` is the wall clock's time, as that of stamps is, `now` the monotonic clock's.
        """
        if not self.touched and len(self.body) > LARGE and self.connection is not None:
            unsent = self.connection.unsent()
            if unsent != self.unsent:  # the prompt is still on its way
                self.unsent = unsent
                self.heard = self.moved = wall
        chunks = self.record.chunks
        if wall - (max(self.moved, chunks[-1]) if chunks else self.moved) > stall_s:
            what = "byte" if wall - self.heard > stall_s else "event, though bytes came,"
            return RequestFailure("stalled", "no %s for %g s" % (what, stall_s))
        if now - self.sent > timeout_s:
            return RequestFailure("timeout", "not finished after %g s" % timeout_s)
        return None

    def may_go_again(self, now: float) -> bool:
        """Return whether its broken connection is one that the server had closed while it was idle: it may be sent again, once.

        `now` is the monotonic clock's time.
        """
        connection = self.connection
        if connection is None or connection.uses < 2 or self.record.retried or self.touched:
            return False
        return now - self.sent <= STALE_S

    def eof(self, stamp: float) -> None:
        """Take the end of the connection. Raises RequestFailure if the response is not complete."""
        if self.all_said or self.response.refuses:
            return  # only the end of the framing is missing, or that of an error's words
        kind = "cut" if self.record.chunks else "closed"
        try:
            self.response.eof()
        except ValueError as error:
            raise RequestFailure(kind, str(error)) from None
        try:  # a body that ends with the connection: nothing but its last event tells whether that was its end
            for payload in self.decoder.close():
                self._event(payload, stamp)
        except RequestFailure as failure:
            if failure.kind != "bad_event":
                raise
            raise RequestFailure(kind, "the connection ended in the middle of an event") from None

    def broke(self, kind: str, words: str) -> None:
        """Take the break of the connection. Raises RequestFailure if the response is not complete.

        An error that the server told before counts.
        """
        if not self.all_said and not self.response.refuses:
            raise RequestFailure("cut" if kind == "reset" and self.record.chunks else kind, words)

    @property
    def all_said(self) -> bool:
        """Return whether the end of the stream has come, though perhaps not that of its framing."""
        return self.done and bool(self.record.chunks)

    def judge(self) -> None:
        """Settle the record of a response that came to its end. Raises RequestFailure if it is no success."""
        response = self.response
        record = self.record
        record.status = response.status
        if response.status != 200:
            raise RequestFailure("http_%d" % response.status, self._words() or response.reason or "no reason given")
        if self.plain is not None:
            words = self._words()
            obj = self._json()
            if obj is not None and error_of(obj) is not None:
                raise RequestFailure("error_object", words)
            raise RequestFailure("not_streamed", "the server answered in one piece although a stream was asked for")
        for payload in self.decoder.close():
            self._event(payload, self.heard)
        if not record.chunks:
            raise RequestFailure("no_token", "the stream ended without a token")
        if self.finish in ABORTED:
            raise RequestFailure("aborted", "the server gave the request up (finish_reason %s)" % self.finish)
        if not self.done and not self.finish:
            raise RequestFailure("cut", "the stream ended with neither a finish reason nor [DONE]")
        record.finish = self.finish
        record.state = COMPLETED
        record.text = "".join(self.texts)

    def fail(self, kind: str, message: str) -> None:
        record = self.record
        record.state = FAILED
        record.kind = kind
        record.error = message
        record.status = self.response.status or None
        record.finish = self.finish
        record.text = "".join(self.texts)

    def _json(self) -> Any:
        try:
            return json.loads(b"".join(self.plain or []).decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None

    def _words(self) -> str:
        """Return the server's own words in a body that is no event stream."""
        if self.plain is None:
            return ""
        message = error_of(self._json())
        return message if message is not None else b"".join(self.plain).decode("utf-8", "replace").strip()[:500]


def _count(told: Any, known: Optional[int]) -> Optional[int]:
    """Return a count of tokens that a server tells; what is known already if it makes no sense."""
    return told if isinstance(told, int) and not isinstance(told, bool) and 0 <= told < 1 << 31 else known
