"""The simulated host's `nvidia-smi`: the usual forms, printed as driver 580 prints them, out of the scenario file.

nvidia-smi [-l S | -lms MS] [-i N,…]        nvidia-smi -L        nvidia-smi -q        nvidia-smi --version
nvidia-smi --query-gpu=… | --query-compute-apps=… --format=csv[,noheader][,nounits] [-l S | -lms MS] [-i N,…]
"""

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tui.simulator.nvml.scenario_file import VARIABLE, DriverScenario, SimulatedGpu, read

NOT_THERE = "[N/A]"
BROKEN = "ERR!"
LOST = 15
MODEL_ERRORS = {LOST: "[GPU is lost]", 16: "[GPU requires reset]", 4: "[Insufficient Permissions]"}
START_ERRORS = {
    9: (
        9,
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
        "Make sure that the latest NVIDIA driver is installed and running.\n",
    ),
    18: (18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.159"),
    4: (4, "Failed to initialize NVML: Insufficient Permissions"),
    999: (255, "Failed to initialize NVML: Unknown Error"),
}

Cell = Callable[[SimulatedGpu, DriverScenario], str | None]


def _number(key: str, places: int = 0) -> Cell:
    def cell(gpu: SimulatedGpu, scenario: DriverScenario) -> str | None:
        value = gpu.values.get(key)
        return None if value is None else BROKEN if math.isnan(value) else f"{value:.{places}f}"

    return cell


def _word(key: str) -> Cell:
    return lambda gpu, scenario: gpu.words.get(key)


def _state(gpu: SimulatedGpu, scenario: DriverScenario) -> str | None:
    return f"P{gpu.values['performance_state']:.0f}" if "performance_state" in gpu.values else None


def _reasons(gpu: SimulatedGpu, scenario: DriverScenario) -> str | None:
    return f"0x{int(gpu.values['throttle']):016x}" if "throttle" in gpu.values else None


def _free(gpu: SimulatedGpu, scenario: DriverScenario) -> str | None:
    if "memory_total_mib" not in gpu.values or "memory_used_mib" not in gpu.values:
        return None
    values = gpu.values
    return f"{values['memory_total_mib'] - values['memory_used_mib'] - values.get('memory_reserved_mib', 0):.0f}"


# asked name: printed name, unit, value
FIELDS: dict[str, tuple[str, str, Cell]] = {
    "timestamp": ("timestamp", "", lambda gpu, scenario: time.strftime("%Y/%m/%d %H:%M:%S") + f".{time.time() % 1 * 1000:03.0f}"),
    "index": ("index", "", lambda gpu, scenario: str(gpu.index)),
    "count": ("count", "", lambda gpu, scenario: str(len(scenario.gpus))),
    "uuid": ("uuid", "", _word("uuid")),
    "pci.bus_id": ("pci.bus_id", "", _word("pci")),
    "name": ("name", "", _word("name")),
    "driver_version": ("driver_version", "", lambda gpu, scenario: scenario.driver),
    "memory.used": ("memory.used", "MiB", _number("memory_used_mib")),
    "memory.total": ("memory.total", "MiB", _number("memory_total_mib")),
    "memory.free": ("memory.free", "MiB", _free),
    "memory.reserved": ("memory.reserved", "MiB", _number("memory_reserved_mib")),
    "utilization.gpu": ("utilization.gpu", "%", _number("utilisation")),
    "utilization.memory": ("utilization.memory", "%", _number("memory_utilisation")),
    "temperature.gpu": ("temperature.gpu", "", _number("temperature_c")),
    "temperature.memory": ("temperature.memory", "", _number("memory_temperature_c")),
    "power.draw": ("power.draw", "W", _number("power_w", 2)),
    "power.limit": ("power.limit", "W", _number("power_limit_w", 2)),
    "clocks.current.sm": ("clocks.current.sm", "MHz", _number("sm_clock_mhz")),
    "clocks.max.sm": ("clocks.max.sm", "MHz", _number("sm_clock_max_mhz")),
    "clocks.current.memory": ("clocks.current.memory", "MHz", _number("memory_clock_mhz")),
    "clocks.max.memory": ("clocks.max.memory", "MHz", _number("memory_clock_max_mhz")),
    "clocks_event_reasons.active": ("clocks_event_reasons.active", "", _reasons),
    "pstate": ("pstate", "", _state),
    "mig.mode.current": ("mig.mode.current", "", lambda gpu, scenario: "Enabled" if gpu.instances else "Disabled"),
    "pcie.link.gen.current": ("pcie.link.gen.current", "", _number("pcie_generation")),
    "pcie.link.gen.max": ("pcie.link.gen.max", "", _number("pcie_generation_max")),
    "pcie.link.width.current": ("pcie.link.width.current", "", _number("pcie_width")),
    "pcie.link.width.max": ("pcie.link.width.max", "", _number("pcie_width_max")),
    "ecc.errors.corrected.volatile.total": ("ecc.errors.corrected.volatile.total", "", _number("ecc_corrected")),
    "ecc.errors.uncorrected.volatile.total": ("ecc.errors.uncorrected.volatile.total", "", _number("ecc_uncorrected")),
    "fan.speed": ("fan.speed", "%", _number("fan_percent")),
}
ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.max.mem": "clocks.max.memory",
    "clocks_throttle_reasons.active": "clocks_event_reasons.active",
}


class SmiExit(Exception):
    """The end of the run: what is printed last, and the exit status."""

    def __init__(self, status: int, words: str = "") -> None:
        super().__init__(words)
        self.status = status
        self.words = words


def load(listed: list[SimulatedGpu]) -> DriverScenario:
    """Read the scenario as it is now; wait as long as it hangs. Raises SmiExit if the driver can't be asked.

    `listed` are the GPUs that this run has counted, empty before the first time: one that goes away afterwards is lost.
    """
    while True:
        try:
            scenario = read(Path(os.environ[VARIABLE]))
        except (KeyError, OSError):
            status, words = START_ERRORS[9]
            raise SmiExit(status, words) from None
        if not scenario.hang and not any(gpu.hang for gpu in scenario.gpus):
            break
        time.sleep(0.05)
    if scenario.init:
        status, words = START_ERRORS.get(scenario.init, START_ERRORS[999])
        raise SmiExit(status, words)
    if not listed:
        listed += scenario.gpus
    present = {gpu.index: gpu for gpu in scenario.gpus}
    scenario.gpus = [
        replace(present.get(gpu.index) or SimulatedGpu(gpu.index, gpu.words, error=LOST), index=number)
        for number, gpu in enumerate(listed)
    ]
    if not scenario.gpus:
        raise SmiExit(6, "No devices were found")
    return scenario


def chosen(scenario: DriverScenario, which: str | None) -> list[SimulatedGpu]:
    if which is None:
        return scenario.gpus
    wanted = which.split(",")
    found = [gpu for gpu in scenario.gpus if str(gpu.index) in wanted or gpu.words.get("uuid") in wanted]
    if not found:
        raise SmiExit(6, "No devices were found")
    return found


def cell(gpu: SimulatedGpu, scenario: DriverScenario, name: str, units: bool) -> str:
    _, unit, value = FIELDS[name]
    if gpu.error and name not in ("timestamp", "index", "count", "uuid", "pci.bus_id", "name", "driver_version"):
        return MODEL_ERRORS.get(gpu.error, "[Unknown Error]")
    text = value(gpu, scenario)
    if text is None:
        return NOT_THERE
    return f"{text} {unit}" if unit and units and text != BROKEN else text


def query(scenario: DriverScenario, names: Sequence[str], options: Sequence[str], which: str | None, header: bool) -> None:
    units = "nounits" not in options
    if header and "noheader" not in options:
        print(", ".join(FIELDS[name][0] + (f" [{FIELDS[name][1]}]" if FIELDS[name][1] else "") for name in names))
    for gpu in chosen(scenario, which):
        print(", ".join(cell(gpu, scenario, name, units) for name in names))
    sys.stdout.flush()


def applications(scenario: DriverScenario, names: Sequence[str], options: Sequence[str], which: str | None, header: bool) -> None:
    units = "nounits" not in options
    printed = {"used_memory": "used_gpu_memory [MiB]", "used_gpu_memory": "used_gpu_memory [MiB]"}
    if header and "noheader" not in options:
        print(", ".join(printed.get(name, name) for name in names))
    for gpu in chosen(scenario, which):
        for process in gpu.processes:
            values = {
                "pid": str(process.pid),
                "process_name": process.name,
                "name": process.name,
                "gpu_uuid": gpu.words.get("uuid", NOT_THERE),
                "used_memory": NOT_THERE if process.mib < 0 else f"{process.mib:.0f}" + (" MiB" if units else ""),
            }
            values["used_gpu_memory"] = values["used_memory"]
            if not process.graphics:
                print(", ".join(values.get(name, NOT_THERE) for name in names))
    sys.stdout.flush()


def listing(scenario: DriverScenario) -> None:
    for gpu in scenario.gpus:
        if gpu.error:
            why = MODEL_ERRORS.get(gpu.error, "Unknown Error").strip("[]")
            print(f"Unable to determine the device handle for gpu {gpu.words.get('pci')}: {why}")
            continue
        print(f"GPU {gpu.index}: {gpu.words.get('name')} (UUID: {gpu.words.get('uuid')})")
        for number, (_, _, uuid, name) in enumerate(gpu.instances):
            print(f"  {name:<16} Device  {number}: (UUID: {uuid})")


def _three(left: str, middle: str, right: str) -> None:
    print(f"|{left:<41}|{middle:<24}|{right:<22}|")


def table(scenario: DriverScenario, which: str | None) -> None:
    rule = "+-----------------------------------------+------------------------+----------------------+"
    version = f"CUDA Version: {scenario.cuda // 1000}.{scenario.cuda % 1000 // 10}"
    head = f"NVIDIA-SMI {scenario.driver}             Driver Version: {scenario.driver}     {version}"
    print(time.strftime("%a %b %e %H:%M:%S %Y") + "       ")
    print("+" + "-" * 89 + "+")
    print(f"| {head:<87} |")
    print(rule)
    print("| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |")
    print("| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |")
    print("|                                         |                        |               MIG M. |")
    print("|" + rule[1:-1].replace("-", "=") + "|")
    gpus = chosen(scenario, which)
    for gpu in gpus:
        values = gpu.values
        name, pci = gpu.words.get("name", "")[:29], gpu.words.get("pci", "")
        mig = "Enabled" if gpu.instances else "Disabled"
        if gpu.error:
            _three(f" {gpu.index:>3}  {name:<29} ERR! ", f"{pci:>18} ERR! ", f"{'ERR!':>21} ")
            _three(f" ERR! ERR! ERR!{'ERR! / ERR!':>25} ", f"{'ERR! / ERR!':>23} ", f"{'ERR!':>8}{'ERR!':>13} ")
            print(rule)
            continue
        fan = f"{values['fan_percent']:.0f}%" if "fan_percent" in values else "N/A"
        power = f"{values.get('power_w', 0):.0f}W / {values.get('power_limit_w', 0):>4.0f}W"
        memory = f"{values.get('memory_used_mib', 0):.0f}MiB / {values.get('memory_total_mib', 0):>6.0f}MiB"
        state = f"P{values.get('performance_state', 0):.0f}"
        _three(f" {gpu.index:>3}  {name:<29}  On  ", f"{pci:>19} Off ", f"{values.get('ecc_uncorrected', 0):>21.0f} ")
        heat = f"{values.get('temperature_c', 0):>3.0f}C"
        _three(
            f" {fan:>3}  {heat}    {state:<3}{power:>23} ", f"{memory:>23} ", f"{values.get('utilisation', 0):>7.0f}%      Default "
        )
        _three("", "", f"{mig:>21} ")
        print(rule)
    print()
    print("+" + "-" * 89 + "+")
    print("| Processes:" + " " * 78 + "|")
    print("|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |")
    print("|        ID   ID                                                               Usage      |")
    print("|" + "=" * 89 + "|")
    rows = [(gpu.index, process) for gpu in gpus for process in gpu.processes]
    for index, process in rows:
        kind = "G" if process.graphics else "C"
        memory = "N/A" if process.mib < 0 else f"{process.mib:.0f}MiB"
        print(f"| {index:>4}   N/A  N/A {process.pid:>15}      {kind}   {process.name[:36]:<36} {memory:>9} |")
    if not rows:
        print(f"|  {'No running processes found':<86} |")
    print("+" + "-" * 89 + "+")
    sys.stdout.flush()


def details(scenario: DriverScenario, which: str | None) -> None:
    gpus = chosen(scenario, which)
    print("\n==============NVSMI LOG==============\n")
    print(f"{'Timestamp':<50}: {time.strftime('%a %b %e %H:%M:%S %Y')}")
    print(f"{'Driver Version':<50}: {scenario.driver}")
    print(f"{'CUDA Version':<50}: {scenario.cuda // 1000}.{scenario.cuda % 1000 // 10}\n")
    print(f"{'Attached GPUs':<50}: {len(scenario.gpus)}")
    for gpu in gpus:
        print(f"GPU {gpu.words.get('pci')}")
        for title, name in (("Product Name", "name"), ("GPU UUID", "uuid"), ("Performance State", "pstate")):
            print(f"    {title:<46}: {cell(gpu, scenario, name, True)}")
        print("    FB Memory Usage")
        for title, name in (("Total", "memory.total"), ("Used", "memory.used"), ("Free", "memory.free")):
            print(f"        {title:<42}: {cell(gpu, scenario, name, True)}")
    sys.stdout.flush()


def main(words: Sequence[str]) -> int:
    every: float | None = None
    which = asked = kind = None
    options: list[str] = []
    mode = "table"
    rest = list(words)
    while rest:
        word = rest.pop(0)
        key, equals, value = word.partition("=")
        if key in ("-l", "--loop", "-lms", "--loop-ms", "-i", "--id") and not equals:
            value = rest.pop(0) if rest else ""
        match key:
            case "--query-gpu" | "--query-compute-apps":
                kind, asked, mode = key, value, "query"
            case "--format":
                options = value.split(",")
            case "-l" | "--loop":
                every = float(value)
            case "-lms" | "--loop-ms":
                every = float(value) / 1000
            case "-i" | "--id":
                which = value
            case "-L" | "--list-gpus":
                mode = "list"
            case "-q" | "--query":
                mode = "details"
            case "--version":
                mode = "version"
            case _:
                print("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n")
                print(f"Option {word} is not recognized.")
                return 2
    names = [name.strip() for name in (asked or "").split(",")]
    if mode == "query" and "csv" not in options:
        print('"--format=" argument is missing. Please run "nvidia-smi -h" for more information.')
        return 2
    if kind == "--query-gpu":
        names = [ALIASES.get(name, name) for name in names]
        for name in names:
            if name not in FIELDS:
                print(f'Field "{name}" is not a valid field to query.\n')
                return 2
    first = True
    listed: list[SimulatedGpu] = []
    try:
        while True:
            scenario = load(listed)
            match mode:
                case "query":
                    (query if kind == "--query-gpu" else applications)(scenario, names, options, which, first)
                case "list":
                    listing(scenario)
                case "details":
                    details(scenario, which)
                case "version":
                    print(f"NVIDIA-SMI version  : {scenario.driver}\nDRIVER version      : {scenario.driver}")
                case _:
                    table(scenario, which)
            first = False
            if every is None:
                return 0
            time.sleep(every)
    except SmiExit as stop:
        print(stop.words)
        return stop.status


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(1)
