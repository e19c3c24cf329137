"""What is installed on the simulated host: its `nvidia-smi`, its management library, its PATH."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tui.simulator.nvml import build, nvidia_smi, scenario
from tui.simulator.scenarios import Scenario

_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin")
_ELSEWHERE = ("/opt/conda/bin", "/opt/venv/bin", "/opt/miniconda3/bin", "/root/miniconda3/bin", "/usr/libexec", "/usr/sbin")


class Machinery:
    """`how` says in a word what tells of the GPUs: "nvml", "nvidia-smi" or "none"."""

    def __init__(self, directory: Path, scenario: Scenario) -> None:
        self._bin = directory / "bin"
        self._lib = directory / "lib"
        self._state = directory / "gpus.scenario"
        self._scenario = scenario
        self.how = "none"
        self.xids: list[tuple[int, int, int]] = []
        """Events of the driver: serial, GPU, code."""
        machine = scenario.machine
        self._driver: dict[str, Any] = {"start": machine.start, "hang": machine.smi == "hangs", "driver": machine.driver}

    def change(self, fields: Mapping[str, Any]) -> None:
        """Sets what the driver as a whole does: "start", "hang", "driver" (see `scenarios.DriverEvent`)."""
        self._driver.update(fields)

    def build(self) -> None:
        """Takes a second the first time, while the library is compiled. Raises RuntimeError with the compiler's words."""
        self._bin.mkdir(parents=True, exist_ok=True)
        self._lib.mkdir(parents=True, exist_ok=True)
        if self._scenario.python:
            self._script("python3", f'exec {sys.executable} "$@"\n')
        if self._scenario.machine.smi == "missing":
            return
        self.write([])
        self.how = "nvml" if self._scenario.python and build.install_library(self._lib) else "nvidia-smi"
        if self._scenario.python:
            build.install_smi(self._bin)
        else:
            self._install_lone_smi()

    def _install_lone_smi(self) -> None:
        """An nvidia-smi that brings its own interpreter, where the host has none."""
        runtime = self._lib / "smi-runtime"
        shutil.copy2(os.path.realpath(sys.executable), runtime)
        libraries = f"{sys.base_prefix}/lib"
        environment = f"PYTHONHOME={sys.base_prefix} LD_LIBRARY_PATH={libraries} PYTHONDONTWRITEBYTECODE=1"
        self._script("nvidia-smi", f'{environment} exec {runtime} -S {nvidia_smi.__file__} "$@"\n')

    def environment(self, home: Path) -> dict[str, str]:
        """A login's: nothing of the client's own environment leaks in."""
        return {
            "HOME": str(home),
            "USER": "engineer",
            "LOGNAME": "engineer",
            "SHELL": "/bin/sh",
            "LANG": "C.UTF-8",
            "PATH": ":".join((str(self._bin), *_FOLDERS)),
            "LD_LIBRARY_PATH": str(self._lib),
            scenario.VARIABLE: str(self._state),
        }

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Puts the GPUs where the library and nvidia-smi read them."""
        driver = self._driver
        scenario.write(self._state, rows, driver=driver["driver"], init=driver["start"] or 0, hang=driver["hang"], xids=self.xids)

    def _script(self, name: str, text: str) -> None:
        path = self._bin / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)


def hide_python() -> tuple[str, ...]:
    """A command prefix under which no Python is found: a mount namespace of its own, in which the interpreters are empty files.

    Raises RuntimeError where the machine allows no such namespace.
    """
    unshare = shutil.which("unshare")
    if unshare is None:
        raise RuntimeError("the scenario needs unshare (util-linux)")
    found: set[str] = set()
    for folder in (Path(folder) for folder in (*_FOLDERS, *_ELSEWHERE)):
        if folder.is_dir():
            names = (*folder.glob("python3*"), *folder.glob("platform-python*"))
            found |= {str(path.resolve()) for path in names if path.is_file()}
    hide = "".join(f"mount --bind /dev/null {path}; " for path in sorted(found))
    options: Sequence[str] = ("-m",) if os.geteuid() == 0 else ("-r", "-m")
    return (unshare, *options, "/bin/sh", "-c", f'{hide}exec "$@"', "sh")
