"""What is installed on the simulated host: its `nvidia-smi`, its management library, its PATH."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tui.simulator.scenarios import Scenario

PYTHONS = (
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    "/opt/conda/bin/python3",
    "/opt/venv/bin/python3",
)


class Machinery:
    """`how` says in a word what tells of the GPUs: "nvml", "nvidia-smi" or "none"."""

    def __init__(self, directory: Path, scenario: Scenario) -> None:
        self._bin = directory / "bin"
        self._lib = directory / "lib"
        self._state = directory / "gpus.scenario"
        self._scenario = scenario
        self.how = "none"

    def build(self) -> None:
        self._bin.mkdir(parents=True, exist_ok=True)
        self._lib.mkdir(parents=True, exist_ok=True)
        if self._scenario.python:
            self._script("python3", f'exec {sys.executable} "$@"\n')
        if self._scenario.machine.smi == "missing":
            return

    def environment(self, home: Path) -> dict[str, str]:
        """A login's: nothing of the client's own environment leaks in."""
        return {
            "HOME": str(home),
            "USER": "engineer",
            "LOGNAME": "engineer",
            "SHELL": "/bin/sh",
            "LANG": "C.UTF-8",
            "PATH": f"{self._bin}:/usr/local/bin:/usr/bin:/bin",
            "LD_LIBRARY_PATH": str(self._lib),
        }

    def write(self, rows: list[dict[str, Any]]) -> None:
        return

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
    folders = {*os.environ.get("PATH", "").split(":"), "/usr/bin", "/usr/local/bin", "/bin"}
    for folder in (Path(folder) for folder in folders if folder):
        if folder.is_dir():
            found |= {str(path.resolve()) for path in folder.glob("python3*") if path.exists()}
    found |= {str(Path(name).resolve()) for name in PYTHONS if Path(name).exists()}
    hide = "".join(f"mount --bind /dev/null {path!s}; " for path in sorted(found))
    options: Sequence[str] = ("-m",) if os.geteuid() == 0 else ("-r", "-m")
    return (unshare, *options, "/bin/sh", "-c", f'{hide}exec "$@"', "sh")
