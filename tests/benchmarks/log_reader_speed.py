"""How many lines a second the log reader takes: a serving log of about 100 MB, mixed as vLLM writes it.

python tests/benchmarks/log_reader_speed.py [MEGABYTES]
"""

import random
import sys
import time
from collections import Counter

from tui.core.logs.log_reader import LogReader
from tui.core.text import LineSplitter


def serving_log(megabytes: float) -> bytes:
    """Write a start, then access lines, statistics, request lines and some noise, as a busy server does."""
    dice = random.Random(7)
    api = "(APIServer pid=691)"
    lines = [
        f"{api} INFO 11-29 19:22:26 [api_server.py:577] vLLM API server version 0.24.0",
        f"{api} INFO:     Application startup complete.",
    ]
    size, second = 0, 0
    while size < megabytes * 1e6:
        second += 1
        clock = f"11-29 {second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        for _ in range(60):
            port = dice.randrange(30000, 60000)
            lines.append(f'{api} INFO:     127.0.0.1:{port} - "POST /v1/chat/completions HTTP/1.1" 200 OK')
        for _ in range(12):
            number = dice.randrange(1 << 40)
            lines.append(
                f"{api} INFO {clock} [logger.py:61] Received request chatcmpl-{number:x}: params: SamplingParams(n=1, "
                "presence_penalty=0.0, frequency_penalty=0.0, temperature=0.7, top_p=0.95, max_tokens=512), lora_request: None."
            )
            lines.append(f"{api} INFO {clock} [async_llm.py:414] Added request chatcmpl-{number:x}.")
        lines.append(f'{api} INFO:     127.0.0.1:51234 - "GET /metrics HTTP/1.1" 200 OK')
        lines.append(f'{api} INFO:     127.0.0.1:51234 - "POST /v1/completions HTTP/1.1" 400 Bad Request')
        if second % 10 == 0:
            lines.append(
                f"{api} INFO {clock} [loggers.py:273] Engine 000: Avg prompt throughput: 5934.1 tokens/s, Avg generation "
                "throughput: 10991.7 tokens/s, Running: 512 reqs, Waiting: 0 reqs, GPU KV cache usage: 13.3%, "
                "Prefix cache hit rate: 8.5%"
            )
        if second % 7 == 0:
            lines.append(f"(EngineCore pid=1299) WARNING {clock} [scheduler.py:88] Preempted request because of KV cache pressure")
            lines.append("/usr/lib/python3/site-packages/x.py:12: UserWarning: something deprecated")
        if len(lines) > 2000:
            size += sum(map(len, lines[-1500:])) * len(lines) // 1500 if size == 0 else 0
            size = len(lines) * 140
    return "\n".join(lines).encode() + b"\n"


def main() -> None:
    data = serving_log(float(sys.argv[1]) if len(sys.argv) > 1 else 100.0)
    splitter, reader = LineSplitter(), LogReader(2026)
    began = time.process_time()
    count = 0
    chunk = 1 << 18
    split_s = 0.0
    for start in range(0, len(data), chunk):
        before = time.process_time()
        lines = splitter.feed(data[start : start + chunk])
        split_s += time.process_time() - before
        for line in lines:
            reader.feed(line)
        count += len(lines)
    took = time.process_time() - began
    assert reader.state.ready
    levels = Counter(line.split(" ", 3)[2].rstrip(":") for line in data[:200_000].decode().splitlines() if line.startswith("("))
    print(
        f"{len(data) / 1e6:.0f} MB, {count:,} lines in {took:.2f} s: {count / took:,.0f} lines/s ({split_s:.2f} s of it splitting)"
    )
    print(f"mix of the first 200 kB: {dict(levels)}")


if __name__ == "__main__":
    main()
