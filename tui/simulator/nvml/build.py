"""Compiles the simulated library, once a version of its source, and installs both tools in a host's folders."""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from platformdirs import user_cache_path

SOURCE = Path(__file__).with_name("nvml.c")
NAME = "libnvidia-ml.so.1"
COMPILERS = ("cc", "gcc", "clang")


def compiler() -> str | None:
    """A C compiler's path; None where the machine has none."""
    return next((found for name in COMPILERS if (found := shutil.which(name))), None)


def library() -> Path | None:
    """The compiled library, from the cache where it was built before; None where there is no C compiler.

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
    """Puts the library where a host's LD_LIBRARY_PATH finds it; False where it can't be built. It reads VARIABLE's file."""
    built = library()
    if built is None:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / NAME
    link.unlink(missing_ok=True)
    link.symlink_to(built)
    return True


def install_smi(folder: Path) -> Path:
    """Puts an `nvidia-smi` in a host's folder of programs; it reads VARIABLE's file."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "nvidia-smi"
    program = Path(__file__).with_name("nvidia_smi.py")
    target.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I {shlex.quote(str(program))} "$@"\n')
    target.chmod(0o755)
    return target
