"""What to do about a failure of vLLM: the flag or command to try, with the figures of the log in it."""

from tui.core.logs.grammar import GIB, Finding, Writer, find, thousands
from tui.core.logs.start_parser import StartParser


def utilisation(start: StartParser) -> str:
    now = f" (now {start.utilisation:g})" if start.utilisation is not None else ""
    return f"raise --gpu-memory-utilization{now}"


def kv_cache(text: str, start: StartParser, finding: Finding) -> str:
    cpu = find(rf"\(([\d.]+)/([\d.]+) GiB\).*requested memory for kv \({GIB}\)", text)
    if cpu:
        return f"The KV cache asks for {cpu[3]} GiB of {cpu[1]} GiB free: lower --kv-cache-memory-bytes or VLLM_CPU_KVCACHE_SPACE."
    need = find(rf"{GIB} KV cache is needed.*?available KV cache memory \({GIB}\)", text)
    longest = find(r"estimated maximum model length is ([\d,]+)", text)
    if need:
        lower = f"lower --max-model-len to {thousands(longest[1].replace(',', ''))}" if longest else "lower --max-model-len"
        return (
            f"One request needs {need[1]} GiB of KV cache, {need[2]} GiB are free: {lower}, {utilisation(start)}, or use "
            "--kv-cache-dtype fp8."
        )
    stored = find(r"max seq len \((\d+)\).*?KV cache \((\d+)\)", text)
    if stored:
        return (
            f"The KV cache holds {thousands(stored[2])} tokens, one request may have {thousands(stored[1])}: lower "
            f"--max-model-len to {thousands(stored[2])} or {utilisation(start)}."
        )
    weights = start.figure("gib_per_gpu")
    left = start.figure("kv_gib")
    have = (
        f" (weights take {weights:g} GiB a GPU" + (f", {left:g} GiB are left" if left is not None else "") + ")" if weights else ""
    )
    return (
        f"Nothing is left for the KV cache{have}: {utilisation(start)}, or spread the model over more GPUs with "
        "--tensor-parallel-size."
    )


def oom(text: str, start: StartParser, finding: Finding) -> str:
    tried = find(r"Tried to allocate ([\d.]+ [KMG]iB)", text)
    gpu = find(rf"GPU (\d+) has a total capacity of {GIB} of which ([\d.]+ [KMG]iB) is free", text)
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
        f"{what}: {tips.get(finding.phase.value, 'use more GPUs, or a smaller model')}. nvidia-smi shows whether another process "
        "is there."
    )


def in_use(text: str, start: StartParser, finding: Finding) -> str:
    match = find(r"\(([\d.]+)/([\d.]+) GiB\).*?utilization \(([\d.]+), ([\d.]+) GiB\)", text)
    if match:
        free, total, share, wanted = match.groups()
        fits = int(float(free) / float(total) * 100) / 100
        lower = f", or lower --gpu-memory-utilization (now {share}) to {fits:.2f}" if fits >= 0.3 else ""
        return (
            f"Another process holds the GPU: {free} of {total} GiB are free, {wanted} GiB wanted. End it (nvidia-smi lists "
            f"it){lower}."
        )
    holder = find(r"in use by process (?:with pid )?(\d+)", text)
    if holder:
        return f"Process {holder[1]} holds the device: see what it is (ps -fp {holder[1]}), and end it or wait for it."
    return "Another process took or freed GPU memory while vLLM measured it: end it or wait for it (nvidia-smi lists it)."


def max_model_len(text: str, start: StartParser, finding: Finding) -> str:
    match = find(r"max_model_len \((\d+)\).*?(?:=|\()(\d+)(?:\.0)?\b", text)
    limit = find(r"(?:max_position_embeddings|model_max_length|max_seq_len|seq_length)=(\d+)", text)
    if match and limit:
        return (
            f"Lower --max-model-len from {thousands(match[1])} to {thousands(limit[1])}, the model's own limit; beyond it, only "
            "with RoPE "
            "scaling (--hf-overrides) and VLLM_ALLOW_LONG_MAX_MODEL_LEN=1."
        )
    if match:
        return f"Lower --max-model-len from {thousands(match[1])} to {thousands(match[2])}, what the model's config.json allows."
    return "Lower --max-model-len to the limit in the model's config.json."


def shape(text: str, start: StartParser, finding: Finding) -> str:
    return (
        "Checkpoint and config.json do not belong together, or this vLLM does not know the layout: check config.json, "
        "--quantization and "
        "--hf-overrides, or try a newer vLLM."
    )


def model_unsupported(text: str, start: StartParser, finding: Finding) -> str:
    if "trust" in text or "custom code" in text:
        return "The model brings code of its own: add --trust-remote-code if you trust its source."
    lacks = find(r"(\w+) does not support (LoRA|pipeline parallel)", text)
    if lacks:
        return f"{lacks[1]} does not support {lacks[2]} in this vLLM: drop that option, or try a newer release."
    kind = find(r"model type `([^`]+)`", text) or find(r"architectures? \[?'?([\w]+)|(?<=Error: )(?=\w+ has no vLLM)(\w+)", text)
    name = f" {kind[kind.lastindex or 0]}" if kind else " this model"
    version = f" (this is {start.version})" if start.version else ""
    return f"This installation does not know{name}: upgrade vLLM{version} or Transformers, or try --model-impl transformers."


def quantization(text: str, start: StartParser, finding: Finding) -> str:
    capability = find(r"Minimum capability: (\d+)\.(?: Current capability: (\d+))?", text)
    if capability:
        have = f", this one is {int(capability[2]) / 10}" if capability[2] else ""
        return (
            f"The method needs a GPU of compute capability {int(capability[1]) / 10}{have}: use a checkpoint quantised another way."
        )
    divide = find(r"(\d+) is not divisible by", text)
    if divide:
        return (
            "A quantised layer cannot be split this way: lower --tensor-parallel-size (or use --enable-expert-parallel, pipeline "
            "stages)."
        )
    return "Use a quantisation that this vLLM and GPU support, or drop --quantization to use the checkpoint's own."


def ready_timeout(text: str, start: StartParser, finding: Finding) -> str:
    waited = find(r"Waited (\d+) ?s", text)
    bar = start.loaders.main
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


def tokenizer(text: str, start: StartParser, finding: Finding) -> str:
    return (
        "The tokenizer's files are missing, damaged or too new: fetch tokenizer*.json again, upgrade tokenizers and "
        "Transformers, or set --tokenizer."
    )


def argument(text: str, start: StartParser, finding: Finding) -> str:
    if "Bfloat16" in text:
        return "This GPU has no bfloat16: add --dtype half."
    heads = find(r"attention heads \((\d+)\).*?size \((\d+)\)", text)
    if heads:
        sizes = [size for size in (1, 2, 4, 8, 16, 32) if int(heads[1]) % size == 0]
        return (
            f"{heads[1]} attention heads do not split over {heads[2]} GPUs: --tensor-parallel-size may be "
            f"{', '.join(map(str, sizes))}."
        )
    rank = find(r"LoRA rank (\d+) is greater", text)
    if rank:
        return f"Raise --max-lora-rank to {rank[1]}."
    if "parser" in text:
        version = f" {start.version}" if start.version else ""
        return (
            f"This vLLM{version} has no parser of that name: take one that the message lists for --tool-call-parser or "
            "--reasoning-parser, or a newer vLLM, or load one by --tool-parser-plugin or --reasoning-parser-plugin."
        )
    if "attention backend" in text or "AttentionBackend" in text:
        return "Leave the attention backend to vLLM: drop --attention-backend and VLLM_ATTENTION_BACKEND, or name another."
    mamba = find(r"exceeds available Mamba cache blocks \((\d+)\)", text)
    if mamba:
        return f"Lower --max-num-seqs to {thousands(mamba[1])}, or raise --gpu-memory-utilization."
    batch = find(r"max_num_batched_tokens \(\d+\) is smaller than max_model_len \((\d+)\)", text)
    if batch:
        return f"Raise --max-num-batched-tokens to {thousands(batch[1])}, use --enable-chunked-prefill, or lower --max-model-len."
    if find(r"AssertionError: \d+ is not divisible by \d+", text):
        return "A layer cannot be split over that many GPUs: lower --tensor-parallel-size, perhaps with --pipeline-parallel-size."
    unknown = find(r"unrecognized arguments?: (\S+)", text)
    if unknown:
        version = f" {start.version}" if start.version else ""
        return f"This vLLM{version} has no {unknown[1]}: vllm serve --help=all lists what it has (options move between releases)."
    option = find(r"argument (--[\w-]+)", text) or find(r"(?:error for \w+|Config): (\w+)", text) or find(r"(--[\w-]+)", text)
    if option:
        flag = "--" + option[1].lstrip("-").replace("_", "-")
        return f"Correct {flag}; vllm serve --help={flag.lstrip('-')} says what it takes."
    return "Correct the option that the message names; vllm serve --help=all lists what each takes."


def library(text: str, start: StartParser, finding: Finding) -> str:
    library = find(r"(GLIBC(?:XX)?_[\d.]+)", text)
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
    if "not found" in text and "vllm:" in text:
        return "The vllm command is not on this shell's PATH: activate its environment, or name the command by its full path."
    module = find(r"No module named '([^']+)'", text)
    if module:
        return f"{module[1]} is not installed in this environment: reinstall vLLM in a fresh one, or use its container image."
    return (
        "Packages of this environment do not fit together: reinstall vLLM in a fresh one (its pins bring matching torch and "
        "Transformers)."
    )


def kernel_image(text: str, start: StartParser, finding: Finding) -> str:
    if "HIP error" in text or "hipError" in text:
        return "This build has no code for the GPU's architecture (rocminfo names it): use a vLLM or PyTorch built for it."
    if "or newer" in text:
        return "The GPU is too old for this kernel: choose another attention backend (--attention-backend), or --dtype half."
    arch = find(r"(sm_\d+)", text)
    return (
        f"This PyTorch or kernel has no code for the GPU{f' ({arch[1]})' if arch else ''}: use a build for a newer CUDA (12.8 or "
        "later for Blackwell)."
    )


def compile(text: str, start: StartParser, finding: Finding) -> str:
    arch = find(r"ptxas fatal.*?'(sm_\w+)'", text)
    if arch:
        return (
            f"The ptxas that was called is older than this GPU ({arch[1]}): set TRITON_PTXAS_PATH to a newer CUDA toolkit's, "
            "as /usr/local/cuda/bin/ptxas, or use vLLM's image."
        )
    if "OutOfResources" in text:
        return "A Triton kernel needs more shared memory than this GPU has: try another attention backend, or a newer vLLM."
    if "nvcc" in text or "CUDA_HOME" in text:
        return (
            "Kernels are built at start and need a CUDA toolkit as new as the GPU: install it and set CUDA_HOME, or use vLLM's "
            "image."
        )
    if "C compiler" in text or "Python.h" in text or "-lcuda" in text:
        return "Triton compiles at start: install gcc, the Python headers (python3-dev), and make libcuda.so findable."
    return "Delete the compile cache (~/.cache/vllm/torch_compile_cache) and try again; --enforce-eager does without compilation."


def gpus(text: str, start: StartParser, finding: Finding) -> str:
    match = find(r"size \(?(\d+)\)?.*?GPUs \((\d+)\)", text)
    if match:
        return (
            f"{match[1]} GPUs are asked for and {match[2]} are visible: lower --tensor-parallel-size to {match[2]}, or check "
            "CUDA_VISIBLE_DEVICES and --gpus."
        )
    if "NUMA" in text or "cores" in text:
        return "Fewer CPU nodes than ranks: lower --tensor-parallel-size, or bind threads by hand (VLLM_CPU_OMP_THREADS_BIND)."
    return "Fewer GPUs are visible than asked for: nvidia-smi -L in the same container, CUDA_VISIBLE_DEVICES, docker --gpus all."


def memory_fault(text: str, start: StartParser, finding: Finding) -> str:
    return (
        "A kernel wrote where it must not (often AITER): try VLLM_ROCM_USE_AITER=0 or --enforce-eager, and another ROCm build; "
        "dmesg has more."
    )


def cuda(text: str, start: StartParser, finding: Finding) -> str:
    if "custom_all_reduce" in text:
        return "vLLM's own all-reduce failed: try --disable-custom-all-reduce (nvidia-smi topo -p2p r shows who reaches whom)."
    if "forked subprocess" in text:
        return "Set VLLM_WORKER_MULTIPROC_METHOD=spawn, and touch CUDA nowhere before vLLM starts its processes."
    return (
        "A kernel failed: dmesg | grep -i xid tells whether the GPU is at fault; else narrow down with CUDA_LAUNCH_BLOCKING=1 "
        "and --enforce-eager."
    )


def hang(text: str, start: StartParser, finding: Finding) -> str:
    return (
        "A worker does not answer: py-spy dump --pid of the VLLM::Worker processes, nvidia-smi (a GPU at 100 % or 0 % "
        "while others wait), "
        "dmesg for Xid; then restart. VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS sets when it gives up."
    )


def other(text: str, start: StartParser, finding: Finding) -> str:
    return "Set VLLM_WORKER_MULTIPROC_METHOD=spawn." if "forked subprocess" in text else ""


ADVICE: dict[str, Writer] = {
    "kv_cache_too_small": kv_cache,
    "cuda_oom": oom,
    "gpu_memory_in_use": in_use,
    "max_model_len_too_large": max_model_len,
    "shape_mismatch": shape,
    "unsupported_model": model_unsupported,
    "unsupported_quantization": quantization,
    "ready_timeout": ready_timeout,
    "tokenizer": tokenizer,
    "bad_argument": argument,
    "missing_library": library,
    "no_kernel_image": kernel_image,
    "compile_error": compile,
    "not_enough_gpus": gpus,
    "gpu_memory_fault": memory_fault,
    "cuda_error": cuda,
    "hang": hang,
    "other": other,
}
