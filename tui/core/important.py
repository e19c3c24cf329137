"""Which lines of a server's log its state is made of, as regular expressions for the follower on the host.

When a log is too long or too fast to be sent whole, the follower sends the lines that match one of these, the last lines, and a
count of the rest. They are searched, not anchored: any wrapper's prefix may stand before. What they miss is serving noise (access
lines, requests, routes); a line too many costs little, one too few costs a fact. The grammar is that of `tui.core.logs`.
"""

IMPORTANT: tuple[str, ...] = (
    # a start: banner, arguments, configuration
    r"vLLM (?:API )?server version|LLM engine \(v|non-default args:|args: Namespace|server_args=|Automatically detected platform",
    r"Resolved architecture|Using max model len|Started (?:engine process|\d+ API server|DP Coordinator)|Launching \d+ data",
    r"model   |version \d+\.\d+|Defaulting api_server_count|world size|world_size=|Starting server process|Init torch distr",
    # weights: bars of every loader, downloads, sizes
    r"% Completed \||checkpoint shards|Multi-thread loading|Model Streamer|Fastsafetensor|InstantTensor|Prefetching checkpoint",
    r"Starting to load|Loading (?:drafter|weights took|model weights took)|Model loading took|Load weight (?:begin|end)",
    r"Time spent downloading|Fetching \d+ files|\.safetensors:|Initializing model took|Deserialized|GGUF shard|Checkpoint size",
    # what follows: compile, profiling, KV cache, capture, warm-up
    r"[Dd]ynamo bytecode|torch\.compile|Compiling a graph|compiled graph|AOT compil|profiling/warmup|[Mm]emory profiling",
    r"KV [Cc]ache (?:memory|size|is allocated)|[Bb]locks: \d|Maximum concurrency|max_total_num_tokens|CUDA graph",
    r"Capturing|[Gg]raph capturing|[Cc]apture cuda graph|warmup|Warming up|init engine|Autotun",
    # serving, and its statistics
    r"Starting vLLM|startup complete|ready to (?:accept|roll)|Uvicorn running|server process \[|Supported.tasks",
    r"Avg prompt|Decode batch|fall asleep|wake up|Sleep mode",
    # the end, ordered or not
    r"[Ss]hut(?:ting )?down|[Tt]erminating|Killing|received signal|SIGTERM|SIGINT|SIGKILL|KeyboardInterrupt|exited|[Kk]illed",
    r"ERROR|CRITICAL|FATAL|[Ee]rror\b|Exception|Traceback|assert|^[ \t]*File \"|[Ff]ailed|[Ff]atal|[Aa]bort|core dumped",
    r"[Oo]ut of memory|OOM|shared memory broadcast|[Tt]imed out|[Tt]imeout|NCCL|Xid|EngineDead|not supported|No space left|denied",
)

NOISE: tuple[str, ...] = ('HTTP/1.1" 2', "Received request ", "Added request ")
"""Plain text, not expressions: a line that holds one of these is left out without another look. Most of a busy log is this."""
