"""Ships the probe: a constant command for the host, and the bytes that it reads first.

The host runs `exec python3 -I -c "BOOT"`. BOOT has no quotes, so it survives any number of shells, and no data, so nothing of a
deployment stands in the host's list of processes. On stdin follow, once:

    LOADER's length, newline, LOADER        the code that does the rest
    two lengths, newline                    of what follows
    JSON                                    the arguments: {"role": …, …}
    zip                                     tui/wire, tui/probe and, for GPUs, pynvml's one source file

The zip lands in a memfd and is imported from /proc/self/fd/N: no file on the host, and tracebacks with lines, since the import
system finds the sources there. From then on the protocol of `tui.wire.frames` runs on the same stdin and stdout; only
`sys.stdin.buffer` may be read, because it may hold bytes already.
"""

import functools
import importlib.util
import io
import json
import os
import zipfile
from typing import Any, Dict, List, Tuple

from tui.wire.frames import WATCH

BOOT = "import signal,sys;signal.alarm(20);b=sys.stdin.buffer;exec(b.read(int(b.readline())))"
"""The alarm ends a Python whose client went away before the leash was on: a frozen link closes nothing."""

LOADER = b"""\
import json, os, signal, sys
stdin = sys.stdin.buffer
sizes = [int(word) for word in stdin.readline().split()]
arguments = json.loads(stdin.read(sizes[0]))
code = stdin.read(sizes[1])
if len(code) != sizes[1]:
    os._exit(1)
try:
    number = os.memfd_create("readyroom")
except (AttributeError, OSError):
    import tempfile
    with tempfile.TemporaryFile() as file:
        number = os.dup(file.fileno())
with os.fdopen(number, "wb", closefd=False) as file:
    file.write(code)
where = "/proc/self/fd/%d" if os.path.isdir("/proc/self/fd") else "/dev/fd/%d"
sys.path.insert(0, where % number)
del code, file
from tui.probe.entry import main
signal.alarm(0)
main(arguments)
"""


def _sources(driver: bool) -> List[Tuple[str, bytes]]:
    """Return the names in the zip and their bytes, sorted."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = [("tui/__init__.py", b"")]
    for part in ("wire", "probe"):
        folder = os.path.join(package, part)
        for name in os.listdir(folder):
            if name.endswith(".py"):
                with open(os.path.join(folder, name), "rb") as file:
                    found.append(("tui/%s/%s" % (part, name), file.read()))
    if driver:
        spec = importlib.util.find_spec("pynvml")
        if spec is None or spec.origin is None:
            raise FileNotFoundError("pynvml.py isn't installed here: install nvidia-ml-py")
        with open(spec.origin, "rb") as file:
            found.append(("pynvml.py", file.read()))
    return sorted(found)


@functools.lru_cache(maxsize=None)
def bundle(driver: bool = True) -> bytes:
    """Return the zip of what runs on the host; the same bytes for the same sources. Read once a process. `driver`: with pynvml,
    which is three quarters of it and which only GPUs need."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in _sources(driver):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)
    return target.getvalue()


def opening(arguments: Dict[str, Any]) -> bytes:
    """Return what is written to the probe's stdin first. `arguments["role"]` says what it plays; the rest is the role's.

    Raises ValueError when no role is given.
    """
    if not isinstance(arguments.get("role"), str):
        raise ValueError("the arguments of a probe must name its role")
    return opening_with(arguments, bundle(arguments["role"] == WATCH))


def opening_with(arguments: Dict[str, Any], code: bytes) -> bytes:
    """Return the same with a zip that is at hand."""
    words = json.dumps(arguments, separators=(",", ":")).encode("ascii")
    return b"%d\n%b%d %d\n%b%b" % (len(LOADER), LOADER, len(words), len(code), words, code)
