"""What the shipped sampler costs on a GPU host: processor time of its process, with eight GPUs of the simulated library.

    python tests/benchmarks/probe.py [SECONDS] [GPUS]

The library answers from memory, so what is measured is Python's part and the frames; a real driver's calls come on top (measured on
an H200: microseconds each, but for the energy counter, which is read every two minutes). Calls are counted by a second run, with
pynvml wrapped.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tui.probe.boot import BOOT, opening
from tui.simulator import installed
from tui.simulator.nvml import scenario_file

WORKER_MIB = 96_733


def rows(count: int, pids: list[int]) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "uuid": f"GPU-{index:08x}",
            "name": "NVIDIA H100 80GB HBM3",
            "pci": f"00000000:{index + 16:02X}:00.0",
            "memory_used_mib": WORKER_MIB,
            "memory_total_mib": 97_887,
            "utilisation": 99,
            "memory_utilisation": 61,
            "temperature_c": 61,
            "power_w": 650.5,
            "power_limit_w": 700,
            "sm_clock_mhz": 1785,
            "sm_clock_max_mhz": 1980,
            "memory_clock_mhz": 2619,
            "throttle": [],
            "performance_state": "P0",
            "pcie_generation": 5,
            "pcie_generation_max": 5,
            "pcie_width": 16,
            "pcie_width_max": 16,
            "nvlinks_up": 18,
            "nvlinks_total": 18,
            "ecc_corrected": 0,
            "ecc_uncorrected": 0,
            "energy_j": 1e6,
            "pcie_rx_mb_s": 900,
            "pcie_tx_mb_s": 400,
            "processes": [{"pid": pids[index % len(pids)], "memory_mib": WORKER_MIB - 6}],
        }
        for index in range(count)
    ]


def processor_s(pid: int) -> float:
    """Time on a processor of all threads so far, to the nanosecond."""
    return sum(int(thread.read_bytes().split()[0]) for thread in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def run(hz: float, seconds: float, env: dict[str, str], pids: list[int]) -> tuple[float, float, int]:
    """Share of a core, frames a second, bytes a second, once the start is over."""
    with subprocess.Popen(
        [sys.executable, "-I", "-c", BOOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **env}
    ) as probe:
        assert probe.stdin is not None
        assert probe.stdout is not None
        probe.stdin.write(opening({"role": "watch", "hz": hz, "pids": pids, "paths": ["/"]}))
        probe.stdin.flush()
        over = threading.Event()

        def beat() -> None:
            while not over.wait(1.0) and probe.stdin is not None:
                probe.stdin.write(b'{"do":"beat"}\n')
                probe.stdin.flush()

        threading.Thread(target=beat, daemon=True).start()
        began: tuple[float, float] | None = None
        frames = size = 0
        first = time.monotonic()
        for line in probe.stdout:
            now = time.monotonic()
            if began is None and now - first > 3.0:
                began, frames, size = (now, processor_s(probe.pid)), 0, 0
            frames += json.loads(line).get("f") == "gpus"
            size += len(line)
            if began is not None and now - began[0] >= seconds:
                share = (processor_s(probe.pid) - began[1]) / (now - began[0])
                over.set()
                probe.kill()
                return share, frames / (now - began[0]), round(size / (now - began[0]))
    raise RuntimeError("the sampler ended")


def calls(count: int, env: dict[str, str], hz: float, seconds: float) -> Counter[str]:
    """NVML calls of so many seconds, by name."""
    os.environ.update(env)
    import ctypes

    import pynvml

    seen: Counter[str] = Counter()

    def counted(name: str, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            seen[name] += 1
            return function(*arguments)

        return call

    pynvml.nvmlLib = ctypes.CDLL(env["LD_LIBRARY_PATH"] + "/" + installed.NAME)
    pynvml.nvmlInit()
    for name in [name for name in dir(pynvml) if name.startswith("nvmlDevice")]:
        setattr(pynvml, name, counted(name, getattr(pynvml, name)))
    from tui.probe.nvml_sampler import Device

    devices = [Device(index) for index in range(count)]
    now = 0.0
    while now < seconds:
        for device in devices:
            device.sample(now)
        now += 1.0 / hz
    return seen


def main(seconds: float = 60.0, count: int = 8) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not installed.install_library(folder / "lib"):
            sys.exit("there is no C compiler")
        workers = [subprocess.Popen(["sleep", "infinity"]) for _ in range(count)]
        try:
            env = {"LD_LIBRARY_PATH": str(folder / "lib"), scenario_file.VARIABLE: str(folder / "scenario")}
            pids = [worker.pid for worker in workers]
            print(f"{'GPUs':>4} {'Hz':>4} {'of a core':>10} {'frames/s':>9} {'bytes/s':>9}")
            for gpus, hz in ((0, 2.0), (1, 2.0), (count, 2.0), (count, 10.0)):
                scenario_file.write(folder / "scenario", rows(gpus, pids))
                share, frames, size = run(hz, seconds, env, pids)
                print(f"{gpus:>4} {hz:>4g} {share:>10.2%} {frames:>9.1f} {size:>9,}", flush=True)
            scenario_file.write(folder / "scenario", rows(count, pids))
            for hz in (2.0, 10.0):
                seen = calls(count, env, hz, 60.0)
                print(f"{sum(seen.values()) / 60:,.0f} NVML calls a second at {hz:g} Hz: ", end="")
                print(", ".join(f"{name.removeprefix('nvmlDeviceGet')} {n / 60:.1f}" for name, n in seen.most_common(9)))
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0, int(sys.argv[2]) if len(sys.argv) > 2 else 8)
