"""GPUs as NVIDIA's management library tells them, through pynvml (its source travels with the probe).

Facts are asked at the pace at which they change, so that sampling eight GPUs twice a second costs a few milliseconds of processor
time a second: memory, utilisation and power every time, the rest at the periods below. Each row of a frame has all of them, the
last ones known.

Memory is nvmlMemory_v2, which agrees with nvidia-smi: the first version of the call counts the driver's reserve as used.
"""

import time
from typing import Any, Dict, List, Optional, Tuple

import pynvml

from tui.probe.nvml_library import NEVER, Calls, DriverGone, error_words, raise_if_lost, text

MIB = 1 << 20

IDENTITY = ("index", "uuid", "name", "pci")
CHANGE_MIB = 64
OFTEN_S = 2.0  # temperature, clocks, throttling, processes
COUNTERS_S = 10.0  # errors, the PCIe link, fan, MIG instances
RARELY_S = 60.0  # limits, NVLink, remapped rows, retired pages
ENERGY_S = 120.0  # one call takes 4 ms of processor time on an H200, where the others take microseconds; a benchmark asks for more
NVLINKS = 18  # NVML_NVLINK_MAX_LINKS of the drivers so far

# nvmlClocksEventReason* (called nvmlClocksThrottleReason* before driver 535) in words; an idle GPU and set application clocks are
# no throttling
THROTTLE_WORDS = (
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "thermal slowdown"),
    (0x40, "hardware thermal slowdown"),
    (0x80, "power brake"),
)

_FIELDS = (
    (pynvml.NVML_FI_DEV_MEMORY_TEMP, "memory_temperature_c"),
    (pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL, "ecc_corrected"),
    (pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL, "ecc_uncorrected"),
    (pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, "nvlink_crc"),
    (pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, "nvlink_replay"),
    (pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, "nvlink_recovery"),
)
_RETIREMENT_CAUSES = (
    pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
    pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
)
_PCIE_IDS = (pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES)
PCIE_GAP_S = 0.04
"""Between two readings of the byte counters: they have 32 bits, which the fastest links fill in 60 ms."""
_FIELD_IDS = tuple(number for number, _ in _FIELDS)


def mib(size: int) -> int:
    """Return bytes as nvidia-smi prints them: a part of a MiB counts as one (seen on driver 580: 1572.8 as 1573, 615.06 as 616)."""
    return -(-size // MIB)


class Device:
    """One GPU. `row` is what a frame says of it."""

    def __init__(self, index: int, energy_s: float = ENERGY_S) -> None:
        self.index = index
        self.energy_s = energy_s
        self.row: Dict[str, Any] = {"index": index}
        self.pids: Dict[int, Optional[int]] = {}
        """Processes on it and their memory in MiB."""
        self.calls = Calls(index)
        self._ask = self.calls.ask
        self._due: Dict[str, float] = {}
        self._instances: List[Tuple[Any, Dict[str, Any]]] = []
        self._level: Optional[Tuple[int, float]] = None

    def recognise(self, earlier: "Device") -> None:
        """Take over the identity of the same GPU from before the library was started anew."""
        self.row.update({key: earlier.row[key] for key in IDENTITY if key in earlier.row})

    def _is_due(self, what: str, period: float, now: float) -> bool:
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + period - 0.01  # a tick that comes a little early still counts
        return True

    def _set(self, **values: Any) -> None:
        for key, value in values.items():
            if value is None:
                self.row.pop(key, None)
            else:
                self.row[key] = value

    def sample(self, now: float) -> Dict[str, Any]:
        """Return the row at `now` (monotonic). A GPU that can't be read keeps its identity and says why in "error"."""
        self.calls.failed = ""
        try:
            if self.calls.handle is None:
                self._attach()
            self._fast(now)
            if self._is_due("rarely", RARELY_S, now):
                self._rarely()
            if self._is_due("often", OFTEN_S, now):
                self._often()
            if self._is_due("counters", COUNTERS_S, now):
                self._counters()
                self._find_instances()
            if self._is_due("energy", self.energy_s, now):
                energy = self._ask("nvmlDeviceGetTotalEnergyConsumption")
                if energy is None:
                    self._set(energy_j=None, energy_at=None)
                else:
                    self._set(energy_j=energy / 1000.0, energy_at=round(time.monotonic(), 3))
            if self._instances:
                self._mig_memory()
        except pynvml.NVMLError as error:
            self._lose(error_words(error))
            return self.row
        if self.calls.failed and "memory_used_mib" not in self.row:
            self.row["error"] = self.calls.failed
        else:
            self.row.pop("error", None)
            self._set(unread=self.calls.unread)
        return self.row

    def _lose(self, why: str) -> None:
        self.row = {key: self.row[key] for key in IDENTITY if key in self.row}
        self.row["error"] = why
        self.pids = {}
        self.calls.lose()
        self._due = {}
        self._level = None
        self._instances = []

    def _attach(self) -> None:
        self.calls.attach()
        pci = self._ask("nvmlDeviceGetPciInfo")
        name = self._ask("nvmlDeviceGetName")
        uuid = self._ask("nvmlDeviceGetUUID")
        self._set(
            pci=text(pci.busId) if pci is not None else None,
            name=text(name) if name is not None else None,
            uuid=text(uuid) if uuid is not None else None,
        )

    def _note_change(self, used: int, now: float) -> None:
        """Note how long memory has been still; a context's own jitter of a few MiB is no change."""
        if self._level is None or abs(used - self._level[0]) >= CHANGE_MIB:
            self._level = (used, now)
        self.row["memory_still_s"] = round(now - self._level[1], 1)

    def _fast(self, now: float) -> None:
        memory = self._ask("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2)
        if memory is None and not self.calls.failed:
            memory = self._first_memory_call()
        if memory is None:
            self._set(memory_used_mib=None, memory_total_mib=None, memory_still_s=None)
        else:
            self._set(memory_used_mib=mib(memory.used), memory_total_mib=mib(memory.total))
            self._note_change(mib(memory.used), now)
        use = self._ask("nvmlDeviceGetUtilizationRates")
        self._set(utilisation=use.gpu if use is not None else None, memory_utilisation=use.memory if use is not None else None)
        power = self._ask("nvmlDeviceGetPowerUsage")
        self._set(power_w=round(power / 1000.0, 1) if power is not None else None)

    def _first_memory_call(self) -> Any:
        """Ask by the first version of the call: drivers before 510 have no second, and their nvidia-smi counts as this one does."""
        try:
            return pynvml.nvmlDeviceGetMemoryInfo(self.calls.handle)
        except pynvml.NVMLError as error:
            raise_if_lost(error)
            if error.value not in NEVER:  # a GPU that shares the host's memory tells none of its own
                self.calls.failed = error_words(error)
            return None

    def _often(self) -> None:
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        state = self._ask("nvmlDeviceGetPerformanceState")
        self._processes()
        self._set(
            temperature_c=self._ask("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU),
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._ask("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM),
            throttle=[words for bit, words in THROTTLE_WORDS if reasons & bit] if reasons is not None else None,
            performance_state="P%d" % state if state is not None and state < 32 else None,
        )

    def _rarely(self) -> None:
        limit = self._ask("nvmlDeviceGetEnforcedPowerLimit")
        if limit is None:
            limit = self._ask("nvmlDeviceGetPowerManagementLimit")
        rows = self._ask("nvmlDeviceGetRemappedRows")
        # GPUs before Ampere have these instead
        pages = [self._ask("nvmlDeviceGetRetiredPages", cause) for cause in _RETIREMENT_CAUSES]
        waiting = self._ask("nvmlDeviceGetRetiredPagesPendingStatus")
        up, total = self._nvlinks()
        self._set(
            power_limit_w=limit / 1000.0 if limit is not None else None,
            sm_clock_max_mhz=self._ask("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_SM),
            memory_clock_max_mhz=self._ask("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_MEM),
            pcie_generation_max=self._ask("nvmlDeviceGetMaxPcieLinkGeneration"),
            pcie_width_max=self._ask("nvmlDeviceGetMaxPcieLinkWidth"),
            remapped_rows=rows[0] + rows[1] if rows is not None else None,
            row_remap_pending=bool(rows[2]) if rows is not None else None,
            row_remap_failed=bool(rows[3]) if rows is not None else None,
            retired_pages=sum(len(some) for some in pages if some is not None) if any(some is not None for some in pages) else None,
            page_retirement_pending=bool(waiting) if waiting is not None else None,
            nvlinks_up=up,
            nvlinks_total=total,
        )

    def _nvlinks(self) -> Tuple[Optional[int], Optional[int]]:
        """Return the number of links that are up, and of all links."""
        up = total = 0
        for link in range(NVLINKS):
            try:
                up += pynvml.nvmlDeviceGetNvLinkState(self.calls.handle, link)
                total += 1
            except pynvml.NVMLError as error:
                raise_if_lost(error)
                break
        return (up, total) if total else (None, None)

    def _counters(self) -> None:
        self._set(
            fan_percent=self._ask("nvmlDeviceGetFanSpeed"),
            pcie_generation=self._ask("nvmlDeviceGetCurrPcieLinkGeneration"),
            pcie_width=self._ask("nvmlDeviceGetCurrPcieLinkWidth"),
        )
        answers = self._ask("nvmlDeviceGetFieldValues", _FIELD_IDS)
        if answers is None:
            return
        values = {}
        for (_, name), answer in zip(_FIELDS, answers):
            if answer.nvmlReturn == pynvml.NVML_SUCCESS:
                values[name] = _field(answer)
        errors = [values[name] for name in ("nvlink_crc", "nvlink_replay", "nvlink_recovery") if name in values]
        self._set(
            memory_temperature_c=values.get("memory_temperature_c") or None,  # 0 if the board has no sensor
            ecc_corrected=values.get("ecc_corrected"),
            ecc_uncorrected=values.get("ecc_uncorrected"),
            nvlink_errors=sum(errors) if errors and self.row.get("nvlinks_total") else None,
        )

    def measure_pcie(self) -> None:
        """Measure PCIe traffic over some 40 ms, from the byte counters if there are some.

        Otherwise the driver measures, which costs three times as much.
        """
        if self.calls.handle is None:
            return
        try:
            traffic = self._counted_pcie() or self._measured_pcie()
        except (pynvml.NVMLError, DriverGone):  # the next sample meets it again, and says so
            return
        self._set(pcie_rx_mb_s=traffic[0], pcie_tx_mb_s=traffic[1])

    def _counted_pcie(self) -> Optional[Tuple[float, float]]:
        began = time.monotonic()
        first = self._ask("nvmlDeviceGetFieldValues", _PCIE_IDS)
        if first is None or any(answer.nvmlReturn != pynvml.NVML_SUCCESS for answer in first):
            self.calls.give_up("nvmlDeviceGetFieldValues", _PCIE_IDS)
            return None
        time.sleep(PCIE_GAP_S)
        second = self._ask("nvmlDeviceGetFieldValues", _PCIE_IDS)
        seconds = time.monotonic() - began
        if second is None or any(answer.nvmlReturn != pynvml.NVML_SUCCESS for answer in second):
            return None
        gained = [(_field(after) - _field(before)) % (1 << 32) for before, after in zip(first, second)]
        return (round(gained[0] / seconds / 1e6, 1), round(gained[1] / seconds / 1e6, 1))

    def _measured_pcie(self) -> Tuple[Optional[float], Optional[float]]:
        # in KB of 1,000 bytes, as a comparison with the counters shows
        rx = self._ask("nvmlDeviceGetPcieThroughput", pynvml.NVML_PCIE_UTIL_RX_BYTES)
        tx = self._ask("nvmlDeviceGetPcieThroughput", pynvml.NVML_PCIE_UTIL_TX_BYTES)
        return (rx / 1e3 if rx is not None else None, tx / 1e3 if tx is not None else None)

    # -- processes and MIG ---------------------------------------------------------------------------------------------------------

    def _processes(self) -> None:
        found: Dict[int, Optional[int]] = {}
        self._list(self.calls.handle, found)
        for handle, _ in self._instances:
            self._list(handle, found)
        self.pids = found

    def _list(self, handle: Any, found: Dict[int, Optional[int]]) -> None:
        for name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
            if not self.calls.answers(name):
                continue
            try:
                running = getattr(pynvml, name)(handle)
            except pynvml.NVMLError as error:
                raise_if_lost(error)
                if error.value in NEVER and handle is self.calls.handle:
                    self.calls.give_up(name)
                continue
            for process in running:
                memory = process.usedGpuMemory
                held = mib(memory) if memory is not None else None
                known = found.get(process.pid)
                found[process.pid] = held if known is None else max(known, held or 0)

    def _find_instances(self) -> None:
        mode = self._ask("nvmlDeviceGetMigMode")
        self._instances = []
        if mode is None or mode[0] != 1:
            self.row.pop("mig", None)
            return
        for number in range(self._ask("nvmlDeviceGetMaxMigDeviceCount") or 0):
            try:
                handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(self.calls.handle, number)
                row = {"name": text(pynvml.nvmlDeviceGetName(handle)), "uuid": text(pynvml.nvmlDeviceGetUUID(handle))}
            except pynvml.NVMLError as error:
                raise_if_lost(error)
                continue
            self._instances.append((handle, row))
        self.row["mig"] = [row for _, row in self._instances]

    def _mig_memory(self) -> None:
        for handle, row in self._instances:
            try:
                memory = pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
            except pynvml.NVMLError as error:
                raise_if_lost(error)
                self._due["counters"] = 0.0  # instances were made or destroyed: look again
                row.pop("memory_used_mib", None)
                continue
            row["memory_used_mib"] = mib(memory.used)
            row["memory_total_mib"] = mib(memory.total)


def _field(answer: Any) -> Any:
    """Return the member of NVML's union that the type names (nvmlValueType_t)."""
    names = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    return getattr(answer.value, names[answer.valueType]) if answer.valueType < len(names) else 0
