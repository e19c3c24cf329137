"""XID errors as they happen: NVML's event set, and whose GPU an event is about.

An event names its GPU by the library's own pointer alone, and a GPU that fell off the bus can't be asked any more who it is: so who
it was is kept from when it could.

Python 3.8.
"""

import ctypes
import time
from typing import Any, Dict, List, Optional, Sequence, Set

import pynvml

from tui.probe.library import Unavailable
from tui.probe.nvml_calls import NEVER


class XidWatch:
    """One event set. Waiting for it blocks, so a thread of its own has it. Raises NVMLError where no set can be made."""

    def __init__(self) -> None:
        self._set = pynvml.nvmlEventSetCreate()
        self._registered: Dict[int, int] = {}
        """By a GPU's index, which of its handles: one that came back from being lost is registered anew."""
        self._never: Set[int] = set()
        self._known: Dict[int, Dict[str, Any]] = {}
        """By the library's pointer: index and UUID."""

    def register(self, devices: Sequence[Any]) -> None:
        """Takes in those (`tui.probe.nvml.Device`) that can be asked and aren't in yet. Raises Unavailable where none ever will."""
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
        """The next event within `seconds`: its GPU's index and UUID, its code, and when (wall clock). None when there was none."""
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
    """The events with the indices that their GPUs have now: the library counts anew when it is started again. Where another GPU has
    the place of one, its events are nobody's."""
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
