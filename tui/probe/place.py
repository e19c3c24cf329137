"""A place in a log file, as the client keeps it to go on there later: `inode`, `offset`, the `number` of the next line where it is
known, and a `check` of the bytes before it. A log that was truncated and has grown again looks like one that grew. Python 3.8."""

import os
import zlib
from typing import Any, Dict, Optional

CHECK = 64
"""Bytes before the place that must still be the same."""

Place = Dict[str, Any]


def place_at(fd: int, offset: int, number: Optional[int]) -> Place:
    """The place at an offset of an open file."""
    return {"inode": os.fstat(fd).st_ino, "offset": offset, "check": zlib.crc32(_before(fd, offset)), "number": number}


def holds(fd: int, place: Place) -> bool:
    """Whether the file still has, before the place, what it had."""
    offset = int(place["offset"])
    if os.fstat(fd).st_size < offset:
        return False
    return place.get("check") is None or zlib.crc32(_before(fd, offset)) == place["check"]


def renamed(path: str, place: Place) -> Optional[int]:
    """Opens the file of the place where it lies beside `path` under another name, as a rotated log does; None where it doesn't."""
    folder, name = os.path.split(os.path.realpath(path))
    try:
        with os.scandir(folder or ".") as entries:
            found = [entry.path for entry in entries if entry.name.startswith(name[:3]) and entry.inode() == place.get("inode")]
    except OSError:
        return None
    for other in found:
        try:
            fd = os.open(other, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        if os.fstat(fd).st_ino == place.get("inode") and holds(fd, place):
            return fd
        os.close(fd)
    return None


def _before(fd: int, offset: int) -> bytes:
    size = min(offset, CHECK)
    return os.pread(fd, size, offset - size)
