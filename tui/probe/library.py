"""NVIDIA's management library as such: finding, starting and dropping it, its words, its XID events."""

import contextlib
import ctypes
import os
import time
from typing import Any, Dict, Optional, Sequence, Tuple

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
        return "no NVIDIA driver on this host (libnvidia-ml.so.1 not found)" + ("; " + other if other else "")
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
    """What else may compute here, where there is no NVIDIA driver."""
    vendors = set()
    try:
        for card in os.listdir("/sys/class/drm"):
            try:
                with open("/sys/class/drm/%s/device/vendor" % card) as file:
                    vendors.add(file.read().strip())
            except OSError:
                continue
    except OSError:
        pass
    if os.path.exists("/dev/kfd") or "0x1002" in vendors:
        return "AMD GPUs are here, which are not read; the host's own memory is shown"
    if "0x10de" in vendors:
        return "an NVIDIA card is here: install its driver"
    return "a host without GPUs"


# -- events ------------------------------------------------------------------------------------------------------------------------


class XidWatch:
    """NVML's event set for XID errors of some devices (`tui.probe.nvml.Device`). `wait` blocks, so a thread of its own calls it."""

    def __init__(self, devices: Sequence[Any]) -> None:
        self._devices = devices
        self._set = pynvml.nvmlEventSetCreate()
        registered = 0
        for device in devices:
            if device.handle is None:
                continue
            try:
                pynvml.nvmlDeviceRegisterEvents(device.handle, pynvml.nvmlEventTypeXidCriticalError, self._set)
                registered += 1
            except pynvml.NVMLError:
                continue
        if not registered:
            raise Unavailable("this driver reports no XID events")

    def wait(self, seconds: float) -> Optional[Dict[str, Any]]:
        """The next event within `seconds`: its GPU's index, code, and when (wall clock). None when there was none."""
        try:
            event = pynvml.nvmlEventSetWait(self._set, int(seconds * 1000))
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_TIMEOUT:
                time.sleep(seconds)  # a lost GPU makes the call return at once
            return None
        if not event.eventType & pynvml.nvmlEventTypeXidCriticalError:
            return None
        address = ctypes.cast(event.device, ctypes.c_void_p).value
        index = next((device.index for device in self._devices if device.address == address), None)
        return {"gpu": index, "code": int(event.eventData), "at": time.time()}
