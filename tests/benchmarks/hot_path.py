"""Microseconds of CPU of each step between a packet and a recorded token, without the network.

python tests/benchmarks/hot_path.py
"""

import time
from collections.abc import Callable
from typing import Any

from tui.probe.load_http import Response
from tui.probe.load_stream import ReplyStream, scan
from tui.wire.event_stream import EventDecoder, token_of
from tui.wire.request_record import RequestRecord

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PAYLOAD = (
    b'{"id":"chatcmpl-8259a9d2d6fc1fe6","object":"chat.completion.chunk","created":1795981260,"model":"scheduled","choices":'
    b'[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null,"token_ids":null}]}'
)
EVENT = b"data: " + PAYLOAD + b"\n\n"
CHUNK = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
ROUNDS = 5
COUNT = 20_000


def cost(step: Callable[[], Any]) -> float:
    """Return the best time of several rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(COUNT):
            step()
        best = min(best, time.process_time() - began)
    return best / COUNT * 1e6


def main() -> None:
    stream = ReplyStream(None, RequestRecord(0, 1), b"", "chat", False)
    stream.feed(HEAD, 1.0)
    response = Response()
    response.feed(HEAD)
    decoder = EventDecoder()
    parsed = scan(PAYLOAD.decode(), 0)[0]
    for name, step in (
        ("all of it: packet to recorded token", lambda: stream.feed(CHUNK, 1.0)),
        ("the chunked framing", lambda: response.feed(CHUNK)),
        ("the event stream", lambda: decoder.feed(EVENT)),
        ("the standard library's JSON scanner (not needed for most tokens)", lambda: scan(PAYLOAD.decode(), 0)[0]),
        ("the token-bearing rule", lambda: token_of(parsed, "chat")),
    ):
        print(f"{cost(step):6.2f} us  {name}")


if __name__ == "__main__":
    main()
