"""What to do about a failure: the flag or command to try, with the figures of this log in it."""

import re
from collections.abc import Callable

from tui.core.logs.course import Course
from tui.core.logs.failures import Verdictless

Writer = Callable[[str, Course, Verdictless], str]

_GIB = r"([\d.]+) ?Gi?B"


def advice(chosen: Verdictless, course: Course) -> str:
    """One or two sentences; never empty."""
    trouble = chosen.trouble
    text = chosen.cause
    if trouble is not None:
        text = f"{trouble.text}\n{trouble.raised.full}" if trouble.raised is not None else trouble.text
    writer = WRITERS.get(chosen.kind, _other)
    if course.engine == "sglang":
        written = _SGLANG.get(chosen.kind)
        if written:
            return written
    return " ".join(writer(text, course, chosen).split())


def _find(pattern: str, text: str) -> re.Match[str] | None:
    return re.search(pattern, text, re.DOTALL)


def _number(text: str | int) -> str:
    return f"{int(text):,}"


def _utilisation(course: Course) -> str:
    now = f" (now {course.utilisation:g})" if course.utilisation is not None else ""
    return f"raise --gpu-memory-utilization{now}"


def _kv_cache(text: str, course: Course, chosen: Verdictless) -> str:
    cpu = _find(rf"\(([\d.]+)/([\d.]+) GiB\).*requested memory for kv \({_GIB}\)", text)
    if cpu:
        return f"The KV cache asks for {cpu[3]} GiB of {cpu[1]} GiB free: lower --kv-cache-memory-bytes or VLLM_CPU_KVCACHE_SPACE."
    need = _find(rf"{_GIB} KV cache is needed.*?available KV cache memory \({_GIB}\)", text)
    longest = _find(r"estimated maximum model length is ([\d,]+)", text)
    if need:
        lower = f"lower --max-model-len to {_number(longest[1].replace(',', ''))}" if longest else "lower --max-model-len"
        return (
            f"One request needs {need[1]} GiB of KV cache, {need[2]} GiB are free: {lower}, {_utilisation(course)}, or use "
            "--kv-cache-dtype fp8."
        )
    stored = _find(r"max seq len \((\d+)\).*?KV cache \((\d+)\)", text)
    if stored:
        return (
            f"The KV cache holds {_number(stored[2])} tokens, one request may have {_number(stored[1])}: lower --max-model-len to "
            f"{_number(stored[2])} or {_utilisation(course)}."
        )
    weights = course.figure("gib_per_gpu")
    left = course.figure("kv_gib")
    have = (
        f" (weights take {weights:g} GiB a GPU" + (f", {left:g} GiB are left" if left is not None else "") + ")" if weights else ""
    )
    return (
        f"Nothing is left for the KV cache{have}: {_utilisation(course)}, or spread the model over more GPUs with "
        "--tensor-parallel-size."
    )


def _oom(text: str, course: Course, chosen: Verdictless) -> str:
    tried = _find(r"Tried to allocate ([\d.]+ [KMG]iB)", text)
    gpu = _find(rf"GPU (\d+) has a total capacity of {_GIB} of which ([\d.]+ [KMG]iB) is free", text)
    what = f"{tried[1]} more did not fit" if tried else "GPU memory ran out"
    if gpu:
        what += f" on GPU {gpu[1]} ({gpu[3]} free of {gpu[2]} GiB)"
    tips = {
        "loading": "spread the model over more GPUs (--tensor-parallel-size), or load a quantised one",
        "post_loading": (
            "repacking the weights needs room: more GPUs (--tensor-parallel-size), or a checkpoint that is quantised already"
        ),
        "profiling": "lower --max-num-batched-tokens or --max-model-len, or use more GPUs",
        "compiling": "lower --max-num-batched-tokens or --max-model-len, or use more GPUs",
        "capturing": "lower --gpu-memory-utilization by 0.05, capture fewer sizes (--max-num-seqs), or use --enforce-eager",
        "warming_up": "lower --max-num-seqs or --gpu-memory-utilization by 0.05",
        "kv_cache": "lower --gpu-memory-utilization by 0.05",
        "ready": "lower --gpu-memory-utilization by 0.05 or --max-num-batched-tokens: requests need room beside the KV cache",
    }
    return (
        f"{what}: {tips.get(chosen.phase.value, 'use more GPUs, or a smaller model')}. nvidia-smi shows whether another process "
        "is there."
    )


def _in_use(text: str, course: Course, chosen: Verdictless) -> str:
    match = _find(r"\(([\d.]+)/([\d.]+) GiB\).*?utilization \(([\d.]+), ([\d.]+) GiB\)", text)
    if match:
        free, total, share, wanted = match.groups()
        fits = int(float(free) / float(total) * 100) / 100
        lower = f", or lower --gpu-memory-utilization (now {share}) to {fits:.2f}" if fits >= 0.3 else ""
        return (
            f"Another process holds the GPU: {free} of {total} GiB are free, {wanted} GiB wanted. End it (nvidia-smi lists "
            f"it){lower}."
        )
    return "Memory changed hands while vLLM measured it: end or wait for the other process on this GPU (nvidia-smi lists it)."


def _max_model_len(text: str, course: Course, chosen: Verdictless) -> str:
    match = _find(r"max_model_len \((\d+)\).*?(?:=|\()(\d+)(?:\.0)?\b", text)
    limit = _find(r"(?:max_position_embeddings|model_max_length|max_seq_len|seq_length)=(\d+)", text)
    if match and limit:
        return (
            f"Lower --max-model-len from {_number(match[1])} to {_number(limit[1])}, the model's own limit; beyond it, only with RoPE "
            "scaling (--hf-overrides) and VLLM_ALLOW_LONG_MAX_MODEL_LEN=1."
        )
    return "Lower --max-model-len to the limit in the model's config.json."


def _missing_file(text: str, course: Course, chosen: Verdictless) -> str:
    missing = _find(r"missing: \{(.*?)\}", text)
    if missing:
        count = missing[1].count(",") + 1
        first = missing[1].split(",")[0].strip("'\" ")
        files = "1 file of the checkpoint is missing" if count == 1 else f"{count} files of the checkpoint are missing, among them"
        return f"{files}: {first}. Fetch it again; hf download and rsync resume what is there already."
    if "Repo id" in text or "repository ID" in text or "valid model identifier" in text:
        return (
            f"{_model(course)} is neither a directory that this process sees nor a model id: check the path, and the mount of the "
            "container."
        )
    return (
        f"Check that {_model(course)} is complete (config.json, the tokenizer, every shard of the index): hf download resumes a "
        "broken one."
    )


def _corrupt(text: str, course: Course, chosen: Verdictless) -> str:
    shard = None
    if course.loaders.main is not None and not course.loaders.main.complete and chosen.phase.value == "loading":
        bar = course.loaders.main
        shard = f"after {int(bar.done)} of {int(bar.total)} shards"
    path = _find(r"'([^']+\.(?:safetensors|bin|pt|gguf))'", text)
    where = path[1] if path else shard
    if "nput/output error" in text:
        return f"The storage failed to read{' ' + where if where else ''}: look at dmesg and the disk's or NFS server's health."
    if "not initialized from checkpoint" in text:
        return "Weights are missing in the checkpoint: compare its files with model.safetensors.index.json and fetch what lacks."
    return (
        f"A weight file is cut off or damaged{f' ({where})' if where else ''}: compare sizes or checksums with the source and fetch it "
        "again (hf download --force-download, one file)."
    )


def _shape(text: str, course: Course, chosen: Verdictless) -> str:
    return (
        "Checkpoint and config.json do not belong together, or this vLLM does not know the layout: check config.json, --quantization and "
        "--hf-overrides, or try a newer vLLM."
    )


def _model_unsupported(text: str, course: Course, chosen: Verdictless) -> str:
    if "trust" in text or "custom code" in text:
        return "The model brings code of its own: add --trust-remote-code if you trust its source."
    kind = _find(r"model type `([^`]+)`", text) or _find(r"architectures? \[?'?([\w]+)", text)
    name = f" {kind[1]}" if kind else ""
    version = f" (this is {course.version})" if course.version else ""
    return f"This installation does not know{name}: upgrade vLLM{version} or Transformers, or try --model-impl transformers."


def _quantization(text: str, course: Course, chosen: Verdictless) -> str:
    capability = _find(r"Minimum capability: (\d+)\.(?: Current capability: (\d+))?", text)
    if capability:
        have = f", this one is {int(capability[2]) / 10}" if capability[2] else ""
        return (
            f"The method needs a GPU of compute capability {int(capability[1]) / 10}{have}: use a checkpoint quantised another way."
        )
    divide = _find(r"(\d+) is not divisible by", text)
    if divide:
        return (
            "A quantised layer cannot be split this way: lower --tensor-parallel-size (or use --enable-expert-parallel, pipeline "
            "stages)."
        )
    return "Use a quantisation that this vLLM and GPU support, or leave --quantization away so that the checkpoint's own is taken."


def _auth(text: str, course: Course, chosen: Verdictless) -> str:
    everything = " ".join([text, *chosen.context])
    if "gated" in everything.lower() or "restricted" in everything:
        return (
            "Ask for access on the model's page, then pass a token of that account: HF_TOKEN=… (or hf auth login) for "
            f"{_model(course)}."
        )
    return f"The hub refuses {_model(course)}: check the spelling, and set HF_TOKEN to a token that may read it."


def _hub(text: str, course: Course, chosen: Verdictless) -> str:
    if "outgoing traffic" in text or "Offline" in text or "cached" in text:
        return (
            f"Offline mode is on and {_model(course)} is not in the cache: unset HF_HUB_OFFLINE, or fetch it first (hf download), "
            "or give a path."
        )
    return (
        "The hub cannot be reached: check DNS, proxy (HTTPS_PROXY) and firewall, set HF_ENDPOINT to a mirror, or fetch the model "
        "elsewhere."
    )


def _disk(text: str, course: Course, chosen: Verdictless) -> str:
    size = f" The checkpoint has {course.checkpoint_gib:g} GiB." if course.checkpoint_gib else ""
    return f"The disk is full: df -h on the cache (HF_HOME, VLLM_CACHE_ROOT) and /tmp; free room or move the cache.{size}"


def _shm(text: str, course: Course, chosen: Verdictless) -> str:
    size = _find(r"\(size (\d+)\)|to (\d+) bytes", text)
    need = f" (a segment of {int(size[1] or size[2]) / 2**20:.0f} MiB did not fit)" if size else ""
    return f"/dev/shm is too small{need}: docker run --shm-size 16g or --ipc=host; in Kubernetes an emptyDir with medium: Memory."


def _port(text: str, course: Course, chosen: Verdictless) -> str:
    port = f"port {course.port}" if course.port else "that port"
    return f"Another process listens on {port}: ss -ltnp shows it; end it, or choose another --port."


def _library(text: str, course: Course, chosen: Verdictless) -> str:
    library = _find(r"(GLIBC(?:XX)?_[\d.]+)", text)
    if library:
        return (
            f"A compiled part of vLLM needs {library[1]}, which this system's C++ runtime lacks: use a newer base image, or "
            "vLLM's own image."
        )
    if "torchvision" in text:
        return (
            "torch and torchvision are of different builds: install the pair that belongs together (pip install -U vllm brings "
            "both)."
        )
    module = _find(r"No module named '([^']+)'", text)
    if module:
        return f"{module[1]} is not installed in this environment: reinstall vLLM in a fresh one, or use its container image."
    return (
        "Packages of this environment do not fit together: reinstall vLLM in a fresh one (its pins bring matching torch and "
        "Transformers)."
    )


def _driver(text: str, course: Course, chosen: Verdictless) -> str:
    if "803" in text or "LibRmVersionMismatch" in text or "version mismatch" in text:
        return (
            "The driver's kernel module and its library differ: reboot (or reload nvidia), and drop a cuda-compat library from "
            "LD_LIBRARY_PATH."
        )
    if "802" in text:
        return (
            "The GPUs are not initialised: start nvidia-fabricmanager (systemctl status nvidia-fabricmanager), of the driver's "
            "own version."
        )
    found = _find(r"found version (\d+)", text)
    version = f" (it offers CUDA {int(found[1]) // 1000}.{int(found[1]) % 1000 // 10})" if found else ""
    if "infer device type" in text or "NVML" in text or "no NVIDIA driver" in text.lower():
        return (
            "No GPU is visible: run nvidia-smi in the same container; docker needs --gpus all, Kubernetes a nvidia.com/gpu limit."
        )
    return f"The driver is too old for this CUDA{version}: upgrade it, or use a vLLM built for an older CUDA."


def _kernel_image(text: str, course: Course, chosen: Verdictless) -> str:
    arch = _find(r"(sm_\d+)", text)
    return (
        f"This PyTorch or kernel has no code for the GPU{f' ({arch[1]})' if arch else ''}: use a build for a newer CUDA (12.8 or "
        "later for Blackwell)."
    )


def _compile(text: str, course: Course, chosen: Verdictless) -> str:
    if "nvcc" in text or "CUDA_HOME" in text:
        return (
            "Kernels are built at start and need a CUDA toolkit as new as the GPU: install it and set CUDA_HOME, or use vLLM's "
            "image."
        )
    if "C compiler" in text or "Python.h" in text or "-lcuda" in text:
        return "Triton compiles at start: install gcc, the Python headers (python3-dev), and make libcuda.so findable."
    return "Delete the compile cache (~/.cache/vllm/torch_compile_cache) and try again; --enforce-eager does without compilation."


def _nccl(text: str, course: Course, chosen: Verdictless) -> str:
    return (
        "Run again with NCCL_DEBUG=INFO and read its WARN lines; name the network interface with NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME, "
        "and check /dev/shm (--ipc=host)."
    )


def _timeout(text: str, course: Course, chosen: Verdictless) -> str:
    return (
        "One rank did not answer: look for its own error or a hung GPU (py-spy dump --pid, dmesg for Xid), and whether all nodes "
        "joined."
    )


def _ready_timeout(text: str, course: Course, chosen: Verdictless) -> str:
    waited = _find(r"Waited (\d+) ?s", text)
    bar = course.loaders.main
    limit = f"VLLM_ENGINE_READY_TIMEOUT_S={int(waited[1])}" if waited else "VLLM_ENGINE_READY_TIMEOUT_S"
    if bar is not None and 0 < bar.done < bar.total:
        text = f"Nothing broke: {int(bar.done)} of {int(bar.total)} shards were loaded when {limit} ended the start."
        if waited:
            need = int(int(waited[1]) * bar.total / bar.done * 1.3 // 600 + 1) * 600
            return f"{text} Set VLLM_ENGINE_READY_TIMEOUT_S={need}, or put the weights on faster storage."
        return f"{text} Raise it, or put the weights on faster storage."
    return (
        f"The engines were not ready in time: raise {limit.split('=')[0]}, or find what is slow (storage, compilation, a node "
        "that did not join)."
    )


def _ray(text: str, course: Course, chosen: Verdictless) -> str:
    need = (course.tensor or 0) * (course.pipeline or 1)
    many = f" for {need} GPUs" if need else ""
    return (
        f"Ray found no room{many}: ray status shows what the cluster has and who holds it; stop stale jobs, or lower the parallel "
        "sizes."
    )


def _gpus(text: str, course: Course, chosen: Verdictless) -> str:
    match = _find(r"size \(?(\d+)\)?.*?GPUs \((\d+)\)", text)
    if match:
        return (
            f"{match[1]} GPUs are asked for and {match[2]} are visible: lower --tensor-parallel-size to {match[2]}, or check "
            "CUDA_VISIBLE_DEVICES and --gpus."
        )
    if "NUMA" in text or "cores" in text:
        return "Fewer CPU nodes than ranks: lower --tensor-parallel-size, or bind threads by hand (VLLM_CPU_OMP_THREADS_BIND)."
    return "Fewer GPUs are visible than asked for: nvidia-smi -L in the same container, CUDA_VISIBLE_DEVICES, docker --gpus all."


def _gpu_lost(text: str, course: Course, chosen: Verdictless) -> str:
    return "The GPU or its link failed: dmesg | grep -i xid, nvidia-smi -q -d ECC,ROW_REMAPPER; reset the GPU or drain the host."


def _memory_fault(text: str, course: Course, chosen: Verdictless) -> str:
    return (
        "A kernel wrote where it must not (often AITER): try VLLM_ROCM_USE_AITER=0 or --enforce-eager, and another ROCm build; "
        "dmesg has more."
    )


def _cuda(text: str, course: Course, chosen: Verdictless) -> str:
    return (
        "A kernel failed: dmesg | grep -i xid tells whether the GPU is at fault; else narrow down with CUDA_LAUNCH_BLOCKING=1 "
        "and --enforce-eager."
    )


def _killed(text: str, course: Course, chosen: Verdictless) -> str:
    size = f" (the checkpoint has {course.checkpoint_gib:g} GiB)" if course.checkpoint_gib else ""
    return (
        f"Confirm with dmesg | grep -i 'killed process', docker inspect .State.OOMKilled, or the pod's OOMKilled; then give the host or "
        f"container more memory{size}, or load with fewer processes at once."
    )


def _supervisor(text: str, course: Course, chosen: Verdictless) -> str:
    return (
        "Who watches the server ended it: raise its limit (Slurm --time, systemd TimeoutStartSec, the pod's startupProbe "
        "failureThreshold)."
    )


def _worker(text: str, course: Course, chosen: Verdictless) -> str:
    return (
        "A worker ended without a word: dmesg (out of memory, Xid) and its exit code tell why; PYTHONFAULTHANDLER=1 prints more "
        "next time."
    )


def _hang(text: str, course: Course, chosen: Verdictless) -> str:
    return (
        "A worker does not answer: py-spy dump --pid of the VLLM::Worker processes, nvidia-smi (a GPU at 100 % or 0 % while others wait), "
        "dmesg for Xid; then restart. VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS sets when it gives up."
    )


def _tokenizer(text: str, course: Course, chosen: Verdictless) -> str:
    return (
        "The tokenizer's files are missing, damaged or too new: fetch tokenizer*.json again, upgrade tokenizers and "
        "Transformers, or set --tokenizer."
    )


def _argument(text: str, course: Course, chosen: Verdictless) -> str:
    if "fork" in text and "CUDA" in text:
        return "Set VLLM_WORKER_MULTIPROC_METHOD=spawn."
    heads = _find(r"attention heads \((\d+)\).*?size \((\d+)\)", text)
    if heads:
        sizes = [size for size in (1, 2, 4, 8, 16, 32) if int(heads[1]) % size == 0]
        return (
            f"{heads[1]} attention heads do not split over {heads[2]} GPUs: --tensor-parallel-size may be "
            f"{', '.join(map(str, sizes))}."
        )
    unknown = _find(r"unrecognized arguments?: (\S+)", text)
    if unknown:
        version = f" {course.version}" if course.version else ""
        return f"This vLLM{version} has no {unknown[1]}: vllm serve --help=all lists what it has (options move between releases)."
    option = _find(r"argument (--[\w-]+)", text) or _find(r"(?:error for \w+|Config): (\w+)", text) or _find(r"(--[\w-]+)", text)
    if option:
        flag = "--" + option[1].lstrip("-").replace("_", "-")
        return f"Correct {flag}; vllm serve --help={flag.lstrip('-')} says what it takes."
    return "Correct the option that the message names; vllm serve --help=all lists what each takes."


def _engine(text: str, course: Course, chosen: Verdictless) -> str:
    return "The log does not hold the reason: look at dmesg, and at the other stream (standard error) or the other node's log."


def _other(text: str, course: Course, chosen: Verdictless) -> str:
    where = f"line {chosen.line}" if chosen.line else "the log"
    return f"Read the lines around {where}; VLLM_LOGGING_LEVEL=DEBUG says more at the next start."


def _model(course: Course) -> str:
    return course.model or "the model"


WRITERS: dict[str, Writer] = {
    "cuda_oom": _oom,
    "host_oom_or_killed": _killed,
    "kv_cache_too_small": _kv_cache,
    "max_model_len_too_large": _max_model_len,
    "gpu_memory_in_use": _in_use,
    "missing_file": _missing_file,
    "corrupt_checkpoint": _corrupt,
    "shape_mismatch": _shape,
    "unsupported_model": _model_unsupported,
    "unsupported_quantization": _quantization,
    "tokenizer": _tokenizer,
    "hub_auth": _auth,
    "hub_unreachable": _hub,
    "disk_full": _disk,
    "shm_too_small": _shm,
    "port_in_use": _port,
    "bad_argument": _argument,
    "missing_library": _library,
    "driver_mismatch": _driver,
    "no_kernel_image": _kernel_image,
    "nccl": _nccl,
    "distributed_timeout": _timeout,
    "ready_timeout": _ready_timeout,
    "ray_placement": _ray,
    "not_enough_gpus": _gpus,
    "gpu_lost": _gpu_lost,
    "killed_by_supervisor": _supervisor,
    "worker_died": _worker,
    "engine_died": _engine,
    "compile_error": _compile,
    "hang": _hang,
    "cuda_error": _cuda,
    "gpu_memory_fault": _memory_fault,
}

_SGLANG = {
    "kv_cache_too_small": (
        "Nothing is left for the KV cache: raise --mem-fraction-static, lower --context-length, or use more GPUs (--tp)."
    ),
    "cuda_oom": (
        "GPU memory ran out: lower --mem-fraction-static, --chunked-prefill-size or --cuda-graph-max-bs, or use more GPUs (--tp)."
    ),
    "hang": (
        "The scheduler does not answer: py-spy dump its processes, look at dmesg for Xid, and restart; --watchdog-timeout sets "
        "when."
    ),
}
