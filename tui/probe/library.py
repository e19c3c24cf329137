"""NVIDIA's management library as such: finding, starting and dropping it, and its words."""

import contextlib
import ctypes
import os
from typing import Any, List, Optional, Tuple

import pynvml

# where the library lies when the loader's search path doesn't have it: WSL, containers, GKE, NixOS, Debian
LIBRARIES = (
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1",
    "/run/opengl-driver/lib/libnvidia-ml.so.1",
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib64/libnvidia-ml.so.1",
    "/usr/lib64/nvidia/libnvidia-ml.so.1",
)

_PCI = "/sys/bus/pci/devices"
_MAKERS = (("0x10de", "NVIDIA"), ("0x1002", "AMD"), ("0x1da3", "Habana"))  # PCI vendor numbers


class Unavailable(Exception):
    """No GPU can be read; the words say why and what to do."""


def text(value: Any) -> str:
    """pynvml gives bytes from some versions of Python and calls, str from others."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def error_words(error: Any) -> str:
    """NVML's own words for an error, as nvidia-smi prints them."""
    try:
        return str(error) or "Unknown Error"
    except Exception:  # NVML's own table may be out of reach
        return "NVML error %s" % getattr(error, "value", "?")


def start() -> Tuple[Optional[str], Optional[str], int]:
    """Loads and starts NVML: the driver's version, CUDA's, and how many GPUs there are. Raises Unavailable."""
    try:
        _load()
        pynvml.nvmlInit()
        driver = text(pynvml.nvmlSystemGetDriverVersion())
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        raise Unavailable(_why(error)) from error
    try:
        number = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        cuda: Optional[str] = "%d.%d" % (number // 1000, number % 1000 // 10)
    except pynvml.NVMLError:
        cuda = None
    return driver, cuda, count


def process_name(pid: int) -> Optional[str]:
    """The driver's name for a process, where /proc doesn't tell (another container's)."""
    try:
        return text(pynvml.nvmlSystemGetProcessName(pid)) or None
    except pynvml.NVMLError:
        return None


def stop(unload: bool) -> None:
    """Ends NVML. `unload` drops the library itself, so that the next start finds a driver's newer one; no thread may be in it."""
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()
    if unload and pynvml.nvmlLib is not None:
        import _ctypes

        handle = pynvml.nvmlLib._handle
        pynvml.nvmlLib = None
        pynvml._nvmlGetFunctionPointer_cache.clear()
        _ctypes.dlclose(handle)


def _load() -> None:
    if pynvml.nvmlLib is not None:
        return
    for name in ("libnvidia-ml.so.1", *LIBRARIES):
        try:
            pynvml.nvmlLib = ctypes.CDLL(name)
            return
        except OSError:
            continue


def _why(error: Any) -> str:
    code = error.value
    if code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        other = _other_accelerator()
        return other or "no NVIDIA driver on this host (libnvidia-ml.so.1 not found), and no GPU on its PCI bus"
    if code == pynvml.NVML_ERROR_DRIVER_NOT_LOADED:
        return "the NVIDIA driver is not loaded: run `modprobe nvidia` (or nvidia-smi) as root"
    if code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return (
            "driver/library version mismatch: the NVIDIA driver was updated while the older one is still loaded; "
            "reboot, or unload and load its kernel modules"
        )
    if code == pynvml.NVML_ERROR_NO_PERMISSION:
        return "no permission to ask the NVIDIA driver: the user needs read and write access to /dev/nvidia*"
    return "NVML could not start: " + error_words(error)


def _other_accelerator() -> Optional[str]:
    """What computes here where there is no NVIDIA driver: the accelerators on the PCI bus. None where there are none."""
    cards = _cards()
    for vendor, maker in _MAKERS:
        found = [name for one, name in cards if one == vendor]
        if not found:
            continue
        how_many = "%d %s GPU%s" % (len(found), maker, "s" if len(found) > 1 else "")
        if maker == "NVIDIA":
            return "%s here, but no driver (libnvidia-ml.so.1 not found): install NVIDIA's" % how_many
        if found[0]:
            how_many = "%d × %s" % (len(found), found[0])
        return "%s, not read: only NVIDIA's GPUs can be; the host's memory is shown instead" % how_many
    if os.path.exists("/dev/kfd"):  # a container that sees no bus
        return "AMD GPUs, not read: only NVIDIA's GPUs can be; the host's memory is shown instead"
    return None


def _cards() -> List[Tuple[str, str]]:
    """Maker's number and name, as far as its driver gives one, of every GPU and accelerator on the PCI bus."""
    found = []
    try:
        devices = sorted(os.listdir(_PCI))
    except OSError:
        return []
    for device in devices:
        kind = _line("%s/%s/class" % (_PCI, device))
        # 0x03 display controllers, 0x12 processing accelerators; a functional unit beside the first is the same card
        if kind[:4] in ("0x03", "0x12") and device.endswith(".0"):
            found.append((_line("%s/%s/vendor" % (_PCI, device)), _line("%s/%s/product_name" % (_PCI, device))))
    return found


def _line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline(200).strip()
    except OSError:
        return ""


def platform_note() -> Optional[str]:
    """What the platform keeps from the driver's library; None where nothing is special."""
    if "microsoft" in _line("/proc/sys/kernel/osrelease").lower():
        return "WSL: the driver is Windows' own, and tells neither the processes nor all sensors"
    return None
