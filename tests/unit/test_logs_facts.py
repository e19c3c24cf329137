"""Single facts of a start and of serving, each in the words of the releases that print it."""

import pytest
from writing import Log, read

from tui.core.logs.load_state import LoadState, Serving

W0, ENGINE, API = "Worker_TP0 pid=20", "EngineCore pid=10", "APIServer pid=1"
RUNAI, INSTANT = "Loading safetensors using Runai Model Streamer", "Loading safetensors using InstantTensor loader"


def said(message: str, process: str = W0) -> LoadState:
    return read(str(Log().say(process, message)))


# -- bars


@pytest.mark.parametrize(
    ("version", "name", "counts", "wanted"),
    [
        ("0.9.2", RUNAI, "12/30", (12, 30, "shards")),
        ("0.10.0", RUNAI, "150/311", (150, 311, "tensors")),
        ("0.24.0", RUNAI, "120/3000", (120, 3000, "tensors")),
        (None, RUNAI, "150/311", (150, 311, "tensors")),
        ("0.20.0", INSTANT, "600/1200", (600, 1200, "tensors")),
        ("0.26.0", INSTANT, "2.79G/8.38G", (2_790_000_000, 8_380_000_000, "bytes")),
        ("0.20.0", "Loading safetensors using Fastsafetensor loader", "3/8", (3, 8, "shards")),
        ("0.24.0", "Loading safetensors checkpoint shards", "150/311", (150, 311, "shards")),
    ],
)
def test_what_a_bar_counts(version: str | None, name: str, counts: str, wanted: tuple[int, int, str]) -> None:
    log = Log() if version is None else Log().starts(version)
    shards = read(str(log.raw(f"{name}:  40% Completed | {counts} [00:10<00:15,  1.00s/it]"))).shards
    assert shards is not None
    assert (shards.done, shards.total, shards.unit) == wanted


def plain_bar(name: str, done: int, total: int) -> str:
    return f"{name}:  {100 * done // total}%|█▎        | {done}/{total} [00:01<00:07,  8.1it/s]"


@pytest.mark.parametrize(
    ("bars", "done", "total"),
    [
        ([(f"Capturing batches (bs={160 - 8 * n} avail_mem={9.4 - n / 10:.2f} GB)", n + 1, 23) for n in range(3)], 3, 23),
        ([(f"Capturing num tokens (num_tokens={4096 - n} avail_mem=9.40 GB)", n + 1, 58) for n in range(3)], 3, 58),
        (
            [
                ("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE)", 51, 51),
                ("Capturing CUDA graphs (decode, FULL)", 9, 35),
            ],
            60,
            86,
        ),
    ],
)
def test_a_capture_bar_is_one_whatever_it_writes_into_its_name(bars: list[tuple[str, int, int]], done: int, total: int) -> None:
    capture = read(str(Log().starts().raw(*(plain_bar(*bar) for bar in bars)))).capture
    assert capture is not None
    assert (capture.done, capture.total) == (done, total)


# -- facts in words


@pytest.mark.parametrize(
    ("words", "backend"),
    [
        ("FLASH_ATTN backend.", "FLASH_ATTN"),
        ("AttentionBackendEnum.FLASH_ATTN backend.", "FLASH_ATTN"),
        ("FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'TRITON_ATTN'].", "FLASH_ATTN"),
        ("Flash Attention backend on V1 engine.", "Flash Attention"),
        ("DUAL_CHUNK_FLASH_ATTN backend.", "DUAL_CHUNK_FLASH_ATTN"),
        ("HPU_ATTN backend.", "HPU_ATTN"),
        ("IPEX backend.", "IPEX"),
        ("Sparse MLA backend on V1 engine.", "Sparse MLA"),
        ("AITER TRITON MLA backend.", "AITER TRITON MLA"),
        ("ROCM_AITER_FA backend (selected via --attention-backend).", "ROCM_AITER_FA"),
        ("FlashInfer backend with HND KV cache layout on V1 engine by default for Blackwell (SM 10.0) GPUs.", "FlashInfer"),
        ("FlashInfer backend on V1 engine by default for Blackwell (SM 10.0) GPUs.", "FlashInfer"),
        ("FlexAttention backend for head size 80 on V1 engine.", "FlexAttention"),
        ("Flash Attention backend for ViT model.", None),
        ("Torch SDPA backend for ViT model.", None),
        ("Triton sampling backend.", None),
        ("FlashInfer sampler backend.", None),
        ("TRITON_MOE backend.", None),
        ("Triton FusedMoE backend.", None),
        ("FLASHINFER_TRTLLM MXFP4 MoE backend.", None),
        ("CUTLASS_FP8 backend.", None),
        ("FlashInferFP8ScaledMMLinearKernel backend.", None),
        ("OOT custom backend for compilation.", None),
    ],
)
def test_attention_backends(words: str, backend: str | None) -> None:
    assert said(f"Using {words}").attention_backend == backend


@pytest.mark.parametrize(
    "lines",
    [
        ["GPU KV cache size: 400,000 tokens, Maximum concurrency for 32,768 tokens per request: 12.34x"],
        ["GPU + host KV cache size: 400,000 tokens, Maximum concurrency for 32,768 tokens per request: 12.34x"],
        ["GPU KV cache size: 400,000 tokens", "Maximum concurrency for 32,768 tokens per request: 12.34x"],
    ],
)
def test_the_cache_in_one_line_or_two(lines: list[str]) -> None:
    log = Log()
    for line in lines:
        log.say(ENGINE, line)
    load = read(str(log))
    assert (load.kv_tokens, load.max_concurrency, load.max_model_len) == (400_000, 12.34, 32_768)


@pytest.mark.parametrize(
    "folded",
    [
        "[repeated 7x across cluster]",
        "[repeated 7x across cluster] (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0 to disable log deduplication, or see "
        "https://docs.ray.io/en/master/ray-observability/user-guides/configure-logging.html#log-deduplication for more options.)",
    ],
)
def test_what_ray_folds_is_unfolded(folded: str) -> None:
    assert said(f"Starting to load model org/m... {folded}", "RayWorkerWrapper pid=9, ip=10.0.3.8").model == "org/m"


@pytest.mark.parametrize("process", ["", W0])
def test_a_tag_before_the_words_with_and_without_heads(process: str) -> None:
    log = Log()
    for message in ("vLLM server version 0.32.0, serving model org/m", "[backbone] Starting torch.compile"):
        log = log.say(process, message) if process else log.raw(message)
    assert read(str(log)).phase.value == "compiling"


# -- statistics


def stats(who: str, prompt: float, generated: float, running: int, waiting: int, cache: float) -> str:
    return (
        f"{who}Avg prompt throughput: {prompt} tokens/s, Avg generation throughput: {generated} tokens/s, Running: {running} reqs, "
        f"Waiting: {waiting} reqs, GPU KV cache usage: {cache}%, Prefix cache hit rate: 50.0%"
    )


BOTH = [stats("Engine 000: ", 100.0, 900.0, 9, 2, 8.0), stats("Engine 001: ", 50.0, 300.0, 3, 0, 4.0)]
IDLE = stats("Engine 001: ", 0.0, 0.0, 0, 0, 0.0)


@pytest.mark.parametrize(
    ("lines", "figures"),
    [
        ([stats("", 100.0, 900.0, 9, 2, 8.0)], (100.0, 900.0, 9, 2, 0.08, 0.5)),
        (BOTH[:1], (100.0, 900.0, 9, 2, 0.08, 0.5)),
        (BOTH, (150.0, 1200.0, 12, 2, 0.06, 0.5)),
        ([BOTH[0], IDLE], (100.0, 900.0, 9, 2, 0.04, 0.5)),
        ([*BOTH, IDLE], (100.0, 900.0, 9, 2, 0.04, 0.5)),
        ([*BOTH, BOTH[1]], (150.0, 1200.0, 12, 2, 0.06, 0.5)),
        ([*BOTH, stats("2 Engines Aggregated: ", 160.0, 1300.0, 13, 2, 6.0)], (160.0, 1300.0, 13, 2, 0.06, 0.5)),
        ([stats("128 Engines Aggregated: ", 160.0, 1300.0, 13, 2, 6.0), BOTH[0]], (160.0, 1300.0, 13, 2, 0.06, 0.5)),
    ],
)
def test_the_statistics_are_those_of_all_engines(lines: list[str], figures: tuple[float, ...]) -> None:
    log = Log().starts().loads().serves()
    for line in lines:
        log.say(API, line, step=0)
    serving = read(str(log)).serving
    assert serving is not None
    assert figures_of(serving) == pytest.approx(figures)


def test_an_engine_that_fell_silent_counts_no_more() -> None:
    log = Log().starts().loads().serves().say(API, BOTH[0]).say(API, BOTH[1], step=0).say(API, BOTH[0], step=120)
    serving = read(str(log)).serving
    assert serving is not None
    assert figures_of(serving) == pytest.approx((100.0, 900.0, 9, 2, 0.08, 0.5))


def test_sglang_s_statistics_are_those_of_all_its_engines() -> None:
    def decode(rank: str, running: int, usage: float, speed: float) -> str:
        return (
            f"[2025-10-16 09:06:09 {rank}] Decode batch. #running-req: {running}, #token: 900, token usage: {usage}, "
            f"gen throughput (token/s): {speed}, #queue-req: 1"
        )

    lines = [
        "[2025-10-16 09:06:00] server_args=ServerArgs(model_path='m', dp_size=2)",
        decode("DP0 MOE_DP0 TP0", 5, 0.2, 100.0),
        decode("DP1 MOE_DP0 TP0", 3, 0.4, 60.0),
    ]
    serving = read("\n".join(lines) + "\n").serving
    assert serving is not None
    assert figures_of(serving)[1:5] == pytest.approx((160.0, 8, 2, 0.3))


def figures_of(serving: Serving) -> tuple[float | None, ...]:
    return (
        serving.prompt_tokens_s,
        serving.generation_tokens_s,
        serving.running,
        serving.waiting,
        serving.kv_cache_share,
        serving.prefix_hit_share,
    )


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        ("Chunked prefill is enabled with max_num_batched_tokens=8192.", 8192),
        ("non-default args: {'model': 'm', 'max_num_batched_tokens': 16384, 'port': 8000}", 16384),
        ("non-default args: {'model': 'm', 'max_num_batched_tokens': None}", None),
    ],
)
def test_how_much_prefill_goes_into_a_step(message: str, tokens: int | None) -> None:
    assert said(message, API).batched_tokens == tokens
