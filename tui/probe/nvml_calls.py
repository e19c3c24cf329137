"""NVML's calls for one GPU: which it answers, which it never will, which fail at present, and which errors concern all of it.

Python 3.8.
"""

from typing import Any, Dict, Optional, Set, Tuple

import pynvml

from tui.probe.library import error_words

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
    """Raises an error that concerns the whole GPU again."""
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
        """Finds the GPU, of which nothing is known then. Raises DriverGone or NVMLError."""
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
        """Calls an NVML function for this GPU. None where it doesn't tell; raises for what concerns the whole GPU or driver."""
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
        """Whether it makes sense to make a call."""
        return (name, *arguments) not in self._without

    def give_up(self, name: str, *arguments: Any) -> None:
        """Makes a call no more."""
        self._without.add((name, *arguments))

    @property
    def unread(self) -> Optional[str]:
        """What can't be read at present and why: `power, fan: Unknown Error`; None where nothing fails."""
        if not self._failing:
            return None
        names = sorted({_WHAT_FAILS.get(call[0], "others") for call in self._failing})
        return "%s: %s" % (", ".join(names), next(iter(self._failing.values())))
