"""Hold what starts of inference servers took, phase by phase: what the first start of a deployment is compared with.

`python tests/benchmarks/first_ready.py --table` makes the rows from the logs under tests/data/logs that their first column names,
cut short. Those in cpu and h200, and those of servers named cpu, were written by real servers; the rest are re-created after public
reports.
"""

from functools import cache

from msgspec import Struct

from tui.core.logs.load_state import Phase

PHASES = (
    Phase.STARTING,
    Phase.LOADING,
    Phase.POST_LOADING,
    Phase.PROFILING,
    Phase.COMPILING,
    Phase.KV_CACHE,
    Phase.CAPTURING,
    Phase.WARMING_UP,
)
"""The table's last columns."""


class RecordedStart(Struct, frozen=True):
    """One start that became ready. Seconds, counted from the log's first line; GiB of weights on each device."""

    source: str
    engine: str
    release: tuple[int, int] | None
    device: str | None
    eager: bool | None
    graph_sizes: int | None
    compile_cached: bool | None
    backend: str | None
    """The attention backend."""
    ranks: int
    gib: float | None
    phases: dict[Phase, float]


@cache
def recorded_starts() -> tuple[RecordedStart, ...]:
    """Return the table's rows."""
    return tuple(map(_row, TABLE.strip().splitlines()[1:]))


def _row(text: str) -> RecordedStart:
    source, engine, release, device, eager, graphs, cached, backend, ranks, gib, *seconds = (
        None if cell == "-" else cell.replace("_", " ") if column == BACKEND else cell for column, cell in enumerate(text.split())
    )
    major, _, minor = (release or "").partition(".")
    return RecordedStart(
        source=source or "",
        engine=engine or "",
        release=(int(major), int(minor)) if release else None,
        device=device,
        eager=None if eager is None else eager == "yes",
        graph_sizes=None if graphs is None else int(graphs),
        compile_cached=None if cached is None else cached == "yes",
        backend=backend,
        ranks=int(ranks or 1),
        gib=None if gib is None else float(gib),
        phases={phase: float(cell) for phase, cell in zip(PHASES, seconds, strict=True) if cell is not None},
    )


BACKEND = 7
TABLE = """
source                     engine rel  dev  eager graphs cached backend         ranks GiB  start load post prof comp kv  capt warm
cpu/kill9-APIServer        vllm   0.32 cpu  yes   0      -      -               1     0.04 11    0    1    -    -    0   -    1
cpu/kill9-EngineCore       vllm   0.32 cpu  yes   0      -      -               1     0.04 12    0    1    -    -    0   -    1
cpu/serving-apikey         vllm   0.32 cpu  yes   0      -      -               1     0.04 10    0    1    -    -    0   -    1
cpu/sigterm-loading        vllm   0.32 cpu  yes   0      -      -               1     0.04 11    26   1    -    -    1   -    6
cpu/sigterm-streaming      vllm   0.32 cpu  yes   0      -      -               1     0.04 11    0    1    -    -    1   -    0
cpu/start-16-shards-slow   vllm   0.32 cpu  yes   0      -      -               1     0.04 13    19   1    -    -    1   -    0
cpu/start-dp2              vllm   0.32 cpu  yes   0      -      -               2     0.04 28    0    1    -    -    1   -    1
cpu/start-paced            vllm   0.32 cpu  no    0      -      -               1     0.04 13    32   1    2    46   1   -    1
cpu/start-plain            vllm   0.32 cpu  no    0      -      -               1     0.04 10    0    1    1    19   1   -    0
cpu/start-pty              vllm   0.32 cpu  yes   0      -      -               1     0.04 12    10   0    -    -    3   -    1
cpu/start-slow-2gb         vllm   0.32 cpu  yes   0      -      -               1     1.87 11    0    3    -    -    0   -    1
cpu/start-tp2              vllm   0.32 cpu  yes   0      -      -               2     0.02 11    6    1    -    -    1   -    0
h200/serve-enginekilled    vllm   0.24 cuda no    51     no     FLASH_ATTN      1     8.36 42    6    0    8    12   0   3    91
h200/shard-missing-unnotic vllm   0.24 cuda yes   0      -      FLASH_ATTN      1     17.2 19    3    1    3    -    8   -    1
h200/tp2-serve             vllm   0.24 cuda no    51     no     FLASH_ATTN      2     24.5 78    40   1    15   27   1   8    124
h200/tp2-worker-killed     vllm   0.24 cuda no    51     no     FLASH_ATTN      2     8.7  67    3    1    12   22   1   6    106
reported/kv-offload-segfau vllm   0.22 cuda -     -      -      -               1     88.4 40    381  -    61   -    0   -    0
servers/03-cpu-0141-tp2-re vllm   0.14 cpu  yes   0      -      -               2     -    18    1    0    0    11   5   -    0
servers/04-cpu-030-tp2-rea vllm   0.30 cpu  yes   0      -      -               2     0.02 12    1    0    -    -    0   -    1
servers/06-cpu-032-dp2-two vllm   0.32 cpu  yes   0      -      -               2     0.04 45    1    1    -    -    3   -    3
servers/08-cpu-032-json-lo vllm   0.32 cpu  yes   0      -      -               1     0.04 16.3  0.2  1.1  -    -    2.2 -    1.2
servers/13-cpu-032-ready-s vllm   0.32 cpu  yes   0      -      -               1     0.04 23    0    1    -    -    3   -    0
servers/21-glm46-pp2-ready vllm   0.13 cuda no    -      no     -               2     169  35    640  9    0    33   0   29   3
servers/26-kimi-k25-8xh200 vllm   0.32 cuda no    -      no     -               8     72.8 59    490  61   12   44   0   38   0
servers/29-llama31-8b-v0-c vllm   0.6  cuda no    -      -      Flash_Attention 2     7.51 13    3    -    6    -    5   16   0
servers/32-qwen25-72b-tp4- vllm   0.9  cuda no    -      no     -               4     34   20    15   1    8    32   0   24   0
servers/33-qwen3-30b-tp2-s vllm   0.11 cuda no    -      no     -               2     8.02 27    8    3    0    28   0   8    2
servers/35-qwen3-next-jour vllm   0.12 cuda no    -      -      -               2     39.7 26    18   7    0    20   9   -    0
made/dp2-four-apiservers-r vllm   0.25 cuda -     -      -      FLASH_ATTN      2     61   30    35   2    37   -    0   13   2
made/json-dictconfig-kubec vllm   0.19 cuda -     -      -      -               2     25.9 31    25   1    35   30   0   11   3
made/rust-frontend-ready   vllm   0.31 cuda -     -      -      -               1     15.3 25    6    1    18   -    10  -    1
made/sglang-ready          sglang -    cuda -     -      -      -               8     80.8 32    163  1    -    -    1   25   9
made/v0-ray-pt-shards-read vllm   0.6  cuda no    -      -      -               2     39   22    104  -    12   -    3   24   1
"""
