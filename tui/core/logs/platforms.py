"""The hardware that a log tells of, and each vendor's own words in place of NVIDIA's.

Advice is written in the words of NVIDIA's tools and translated here, so that it names the tool of the machine at hand. The tools:
amd-smi and rocm-smi (ROCm), npu-smi (Ascend), xpu-smi (Intel), hl-smi (Gaudi), tpu-info (TPU).
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Platform:
    """A vendor's accelerators: how texts of a log tell of them, and what to say instead of NVIDIA's words, the longest first."""

    name: str
    pattern: re.Pattern[str]
    words: tuple[tuple[str, str], ...]


def _platform(name: str, pattern: str, smi: str, visible: str, collectives: str, health: str, blocking: str) -> Platform:
    return Platform(
        name,
        re.compile(pattern),
        (
            ("nvidia-smi -q -d ECC,ROW_REMAPPER", health),
            ("nvidia-smi topo -p2p r", smi),
            ("nvidia-smi -L", smi),
            ("nvidia-smi", smi),
            ("dmesg | grep -i xid tells whether the GPU is", f"{health} and dmesg tell whether the device is"),
            ("dmesg | grep -i xid", "dmesg"),
            ("CUDA_LAUNCH_BLOCKING=1", blocking),
            ("dmesg for Xid", "dmesg"),
            ("dmesg (out of memory, Xid)", "dmesg (out of memory, driver errors)"),
            ("an Xid if the GPU is at fault", "the driver's error if the device is at fault"),
            ("CUDA_VISIBLE_DEVICES", visible),
            ("NCCL_DEBUG=INFO", collectives),
            ("docker needs --gpus all, Kubernetes a nvidia.com/gpu limit", "the container needs the devices passed through"),
            ("docker --gpus all", "the devices passed to the container"),
        ),
    )


PLATFORMS: tuple[Platform, ...] = (
    _platform(
        "ascend",
        r"(?i:vllm[-_]ascend|torch_npu|plugin ascend|platform npu)|\bNPU\b|aicore|AclNN|\bHCCL\b|ERR0\d{4} (?:PTA|DIST)",
        "npu-smi info",
        "ASCEND_RT_VISIBLE_DEVICES",
        "ASCEND_GLOBAL_LOG_LEVEL=1",
        "npu-smi info -t health -i DEVICE",
        "ASCEND_LAUNCH_BLOCKING=1",
    ),
    _platform(
        "xpu",
        r"UR_RESULT_ERROR|ZE_RESULT_ERROR|\bXPU\b|[.\-/]xpu\b|platform xpu|oneCCL|\bSYCL\b",
        "xpu-smi discovery",
        "ZE_AFFINITY_MASK",
        "CCL_LOG_LEVEL=info",
        "xpu-smi health -d DEVICE",
        "a smaller --max-num-seqs",
    ),
    _platform(
        "rocm",
        r"\bHIP\b|\bhip[A-Z]\w+|HSA_STATUS|HSAIL|(?i:rocm|rccl)|Memory access fault by GPU|MEMORY_APERTURE|\bgfx\d{3,4}|\baiter\b",
        "amd-smi (or rocm-smi)",
        "HIP_VISIBLE_DEVICES",
        "NCCL_DEBUG=INFO",
        "amd-smi metric --ecc",
        "AMD_SERIALIZE_KERNEL=3",
    ),
    _platform(
        "gaudi",
        r"(?i:habana|gaudi|synapse|synStatus|PT_DEVMEM|platform hpu)|\bHPU\b|\bHCL\b",
        "hl-smi",
        "HABANA_VISIBLE_DEVICES",
        "HCCL_LOG_LEVEL=1",
        "hl-smi",
        "LOG_LEVEL_ALL=3",
    ),
    _platform(
        "tpu",
        r"(?i:platform tpu|tpu_inference|tpu_runner|libtpu|JaxRuntimeError|jax\.errors|\bXLA\b)|\bTPU\b|\bhbm=",
        "tpu-info",
        "TPU_VISIBLE_CHIPS",
        "TPU_STDERR_LOG_LEVEL=0",
        "tpu-info",
        "TPU_STDERR_LOG_LEVEL=0",
    ),
)


def platform_of(*texts: str | None) -> Platform | None:
    """Return the platform that one of the texts tells of, the first text first; None for NVIDIA's and if none tells."""
    for text in texts:
        for platform in PLATFORMS:
            if text and platform.pattern.search(text):
                return platform
    return None


def in_words_of(platform: Platform | None, advice: str) -> str:
    """Return advice that is written for NVIDIA's tools in the words of another platform."""
    for theirs, own in platform.words if platform is not None else ():
        advice = advice.replace(theirs, own)
    return advice
