"""Advice where the deployment asks for what cannot be: memory, lengths, files of the model, the hub, options."""

import re
from collections.abc import Callable

from tui.core.logs.root_cause import Finding
from tui.core.logs.start_parser import StartParser

Writer = Callable[[str, StartParser, Finding], str]
"""Text of the failure, the start of the start, the chosen cause -> advice."""

GIB = r"([\d.]+) ?Gi?B"


def find(pattern: str, text: str) -> re.Match[str] | None:
    """The first match, over line ends too."""
    return re.search(pattern, text, re.DOTALL)


def number(text: str | int) -> str:
    """43936 as 43,936."""
    return f"{int(text):,}"


def model_of(start: StartParser) -> str:
    """The model's name as the log has it."""
    return start.model or "the model"


def utilisation(start: StartParser) -> str:
    now = f" (now {start.utilisation:g})" if start.utilisation is not None else ""
    return f"raise --gpu-memory-utilization{now}"


def kv_cache(text: str, start: StartParser, chosen: Finding) -> str:
    cpu = find(rf"\(([\d.]+)/([\d.]+) GiB\).*requested memory for kv \({GIB}\)", text)
    if cpu:
        return f"The KV cache asks for {cpu[3]} GiB of {cpu[1]} GiB free: lower --kv-cache-memory-bytes or VLLM_CPU_KVCACHE_SPACE."
    need = find(rf"{GIB} KV cache is needed.*?available KV cache memory \({GIB}\)", text)
    longest = find(r"estimated maximum model length is ([\d,]+)", text)
    if need:
        lower = f"lower --max-model-len to {number(longest[1].replace(',', ''))}" if longest else "lower --max-model-len"
        return (
            f"One request needs {need[1]} GiB of KV cache, {need[2]} GiB are free: {lower}, {utilisation(start)}, or use "
            "--kv-cache-dtype fp8."
        )
    stored = find(r"max seq len \((\d+)\).*?KV cache \((\d+)\)", text)
    if stored:
        return (
            f"The KV cache holds {number(stored[2])} tokens, one request may have {number(stored[1])}: lower --max-model-len to "
            f"{number(stored[2])} or {utilisation(start)}."
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


def oom(text: str, start: StartParser, chosen: Finding) -> str:
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
        f"{what}: {tips.get(chosen.phase.value, 'use more GPUs, or a smaller model')}. nvidia-smi shows whether another process "
        "is there."
    )


def in_use(text: str, start: StartParser, chosen: Finding) -> str:
    match = find(r"\(([\d.]+)/([\d.]+) GiB\).*?utilization \(([\d.]+), ([\d.]+) GiB\)", text)
    if match:
        free, total, share, wanted = match.groups()
        fits = int(float(free) / float(total) * 100) / 100
        lower = f", or lower --gpu-memory-utilization (now {share}) to {fits:.2f}" if fits >= 0.3 else ""
        return (
            f"Another process holds the GPU: {free} of {total} GiB are free, {wanted} GiB wanted. End it (nvidia-smi lists "
            f"it){lower}."
        )
    return "Memory changed hands while vLLM measured it: end or wait for the other process on this GPU (nvidia-smi lists it)."


def max_model_len(text: str, start: StartParser, chosen: Finding) -> str:
    match = find(r"max_model_len \((\d+)\).*?(?:=|\()(\d+)(?:\.0)?\b", text)
    limit = find(r"(?:max_position_embeddings|model_max_length|max_seq_len|seq_length)=(\d+)", text)
    if match and limit:
        return (
            f"Lower --max-model-len from {number(match[1])} to {number(limit[1])}, the model's own limit; beyond it, only "
            "with RoPE "
            "scaling (--hf-overrides) and VLLM_ALLOW_LONG_MAX_MODEL_LEN=1."
        )
    if match:
        return f"Lower --max-model-len from {number(match[1])} to {number(match[2])}, what the model's config.json allows."
    return "Lower --max-model-len to the limit in the model's config.json."


def missing_file(text: str, start: StartParser, chosen: Finding) -> str:
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


def corrupt(text: str, start: StartParser, chosen: Finding) -> str:
    shard = None
    if start.loaders.main is not None and not start.loaders.main.complete and chosen.phase.value == "loading":
        bar = start.loaders.main
        shard = f"after {int(bar.done)} of {int(bar.total)} shards"
    path = find(r"'([^']+\.(?:safetensors|bin|pt|gguf))'", text)
    where = path[1] if path else shard
    if "nput/output error" in text or "Stale file handle" in text:
        return f"The storage failed to read{' ' + where if where else ''}: look at dmesg and the disk's or NFS server's health."
    if "not initialized from checkpoint" in text:
        return "Weights are missing in the checkpoint: compare its files with model.safetensors.index.json and fetch what lacks."
    return (
        f"A weight file is cut off or damaged{f' ({where})' if where else ''}: compare sizes or checksums with the "
        "source and fetch it "
        "again (hf download --force-download, one file)."
    )


def shape(text: str, start: StartParser, chosen: Finding) -> str:
    return (
        "Checkpoint and config.json do not belong together, or this vLLM does not know the layout: check config.json, "
        "--quantization and "
        "--hf-overrides, or try a newer vLLM."
    )


def model_unsupported(text: str, start: StartParser, chosen: Finding) -> str:
    if "trust" in text or "custom code" in text:
        return "The model brings code of its own: add --trust-remote-code if you trust its source."
    lacks = find(r"(\w+) does not support (LoRA|pipeline parallel)", text)
    if lacks:
        return f"{lacks[1]} goes without {lacks[2]} in this vLLM: leave that option away, or try a newer release."
    kind = find(r"model type `([^`]+)`", text) or find(r"architectures? \[?'?([\w]+)|(?<=Error: )(?=\w+ has no vLLM)(\w+)", text)
    name = f" {kind[kind.lastindex or 0]}" if kind else " this model"
    version = f" (this is {start.version})" if start.version else ""
    return f"This installation does not know{name}: upgrade vLLM{version} or Transformers, or try --model-impl transformers."


def quantization(text: str, start: StartParser, chosen: Finding) -> str:
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
    return "Use a quantisation that this vLLM and GPU support, or leave --quantization away so that the checkpoint's own is taken."


def auth(text: str, start: StartParser, chosen: Finding) -> str:
    everything = " ".join([text, *chosen.context])
    if "gated" in everything.lower() or "restricted" in everything:
        return (
            "Ask for access on the model's page, then pass a token of that account: HF_TOKEN=… (or hf auth login) for "
            f"{model_of(start)}."
        )
    return f"The hub refuses {model_of(start)}: check the spelling, and set HF_TOKEN to a token that may read it."


def hub(text: str, start: StartParser, chosen: Finding) -> str:
    if "429 Client Error" in text:
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


def ready_timeout(text: str, start: StartParser, chosen: Finding) -> str:
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


def tokenizer(text: str, start: StartParser, chosen: Finding) -> str:
    return (
        "The tokenizer's files are missing, damaged or too new: fetch tokenizer*.json again, upgrade tokenizers and "
        "Transformers, or set --tokenizer."
    )


def argument(text: str, start: StartParser, chosen: Finding) -> str:
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
    if "attention backend" in text or "AttentionBackend" in text:
        return "Leave the attention backend to vLLM: drop --attention-backend and VLLM_ATTENTION_BACKEND, or name another."
    mamba = find(r"exceeds available Mamba cache blocks \((\d+)\)", text)
    if mamba:
        return f"Lower --max-num-seqs to {number(mamba[1])}, or raise --gpu-memory-utilization."
    batch = find(r"max_num_batched_tokens \(\d+\) is smaller than max_model_len \((\d+)\)", text)
    if batch:
        return f"Raise --max-num-batched-tokens to {number(batch[1])}, use --enable-chunked-prefill, or lower --max-model-len."
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
