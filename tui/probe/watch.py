"""Role "watch": the host's GPUs and the machine, sampled on and on.

    arguments  {"hz": 2.0, "pids": [roots of the engine's processes] or null, "paths": [files whose disk matters],
                "become": words before a command that may see more of other users' processes,
                "titles": beginnings of the titles that an engine's processes set,
                "energy_s": seconds between readings of the energy counters, which cost more than all else}
    requests   {"do": "set", "hz": …, "pids": …, "paths": …}   any of them

    {"f": "gpus", "wall", "mono", "source": "nvml"|"none", "driver", "cuda", "note", "gpus": [row…],
     "late", "late_s", "age_s", "xids": [{gpu, uuid, code, at}]}
        A row has the names and units of a GPU in the client; what isn't known is absent. "late": the driver has not answered for
        "late_s" seconds; values and stamps are those of the last sample, "age_s" old, the XIDs are today's. "note" says why, or why
        there are no GPUs.
    {"f": "machine", "wall", "mono", values…, cumulative counters…}

Three threads: this one samples the machine and minds the others; one asks the driver; one waits for XID events. A driver call that
hangs holds up its own thread alone.
"""

import threading
import time
import traceback
from typing import AbstractSet, Any, Dict, List, Optional, Set, Tuple

from pynvml import NVMLError

from tui.probe import nvml_library, nvml_sampler
from tui.probe.become import Become
from tui.probe.leash import Link
from tui.probe.machine_counters import Machine
from tui.probe.nvml_library import NEVER, DriverGone
from tui.probe.process_table import Family, Kin, Processes, bytes_read, in_container, name_of, wall_and_mono

HZ_LIMITS = (0.1, 10.0)
MACHINE_S = 1.0
LATE_S = 2.0
"""The driver is late when a sample takes longer than this."""
RETRY_S = 5.0
ALL_FAILED_S = 20.0
XIDS_KEPT = 32
XID_WAIT_S = 2.0
PCIE_S = 2.0


class GpuWatch:
    """Asks the driver, in a thread of its own."""

    def __init__(self, link: Link, hz: float, family: Family, energy_s: float = nvml_sampler.ENERGY_S) -> None:
        self._link = link
        self._family = family
        self._energy_s = energy_s
        self.interval = 1.0 / hz
        self._titled: Set[int] = set()
        """Those whose title says so, if none were told."""
        self.asking_since: Optional[float] = None
        self.asking: Optional[int] = None
        self.last: Optional[Dict[str, Any]] = None
        self.changed = threading.Event()
        self._processes = Processes()
        self._devices: List[nvml_sampler.Device] = []
        self._head: Dict[str, Any] = {}
        self._started = False
        self._retry_at = 0.0
        self._xids: List[Dict[str, Any]] = []
        self._xid_thread: Optional[threading.Thread] = None
        self._answered_at = time.monotonic()
        self._pcie_turn = 0
        self._pcie_due = 0.0

    def run(self) -> None:
        """Sample for ever."""
        try:
            self._run()
        except BaseException as error:  # without this thread the role has no point: the client starts it anew
            traceback.print_exc()
            self._link.send({"f": "end", "why": "%s: %s" % (type(error).__name__, error), "ok": False})
            self._link.end(1)

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            now = time.monotonic()
            self.asking_since = now
            frame = self._take(now)
            self.asking_since = None
            self.last = frame
            if not self._link.outlet_blocked():
                self._link.send(frame)
            self._measure_pcie()
            now = time.monotonic()
            due = max(due + self.interval, now)
            if self.changed.wait(due - now):
                self.changed.clear()
                due = time.monotonic()

    def _take(self, now: float) -> Dict[str, Any]:
        frame: Dict[str, Any] = {"f": "gpus"}
        frame.update(wall_and_mono())
        if not self._started and now >= self._retry_at:
            self._start(now)
        if self._started:
            try:
                rows = self._rows(now)
            except DriverGone as gone:
                self._stop()
                self._retry_at = now + RETRY_S
                self._head = {"source": "none", "note": "the NVIDIA driver went away (%s); trying again" % gone}
            else:
                frame.update(self._head)
                frame["gpus"] = rows
                frame["xids"] = self.xids
                return frame
        frame.update(self._head)
        frame["gpus"] = []
        frame["xids"] = self.xids
        return frame

    @property
    def xids(self) -> List[Dict[str, Any]]:
        """Return the last events, with the indices that their GPUs have now."""
        return nvml_library.numbered(self._xids, self._devices)

    def _start(self, now: float) -> None:
        self.asking = None
        try:
            driver, cuda, count = nvml_library.start()
        except nvml_library.Unavailable as why:
            self._stop()
            self._retry_at = now + RETRY_S
            self._head = {"source": "none", "note": str(why)}
            return
        self._started = True
        self._head = {"source": "nvml", "driver": driver}
        if cuda is not None:
            self._head["cuda"] = cuda
        platform = nvml_library.platform_note()
        if platform is not None:
            self._head["note"] = platform
        if count == 0:
            self._head["note"] = "the NVIDIA driver is there, but shows no GPU (lost from the bus, or not passed to this container)"
            self._stop()  # it counts its GPUs when it is started
            self._retry_at = now + RETRY_S
        self._devices = [nvml_sampler.Device(index, self._energy_s) for index in range(count)]

    def _stop(self) -> None:
        self._started = False
        self._devices = []
        free = True
        if self._xid_thread is not None:
            self._xid_thread.join(XID_WAIT_S + 1.0)
            free = not self._xid_thread.is_alive()
            self._xid_thread = None
        nvml_library.stop(unload=free)

    def _rows(self, now: float) -> List[Dict[str, Any]]:
        for device in self._devices:
            self.asking = device.index
            device.sample(now)
        self.asking = None
        if any("error" not in device.row for device in self._devices):
            self._answered_at = now
        elif now - self._answered_at > ALL_FAILED_S:
            # after a reset of the GPUs the library may need to start anew, though it doesn't say so
            self._answered_at = now
            rows = self._with_processes(now)
            before = self._devices
            self._stop()
            self._start(now)
            if len(before) == len(self._devices):  # else they are numbered otherwise now
                for old, new in zip(before, self._devices):
                    new.recognise(old)
            return rows
        if self._xid_thread is None:
            self._xid_thread = threading.Thread(target=self._wait_for_xids, args=(self._devices,), name="xids", daemon=True)
            self._xid_thread.start()
        return self._with_processes(now)

    def _with_processes(self, now: float) -> List[Dict[str, Any]]:
        seen = {pid for device in self._devices for pid in device.pids}
        facts = {pid: self._processes.facts(pid, now) for pid in seen}
        for pid, known in facts.items():
            if "name" not in known:
                known["name"] = name_of((nvml_library.process_name(pid) or "").encode("utf-8", "replace"))
        self._find_engine(facts)
        kin = self._family.kin  # once: all rows are judged by the same look
        rows = []
        for device in self._devices:
            row = dict(device.row)
            if device.pids:
                row["processes"] = [
                    dict(
                        facts[pid],
                        pid=pid,
                        engine=_is_engine(kin, pid, facts[pid], self._family.titles),
                        memory_mib=memory,
                    )
                    for pid, memory in sorted(device.pids.items())
                ]
            rows.append(row)
        self._family.used = frozenset(seen)
        return rows

    def _find_engine(self, facts: Dict[int, Dict[str, Any]]) -> None:
        self._titled = {pid for pid, known in facts.items() if known.get("name", "").startswith(self._family.titles)}

    @property
    def engine(self) -> AbstractSet[int]:
        """Return the engine's processes, as far as they are known."""
        kin = self._family.kin
        return self._titled if kin is None else kin.family

    def _wait_for_xids(self, devices: List[nvml_sampler.Device]) -> None:
        events: Optional[nvml_library.XidWatch] = None
        while devices is self._devices:
            try:
                events = events or nvml_library.XidWatch()
                events.register(devices)
            except nvml_library.Unavailable:
                return
            except NVMLError as error:
                if error.value in NEVER:
                    return
                time.sleep(XID_WAIT_S)
                continue
            event = events.wait(XID_WAIT_S)
            if event is not None:
                self._xids = [*self._xids, event][-XIDS_KEPT:]
                self.changed.set()

    def _measure_pcie(self) -> None:
        # one GPU in turn, after the frame is out: a measurement takes 40 ms, and 0.6 of processor time
        now = time.monotonic()
        if not self._devices or now < self._pcie_due:
            return
        self._pcie_due = now + PCIE_S
        self._pcie_turn += 1
        device = self._devices[self._pcie_turn % len(self._devices)]
        self.asking = device.index
        self.asking_since = now
        device.measure_pcie()
        self.asking_since = None


def play(arguments: Dict[str, Any], link: Link) -> None:
    Become(arguments, link).take_over()
    family = Family(Processes(), in_container(), arguments.get("titles") or ())
    family.tell(_pids(arguments.get("pids")), time.monotonic())
    gpus = GpuWatch(link, _hz(arguments.get("hz")), family, _energy_s(arguments.get("energy_s")))
    machine = Machine(arguments.get("paths") or [])
    threading.Thread(target=gpus.run, name="gpus", daemon=True).start()
    machine_due = time.monotonic()
    late_due = 0.0
    while True:
        request = link.request(max(0.0, machine_due - time.monotonic()))
        if request is not None and request.get("do") == "set":
            if "hz" in request:
                gpus.interval = 1.0 / _hz(request["hz"])
            if "pids" in request:
                # at once: a sample before the look would take the engine's processes for somebody else's
                family.tell(_pids(request["pids"]), time.monotonic())
            if "paths" in request:
                machine = Machine(request["paths"] or [])
            gpus.changed.set()
        now = time.monotonic()
        family.look_if_due(now)
        since = gpus.asking_since
        if since is not None and now - since > max(LATE_S, 2 * gpus.interval) and now >= late_due:
            late_due = now + 1.0
            link.send(_late(gpus, now - since))
        if now >= machine_due:
            machine_due = max(machine_due + max(MACHINE_S, gpus.interval), now)
            frame: Dict[str, Any] = {"f": "machine"}
            frame.update(wall_and_mono())
            frame.update(machine.sample(now))
            read = bytes_read(gpus.engine)
            if read is not None:
                frame["engine_read_bytes"] = read
            if not link.outlet_blocked():
                link.send(frame)


def _is_engine(kin: Optional[Kin], pid: int, facts: Dict[str, Any], titles: Tuple[str, ...]) -> Optional[bool]:
    if kin is not None:
        return kin.has(pid)
    return True if facts.get("name", "").startswith(titles) else None


def _late(gpus: GpuWatch, seconds: float) -> Dict[str, Any]:
    asking, last = gpus.asking, gpus.last
    which = "" if asking is None else " (GPU %d was asked)" % asking
    frame: Dict[str, Any] = {"f": "gpus", "source": "none", "gpus": []}
    frame.update(wall_and_mono())
    if last is not None:  # its stamps, too: the values are no newer
        frame["age_s"] = round(frame["mono"] - last["mono"], 1)
        frame.update(last)
    frame["xids"] = gpus.xids  # what explains the silence arrives during it
    frame["late"] = True
    frame["late_s"] = round(seconds, 1)
    values = "these are its last values" if frame["gpus"] else "it has reported no GPU so far"
    frame["note"] = "the NVIDIA driver has not answered for %.0f s%s; %s" % (seconds, which, values)
    return frame


def _energy_s(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return min(nvml_sampler.ENERGY_S, max(MACHINE_S, float(value)))
    return nvml_sampler.ENERGY_S


def _hz(value: Any) -> float:
    try:
        hz = float(value)
    except (TypeError, ValueError):
        hz = 2.0
    return min(max(hz, HZ_LIMITS[0]), HZ_LIMITS[1])


def _pids(value: Any) -> Optional[List[int]]:
    return [int(pid) for pid in value] if isinstance(value, list) else None
