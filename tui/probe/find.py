"""The role "find": what serves a model on this host.

Arguments: `every` (seconds between looks, or null for one look), `become` (words before a command that may see more), `engines`
(which processes are servers, as `server_processes` describes it). Frames:

    servers   {"servers": [{"pid", "engine", "argv", "user", "started_at", "model", "served_name", "tensor_parallel", "needs_key",
              "port", "host", "own_network", "halted", "uds", "tls", "interpreter", "source", "why"}],
              "boot": the id of the host's boot, or null}, youngest last; with `every`, again on every change

`source` is in the words of the configuration's `log`; without one, `why` says why. Of an argument that may be a secret only the
name leaves the host. `host` and `port` are where the API is reached from this host.
`halted` are those of its processes that do nothing any more: [pid, name, "T" (stopped) or "Z" (a zombie)].

Python 3.8: this runs on the GPU host.
"""

import os
import re
import socket
import struct
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from tui.probe.become import Become
from tui.probe.leash import Link
from tui.probe.log_sources import LogFinder
from tui.probe.process_table import Processes, read
from tui.probe.server_processes import Table, facts_of, halted_of, runs

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
    """Return the address to connect to from this host for a process that listens on `address`."""
    if _elsewhere(pid):
        return _own_address(pid) or address
    if address == "0.0.0.0":
        return "127.0.0.1"
    if address == "::":
        return "127.0.0.1"  # Linux serves both families on it unless told otherwise
    return address[7:] if address.startswith("::ffff:") else address


def _elsewhere(pid: int) -> bool:
    """Tell whether the process has a network of its own (a container with a bridge)."""
    try:
        return os.readlink("/proc/%d/ns/net" % pid) != os.readlink("/proc/self/ns/net")
    except OSError:
        # Not ours to see: interfaces tell two namespaces apart as well.
        return read("/proc/%d/net/dev" % pid) is not None and _names(pid) != _names(os.getpid())


def _names(pid: int) -> List[bytes]:
    return [line.split(b":")[0].strip() for line in (read("/proc/%d/net/dev" % pid) or b"").splitlines()[2:]]


def _own_address(pid: int) -> Optional[str]:
    """Return the first address of a process's network that is not its loopback."""
    last = ""
    for line in (read("/proc/%d/net/fib_trie" % pid, 1 << 20) or b"").decode("ascii", "replace").splitlines():
        match = re.search(r"-- (\d+\.\d+\.\d+\.\d+)", line)
        if match:
            last = match.group(1)
        elif "32 host LOCAL" in line and last and not last.startswith("127."):
            return last
    return None


ENDED_S = 0.5
"""How often it is looked whether the servers that were found still run, which costs next to nothing."""
NONE_S = 2.0
"""Seconds between looks while no server runs: the next start is awaited, and there is nobody to disturb."""
ANEW_S = 60.0
"""How often every process is looked at anew."""


def play(arguments: Dict[str, Any], link: Link) -> None:
    """Look once, or until the client ends it."""
    every = arguments.get("every")
    become = Become(arguments, link)
    become.take_over()
    table = Table(arguments.get("engines") or [])
    boot = (read("/proc/sys/kernel/random/boot_id", 64) or b"").decode("ascii", "replace").strip() or None
    last: Optional[List[Dict[str, Any]]] = None
    pids: Optional[List[int]] = None
    halted: Dict[int, List[List[Any]]] = {}
    processes = Processes()
    anew_at = time.monotonic() + ANEW_S
    while True:
        now = time.monotonic()
        if now > anew_at:
            table.forget()
            anew_at = now + ANEW_S
        found = table.servers()
        before, halted = halted, {pid: halted_of(pid, table, processes) for pid in found}
        # What a young server listens on and writes to settles while it starts.
        if found != pids or halted != before or last is None or any(server["listens"] is not True for server in last):
            pids = found
            logs = LogFinder(link, become)
            described = [dict(describe(pid, table, logs), halted=halted[pid]) for pid in found]
            servers = sorted(described, key=lambda server: server["started_at"] or 0.0)
            if servers != last:
                last = servers
                link.send({"f": "servers", "wall": time.time(), "servers": servers, "boot": boot})
        if not every:
            return
        _wait(link, float(every) if found else min(float(every), NONE_S), found)


def _wait(link: Link, seconds: float, servers: List[int]) -> None:
    """Wait for the next look, or until one of the servers has ended."""
    ends = time.monotonic() + seconds
    while all(runs(pid) for pid in servers):
        left = ends - time.monotonic()
        if left <= 0 or link.request(min(left, ENDED_S)) is not None:
            return


def describe(pid: int, table: Table, logs: LogFinder) -> Dict[str, Any]:
    """Return the facts of one server."""
    facts = facts_of(pid, table)
    port = facts.pop("asked_port")
    engine = facts["engine"]
    host = facts.pop("asked_host") or engine["host"]
    facts["engine"] = engine["name"]
    listeners = listeners_of([pid])
    if listeners:
        ports = [listener[1] for listener in listeners]
        # A server may listen on ports for its workers, too: the one that was asked for, else the usual one, else the lowest.
        wanted = port or engine["port"]
        host, port = listeners[ports.index(wanted)] if wanted in ports else (host, port) if port else listeners[0]
    if facts["uds"]:
        facts["port"] = facts["host"] = None
        facts["listens"] = os.path.exists(facts["uds"])
        return _with_output(facts, logs)
    facts["port"] = port or engine["port"]
    facts["own_network"] = _elsewhere(pid)
    facts["host"] = reached_by(host, pid)
    facts["listens"] = None if listeners is None else any(listener[1] == facts["port"] for listener in listeners)
    return _with_output(facts, logs)


def _with_output(facts: Dict[str, Any], logs: LogFinder) -> Dict[str, Any]:
    output = logs.of(facts["pid"])
    facts["source"] = output.source
    facts["why"] = output.why
    return facts
