"""Where a process listens, and by which address it is reached from this host.

Python 3.8: this runs on the GPU host.
"""

import os
import re
import socket
import struct
from typing import Dict, List, Optional, Set, Tuple

from tui.probe.processes import read

_SOCKET = re.compile(r"socket:\[(\d+)\]")
Listener = Tuple[str, int]


def listeners_of(pids: List[int]) -> Optional[List[Listener]]:
    """(address, port) of each TCP socket that one of the processes listens on; None where their descriptors may not be seen."""
    inodes: Set[str] = set()
    seen = False
    for pid in pids:
        try:
            names = os.listdir("/proc/%d/fd" % pid)
        except OSError:
            continue
        seen = True
        for name in names:
            try:
                match = _SOCKET.match(os.readlink("/proc/%d/fd/%s" % (pid, name)))
            except OSError:
                continue
            if match:
                inodes.add(match.group(1))
    if not seen:
        return None
    table = listening(pids[0])
    return sorted({table[inode] for inode in inodes if inode in table}, key=lambda one: one[1])


def listening(pid: int) -> Dict[str, Listener]:
    """inode -> (address, port) of what listens in a process's network namespace. Readable for everybody."""
    table: Dict[str, Listener] = {}
    for name in ("tcp", "tcp6"):
        text = (read("/proc/%d/net/%s" % (pid, name), 8 << 20) or b"").decode("ascii", "replace")
        for line in text.splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == "0A":
                table[fields[9]] = _endpoint(fields[1])
    return table


def _endpoint(text: str) -> Listener:
    address, _, port = text.partition(":")
    raw = bytes.fromhex(address)
    # Words of 32 bits in the host's own order.
    words = b"".join(struct.pack(">I", word) for word in struct.unpack("=%dI" % (len(raw) // 4), raw))
    family = socket.AF_INET if len(words) == 4 else socket.AF_INET6
    return socket.inet_ntop(family, words), int(port, 16)


def reached_by(address: str, pid: int) -> str:
    """The address to connect to from this host for a process that listens on `address`."""
    if _elsewhere(pid):
        return _own_address(pid) or address
    if address == "0.0.0.0":
        return "127.0.0.1"
    if address == "::":
        return "127.0.0.1"  # Linux serves both families on it unless told otherwise
    return address[7:] if address.startswith("::ffff:") else address


def _elsewhere(pid: int) -> bool:
    """Whether the process has a network of its own (a container with a bridge)."""
    try:
        return os.readlink("/proc/%d/ns/net" % pid) != os.readlink("/proc/self/ns/net")
    except OSError:
        # Not ours to see: interfaces tell two namespaces apart as well.
        return read("/proc/%d/net/dev" % pid) is not None and _names(pid) != _names(os.getpid())


def _names(pid: int) -> List[bytes]:
    return [line.split(b":")[0].strip() for line in (read("/proc/%d/net/dev" % pid) or b"").splitlines()[2:]]


def _own_address(pid: int) -> Optional[str]:
    """The first address of a process's network that is not its loopback."""
    last = ""
    for line in (read("/proc/%d/net/fib_trie" % pid, 1 << 20) or b"").decode("ascii", "replace").splitlines():
        match = re.search(r"-- (\d+\.\d+\.\d+\.\d+)", line)
        if match:
            last = match.group(1)
        elif "32 host LOCAL" in line and last and not last.startswith("127."):
            return last
    return None
