"""Which processes on a GPU are the engine's: real processes, ones that /proc hides, and a server that is started anew."""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from needs import allowed, need
from shipped import ShippedProbe

from tui.core.gpu_frames import gpus_from_frame
from tui.probe.process_table import FAMILY_S, HOST, Family, Processes, in_container
from tui.simulator import installed
from tui.simulator.nvml import scenario_file

HIDDEN = 999_999_999
"""A process that the driver knows and /proc doesn't: of another user under hidepid, or of the host if this is a container."""
OWN_LIST = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]


class Counted(Processes):
    """Counts the looks at /proc."""

    looks = 0

    def family(self, roots: Iterable[int]) -> set[int]:
        self.looks += 1
        return super().family(roots)


def sleeper() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


def end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


def verdicts(family: Family, *pids: int) -> list[bool | None]:
    assert family.kin is not None
    return [family.kin.has(pid) for pid in pids]


@pytest.fixture
def processes() -> Iterator[list["subprocess.Popen[bytes]"]]:
    running = [sleeper(), sleeper()]
    yield running
    for process in running:
        end(process)


@pytest.mark.parametrize(("contained", "is_engine"), [(False, False), (True, None)], ids=["host", "container"])
def test_a_process_that_proc_hides(contained: bool, is_engine: bool | None, processes: list["subprocess.Popen[bytes]"]) -> None:
    server, other = (process.pid for process in processes)
    looked_at = Counted()
    family = Family(looked_at, contained)
    family.tell([server], 0.0)
    family.used = frozenset((server, other, HIDDEN))
    assert verdicts(family, server, other, HIDDEN) == [True, False, None]
    for tenth in range(1, 10):
        family.look_if_due(tenth / 10)
    assert looked_at.looks == 2  # one when it was told, one for the new process on the GPU
    assert verdicts(family, server, other, HIDDEN) == [True, False, is_engine]
    family.look_if_due(1.0 + FAMILY_S)
    assert looked_at.looks == 3
    assert verdicts(family, HIDDEN) == [is_engine]


def test_a_server_that_is_started_anew(processes: list["subprocess.Popen[bytes]"]) -> None:
    server, other = processes
    family = Family(Processes(), False)
    family.tell([server.pid], 0.0)
    end(server)
    engine = sleeper()
    processes.append(engine)
    family.used = frozenset((engine.pid, other.pid, HIDDEN))
    for now in (1.0, FAMILY_S + 1.0, 2 * FAMILY_S + 2.0):
        family.look_if_due(now)
        assert verdicts(family, engine.pid, other.pid, HIDDEN) == [None, False, None]
    family.tell([engine.pid], 20.0)
    assert verdicts(family, engine.pid, other.pid, HIDDEN) == [True, False, False]
    family.tell(None, 21.0)
    assert family.kin is None


@pytest.fixture
def driver(tmp_path: Path) -> dict[str, str]:
    """Return the environment in which the simulated driver is found."""
    need(installed.compiler(), "there is no C compiler")
    installed.install_library(tmp_path / "lib")
    return {"LD_LIBRARY_PATH": str(tmp_path / "lib"), scenario_file.VARIABLE: str(tmp_path / "scenario")}


def play(driver: dict[str, str], *pids: int) -> None:
    used = [{"pid": pid, "memory_mib": 10_000} for pid in pids]
    scenario_file.write(
        Path(driver[scenario_file.VARIABLE]),
        [{"index": 0, "uuid": "GPU-0", "name": "NVIDIA H200", "memory_used_mib": 9, "memory_total_mib": 10, "processes": used}],
    )


def engines(probe: ShippedProbe, *pids: int) -> list[bool | None]:
    """Return what the next sample that shows all of these pids says of them."""

    def shown(frame: dict[str, object]) -> dict[int, bool | None]:
        return {process.pid: process.engine for gpu in gpus_from_frame(frame, 0.0).gpus for process in gpu.processes}

    frame = probe.frame(lambda one: one.get("f") == "gpus" and set(pids) <= set(shown(one)))
    return [shown(frame)[pid] for pid in pids]


def test_the_role_judges_what_proc_hides(driver: dict[str, str], processes: list["subprocess.Popen[bytes]"]) -> None:
    server, other = (process.pid for process in processes)
    play(driver, server, other, HIDDEN)
    settled = [True, False, None if in_container() else False]
    with ShippedProbe("watch", {"hz": 10, "pids": [server]}, driver) as probe:
        while engines(probe, server, other, HIDDEN) != settled:
            assert len(probe.seen) < 100, probe.seen[-1]
        for _ in range(30):  # three seconds
            assert engines(probe, server, other, HIDDEN) == settled


def test_the_role_in_a_list_of_processes_of_its_own(driver: dict[str, str], tmp_path: Path) -> None:
    where = subprocess.run([*OWN_LIST, "readlink", "/proc/self/ns/pid"], capture_output=True, text=True, check=False)
    allowed(where.returncode == 0 and where.stdout.strip() != HOST, "no process may have a list of processes of its own here")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {" ".join(OWN_LIST)} "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    play(driver, HIDDEN)
    with ShippedProbe("watch", {"hz": 10, "pids": [1]}, driver, str(python)) as probe:
        for _ in range(30):
            assert engines(probe, HIDDEN) == [None]


def test_the_role_when_the_server_is_started_anew(driver: dict[str, str], processes: list["subprocess.Popen[bytes]"]) -> None:
    server, other = processes
    play(driver, server.pid, other.pid)
    with ShippedProbe("watch", {"hz": 10, "pids": [server.pid]}, driver) as probe:
        assert engines(probe, server.pid, other.pid) == [True, False]
        end(server)
        engine = sleeper()
        processes.append(engine)
        play(driver, engine.pid, other.pid)
        for _ in range(30):  # longer than the role waits before it looks at a process that is new on a GPU
            assert engines(probe, engine.pid, other.pid) == [None, False]
        probe.send({"do": "set", "pids": [engine.pid]})
        while (found := engines(probe, engine.pid, other.pid)) != [True, False]:
            assert found == [None, False]
            assert len(probe.seen) < 200
