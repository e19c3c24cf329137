"""NVIDIA's management library as such: finding, starting and dropping it, and its words."""

import contextlib
import ctypes
import os
import time
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

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
    """Load and start NVML; return the driver's version, CUDA's, and how many GPUs there are. Raises Unavailable."""
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
    """Return the driver's name for a process that /proc doesn't show (another container's)."""
    try:
        return text(pynvml.nvmlSystemGetProcessName(pid)) or None
    except pynvml.NVMLError:
        return None


def stop(unload: bool) -> None:
    """End NVML. `unload` drops the library itself, so that the next start finds a newer driver's; no thread may be in it."""
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
    """Name the accelerators on the PCI bus of a host without an NVIDIA driver; None if there are none."""
    cards = _cards()
    for vendor, maker in _MAKERS:
        found = [name for holder, name in cards if holder == vendor]
        if not found:
            continue
        how_many = "%d %s GPU%s" % (len(found), maker, "s" if len(found) > 1 else "")
        if maker == "NVIDIA":
            return "%s here, but no driver (libnvidia-ml.so.1 not found): install NVIDIA's driver" % how_many
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
    """Say what the platform hides from the driver's library; None if it hides nothing."""
    if "microsoft" in _line("/proc/sys/kernel/osrelease").lower():
        return "WSL: the driver is Windows' own, and tells neither the processes nor all sensors"
    return None


NEVER = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_DEPRECATED,
)
"""Asking again makes no sense."""

_DRIVER_GONE = (
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
)
"""The library must be started anew."""

_WHAT_FAILS = {
    "nvmlDeviceGetPowerUsage": "power",
    "nvmlDeviceGetFanSpeed": "fan",
    "nvmlDeviceGetTemperature": "temperature",
    "nvmlDeviceGetUtilizationRates": "utilisation",
    "nvmlDeviceGetClockInfo": "clocks",
}


class DriverGone(Exception):
    """The driver was reloaded or unloaded while in use."""


def raise_if_lost(error: Any) -> None:
    """Raise an error that concerns the whole GPU again."""
    if error.value in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED):
        raise error


class Calls:
    """The calls for the GPU of an index. `handle` is the library's; None before `attach` and after `lose`."""

    def __init__(self, index: int) -> None:
        self.handle: Any = None
        self.attached = 0
        """How many times it was found: who came back from being lost has another handle."""
        self.failed = ""
        """The driver's words for the last call that failed, since this was last emptied."""
        self._index = index
        self._without: Set[Tuple[Any, ...]] = set()
        self._failing: Dict[Tuple[Any, ...], str] = {}
        """Calls that fail at present, and the driver's words for it."""

    def attach(self) -> None:
        """Find the GPU and forget what was known of it. Raises DriverGone or NVMLError."""
        try:
            self.handle = pynvml.nvmlDeviceGetHandleByIndex(self._index)
        except pynvml.NVMLError as error:
            if error.value in _DRIVER_GONE:
                raise DriverGone(error_words(error)) from error
            raise
        self.attached += 1
        self._without = set()

    def lose(self) -> None:
        self.handle = None
        self._failing = {}

    def ask(self, name: str, *arguments: Any) -> Any:
        """Call an NVML function for this GPU. Return None if it doesn't answer; raise what concerns the whole GPU or driver."""
        call = (name, *arguments)
        if call in self._without:
            return None
        try:
            answer = getattr(pynvml, name)(self.handle, *arguments)
            if self._failing:
                self._failing.pop(call, None)
            return answer
        except pynvml.NVMLError as error:
            if error.value in NEVER:
                self._without.add(call)
                return None
            if error.value in _DRIVER_GONE:
                raise DriverGone(error_words(error)) from error
            raise_if_lost(error)
            self.failed = self._failing[call] = error_words(error)
            return None
        except AttributeError:  # a pynvml that doesn't know it
            self._without.add(call)
            return None

    def answers(self, name: str, *arguments: Any) -> bool:
        """Tell whether a call is worth making."""
        return (name, *arguments) not in self._without

    def give_up(self, name: str, *arguments: Any) -> None:
        """Make that call no more."""
        self._without.add((name, *arguments))

    @property
    def unread(self) -> Optional[str]:
        """Return what can't be read at present and why: `power, fan: Unknown Error`; None if nothing fails."""
        if not self._failing:
            return None
        names = sorted({_WHAT_FAILS.get(call[0], "others") for call in self._failing})
        return "%s: %s" % (", ".join(names), next(iter(self._failing.values())))


class XidWatch:
    """One event set. Waiting for it blocks, so it needs a thread of its own. Raises NVMLError if no set can be made."""

    def __init__(self) -> None:
        self._set = pynvml.nvmlEventSetCreate()
        self._registered: Dict[int, int] = {}
        """By a GPU's index, which of its handles: one that came back from being lost is registered anew."""
        self._never: Set[int] = set()
        self._known: Dict[int, Dict[str, Any]] = {}
        """By the library's pointer: index and UUID."""

    def register(self, devices: Sequence[Any]) -> None:
        """Take in the devices that can be asked and are not in yet. Raise Unavailable if none ever will."""
        for device in devices:
            handle, attached = device.calls.handle, device.calls.attached
            if handle is None or self._registered.get(device.index) == attached:
                continue
            try:
                pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._set)
            except pynvml.NVMLError as error:
                if error.value in NEVER:
                    self._never.add(device.index)
                    self._registered[device.index] = attached
                continue
            self._never.discard(device.index)
            self._registered[device.index] = attached
            self._known[_address(handle)] = {"gpu": device.index, "uuid": device.row.get("uuid")}
        if len(self._never) == len(devices):
            raise Unavailable("this driver reports no XID events")

    def wait(self, seconds: float) -> Optional[Dict[str, Any]]:
        """Return the next event within `seconds`: its GPU's index and UUID, code, and time (wall clock); None without one."""
        if not self._known:
            time.sleep(seconds)
            return None
        try:
            event = pynvml.nvmlEventSetWait(self._set, int(seconds * 1000))
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_TIMEOUT:
                time.sleep(seconds)  # a lost GPU makes the call return at once
            return None
        if not event.eventType & pynvml.nvmlEventTypeXidCriticalError:
            return None
        whose = self._known.get(_address(event.device), {"gpu": None})
        return dict(whose, code=int(event.eventData), at=time.time())


def numbered(xids: Sequence[Dict[str, Any]], devices: Sequence[Any]) -> List[Dict[str, Any]]:
    """Return the events with the indices that their GPUs have now: the library counts anew when it is started again.

    If another GPU has the place of one, its events are nobody's.
    """
    if not xids or not devices:
        return list(xids)
    uuids = {device.index: device.row.get("uuid") for device in devices}
    indices = {uuid: index for index, uuid in uuids.items() if uuid is not None}
    out = []
    for xid in xids:
        uuid, index = xid.get("uuid"), xid["gpu"]
        if uuid is not None and uuids.get(index) != uuid:
            index = indices.get(uuid, index if index in uuids and uuids[index] is None else None)
        out.append(dict(xid, gpu=index))
    return out


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
