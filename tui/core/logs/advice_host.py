"""Advice where the machine is at fault: its GPUs, drivers, libraries, shared memory, network, and who killed what."""

from tui.core.logs.advice_model import find
from tui.core.logs.root_cause import Finding
from tui.core.logs.start_parser import StartParser


def shm(text: str, start: StartParser, chosen: Finding) -> str:
    size = find(r"\(size (\d+)\)|to (\d+) bytes", text)
    need = f" (a segment of {int(size[1] or size[2]) / 2**20:.0f} MiB did not fit)" if size else ""
    return f"/dev/shm is too small{need}: docker run --shm-size 16g or --ipc=host; in Kubernetes an emptyDir with medium: Memory."


def port(text: str, start: StartParser, chosen: Finding) -> str:
    port = f"port {start.port}" if start.port else "that port"
    return f"Another process listens on {port}: ss -ltnp shows it; end it, or choose another --port."


def library(text: str, start: StartParser, chosen: Finding) -> str:
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


def driver(text: str, start: StartParser, chosen: Finding) -> str:
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
    found = find(r"found version (\d+)", text)
    version = f" (it offers CUDA {int(found[1]) // 1000}.{int(found[1]) % 1000 // 10})" if found else ""
    if "select device driver" in text:
        return "Docker knows no GPUs: install the NVIDIA Container Toolkit (nvidia-ctk runtime configure) and restart Docker."
    if "infer device type" in text or "NVML" in text or "no NVIDIA driver" in text.lower():
        return (
            "No GPU is visible: run nvidia-smi in the same container; docker needs --gpus all, Kubernetes a nvidia.com/gpu limit."
        )
    return f"The driver is too old for this CUDA{version}: upgrade it, or use a vLLM built for an older CUDA."


def kernel_image(text: str, start: StartParser, chosen: Finding) -> str:
    if "HIP error" in text or "hipError" in text:
        return "This build has no code for the GPU's architecture (rocminfo names it): use a vLLM or PyTorch built for it."
    if "or newer" in text:
        return "The GPU is too old for this kernel: choose another attention backend (--attention-backend), or --dtype half."
    arch = find(r"(sm_\d+)", text)
    return (
        f"This PyTorch or kernel has no code for the GPU{f' ({arch[1]})' if arch else ''}: use a build for a newer CUDA (12.8 or "
        "later for Blackwell)."
    )


def compile(text: str, start: StartParser, chosen: Finding) -> str:
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


def nccl(text: str, start: StartParser, chosen: Finding) -> str:
    if "Duplicate GPU" in chosen.cause:
        return "Two ranks are on one GPU: give each its own (CUDA_VISIBLE_DEVICES), no more ranks than GPUs on each node."
    return (
        "Run again with NCCL_DEBUG=INFO and read its WARN lines; name the network interface with NCCL_SOCKET_IFNAME "
        "and GLOO_SOCKET_IFNAME, "
        "and check /dev/shm (--ipc=host)."
    )


def timeout(text: str, start: StartParser, chosen: Finding) -> str:
    return (
        "One rank did not answer: look for its own error or a hung GPU (py-spy dump --pid, dmesg for Xid), and whether all nodes "
        "joined."
    )


def ray(text: str, start: StartParser, chosen: Finding) -> str:
    need = (start.tensor or 0) * (start.pipeline or 1)
    many = f" for {need} GPUs" if need else ""
    return (
        f"Ray found no room{many}: ray status shows what the cluster has and who holds it; stop stale jobs, or lower the parallel "
        "sizes."
    )


def gpus(text: str, start: StartParser, chosen: Finding) -> str:
    match = find(r"size \(?(\d+)\)?.*?GPUs \((\d+)\)", text)
    if match:
        return (
            f"{match[1]} GPUs are asked for and {match[2]} are visible: lower --tensor-parallel-size to {match[2]}, or check "
            "CUDA_VISIBLE_DEVICES and --gpus."
        )
    if "NUMA" in text or "cores" in text:
        return "Fewer CPU nodes than ranks: lower --tensor-parallel-size, or bind threads by hand (VLLM_CPU_OMP_THREADS_BIND)."
    return "Fewer GPUs are visible than asked for: nvidia-smi -L in the same container, CUDA_VISIBLE_DEVICES, docker --gpus all."


def gpu_lost(text: str, start: StartParser, chosen: Finding) -> str:
    return "The GPU or its link failed: dmesg | grep -i xid, nvidia-smi -q -d ECC,ROW_REMAPPER; reset the GPU or drain the host."


def memory_fault(text: str, start: StartParser, chosen: Finding) -> str:
    return (
        "A kernel wrote where it must not (often AITER): try VLLM_ROCM_USE_AITER=0 or --enforce-eager, and another ROCm build; "
        "dmesg has more."
    )


def cuda(text: str, start: StartParser, chosen: Finding) -> str:
    if "custom_all_reduce" in text:
        return "vLLM's own all-reduce failed: try --disable-custom-all-reduce (nvidia-smi topo -p2p r shows who reaches whom)."
    if "forked subprocess" in text:
        return "Set VLLM_WORKER_MULTIPROC_METHOD=spawn, and touch CUDA nowhere before vLLM starts its processes."
    return (
        "A kernel failed: dmesg | grep -i xid tells whether the GPU is at fault; else narrow down with CUDA_LAUNCH_BLOCKING=1 "
        "and --enforce-eager."
    )


def killed(text: str, start: StartParser, chosen: Finding) -> str:
    size = f" (the checkpoint has {start.checkpoint_gib:g} GiB)" if start.checkpoint_gib else ""
    return (
        "Confirm with dmesg | grep -i 'killed process', docker inspect .State.OOMKilled, or the pod's OOMKilled; then "
        "give the host or "
        f"container more memory{size}, or load with fewer processes at once."
    )


def supervisor(text: str, start: StartParser, chosen: Finding) -> str:
    if "CANCELLED AT" in text and "TIME LIMIT" not in text:
        return (
            "Slurm's job was cancelled, by its owner, an administrator or preemption: sacct -j JOB --format=State,ExitCode tells."
        )
    return (
        "Who watches the server ended it: raise its limit (Slurm --time, systemd TimeoutStartSec, the pod's startupProbe "
        "failureThreshold)."
    )


def worker(text: str, start: StartParser, chosen: Finding) -> str:
    if "was ended by SIG" in chosen.cause:
        return (
            "Compiled code crashed, which leaves no traceback: PYTHONFAULTHANDLER=1 prints one next time; dmesg names the library, "
            "and an Xid if the GPU is at fault."
        )
    return (
        "A worker ended without a word: dmesg (out of memory, Xid) and its exit code tell why; PYTHONFAULTHANDLER=1 prints more "
        "next time."
    )


def hang(text: str, start: StartParser, chosen: Finding) -> str:
    return (
        "A worker does not answer: py-spy dump --pid of the VLLM::Worker processes, nvidia-smi (a GPU at 100 % or 0 % "
        "while others wait), "
        "dmesg for Xid; then restart. VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS sets when it gives up."
    )


def engine(text: str, start: StartParser, chosen: Finding) -> str:
    return "The log does not hold the reason: look at dmesg, and at the other stream (standard error) or the other node's log."


def disk(text: str, start: StartParser, chosen: Finding) -> str:
    size = f" The checkpoint has {start.checkpoint_gib:g} GiB." if start.checkpoint_gib else ""
    return f"The disk is full: df -h on the cache (HF_HOME, VLLM_CACHE_ROOT) and /tmp; free room or move the cache.{size}"
