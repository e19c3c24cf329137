"""Which lines of a server's log its state is made of, as regular expressions for the follower on the host.

When a log is too long or too fast to be sent whole, the follower sends the lines that match one of these, the last lines, and a
count of the rest. They are searched, not anchored: any wrapper's prefix may stand before. What they miss is serving noise (access
lines, requests, routes); a line too many costs little, one too few costs a fact. What only one engine says stands in its package.
"""

from tui.engines.registry import ENGINES

IMPORTANT: tuple[str, ...] = (
    # weights: bars of every loader, downloads
    r"% Completed \||checkpoint shards|Multi-thread loading|Model Streamer|Fastsafetensor|InstantTensor|Prefetching checkpoint",
    r"Fetching \d+ files|\.safetensors:",
    # capture and warm-up, the API server
    r"Capturing|[Gg]raph capturing|warmup|Warming up|Autotun",
    r"startup complete|Uvicorn running|server process \[|Supported.tasks",
    *(pattern for engine in ENGINES for pattern in engine.important),
    # the end, ordered or not
    r"[Ss]hut(?:ting )?down|[Tt]erminating|Killing|received signal|SIGTERM|SIGINT|SIGKILL|KeyboardInterrupt|exited|[Kk]illed",
    r"ERROR|CRITICAL|FATAL|[Ee]rror\b|Exception|Traceback|assert|^[ \t]*File \"|[Ff]ailed|[Ff]atal|[Aa]bort|core dumped",
    r"[Oo]ut of memory|OOM|[Tt]imed out|[Tt]imeout|NCCL|Xid|not supported|No space left|denied",
)

NOISE: tuple[str, ...] = ('HTTP/1.1" 2', *(text for engine in ENGINES for text in engine.noise))
"""Plain text, not expressions: a line that holds one of these is left out without another look. Most of a busy log is this."""
