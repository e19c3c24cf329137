"""An HTTP server that does what a script says, byte by byte: for the ways in which a stream can go wrong."""

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tui.probe.load_preflight import TRIAL, TRIAL_IDS

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


IDLE = b'vllm:num_requests_running{engine="0"} 0.0\nvllm:num_requests_waiting{engine="0"} 0.0\n'
"""Metrics of a server that serves nobody."""


class Exchange:
    """One request that was read, and the socket to answer on."""

    def __init__(self, sock: socket.socket, head: bytes, body: dict[str, Any], number: int, on_connection: int) -> None:
        self.sock = sock
        lines = head.decode("latin-1").split("\r\n")
        self.path = lines[0].split(" ")[1]
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        self.body = body
        self.number = number
        """Which streaming request of the server this is, from 0."""
        self.on_connection = on_connection
        """Which request of its connection this is, from 0."""

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def event(self, obj: Any) -> None:
        self.chunk(b"data: " + json.dumps(obj, ensure_ascii=False).encode() + b"\n\n")

    def token(self, text: str = "x", finish: str | None = None) -> None:
        self.event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]})

    def usage(self, completion: int, prompt: int = 5) -> None:
        self.event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})

    def done(self) -> None:
        self.chunk(b"data: [DONE]\n\n")
        self.send(b"0\r\n\r\n")

    def reply(self, tokens: int = 3) -> None:
        """Send a complete, correct stream."""
        self.send(SSE)
        self.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
        for i in range(tokens):
            self.token(f"t{i}", "length" if i + 1 == tokens else None)
        self.usage(tokens)
        self.done()

    def plain(self, status: str, body: bytes, more: bytes = b"") -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n".encode()
        self.send(head + more + b"\r\n" + body)

    def reset(self) -> None:
        """Close the connection with a RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def wait_closed(self, limit: float = 20.0) -> None:
        """Until the client hangs up."""
        self.sock.settimeout(limit)
        with suppress(OSError):
            while self.sock.recv(1):
                pass


Script = Callable[[Exchange], object]
"""Answers one streaming request; what it returns is "close" to end the connection afterwards."""


def trial(body: dict[str, Any]) -> bool:
    """Tell whether a streaming request only tries which fields are accepted, before a benchmark begins."""
    messages = body.get("messages") or [{}]
    return TRIAL in (body.get("prompt"), messages[0].get("content")) or body.get("prompt") == TRIAL_IDS


class Scripted:
    """A running server."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None, unix: str | None) -> None:
        self.script = script
        self.tls = tls
        self.served = 0
        self.connections = 0
        self.open = 0
        self.metrics = IDLE
        self.answer: Callable[[Exchange], object] = self.single
        """Answers what is no stream of a benchmark: the one that tries its fields gets a reply that is none, either."""
        self.idle_limit: float | None = None
        """Closes connections that were idle for so long."""
        self.lock = threading.Lock()
        family = socket.AF_UNIX if unix else socket.AF_INET
        self.listener = socket.socket(family)
        self.listener.bind(unix or ("127.0.0.1", 0))
        self.listener.listen(256)
        self.url = f"unix:{unix}" if unix else f"{'https' if tls else 'http'}://127.0.0.1:{self.listener.getsockname()[1]}"

    def accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock: socket.socket) -> None:
        with self.lock:
            self.connections += 1
            self.open += 1
        try:
            with suppress(OSError, ValueError):
                if sock.family != socket.AF_UNIX:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self.tls is not None:
                    sock = self.tls.wrap_socket(sock, server_side=True)
                self.requests(sock)
        finally:
            sock.close()
            with self.lock:
                self.open -= 1

    def requests(self, sock: socket.socket) -> None:
        buffer = b""
        count = 0
        while True:
            sock.settimeout(self.idle_limit)
            while b"\r\n\r\n" not in buffer:
                piece = sock.recv(65536)
                if not piece:
                    return
                buffer += piece
            sock.settimeout(None)
            head, _, buffer = buffer.partition(b"\r\n\r\n")
            size = 0
            for line in head.split(b"\r\n"):
                if line.lower().startswith(b"content-length:"):
                    size = int(line.split(b":")[1])
            while len(buffer) < size:
                piece = sock.recv(65536)
                if not piece:  # the client went away in the middle: without this the thread would turn for ever
                    return
                buffer += piece
            body, buffer = buffer[:size], buffer[size:]
            asked = json.loads(body) if body else {}
            if not asked.get("stream") or trial(asked):
                self.answer(Exchange(sock, head, asked, -1, count))
            else:
                with self.lock:
                    number = self.served
                    self.served += 1
                if self.script(Exchange(sock, head, asked, number, count)) == "close":
                    return
            count += 1

    def single(self, exchange: Exchange) -> None:
        if exchange.path == "/v1/models":
            exchange.plain("200 OK", b'{"data": [{"id": "scripted", "max_model_len": 4096}]}')
        elif exchange.path == "/metrics" and self.metrics:
            exchange.plain("200 OK", self.metrics)
        elif exchange.path == "/health":
            exchange.plain("200 OK", b"")
        elif exchange.path.endswith("completions"):
            usage = {"prompt_tokens": len(json.dumps(exchange.body)) // 5, "completion_tokens": 1}
            exchange.plain("200 OK", json.dumps({"choices": [{}], "usage": usage}).encode())
        else:
            exchange.plain("404 Not Found", b'{"detail":"Not Found"}')


@contextmanager
def scripted(script: Script, *, tls: ssl.SSLContext | None = None, unix: str | None = None) -> Iterator[Scripted]:
    """Serve on 127.0.0.1 (or a Unix socket); streaming requests are answered as `script` says."""
    server = Scripted(script, tls, unix)
    thread = threading.Thread(target=server.accept, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        with suppress(OSError):
            server.listener.shutdown(socket.SHUT_RDWR)
        server.listener.close()
        thread.join(5)


def until(predicate: Callable[[], bool], limit: float = 10.0) -> None:
    """Wait until the predicate holds. Raises AssertionError after `limit` seconds."""
    deadline = time.monotonic() + limit
    while not predicate():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
