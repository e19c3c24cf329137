# ruff: noqa: E501 - log lines as they are
"""States of a deployment for the screen's tests and pictures: made by the real reader over log lines as vLLM 0.24 writes them."""

import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from tui.core.api_status import ApiStatus, Reach, ServedModel, ServerMetrics
from tui.core.connection import ConnectionState, LinkState
from tui.core.deployment import DeploymentState, HostSeen, LogTail
from tui.core.gpu import Gpu, GpuProcess, GpuSample
from tui.core.host_machine import MachineSample
from tui.core.logs.forecast import make_forecast
from tui.core.logs.load_state import PastLoad, Phase, SignsOfLife
from tui.core.logs.log_reader import LogReader
from tui.core.trends import Trends

ONLINE = ConnectionState(link=LinkState.ONLINE, host="gpu-8x", round_trip_ms=31.0)
TOTAL = 97887.0
STEPS = (31.2, 31.6, 32.1, 31.4, 31.9, 31.2, 33.0, 31.5, 44.4, 32.2, 31.4, 30.9, 31.3, 30.8)
LAST = tuple(31.0 + (i * 7 % 5) * 0.6 + (8 if i in (9, 33) else 0) for i in range(64))
HISTORY = (
    PastLoad(
        total_s=2178.0,
        phases=(
            (Phase.STARTING, 20.0),
            (Phase.LOADING, 2046.0),
            (Phase.POST_LOADING, 12.0),
            (Phase.COMPILING, 48.0),
            (Phase.PROFILING, 6.0),
            (Phase.KV_CACHE, 2.0),
            (Phase.CAPTURING, 33.0),
            (Phase.WARMING_UP, 11.0),
        ),
        step_seconds=LAST,
        at=1764310000.0,
        version="0.24.0",
    ),
)


def stamp(at: float) -> str:
    return time.strftime("%m-%d %H:%M:%S", time.localtime(at))


def opening(at: float, model: str = "/models/kimi-k2-w4", tp: int = 8) -> list[tuple[float, str]]:
    """Return a start until the weights begin to load."""
    config = (
        f"Initializing a V1 LLM engine (v0.24.0) with config: model='{model}', speculative_config=None, tokenizer='{model}', "
        f"dtype=torch.bfloat16, max_seq_len=131072, tensor_parallel_size={tp}, pipeline_parallel_size=1, data_parallel_size=1, "
        f"quantization=compressed-tensors, served_model_name=kimi-k2-w4"
    )
    return [
        (at, f"(APIServer pid=377) INFO {stamp(at)} [api_server.py:1896] vLLM API server version 0.24.0"),
        (at + 12, f"(EngineCore pid=412) INFO {stamp(at + 12)} [core.py:114] {config}"),
        (
            at + 18,
            f"(Worker_TP0 pid=498) INFO {stamp(at + 18)} [cuda.py:480] Using TRITON_MLA attention backend out of potential backends: ['TRITON_MLA']",
        ),
        (at + 20, f"(Worker_TP0 pid=498) INFO {stamp(at + 20)} [gpu_model_runner.py:5060] Starting to load model {model}..."),
        (
            at + 20,
            f"(Worker_TP0 pid=498) INFO {stamp(at + 20)} [weight_utils.py:849] Filesystem type for checkpoints: XFS. Checkpoint size: 509.4 GiB.",
        ),
        (
            at + 20,
            f"(Worker_TP5 pid=503) WARNING {stamp(at + 20)} [marlin_utils.py:210] Layer shape [7168, 2048] falls back to the unfused kernel",
        ),
    ]


def shard_lines(at: float, total: int, steps: Sequence[float]) -> list[tuple[float, str]]:
    """tqdm's lines for that many steps."""
    head = "(Worker_TP0 pid=498) \rLoading safetensors checkpoint shards"
    out = [(at, f"{head}:   0% Completed | 0/{total} [00:00<?, ?it/s]")]
    now = at
    for i, step in enumerate(steps, 1):
        now += step
        so_far = now - at
        left = (total - i) * step
        spent, rest = (f"{int(s) // 60:02}:{int(s) % 60:02}" for s in (so_far, left))
        out.append((now, f"{head}: {100 * i // total:3}% Completed | {i}/{total} [{spent}<{rest}, {step:.2f}s/it]"))
    return out


def finishing(at: float) -> list[tuple[float, str]]:
    """Return a start from the last shard until the server is up."""
    w, e = "(Worker_TP0 pid=498) INFO", "(EngineCore pid=412) INFO"
    return [
        (at + 1, f"{w} {stamp(at + 1)} [default_loader.py:430] Loading weights took 2046.12 seconds"),
        (at + 12, f"{w} {stamp(at + 12)} [gpu_model_runner.py:5155] Model loading took 67.74 GiB memory and 2058.214000 seconds"),
        (
            at + 20,
            f"{w} {stamp(at + 20)} [backends.py:1068] Using cache directory: /root/.cache/vllm/torch_compile_cache/ab/rank_0_0/backbone for vLLM's torch.compile",
        ),
        (at + 60, f"{w} {stamp(at + 60)} [monitor.py:53] torch.compile took 48.08 s in total"),
        (at + 66, f"{w} {stamp(at + 66)} [gpu_worker.py:480] Available KV cache memory: 21.86 GiB"),
        (at + 67, f"{e} {stamp(at + 67)} [kv_cache_utils.py:1711] GPU KV cache size: 1,204,224 tokens"),
        (at + 67, f"{e} {stamp(at + 67)} [kv_cache_utils.py:1716] Maximum concurrency for 131,072 tokens per request: 9.19x"),
        (at + 100, f"{w} {stamp(at + 100)} [gpu_model_runner.py:6360] Graph capturing finished in 33 secs, took 2.06 GiB"),
        (
            at + 105,
            f"{e} {stamp(at + 105)} [core.py:320] init engine (profile, create kv cache, warmup model) took 93.20 s (compilation: 48.08 s)",
        ),
        (at + 111, f"(APIServer pid=377) INFO {stamp(at + 111)} [api_server.py:1301] Starting vLLM server on http://0.0.0.0:8000"),
        (at + 111, "(APIServer pid=377) INFO:     Application startup complete."),
    ]


def oom(at: float) -> list[tuple[float, str]]:
    """Return a load in which a worker runs out of memory midway."""
    w3 = f"(Worker_TP3 pid=501) ERROR {stamp(at)} [multiproc_executor.py:772]"
    return [
        (at, f"{w3} WorkerProc failed to start."),
        (at, f"{w3} Traceback (most recent call last):"),
        (at, f'{w3}   File "/usr/lib/python3/dist-packages/vllm/v1/executor/multiproc_executor.py", line 743, in worker_main'),
        (at, f"{w3}     worker = WorkerProc(*args, **kwargs)"),
        (
            at,
            f"{w3} torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.09 GiB. GPU 3 has a total capacity of 95.59 GiB of which "
            "512.00 MiB is free. Process 41877 has 52.29 GiB memory in use. Of the allocated memory 41.94 GiB is allocated by PyTorch.",
        ),
        (at + 1, f"(EngineCore pid=412) ERROR {stamp(at + 1)} [core.py:1001] EngineCore failed to start."),
        (at + 1, f"(EngineCore pid=412) ERROR {stamp(at + 1)} [core.py:1001] Traceback (most recent call last):"),
        (
            at + 1,
            f"(EngineCore pid=412) ERROR {stamp(at + 1)} [core.py:1001] Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.",
        ),
        (
            at + 3,
            "(APIServer pid=377) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        ),
    ]


def gpus(
    count: int = 8, used: float = 14951.0, *, busy: float = 3.0, odd: int | None = None, mono: float = 0.0, lost: int | None = None
) -> GpuSample:
    out = []
    for n in range(count):
        if n == lost:
            out.append(Gpu(index=n, name="NVIDIA RTX PRO 6000 Blackwell Server Edition", error="GPU is lost"))
            continue
        processes = [
            GpuProcess(pid=498 + n, name=f"VLLM::Worker_TP{n}", memory_mib=used - 450, engine=True, rank=f"TP{n}", parent=412)
        ]
        mine = used
        if n == odd:
            processes.append(GpuProcess(pid=41877, name="python finetune.py", memory_mib=53545.0, engine=False, user="lena"))
            mine = min(TOTAL - 512, used + 53545.0)
        out.append(
            Gpu(
                index=n,
                uuid=f"GPU-{n:08x}",
                name="NVIDIA RTX PRO 6000 Blackwell Server Edition",
                pci=f"0000:{n:02X}:00.0",
                memory_used_mib=mine,
                memory_total_mib=TOTAL,
                utilisation=busy + n % 3,
                temperature_c=41.0 + n % 4,
                power_w=118.0 + 3 * n,
                power_limit_w=600.0,
                sm_clock_mhz=2430.0,
                sm_clock_max_mhz=2617.0,
                pcie_generation=5,
                pcie_generation_max=5,
                pcie_width=16,
                pcie_width_max=16,
                ecc_uncorrected=0,
                ecc_corrected=0,
                processes=tuple(processes),
            )
        )
    return GpuSample(gpus=tuple(out), source="nvml", driver="580.65.06", cuda="13.0", received_at=mono)


def machine(mono: float = 0.0) -> MachineSample:
    return MachineSample(
        cpu_percent=14.0, cores=128, iowait_percent=11.0, load_1m=21.4, ram_total_mib=1031000.0, ram_available_mib=814000.0,
        page_cache_mib=320000.0, swap_used_mib=0.0, shm_total_mib=515000.0, shm_free_mib=514000.0, disk_read_mb_s=267.0,
        disk_busy_percent=80.0, network_rx_mb_s=0.3, engine_read_mb_s=267.0, engine_read_bytes=120_000_000_000, received_at=mono,
    )  # fmt: skip


def trends(count: int = 8) -> Trends:
    disk = tuple(240.0 + (i * 37 % 45) - (110 if i in (90, 91) else 0) for i in range(200))
    rate = tuple(0.0 if i % 40 < 8 else 80.0 + i % 3 for i in range(200))
    kv = tuple(0.002 if i % 40 < 8 else 0.001 * (i % 40) for i in range(200))
    memory = tuple(tuple(0.15 for _ in range(count)) for _ in range(200))
    busy = tuple(tuple(float((i * 13 + n * 7) % 60) for n in range(count)) for i in range(200))
    return Trends(gpu_memory=memory, gpu_utilisation=busy, disk_read_mb_s=disk, generation_tokens_s=rate, kv_cache_share=kv)


def read(lines: Sequence[tuple[float, str]], *, mono: float = 0.0, now: float | None = None, **more: object) -> DeploymentState:
    """Return the state after the real reader has read these lines, at `now` seconds of the host's clock."""
    reader = LogReader()
    shown = []
    for number, (at, text) in enumerate(lines, 1):
        shown.append(replace(reader.feed(text, at), number=number, at=at))
    load = reader.state
    state = DeploymentState(
        name="kimi-k2-w4", target="gpu-8x", connection=ONLINE, load=load, history=HISTORY, machine=machine(mono), gpus=gpus(mono=mono),
        trends=trends(), log=LogTail(source="/var/log/vllm/kimi.log").extended(shown),
        api=ApiStatus(reach=Reach.CLOSED, received_at=mono),
    )  # fmt: skip
    state = replace(state, **more)
    forecast = make_forecast(
        load, now if now is not None else lines[-1][0] + 12.0, state.history, SignsOfLife(gpu_memory_s=1.0, disk_read_s=0.5)
    )
    return replace(state, forecast=forecast)


def loading(mono: float = 0.0, total: int = 64, steps: Sequence[float] = STEPS, **more: object) -> DeploymentState:
    start = time.time() - 21 - sum(steps) - 12
    return read([*opening(start), *shard_lines(start + 21, total, steps)], mono=mono, now=time.time(), **more)


def ready(mono: float = 0.0, **more: object) -> DeploymentState:
    start = time.time() - 2400
    steps = [31.5 + i % 3 for i in range(64)]
    lines = [*opening(start), *shard_lines(start + 21, 64, steps), *finishing(start + 21 + sum(steps))]
    metrics = ServerMetrics(
        running=1, waiting=0, kv_cache_share=0.031, generation_tokens_s=81.2, prefix_hit_share=0.41, ttft_p50_ms=189
    )
    api = ApiStatus(
        reach=Reach.UP,
        health=200,
        models=(ServedModel("kimi-k2-w4", 131072, "/models/kimi-k2-w4"),),
        version="0.24.0",
        metrics=metrics,
        received_at=mono,
    )
    return read(lines, mono=mono, now=time.time(), **{"gpus": gpus(used=96733.0, busy=61.0, mono=mono), "api": api, **more})


def warming(mono: float = 0.0, **more: object) -> DeploymentState:
    """Return a state with all graphs captured and nothing logged for 70 s; there is no earlier load to compare with."""
    last = time.time() - 70 - 100
    start = last - 21 - 64 * 32
    lines = [*opening(start), *shard_lines(start + 21, 64, [32.0] * 64), *finishing(last)[:8]]
    return read(lines, mono=mono, now=time.time(), **{"gpus": gpus(used=96733.0, busy=97.0, mono=mono), "history": (), **more})


def hosts(mono: float = 0.0, count: int = 4, **more: object) -> DeploymentState:
    """Return a deployment over several hosts of eight GPUs, the last without a link, one GPU of the second out of line."""
    others = []
    for n in range(1, count):
        away = n == count - 1
        link = ConnectionState(link=LinkState.LOST, host=f"gpu-{n}", cause="no answer to 3 keepalives") if away else ONLINE
        others.append(HostSeen(f"gpu-{n}", link, gpus(used=96733.0, busy=61.0, lost=3 if n == 1 else None, mono=mono)))
    return ready(mono, others=tuple(others), **more)


def failed(mono: float = 0.0, **more: object) -> DeploymentState:
    start = time.time() - 1400
    steps = [32.0] * 40
    lines = [*opening(start), *shard_lines(start + 21, 64, steps), *oom(start + 21 + 1280 + 9)]
    return read(lines, mono=mono, now=time.time(), **{"gpus": gpus(used=44200.0, odd=3, mono=mono), **more})


def dead(mono: float = 0.0) -> DeploymentState:
    """Return the same state a while later: the engine's processes are gone, and nobody's parent is known any more."""
    sample = gpus(used=4.0, busy=0.0, odd=3, mono=mono)
    alone = tuple(
        replace(gpu, processes=tuple(replace(process, engine=None) for process in gpu.processes[1:])) for gpu in sample.gpus
    )
    return failed(mono, gpus=replace(sample, gpus=alone))


def lost(mono: float = 0.0) -> DeploymentState:
    link = ConnectionState(
        link=LinkState.LOST, host="gpu-8x", since=mono - 12, cause="no answer to 3 keepalives", advice="The host or the network is down; check it with ping gpu-8x.",
        attempt=2, retry_at=mono + 4.4,
    )  # fmt: skip
    return loading(mono=mono - 12, connection=link)


def waiting(mono: float = 0.0) -> DeploymentState:
    return DeploymentState(
        name="kimi-k2-w4", target="gpu-8x", connection=ONLINE, gpus=gpus(used=4.0, busy=0.0, mono=mono), machine=machine(mono), history=HISTORY,
        log=LogTail(source="/var/log/vllm/kimi.log", problem="/var/log/vllm/kimi.log is not there yet; it is looked for every 2 s"),
        api=ApiStatus(reach=Reach.CLOSED, received_at=mono),
    )  # fmt: skip


def importing(mono: float = 0.0) -> DeploymentState:
    """Return a state in which the server's process exists and has written nothing yet."""
    return replace(waiting(mono), log=LogTail(source="/var/log/vllm/kimi.log"), server_pid=40812)


def connecting(mono: float = 0.0) -> DeploymentState:
    return DeploymentState(
        name="kimi-k2-w4", target="gpu-8x", connection=ConnectionState(link=LinkState.CONNECTING, host="gpu-8x", attempt=1)
    )


def refused(mono: float = 0.0) -> DeploymentState:
    link = ConnectionState(
        link=LinkState.REFUSED, host="gpu-8x", since=mono - 3, cause="Permission denied for user lena (publickey)",
        advice="Add a key of yours to ~/.ssh/authorized_keys there, or name one with IdentityFile in ~/.ssh/config.",
    )  # fmt: skip
    return DeploymentState(name="kimi-k2-w4", target="gpu-8x", connection=link)


SCENES: dict[str, Callable[[float], DeploymentState]] = {
    "loading": loading, "warming": warming, "ready": ready, "hosts": hosts, "failed": failed, "dead": dead, "lost": lost, "waiting": waiting, "importing": importing, "connecting": connecting, "refused": refused,
}  # fmt: skip
