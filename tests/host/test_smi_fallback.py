"""A host without Python: nvidia-smi is asked instead, through a real shell of this machine."""

import asyncio
import os
from pathlib import Path

import pytest
from sshd import eventually

from tui.core.gpu import GpuSample
from tui.host.local import LocalHost
from tui.services.other_hosts import OtherHost
from tui.services.smi_stream import sample_smi
from tui.simulator import installed
from tui.simulator.nvml import scenario_file


@pytest.mark.skipif(Path("/usr/bin/nvidia-smi").exists(), reason="this machine has an nvidia-smi of its own")
@pytest.mark.parametrize("broken", [False, True])
async def test_samples_with_processes_and_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool) -> None:
    installed.install_smi(tmp_path)
    gpu = {"uuid": "GPU-1", "name": "H100", "memory_used_mib": 90_000, "memory_total_mib": 97_887}
    rows = [
        {
            **gpu,
            "index": rank,
            "uuid": f"GPU-{rank}",
            "processes": [{"pid": 10 + rank, "name": f"VLLM::Worker_TP{rank}", "memory_mib": 1}],
        }
        for rank in range(2)
    ]
    scenario_file.write(tmp_path / "scenario", rows, init="driver not loaded" if broken else 0)
    monkeypatch.setenv(scenario_file.VARIABLE, str(tmp_path / "scenario"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    seen: list[GpuSample] = []
    async with LocalHost() as host:
        await host.connect()
        sampling = asyncio.create_task(sample_smi(host, seen.append, note="no Python there", seconds=0.0 if broken else 60.0))
        if broken:
            async with asyncio.timeout(20):
                await sampling
        else:
            await eventually(lambda: any(sample.gpus and sample.gpus[0].processes for sample in seen), seconds=20, what="a sample")
            sampling.cancel()
            await asyncio.wait([sampling])
    found = seen[-1]
    if broken:
        assert len(seen) == 1
        assert found.source == "none"
        assert (found.note or "").startswith("NVIDIA-SMI has failed")
        assert (found.note or "").endswith("; no Python there")
    else:
        assert (found.source, found.note) == ("nvidia-smi", "no Python there")
        assert [[process.rank for process in gpu.processes] for gpu in found.gpus] == [["TP0"], ["TP1"]]


@pytest.mark.skipif(Path("/usr/bin/nvidia-smi").exists(), reason="this machine has an nvidia-smi of its own")
async def test_a_further_host_without_nvml_is_asked_through_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed.install_smi(tmp_path)
    scenario_file.write(
        tmp_path / "scenario", [{"index": 0, "uuid": "GPU-1", "memory_used_mib": 90_000, "memory_total_mib": 97_887}]
    )
    monkeypatch.setenv(scenario_file.VARIABLE, str(tmp_path / "scenario"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    seen: list[GpuSample] = []
    other = OtherHost(LocalHost(), "gpu-2", hz=10.0)
    watching = asyncio.create_task(other.run(lambda host: seen.append(host.gpus or GpuSample())))
    await eventually(
        lambda: sum(1 for sample in seen if sample.source == "nvidia-smi") > 1, seconds=20, what="samples of nvidia-smi"
    )
    watching.cancel()
    await asyncio.wait([watching])
    asked = next(number for number, sample in enumerate(seen) if sample.source == "nvidia-smi")
    assert {sample.source for sample in seen[asked:]} == {"nvidia-smi"}  # the probe's empty samples no longer hide it
    assert (seen[-1].gpus[0].memory_used_mib, seen[-1].note) == (90_000, "NVML can't be loaded here: values come from nvidia-smi")
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
