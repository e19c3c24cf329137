"""The document of `status --json`."""

import json

from msgspec.structs import replace

from tui.cli.status import status_lines, table
from tui.core.api_status import ApiStatus, Reach, ServedModel
from tui.core.connection import ConnectionState, LinkState
from tui.core.deployment import DeploymentState, HostSeen, ServerSeen
from tui.core.deployment_status import exit_code_of
from tui.core.gpu import Gpu, GpuProcess, GpuSample, Xid
from tui.core.host_machine import MachineSample
from tui.core.snapshot import snapshot

FURTHER = GpuSample(gpus=(Gpu(index=0, name="NVIDIA H200", memory_used_mib=100.0, memory_total_mib=1000.0),), source="nvml")
TWO_HOSTS = DeploymentState(
    "kimi",
    "gpu-a",
    ConnectionState(LinkState.ONLINE, "gpu-a"),
    others=(
        HostSeen("gpu-b", ConnectionState(LinkState.ONLINE, "gpu-b", round_trip_ms=3.0), FURTHER),
        HostSeen("gpu-c", ConnectionState(LinkState.UNREACHABLE, "gpu-c", cause="no route to gpu-c", advice="is the VPN up?")),
    ),
)


def test_times_and_addresses_as_programs_read_them() -> None:
    servers = (
        ServerSeen(7, "vllm", where=8000, started_at=1_764_000_000.25),
        ServerSeen(8, "sglang", where="/run/s.sock"),
        ServerSeen(9, "vllm"),
    )
    state = DeploymentState("kimi", "gpu-a", servers=servers, machine=MachineSample(cores=2, wall=1_764_000_000.0))
    document = json.loads(json.dumps(snapshot(state, 0.0)))
    assert [(server["port"], server["uds"], server["started_at"]) for server in document["servers"]] == [
        (8000, None, "2025-11-24T16:00:00+00:00"),
        (None, "/run/s.sock", None),
        (None, None, None),
    ]
    assert not any("where" in server for server in document["servers"])
    assert (document["machine"]["wall"], document["machine"]["cores"]) == ("2025-11-24T16:00:00+00:00", 2)


def test_further_hosts_in_the_document() -> None:
    first, second = json.loads(json.dumps(snapshot(TWO_HOSTS, 0.0)))["others"]
    assert (first["host"], first["connection"]["link"], first["connection"]["round_trip_ms"]) == ("gpu-b", "online", 3.0)
    assert [gpu["memory_used_mib"] for gpu in first["gpus"]] == [100.0]
    assert first["gpu_source"]["source"] == "nvml"
    assert (second["host"], second["gpus"], second["gpu_source"]) == ("gpu-c", [], None)
    assert second["connection"]["cause"] == "no route to gpu-c"


def test_values_that_are_old_say_so() -> None:
    """A hung driver repeats its last values: nothing is concluded of evenness from them."""
    full = tuple(
        Gpu(
            index,
            memory_used_mib=96_733.0,
            memory_total_mib=97_887.0,
            processes=(GpuProcess(index, "", None, True, f"TP{index}", parent=1),),
        )
        for index in range(8)
    )
    now = GpuSample(full, "nvml", received_at=100.0, xids=(Xid(3, 119, 1_764_000_000.0, "GSP error"),))
    hosts = (HostSeen("gpu-b", gpus=now), HostSeen("gpu-c", gpus=replace(now, late=True)))
    document = json.loads(json.dumps(snapshot(DeploymentState("kimi", "gpu-a", gpus=now, others=hosts), 102.0)))
    hosts_told = [document, *document["others"]]
    assert [host["uniform"] for host in hosts_told] == [True, True, None]
    assert [host["gpu_source"]["late"] for host in hosts_told] == [False, False, True]
    assert [host["gpu_source"]["age_s"] for host in hosts_told] == [2.0, 2.0, 2.0]
    assert [host["headroom"]["free_mib"] for host in hosts_told] == [1154.0] * 3
    assert document["xids"] == [{"gpu": 3, "code": 119, "at": "2025-11-24T16:00:00+00:00", "meaning": "GSP error"}]


def test_a_rank_short_of_memory_is_told_by_the_first_sample_of_a_ready_server() -> None:
    """`status` sees a second or two: too short to know how long memory has been still."""
    gpus = tuple(
        Gpu(
            index,
            memory_used_mib=91_000.0 if index == 5 else 96_733.0,
            memory_total_mib=97_887.0,
            memory_still_s=0.5,
            processes=(GpuProcess(index, "", None, True, f"TP{index}", parent=1),),
        )
        for index in range(8)
    )
    state = DeploymentState("kimi", "gpu-a", gpus=GpuSample(gpus, "nvml"))
    assert (snapshot(state, 0.0)["uniform"], snapshot(state, 0.0)["odd"]) == (None, [])
    ready = replace(state, api=ApiStatus(reach=Reach.UP, health=200, models=(ServedModel("kimi"),)))
    assert (snapshot(ready, 0.0)["uniform"], snapshot(ready, 0.0)["odd"]) == (False, [5])


def test_further_hosts_for_a_person() -> None:
    text = "\n".join(status_lines(TWO_HOSTS))
    assert "host  gpu-b  online  3 ms" in text
    assert "0 NVIDIA H200  100 of 1,000 MiB 10.0 %" in text
    assert "gpu-c  unreachable" in text
    assert "no route to gpu-c: is the VPN up?" in text


def test_further_hosts_in_the_table() -> None:
    assert list(table([TWO_HOSTS]))[1:] == [
        "kimi        WAITING      gpu-a  —          —",
        "            ONLINE       gpu-b  1 at 10 %",
        "            UNREACHABLE  gpu-c  —          no route to gpu-c",
    ]


def test_a_configuration_that_does_not_hold_is_no_refusal() -> None:
    state = DeploymentState("kimi", "gpu-a", misconfigured="api_key_env names X, but it is not set")
    document = snapshot(state, 0.0)
    assert (document["status"], document["misconfigured"]) == ("misconfigured", "api_key_env names X, but it is not set")
    assert exit_code_of(state) == 2
    assert list(table([state]))[1] == "kimi        BAD CONFIG  gpu-a  —     api_key_env names X, but it is not set"
