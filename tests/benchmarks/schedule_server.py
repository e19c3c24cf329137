"""A server with a known schedule: an OpenAI-like endpoint that sends each token at a time fixed beforehand, and writes down when it
really did.

    python tests/benchmarks/schedule_server.py PORT --ttft 50 --gap 20 --processes 2 --log FILE

The request is answered `ttft` ms after its last byte arrived (the kernel's stamp), then every `gap` ms a token, each with its own
jitter; `max_tokens` tokens, then usage and [DONE]. Several processes share the port (SO_REUSEPORT). On SIGTERM each process appends
what it sent to FILE.N, one JSON line a request: `{"id", "arrived", "sent": [...]}` in seconds of the wall clock, taken just before
each send. The text of a reply begins with the request's id, so that arrivals can be matched to sendings one by one.
"""

import argparse
import heapq
import json
import os
import random
import select
import signal
import socket
import struct
import time
from typing import Any

SO_TIMESTAMPNS = 35
TIMESPEC = struct.Struct("@ll")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(text: str, finish: str | None, chat: bool) -> bytes:
    """Return one token as vLLM sends it."""
    choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish, "token_ids": None}
    if chat:
        choice["delta"] = {"content": text}
    else:
        choice["text"] = text
    obj = {
        "id": "chatcmpl-8259a9d2d6fc1fe6",
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": 1795981260,
        "model": "scheduled",
        "choices": [choice],
    }
    return chunk(b"data: " + json.dumps(obj, separators=(",", ":")).encode() + b"\n\n")


TOKEN = {chat: event(" token", None, chat) for chat in (True, False)}
LAST = {chat: event(" token", "length", chat) for chat in (True, False)}


class Reply:
    """One reply in progress."""

    def __init__(self, sock: socket.socket, number: str, arrived: float, count: int, prompt: int, chat: bool, options: Any) -> None:
        self.sock = sock
        self.number = number
        self.arrived = arrived
        self.count = count
        self.prompt = prompt
        self.chat = chat
        rng = random.Random(number)
        at = arrived + options.ttft / 1000 * (0.8 + 0.4 * rng.random())
        self.due = []
        for _ in range(count):
            self.due.append(at)
            at += options.gap / 1000 * (0.7 + 0.6 * rng.random())
        self.sent: list[float] = []

    def send_next(self) -> bool:
        """Send what is due next; return whether more is to come."""
        i = len(self.sent)
        if i == 0:
            data = HEAD + event(self.number + " ", "length" if self.count == 1 else None, self.chat)
            if self.chat:
                role = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
                data = HEAD + chunk(b"data: " + json.dumps(role).encode() + b"\n\n") + data[len(HEAD) :]
        elif i + 1 < self.count:
            data = TOKEN[self.chat]
        else:
            data = LAST[self.chat]
        if i + 1 == self.count:
            usage = {"prompt_tokens": self.prompt, "completion_tokens": self.count, "total_tokens": self.prompt + self.count}
            data += chunk(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
            data += chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        self.sent.append(time.time())
        self.sock.sendall(data)
        return i + 1 < self.count


def plain(status: str, obj: Any) -> bytes:
    body = json.dumps(obj).encode()
    return b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (status.encode(), len(body), body)


def serve(options: Any, worker: int) -> None:
    """Serve in one process, with its own epoll loop on the shared port."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    # for the connections that it accepts; and early, since the kernel begins to stamp only a while after the first socket asks
    listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    listener.bind(("127.0.0.1", options.port))
    listener.listen(4096)
    listener.setblocking(False)
    poll = select.epoll()
    poll.register(listener.fileno(), select.EPOLLIN)
    socks: dict[int, socket.socket] = {}
    buffers: dict[int, bytes] = {}
    queue: list[tuple[float, int, Reply]] = []
    done: list[Reply] = []
    serial = 0
    running = True

    def stop(*_: Any) -> None:
        nonlocal running
        running = False

    signal.signal(signal.SIGTERM, stop)
    while running:
        timeout = 1.0 if not queue else max(0.0, queue[0][0] - time.time())
        # epoll's own resolution is a millisecond: the last part of the wait is spun away
        ready = poll.poll(max(0.0, timeout - 0.0011)) if timeout > 0.0011 else poll.poll(0)
        for fd, _ in ready:
            if fd == listener.fileno():
                while True:
                    try:
                        sock, _ = listener.accept()
                    except BlockingIOError:
                        break
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    socks[sock.fileno()] = sock
                    buffers[sock.fileno()] = b""
                    poll.register(sock.fileno(), select.EPOLLIN)
                continue
            sock = socks[fd]
            try:
                data, ancillary, _, _ = sock.recvmsg(1 << 16, 64)
            except OSError:
                data, ancillary = b"", []
            if not data:
                poll.unregister(fd)
                sock.close()
                del socks[fd], buffers[fd]
                continue
            buffers[fd] += data
            head, blank, body = buffers[fd].partition(b"\r\n\r\n")
            if not blank:
                continue
            size = 0
            for line in head.split(b"\r\n"):
                if line.lower().startswith(b"content-length:"):
                    size = int(line.split(b":")[1])
            if len(body) < size:
                continue
            buffers[fd] = body[size:]
            path = head.split(b" ", 2)[1]
            if path == b"/v1/models":
                sock.sendall(plain("200 OK", {"data": [{"id": "scheduled", "root": "scheduled"}]}))
                continue
            if not path.endswith(b"completions"):
                sock.sendall(plain("404 Not Found", {"detail": "Not Found"}))
                continue
            asked = json.loads(body[:size])
            count = int(asked.get("max_tokens") or asked.get("max_completion_tokens") or 16)
            chat = path.endswith(b"/chat/completions")
            if not asked.get("stream"):
                choice = {"message": {"content": "x"}, "text": "x", "finish_reason": "length"}
                usage = {"prompt_tokens": len(body) // 5, "completion_tokens": count}
                sock.sendall(plain("200 OK", {"choices": [choice], "usage": usage}))
                continue
            arrived = time.time()
            if ancillary:
                seconds, nanoseconds = TIMESPEC.unpack(ancillary[0][2])
                arrived = seconds + nanoseconds * 1e-9
            serial += 1
            reply = Reply(sock, f"{worker}-{serial}", arrived, count, len(body) // 5, chat, options)
            heapq.heappush(queue, (reply.due[0], serial, reply))
        now = time.time()
        while queue and queue[0][0] <= now:
            _, number, reply = heapq.heappop(queue)
            try:
                if reply.send_next():
                    heapq.heappush(queue, (reply.due[len(reply.sent)], number, reply))
                else:
                    done.append(reply)
            except OSError:
                continue
    with open(f"{options.log}.{worker}", "w") as file:
        for reply in done:
            file.write(json.dumps({"id": reply.number, "arrived": reply.arrived, "sent": reply.sent}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("--ttft", type=float, default=50.0, help="ms until the first token")
    parser.add_argument("--gap", type=float, default=20.0, help="ms between tokens")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--log", default="/dev/null")
    options = parser.parse_args()
    children = []
    for worker in range(options.processes):
        pid = os.fork()
        if pid == 0:
            serve(options, worker)
            os._exit(0)
        children.append(pid)

    def stop(*_: Any) -> None:
        for pid in children:
            os.kill(pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
