"""What to do about a failure: the flag, file or command to try, with the figures of the log in it.

Each engine's grammar has advice of its own, which goes first. What is here holds for every engine: the machine, its GPUs and
network, the hub, and whoever ended the server.
"""

import re

from tui.core.logs.failure_kinds import is_local_service
from tui.core.logs.grammar import Finding, Writer, find
from tui.core.logs.platforms import in_words_of, platform_of
from tui.core.logs.start_parser import StartParser
from tui.engines.registry import ENGINES, engine_named, grammars


def advice(finding: Finding, start: StartParser) -> str:
    """Return one or two sentences, never empty."""
    platform = platform_of(finding.text, finding.cause, *finding.context, start.platform)
    return in_words_of(platform, _advice(finding, start))


def _advice(finding: Finding, start: StartParser) -> str:
    """Return the advice in the words of NVIDIA's tools."""
    own = next((grammar.advice for grammar in grammars() if grammar.engine == start.engine), {})
    general = {} if own else grammars()[0].advice  # an engine's own flags are no other's
    for writers in (own, COMMON, general):
        writer = writers.get(finding.kind)
        written = " ".join(writer(finding.text or finding.cause, start, finding).split()) if writer is not None else ""
        if written:
            return written
    if "ermission denied" in finding.text:
        return "The server's user may not read or write that path: correct its owner or mode, or the mount of the container."
    if is_local_service(finding.text) and _NO_ANSWER.search(finding.text):
        return (
            "A service of this deployment does not answer at that address: see that it runs (ss -ltn on its host), that "
            "address and port are the configured ones, and that no firewall is between; then start again."
        )
    where = f"line {finding.line}" if finding.line else "the log"
    debug = next((grammar.more_detail for grammar in grammars() if grammar.engine == start.engine), "") or grammars()[0].more_detail
    return (
        f"Not a failure that readyroom knows (see {where}): search {title_of(start)}'s issues for this message and try another "
        f"version; {debug} says more at the next start."
    )


def title_of(start: StartParser) -> str:
    """Return the engine's name as it writes it itself, of the first engine if none is known."""
    return (engine_named(start.engine) or ENGINES[0]).title


def model_of(start: StartParser) -> str:
    """Return the model's name as the log has it."""
    return start.model or "the model"


def shm(text: str, start: StartParser, finding: Finding) -> str:
    size = find(r"\(size (\d+)\)|to (\d+) bytes", text)
    need = f" (a segment of {int(size[1] or size[2]) / 2**20:.0f} MiB did not fit)" if size else ""
    return f"/dev/shm is too small{need}: docker run --shm-size 16g or --ipc=host; in Kubernetes an emptyDir with medium: Memory."


def port(text: str, start: StartParser, finding: Finding) -> str:
    named = find(r"\bport:? (\d{1,5})\b", text)
    number = start.port or (named[1] if named else None)
    port = f"port {number}" if number else "that port"
    return f"Another process listens on {port}: ss -ltnp shows it; end it, or choose another --port."


def driver(text: str, start: StartParser, finding: Finding) -> str:
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
        return (
            "Docker does not see the GPUs: install the NVIDIA Container Toolkit (nvidia-ctk runtime configure) and restart Docker."
        )
    if "infer device type" in text or "NVML" in text or "no NVIDIA driver" in text.lower():
        return (
            "No GPU is visible: run nvidia-smi in the same container; docker needs --gpus all, Kubernetes a nvidia.com/gpu limit."
        )
    return f"The driver is too old for this CUDA{version}: upgrade it, or use a {title_of(start)} built for an older CUDA."


_NO_ANSWER = re.compile(
    r"[Cc]onnection ?(?:refused|error|reset)|[Tt]imed? ?out|[Uu]nreachable|ConnectionError|[Nn]ot? (?:route|connect)"
)


def nccl(text: str, start: StartParser, finding: Finding) -> str:
    if "ibv_" in text + finding.cause or "memlock" in text.lower():
        return (
            "RDMA may lock too little memory: raise the limit (ulimit -l unlimited; docker --ulimit memlock=-1; "
            "LimitMEMLOCK=infinity in the unit), or do without InfiniBand by NCCL_IB_DISABLE=1."
        )
    if find(r"Hccl[A-Z]|EI000\d|torch_npu", text):
        return (
            "A rank did not join: look in every rank's and node's log for an earlier error, check that the nodes reach each other, "
            "and raise HCCL_CONNECT_TIMEOUT (seconds) if some only start late."
        )
    if "Duplicate GPU" in finding.cause:
        return "Two ranks are on one GPU: give each its own (CUDA_VISIBLE_DEVICES), no more ranks than GPUs on each node."
    return (
        "Run again with NCCL_DEBUG=INFO and read its WARN lines; name the network interface with NCCL_SOCKET_IFNAME "
        "and GLOO_SOCKET_IFNAME, "
        "and check /dev/shm (--ipc=host)."
    )


def timeout(text: str, start: StartParser, finding: Finding) -> str:
    return (
        "One rank did not answer: look for its own error or a hung GPU (py-spy dump --pid, dmesg for Xid), and whether all nodes "
        "joined."
    )


def ray(text: str, start: StartParser, finding: Finding) -> str:
    need = (start.tensor or 0) * (start.pipeline or 1)
    many = f" for {need} GPUs" if need else ""
    return (
        f"Ray found no room{many}: ray status shows what the cluster has and who holds it; stop stale jobs, or lower the parallel "
        "sizes."
    )


def gpu_lost(text: str, start: StartParser, finding: Finding) -> str:
    return "The GPU or its link failed: dmesg | grep -i xid, nvidia-smi -q -d ECC,ROW_REMAPPER; reset the GPU or drain the host."


def killed(text: str, start: StartParser, finding: Finding) -> str:
    size = f" (the checkpoint is {start.checkpoint_gib:g} GiB)" if start.checkpoint_gib else ""
    return (
        "Confirm with dmesg | grep -i 'killed process', docker inspect .State.OOMKilled, or the pod's OOMKilled; then "
        "give the host or "
        f"container more memory{size}, or load with fewer processes at once."
    )


def supervisor(text: str, start: StartParser, finding: Finding) -> str:
    if "CANCELLED AT" in text and "TIME LIMIT" not in text:
        return (
            "Slurm's job was cancelled, by its owner, an administrator or preemption: sacct -j JOB --format=State,ExitCode tells."
        )
    return (
        "The server's supervisor ended it: raise its limit (Slurm --time, systemd TimeoutStartSec, the pod's startupProbe "
        "failureThreshold)."
    )


_CRASHED = re.compile(
    r"Segfault|Segmentation fault|Fatal Python error|Caught signal|SIG(?:SEGV|ABRT|BUS)|exitcode=-(?!9)"
    r"|double free|free\(\)|malloc\(\)|smashing"
)


def worker(text: str, start: StartParser, finding: Finding) -> str:
    if "was ended by SIG" in finding.cause:
        return (
            "Compiled code crashed, which leaves no traceback: PYTHONFAULTHANDLER=1 prints one next time; dmesg names the library, "
            "and an Xid if the GPU is at fault."
        )
    if _CRASHED.search(text):
        return (
            "Compiled code crashed in the function that the cause names: try without the feature that uses it (KV offloading, "
            "a connector, a custom kernel), or another version of its library; dmesg shows whether the driver complained."
        )
    return (
        "A worker ended without a word: dmesg (out of memory, Xid) and its exit code tell why; PYTHONFAULTHANDLER=1 prints more "
        "next time."
    )


def engine(text: str, start: StartParser, finding: Finding) -> str:
    if "above the part" in finding.cause:
        return "Read the whole log from the server's start on: the first traceback above this part says why."
    return "The log does not hold the reason: look at dmesg, and at the other stream (standard error) or the other node's log."


def disk(text: str, start: StartParser, finding: Finding) -> str:
    size = f" The checkpoint is {start.checkpoint_gib:g} GiB." if start.checkpoint_gib else ""
    return f"The disk is full: df -h on the cache (HF_HOME, VLLM_CACHE_ROOT) and /tmp; free room or move the cache.{size}"


def missing_file(text: str, start: StartParser, finding: Finding) -> str:
    if find(r"(?i)\blora\b|adapter", text):
        return (
            "The LoRA adapter is not at the path that was given: it must be a directory that the server sees, with "
            "adapter_config.json and the adapter's weights, or a model id on the hub."
        )
    missing = find(r"missing: \{(.*?)\}", text)
    if missing:
        count = missing[1].count(",") + 1
        first = missing[1].split(",")[0].strip("'\" ")
        files = "1 file of the checkpoint is missing" if count == 1 else f"{count} files of the checkpoint are missing, among them"
        return f"{files}: {first}. Fetch it again; hf download and rsync resume what is there already."
    if "404" in text or "Repo id" in text or "repository ID" in text or "valid model identifier" in text:
        return (
            f"{model_of(start)} is neither a directory that this process sees nor a model id: check the path, and the "
            "mount of the "
            "container."
        )
    return (
        f"Check that {model_of(start)} is complete (config.json, the tokenizer, every shard of the index): hf download resumes a "
        "broken one."
    )


def corrupt(text: str, start: StartParser, finding: Finding) -> str:
    shard = None
    if start.loaders.main is not None and not start.loaders.main.complete and finding.phase.value == "loading":
        bar = start.loaders.main
        shard = f"after {int(bar.done)} of {int(bar.total)} shards"
    path = find(r"'([^']+\.(?:safetensors|bin|pt|gguf))'", text)
    where = path[1] if path else shard
    if "nput/output error" in text or "Stale file handle" in text:
        return f"The storage failed to read{' ' + where if where else ''}: look at dmesg and the disk's or NFS server's health."
    if "not initialized from checkpoint" in text:
        return (
            "Weights are missing in the checkpoint: compare its files with model.safetensors.index.json and fetch what is missing."
        )
    return (
        f"A weight file is cut off or damaged{f' ({where})' if where else ''}: compare sizes or checksums with the "
        "source and fetch it "
        "again (hf download --force-download, one file)."
    )


def auth(text: str, start: StartParser, finding: Finding) -> str:
    everything = " ".join([text, *finding.context])
    if "gated" in everything.lower() or "restricted" in everything:
        return (
            "Ask for access on the model's page, then pass a token of that account: HF_TOKEN=… (or hf auth login) for "
            f"{model_of(start)}."
        )
    return f"The hub refuses {model_of(start)}: check the spelling, and set HF_TOKEN to a token that may read it."


def hub(text: str, start: StartParser, finding: Finding) -> str:
    if "CAS " in text or "xethub" in text:
        return (
            "The hub's Xet storage failed in the download: start again, which resumes it, with HF_TOKEN set against rate limits; "
            "HF_HUB_DISABLE_XET=1 downloads the plain way."
        )
    if "429 Client Error" in text or "429 Too Many" in text:
        return "The hub limits how often it is asked: pass a token (HF_TOKEN=…), wait a few minutes, or fetch the model beforehand."
    if "outgoing traffic" in text or "Offline" in text or "cached snapshot" in text:
        return (
            f"Offline mode is on and {model_of(start)} is not in the cache: unset HF_HUB_OFFLINE, or fetch it first (hf "
            "download), "
            "or give a path."
        )
    return (
        "The hub cannot be reached: check DNS, proxy (HTTPS_PROXY) and firewall, set HF_ENDPOINT to a mirror, or fetch the model "
        "elsewhere."
    )


def no_code(text: str, start: StartParser, finding: Finding) -> str:
    return (
        f"A kernel has no code for this chip: choose another backend (--attention-backend, --moe-backend of {title_of(start)}), or "
        "a version or build whose release notes name the chip."
    )


def out_of_memory(text: str, start: StartParser, finding: Finding) -> str:
    return (
        "Device memory ran out: shorten the context, serve fewer requests at once, use a smaller model or quantization, or more "
        "devices; nvidia-smi shows whether another process holds some."
    )


def no_backend(text: str, start: StartParser, finding: Finding) -> str:
    return (
        "No kernel of this version runs this quantization on this device: use a newer version, another backend for it, or a "
        "checkpoint in another format."
    )


def no_model(text: str, start: StartParser, finding: Finding) -> str:
    return (
        f"This {title_of(start)} does not know the architecture of {model_of(start)}: upgrade it, or use a version that names it."
    )


def device_error(text: str, start: StartParser, finding: Finding) -> str:
    return (
        "A kernel failed on the device: look at dmesg for Xid and at nvidia-smi, restart, and if it comes again leave out what is "
        "special (graphs, custom kernels, KV offloading) one by one."
    )


def bad_option(text: str, start: StartParser, finding: Finding) -> str:
    return (
        "The server refuses a value of its command line or configuration: correct the one that the cause names; --help lists them."
    )


COMMON: dict[str, Writer] = {
    "no_kernel_image": no_code,
    "cuda_oom": out_of_memory,
    "unsupported_quantization": no_backend,
    "unsupported_model": no_model,
    "cuda_error": device_error,
    "gpu_memory_fault": device_error,
    "bad_argument": bad_option,
    "shm_too_small": shm,
    "port_in_use": port,
    "driver_mismatch": driver,
    "nccl": nccl,
    "distributed_timeout": timeout,
    "ray_placement": ray,
    "gpu_lost": gpu_lost,
    "host_oom_or_killed": killed,
    "killed_by_supervisor": supervisor,
    "worker_died": worker,
    "engine_died": engine,
    "disk_full": disk,
    "missing_file": missing_file,
    "corrupt_checkpoint": corrupt,
    "hub_auth": auth,
    "hub_unreachable": hub,
}
