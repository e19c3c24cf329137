"""What is installed on the simulated host: its `nvidia-smi`, its management library, its PATH."""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from tui.simulator.nvml import nvidia_smi, scenario_file
from tui.simulator.scenarios import Scenario

SOURCE = Path(__file__).parent / "nvml" / "nvml.c"
NAME = "libnvidia-ml.so.1"
COMPILERS = ("cc", "gcc", "clang")


def compiler() -> str | None:
    """Return a C compiler's path; None if the machine has none."""
    return next((found for name in COMPILERS if (found := shutil.which(name))), None)


def library() -> Path | None:
    """Return the compiled library, from the cache if it was built before; None if there is no C compiler.

    Raises RuntimeError with the compiler's words when it fails.
    """
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    folder = user_cache_path("readyroom") / f"nvml-{digest}"
    target = folder / NAME
    if target.exists():
        return target
    program = compiler()
    if program is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder)
    os.close(handle)
    command = [program, "-shared", "-fPIC", "-O1", f"-Wl,-soname,{NAME}", "-o", name, str(SOURCE), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        os.unlink(name)
        raise RuntimeError(f"{shlex.join(command)} failed: {done.stderr.strip()}")
    os.chmod(name, 0o755)
    os.replace(name, target)
    return target


def install_library(folder: Path) -> bool:
    """Put the library on a host's LD_LIBRARY_PATH; False if it can't be built. It reads VARIABLE's file."""
    built = library()
    if built is None:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / NAME
    link.unlink(missing_ok=True)
    link.symlink_to(built)
    return True


def install_smi(folder: Path) -> Path:
    """Put an `nvidia-smi` in a host's folder of programs; it reads VARIABLE's file."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "nvidia-smi"
    program = nvidia_smi.__file__
    target.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I {shlex.quote(program)} "$@"\n')
    target.chmod(0o755)
    return target


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
        """Set what the driver as a whole does: "start", "hang", "driver" (see `scenarios.DriverEvent`)."""
        self._driver.update(fields)

    def build(self) -> None:
        """Install what the scenario has; the first time takes a second, while the library is compiled.

        Raises RuntimeError with the compiler's words.
        """
        self._bin.mkdir(parents=True, exist_ok=True)
        self._lib.mkdir(parents=True, exist_ok=True)
        if self._scenario.python:
            self._script("python3", f'exec {sys.executable} "$@"\n')
        if self._scenario.machine.smi == "missing":
            return
        self.write([])
        self.how = "nvml" if self._scenario.python and install_library(self._lib) else "nvidia-smi"
        if self._scenario.python:
            install_smi(self._bin)
        else:
            self._install_lone_smi()

    def _install_lone_smi(self) -> None:
        """Install an nvidia-smi that brings its own interpreter, for a host that has none."""
        runtime = self._lib / "smi-runtime"
        shutil.copy2(os.path.realpath(sys.executable), runtime)
        libraries = f"{sys.base_prefix}/lib"
        environment = f"PYTHONHOME={sys.base_prefix} LD_LIBRARY_PATH={libraries} PYTHONDONTWRITEBYTECODE=1"
        self._script("nvidia-smi", f'{environment} exec {runtime} -S {nvidia_smi.__file__} "$@"\n')

    def environment(self, home: Path) -> dict[str, str]:
        """Return a login's environment: nothing of the client's own environment leaks in."""
        return {
            "HOME": str(home),
            "USER": "engineer",
            "LOGNAME": "engineer",
            "SHELL": "/bin/sh",
            "LANG": "C.UTF-8",
            "PATH": ":".join((str(self._bin), *_FOLDERS)),
            "LD_LIBRARY_PATH": str(self._lib),
            scenario_file.VARIABLE: str(self._state),
        }

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Write the GPUs for the library and nvidia-smi to read."""
        driver = self._driver
        scenario_file.write(
            self._state, rows, driver=driver["driver"], init=driver["start"] or 0, hang=driver["hang"], xids=self.xids
        )

    def _script(self, name: str, text: str) -> None:
        path = self._bin / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)


def hide_python() -> tuple[str, ...]:
    """Return a command prefix under which no Python is found: a mount namespace in which the interpreters are empty files.

    Raises RuntimeError if the machine allows no such namespace.
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
